// A trainer's Gaussians, as they lie in its memory, to the activated float32 arrays that frames are drawn from, in one
// kernel. `render/activation.py` says the same in NumPy.

constexpr int WARPS = 4;             // of a block
constexpr u32 ALL = 0xffffffffu;
constexpr float SCALE_MAX = 1e8f, SH_MAX = 1e30f;  // as in base.py

// A tensor anywhere in the device's memory. Mirrored by `_Array` in scene.py, as is `Source`.
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

// The coefficients of the 32 Gaussians from `first` on, by a warp: rows of LENGTH values, of which each three have the
// last stride between them, to rows of `pitch`. A bit of `bad` is set for a row with a number that is not finite.
template <class T, int LENGTH>
__device__ void rows(const Array &from, float *to, int pitch, i64 first, int count, u32 *bad) {
    const T *const values = (const T *)from.data + first * from.strides[0];
    const bool dense = from.strides[1] == 3 && from.strides[2] == 1;
    constexpr int BATCH = LENGTH == 45 ? 15 : LENGTH >= 24 ? 12 : LENGTH;  // reads under way at a time
    for (int begin = threadIdx.x % 32; begin < 32 * LENGTH; begin += 32 * BATCH) {
        float batch[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const int e = begin + 32 * k, row = e / LENGTH, column = e % LENGTH;
            const i64 within = dense ? column : column / 3 * from.strides[1] + column % 3 * from.strides[2];
            batch[k] = row < count ? value(values[row * from.strides[0] + within]) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const int e = begin + 32 * k, row = e / LENGTH;
            if (row < count) to[row * pitch + e % LENGTH] = fminf(fmaxf(batch[k], -SH_MAX), SH_MAX);
            if (!finite(batch[k])) atomicOr(bad, 1u << row);
        }
    }
}

template <int LENGTH>
__device__ void rows_of_any_type(const Array &from, float *to, int pitch, i64 first, int count, u32 *bad) {
    if (from.type == 0) rows<float, LENGTH>(from, to, pitch, first, count, bad);
    if (from.type == 1) rows<double, LENGTH>(from, to, pitch, first, count, bad);
    if (from.type == 2) rows<Half, LENGTH>(from, to, pitch, first, count, bad);
    if (from.type == 3) rows<Brain, LENGTH>(from, to, pitch, first, count, bad);
}

// Blocks of WARPS * 32; any number of them. `terms`: coefficients of a Gaussian, 1, 4, 9, 16 or 25. `counters`: four zeros,
// and zeros again at the end. An output may lie where its input lies.
// `left_out`: how many Gaussians cannot be drawn for each of three reasons (`LeftOut` in base.py), in memory that the host
// can read.
extern "C" __global__ void __launch_bounds__(128) activate(
    int n, int terms, const Source source, float *means, float *quats, float *scales, float *opacities, float *colors,
    u32 *counters, i64 *left_out) {
    __shared__ u32 masks[WARPS];
    const int lane = threadIdx.x % 32;
    u32 *const mask = masks + threadIdx.x / 32;
    const int stride = gridDim.x * WARPS * 32;
    u32 totals[3] = {0, 0, 0};
    for (i64 first = (i64)blockIdx.x * WARPS * 32 + threadIdx.x - lane; first < n; first += stride) {
        const int count = n - first < 32 ? (int)(n - first) : 32;
        if (lane == 0) *mask = 0;
        __syncwarp();
        float *const to = colors + first * terms * 3;
        rows_of_any_type<3>(source.sh0, to, terms * 3, first, count, mask);
        if (terms == 4) rows_of_any_type<9>(source.shN, to + 3, 12, first, count, mask);
        if (terms == 9) rows_of_any_type<24>(source.shN, to + 3, 27, first, count, mask);
        if (terms == 16) rows_of_any_type<45>(source.shN, to + 3, 48, first, count, mask);
        if (terms == 25) rows_of_any_type<72>(source.shN, to + 3, 75, first, count, mask);
        __syncwarp();
        bool good = true, fits = true, turned = true;
        if (lane < count) {
            const int i = (int)first + lane;
            good = !(*mask >> lane & 1);
            float q[4], largest = 0.0f;
            for (int k = 0; k < 4; ++k) {
                q[k] = load(source.quats, i * source.quats.strides[0] + k * source.quats.strides[1]);
                good = good && finite(q[k]);
                largest = fmaxf(largest, fabsf(q[k]));
            }
            turned = largest > 0.0f;
            // By the largest component first: the square of a tiny one would vanish.
            for (int k = 0; k < 4; ++k) quats[4 * (i64)i + k] = q[k] / largest;
            for (int k = 0; k < 3; ++k) {
                const i64 at = i * source.means.strides[0] + k * source.means.strides[1];
                const float v = load(source.means, at);
                good = good && finite(v);
                means[3 * (i64)i + k] = source.means.type == 1  // rounded after the subtraction
                    ? (float)(((const double *)source.means.data)[at] - source.origin[k]) : v - source.origin[k];
            }
            for (int k = 0; k < 3; ++k) {
                const float v = load(source.scales, i * source.scales.strides[0] + k * source.scales.strides[1]);
                const float scale = source.scales_activated ? v : expf(v);
                good = good && (finite(v) || (number(v) && finite(scale)));  // exp is defined at -infinity
                fits = fits && fabsf(scale) <= SCALE_MAX;
                scales[3 * (i64)i + k] = scale;
            }
            const float v = load(source.opacities, i * source.opacities.strides[0]);
            good = good && (source.opacities_activated ? finite(v) : number(v));
            const float opacity = source.opacities_activated ? fminf(fmaxf(v, 0.0f), 1.0f) : 1.0f / (1.0f + expf(-v));
            opacities[i] = good && fits && turned ? opacity : 0.0f;
        }
        totals[0] += __popc(__ballot_sync(ALL, !good));
        totals[1] += __popc(__ballot_sync(ALL, good && !fits));
        totals[2] += __popc(__ballot_sync(ALL, good && fits && !turned));
    }
    if (lane != 0) return;
    for (int k = 0; k < 3; ++k)
        if (totals[k]) atomicAdd(counters + k, totals[k]);
    __threadfence();
    if (atomicAdd(counters + 3, 1u) + 1 < gridDim.x * WARPS) return;
    for (int k = 0; k < 3; ++k) left_out[k] = atomicExch(counters + k, 0u);  // the last warp of all
    counters[3] = 0;
}
