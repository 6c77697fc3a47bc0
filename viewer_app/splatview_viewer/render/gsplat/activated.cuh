// A trainer's Gaussians as they lie in its memory, read one by one and activated: activation.cu, blocks.cu.
// `render/activation.py` says the same in NumPy.

constexpr float SCALE_MAX = 1e8f, SH_MAX = 1e30f;  // as in base.py

// A tensor anywhere in the device's memory. Mirrored in activation.py, as is `Source`.
struct Array {
    u64 data;
    i64 strides[3];                  // in elements, of Gaussian, row and column
    int type, unused;                // 0 float32, 1 float64, 2 float16, 3 bfloat16
};
struct Source {
    Array means, quats, scales, opacities, sh0, shN;
    float origin[3];                 // what is subtracted from means
    int scales_activated, opacities_activated;
};

struct Half { u16 bits; };
struct Brain { u16 bits; };
__device__ float value(float v) { return v; }
__device__ float value(double v) { return (float)v; }
__device__ float value(Half v) { return half_value(v.bits); }
__device__ float value(Brain v) { return __int_as_float((int)((u32)v.bits << 16)); }

__device__ float load(const Array &a, i64 index) {
    if (a.type == 0) return value(((const float *)a.data)[index]);
    if (a.type == 1) return value(((const double *)a.data)[index]);
    if (a.type == 2) return value(((const Half *)a.data)[index]);
    return value(((const Brain *)a.data)[index]);
}

// Whatever a compiler believes of arithmetic.
__device__ bool finite(float v) { return (__float_as_int(v) & 0x7f800000) != 0x7f800000; }
__device__ bool number(float v) { return (__float_as_int(v) & 0x7fffffff) <= 0x7f800000; }  // or infinite

// A Gaussian but for its colour.
struct Activated {
    float mean[3], quat[4], scale[3], opacity;
    bool good, fits, turned;             // why it cannot be drawn, if one is false: `LeftOut` in base.py
};

__device__ Activated activated(const Source &source, int i, bool good) {
    Activated g;
    float largest = 0.0f;
    g.good = good;
    for (int k = 0; k < 4; ++k) {
        g.quat[k] = load(source.quats, i * source.quats.strides[0] + k * source.quats.strides[1]);
        g.good = g.good && finite(g.quat[k]);
        largest = fmaxf(largest, fabsf(g.quat[k]));
    }
    g.turned = largest > 0.0f;
    // By the largest component first: the square of a tiny one would vanish.
    for (int k = 0; k < 4; ++k) g.quat[k] /= largest;
    for (int k = 0; k < 3; ++k) {
        const i64 at = i * source.means.strides[0] + k * source.means.strides[1];
        const float v = load(source.means, at);
        g.good = g.good && finite(v);
        g.mean[k] = source.means.type == 1  // rounded after the subtraction
            ? (float)(((const double *)source.means.data)[at] - source.origin[k]) : v - source.origin[k];
    }
    g.fits = true;
    for (int k = 0; k < 3; ++k) {
        const float v = load(source.scales, i * source.scales.strides[0] + k * source.scales.strides[1]);
        g.scale[k] = source.scales_activated ? v : expf(v);
        g.good = g.good && (finite(v) || (number(v) && finite(g.scale[k])));  // exp is defined at -infinity
        g.fits = g.fits && fabsf(g.scale[k]) <= SCALE_MAX;
    }
    const float v = load(source.opacities, i * source.opacities.strides[0]);
    g.good = g.good && (source.opacities_activated ? finite(v) : number(v));
    const float opacity = source.opacities_activated ? fminf(fmaxf(v, 0.0f), 1.0f) : 1.0f / (1.0f + expf(-v));
    g.opacity = g.good && g.fits && g.turned ? opacity : 0.0f;
    return g;
}
