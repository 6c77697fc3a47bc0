// Gaussians into the blocks of pages that draw them by themselves, and how much each matters. `blocks/packing.py` and
// `blocks/importance.py` say the same with torch; `blocks/layout.py` names the bits.

constexpr int BLOCK = 1024, BLOCK_THREADS = 256;
constexpr int HEADER = 24, RANGES = 9;       // numbers of a header; of them ranges: of mean, logs of scales, colour
constexpr float QUICK = 1.0f, EXACT = 2.0f;
constexpr float LOG_SCALE_MIN = -30.0f, HALF_MAX = 65504.0f;
constexpr float OUTSIDE = 1e12f;             // from the origin, along an axis: nothing is seen there
constexpr int EXPONENT_BIAS = 23;
constexpr float MANTISSA_MAX = 255.0f, HARMONIC_MAX = MANTISSA_MAX * 256.0f;

// A scene, and which of its Gaussians are packed: those of `rows`, or all where that is null.
struct Packed {
    const int *rows;
    i64 count;
    double origin[3];                // what is subtracted from means
    int terms, unused;               // coefficients beyond degree 0, which have to be finite
};

struct Fields {
    float range[RANGES];             // mean, logs of scales, colour
    float quat[4], opacity;
    bool left_out;
};

__device__ float or_zero(float v) { return finite(v) ? v : 0.0f; }

__device__ i64 row_of(const Packed &packed, i64 i) { return packed.rows ? packed.rows[i] : i; }

__device__ float coefficient(const Source &source, i64 row, int term, int channel) {
    return load(source.shN, row * source.shN.strides[0] + term * source.shN.strides[1] + channel * source.shN.strides[2]);
}

// Numbers of float64 are rounded after the subtraction.
__device__ float placed(const Source &source, const double *origin, i64 row, int k) {
    const i64 at = row * source.means.strides[0] + k * source.means.strides[1];
    if (source.means.type == 1) return (float)(((const double *)source.means.data)[at] - origin[k]);
    return load(source.means, at) - (float)origin[k];
}

__device__ float log_scale(const Source &source, i64 row, int k) {
    const float v = load(source.scales, row * source.scales.strides[0] + k * source.scales.strides[1]);
    return source.scales_activated ? logf(fabsf(v)) : v;
}

// The Gaussian at a place of the blocks; the last block is filled up with zeros.
__device__ Fields fields_at(const Packed &packed, const Source &source, i64 i) {
    Fields fields = {};
    if (i >= packed.count) return fields;
    const i64 row = row_of(packed, i);
    bool good = true;
    for (int k = 0; k < 3; ++k) {
        const float color = load(source.sh0, row * source.sh0.strides[0] + k * source.sh0.strides[2]);
        fields.range[6 + k] = clamped(or_zero(color), -SH_MAX, SH_MAX);
        good = good && finite(color);
    }
    for (int term = 0; term < packed.terms; ++term)
        for (int k = 0; k < 3; ++k) good = good && finite(coefficient(source, row, term, k));
    const Activated g = activated(source, (int)row, good);
    bool near = g.good && g.fits && g.turned;
    float square = 0.0f;
    bool turned = g.turned;
    for (int k = 0; k < 4; ++k) {
        turned = turned && finite(g.quat[k]);
        square += g.quat[k] * g.quat[k];
    }
    for (int k = 0; k < 4; ++k) fields.quat[k] = turned ? g.quat[k] / sqrtf(square) : 0.0f;
    for (int k = 0; k < 3; ++k) {
        fields.range[k] = placed(source, packed.origin, row, k);
        near = near && fabsf(fields.range[k]) <= OUTSIDE;
        const float size = log_scale(source, row, k);
        fields.range[3 + k] = number(size) ? fmaxf(size, LOG_SCALE_MIN) : 0.0f;
    }
    for (int k = 0; k < 3; ++k)
        if (!near) fields.range[k] = 0.0f;
    fields.opacity = near ? g.opacity : 0.0f;
    fields.left_out = !near;
    return fields;
}

__device__ u32 bits_of(float share, int bits) { return (u32)rintf(clamped(share, 0.0f, 1.0f) * (float)((1 << bits) - 1)); }

// The smallest three parts of a rotation, in their order, and the index of the largest one.
__device__ uint4 smallest_three(const float *quat, int bits) {
    int largest = 0;
    for (int k = 1; k < 4; ++k)
        if (fabsf(quat[k]) > fabsf(quat[largest])) largest = k;
    const float sign = quat[largest] < 0.0f ? -1.0f : 1.0f;
    u32 parts[3];
    for (int k = 0; k < 3; ++k) parts[k] = bits_of(sign * quat[k + (k >= largest)] * 0.70710678f + 0.5f, bits);
    return make_uint4(parts[0], parts[1], parts[2], (u32)largest);
}

// Whole numbers in the order of floats; the same way back.
__device__ int ordered(float v) {
    const int bits = __float_as_int(v);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ float of_ordered(int number) { return __int_as_float(number ^ (number >> 31 & 0x7fffffff)); }

// A thread block for each block. `out`: headers and words, block after block.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) pack_quick(
    const Packed packed, i64 first_block, const Source source, u8 *out) {
    __shared__ int lows[RANGES], highs[RANGES];  // lows: of the numbers' negatives, the highest
    const i64 first = (first_block + blockIdx.x) * BLOCK;
    u8 *const block = out + (i64)blockIdx.x * (HEADER * 4 + BLOCK * 16);
    if (threadIdx.x < RANGES) lows[threadIdx.x] = highs[threadIdx.x] = ordered(__int_as_float((int)0xff800000));
    __syncthreads();
    for (int i = threadIdx.x; i < BLOCK; i += BLOCK_THREADS) {
        const Fields fields = fields_at(packed, source, first + i);
        if (fields.opacity <= 0.0f) continue;
        for (int k = 0; k < RANGES; ++k) {
            atomicMax(highs + k, ordered(fields.range[k]));
            atomicMax(lows + k, ordered(-fields.range[k]));
        }
    }
    __syncthreads();
    float low[RANGES], span[RANGES];
    for (int k = 0; k < RANGES; ++k) {
        low[k] = or_zero(-of_ordered(lows[k]));
        span[k] = or_zero(of_ordered(highs[k])) - low[k];
    }
    if (threadIdx.x == 0) {
        float *const header = (float *)block;
        for (int k = 0; k < HEADER; ++k) header[k] = 0.0f;
        for (int k = 0; k < RANGES; ++k) {
            header[k / 3 * 8 + k % 3] = low[k];
            header[k / 3 * 8 + 4 + k % 3] = span[k];
        }
        header[3] = QUICK;
    }
    uint4 *const words = (uint4 *)(block + HEADER * 4);
    for (int i = threadIdx.x; i < BLOCK; i += BLOCK_THREADS) {
        const Fields fields = fields_at(packed, source, first + i);
        u32 v[RANGES];
        for (int k = 0; k < RANGES; ++k) {
            const float share = (fields.range[k] - low[k]) / (span[k] > 0.0f ? span[k] : 1.0f);
            v[k] = bits_of(share, k < 3 ? 15 : 8);
        }
        const uint4 turn = smallest_three(fields.quat, 8);
        words[i] = make_uint4(v[0] | v[1] << 15 | turn.w << 30, v[2] | v[3] << 16 | v[4] << 24,
                              v[5] | v[6] << 8 | v[7] << 16 | v[8] << 24,
                              turn.x | turn.y << 8 | turn.z << 16 | bits_of(fields.opacity, 8) << 24);
    }
}

__device__ u32 bounded_half(float v) { return half_bits(fmaxf(v, -HALF_MAX)); }

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) pack_exact(
    const Packed packed, i64 first_block, const Source source, u8 *out) {
    const i64 first = (first_block + blockIdx.x) * BLOCK;
    u8 *const block = out + (i64)blockIdx.x * (HEADER * 4 + BLOCK * 32);
    if (threadIdx.x < HEADER) ((float *)block)[threadIdx.x] = threadIdx.x == 3 ? EXACT : 0.0f;
    uint4 *const words = (uint4 *)(block + HEADER * 4);
    for (int i = threadIdx.x; i < BLOCK; i += BLOCK_THREADS) {
        const Fields fields = fields_at(packed, source, first + i);
        const float *const v = fields.range;
        const uint4 turn = smallest_three(fields.quat, 15);
        words[2 * i] = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                  bounded_half(fields.opacity) | bounded_half(v[6]) << 16);
        words[2 * i + 1] = make_uint4(bounded_half(v[7]) | bounded_half(v[8]) << 16,
                                      bounded_half(v[3]) | bounded_half(v[4]) << 16,
                                      bounded_half(v[5]) | turn.z << 16 | (u32)fields.left_out << 31,
                                      turn.x | turn.y << 15 | turn.w << 30);
    }
}

// The word of a coefficient: three numbers of 9 bits, and their exponent.
__device__ u32 shared_exponent(const float *rgb) {
    float largest = fmaxf(fmaxf(fabsf(rgb[0]), fabsf(rgb[1])), fabsf(rgb[2]));
    largest *= 256.0f / (MANTISSA_MAX + 0.5f);  // it may be rounded up
    const int exponent = min(max((__float_as_int(largest) >> 23) - 134 + EXPONENT_BIAS, 0), 31);
    // Added to it, a number is rounded to whole units, and ends with their two's complement.
    const float middle = __int_as_float((exponent - EXPONENT_BIAS + 23 + 127) << 23 | 1 << 22);
    u32 word = (u32)exponent << 27;
    for (int k = 0; k < 3; ++k) word |= (__float_as_uint(rgb[k] + middle) & 0x1ff) << 9 * k;
    return word;
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) pack_harmonics(
    const Packed packed, i64 first_block, const Source source, u8 *out) {
    const int groups = (packed.terms + 3) / 4;
    const i64 first = (first_block + blockIdx.x) * BLOCK;
    uint4 *const words = (uint4 *)out + (i64)blockIdx.x * groups * BLOCK;
    for (int i = threadIdx.x; i < BLOCK; i += BLOCK_THREADS) {
        const bool is_filling = first + i >= packed.count;
        const i64 row = is_filling ? 0 : row_of(packed, first + i);
        for (int group = 0; group < groups; ++group) {
            u32 four[4] = {0, 0, 0, 0};
            for (int w = 0; w < 4; ++w) {
                const int term = 4 * group + w;
                float rgb[3] = {0.0f, 0.0f, 0.0f};
                for (int k = 0; k < 3 && term < packed.terms && !is_filling; ++k) {
                    const float v = coefficient(source, row, term, k);
                    rgb[k] = number(v) ? clamped(v, -HARMONIC_MAX, HARMONIC_MAX) : 0.0f;
                }
                four[w] = shared_exponent(rgb);
            }
            words[group * BLOCK + i] = make_uint4(four[0], four[1], four[2], four[3]);
        }
    }
}

// -- importance ----------------------------------------------------------------------------------------------------------

constexpr int VIEWS = 16;

// What sees a scene. Mirrored in blocks/kernels.py.
struct View {
    float position[3], ahead[3];     // relative to the origin
    float cosine;                    // of the angle to its corners
    int sees_all;
};
struct Views {
    View views[VIEWS];
    int count, unused;
};

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) weigh(
    const Packed packed, const Source source, const Views views, float out_of_view, float *weights) {
    const i64 i = (i64)blockIdx.x * BLOCK_THREADS + threadIdx.x;
    if (i >= packed.count) return;
    float size = 0.0f, mean[3];
    bool drawn = true;
    for (int k = 0; k < 3; ++k) {
        size += clamped(log_scale(source, i, k), -30.0f, 30.0f);
        mean[k] = placed(source, packed.origin, i, k);
        drawn = drawn && finite(mean[k]);
    }
    float opacity = load(source.opacities, i * source.opacities.strides[0]);
    if (!source.opacities_activated) opacity = 1.0f / (1.0f + expf(-opacity));
    float weight = opacity * expf(size * (2.0f / 3.0f));  // two thirds of the volume's power: an area
    bool seen = false;
    for (int v = 0; v < views.count; ++v) {
        const View &view = views.views[v];
        float depth = 0.0f, square = 0.0f;
        for (int k = 0; k < 3; ++k) {
            const float offset = mean[k] - view.position[k];
            depth += offset * view.ahead[k];
            square += offset * offset;
        }
        seen = seen || view.sees_all || depth >= view.cosine * sqrtf(square);
    }
    if (!seen) weight *= out_of_view;
    weights[i] = drawn && finite(weight) ? fmaxf(weight, 0.0f) : 0.0f;
}
