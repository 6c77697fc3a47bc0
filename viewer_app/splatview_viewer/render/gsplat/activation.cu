// A trainer's Gaussians to what frames are drawn from, in one kernel: activated float32 arrays, or packed ones. What is
// activated may be packed later (`pack`).

constexpr int WARPS = 4;             // of a block
constexpr int PACKED_AT_ONCE = 256;  // Gaussians of a block of `pack`
constexpr u32 ALL = 0xffffffffu;
constexpr float HALF_MAX = 65504.0f;

__device__ void put(float *to, float v) { *to = fminf(fmaxf(v, -SH_MAX), SH_MAX); }
__device__ void put(Half *to, float v) { to->bits = half_bits(fmaxf(v, -HALF_MAX)); }

// The coefficients of the 32 Gaussians from `first` on, by a warp: rows of LENGTH values, of which each three have the
// last stride between them, to rows of `pitch`. A bit of `bad` is set for a row with a number that is not finite.
template <class T, int LENGTH, class Out>
__device__ void rows(const Array &from, Out *to, int pitch, i64 first, int count, u32 *bad) {
    const T *const values = (const T *)from.data + first * from.strides[0];
    const bool dense = from.strides[1] == 3 && from.strides[2] == 1;
    constexpr int BATCH = LENGTH == 45 ? 15 : LENGTH >= 24 ? 12 : LENGTH;  // reads under way at a time
#pragma unroll 1
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
            if (row < count) put(to + row * pitch + e % LENGTH, batch[k]);
            if (!finite(batch[k])) atomicOr(bad, 1u << row);
        }
    }
}

template <int LENGTH, class Out>
__device__ void rows_of_any_type(const Array &from, Out *to, int pitch, i64 first, int count, u32 *bad) {
    if (from.type == 0) rows<float, LENGTH>(from, to, pitch, first, count, bad);
    if (from.type == 1) rows<double, LENGTH>(from, to, pitch, first, count, bad);
    if (from.type == 2) rows<Half, LENGTH>(from, to, pitch, first, count, bad);
    if (from.type == 3) rows<Brain, LENGTH>(from, to, pitch, first, count, bad);
}

template <class Out>
__device__ void colors_of(const Source &source, int terms, Out *to, int pitch, i64 first, int count, u32 *bad) {
    rows_of_any_type<3>(source.sh0, to, pitch, first, count, bad);
    if (terms == 4) rows_of_any_type<9>(source.shN, to + 3, pitch, first, count, bad);
    if (terms == 9) rows_of_any_type<24>(source.shN, to + 3, pitch, first, count, bad);
    if (terms == 16) rows_of_any_type<45>(source.shN, to + 3, pitch, first, count, bad);
    if (terms == 25) rows_of_any_type<72>(source.shN, to + 3, pitch, first, count, bad);
}

// Float32 arrays. An array may lie where its input lies.
struct Arrays {
    float *means, *quats, *scales, *opacities;
    float *colors;
    int pitch;
};

__device__ void put(const Arrays &to, i64 i, const Activated &g) {
    for (int k = 0; k < 4; ++k) to.quats[4 * i + k] = g.quat[k];
    for (int k = 0; k < 3; ++k) to.means[3 * i + k] = g.mean[k];
    for (int k = 0; k < 3; ++k) to.scales[3 * i + k] = g.scale[k];
    to.opacities[i] = g.opacity;
}

struct PackedArrays {
    Shape *shapes;
    Half *colors;
    int pitch;
};

__device__ void put(const PackedArrays &to, i64 i, const Activated &g) {
    Shape shape;
    shape.x = g.mean[0], shape.y = g.mean[1], shape.z = g.mean[2];
    float square = 0.0f;
    for (int k = 0; k < 4; ++k) square += g.quat[k] * g.quat[k];
    for (int k = 0; k < 4; ++k) shape.quat[k] = half_bits(g.quat[k] * rsqrtf(square));
    shape.size = fmaxf(fmaxf(fabsf(g.scale[0]), fabsf(g.scale[1])), fabsf(g.scale[2]));
    for (int k = 0; k < 3; ++k) shape.ratio[k] = half_bits(shape.size > 0.0f ? fabsf(g.scale[k]) / shape.size : 0.0f);
    shape.opacity = half_bits(g.opacity);
    to.shapes[i] = shape;
}

// Blocks of WARPS * 32; any number of them. `terms`: coefficients of a Gaussian, 1, 4, 9, 16 or 25. `counters`: four zeros,
// and zeros again at the end.
// `left_out`: how many Gaussians cannot be drawn for each of three reasons, in memory that the host can read.
template <class Out>
__device__ void activate_all(int n, int terms, const Source &source, const Out &out, u32 *counters, i64 *left_out) {
    __shared__ u32 masks[WARPS];
    const int lane = threadIdx.x % 32;
    u32 *const mask = masks + threadIdx.x / 32;
    const int stride = gridDim.x * WARPS * 32;
    u32 totals[3] = {0, 0, 0};
    for (i64 first = (i64)blockIdx.x * WARPS * 32 + threadIdx.x - lane; first < n; first += stride) {
        const int count = n - first < 32 ? (int)(n - first) : 32;
        if (lane == 0) *mask = 0;
        __syncwarp();
        colors_of(source, terms, out.colors + first * out.pitch, out.pitch, first, count, mask);
        __syncwarp();
        bool good = true, fits = true, turned = true;
        if (lane < count) {
            const Activated g = activated(source, (int)first + lane, !(*mask >> lane & 1));
            put(out, first + lane, g);
            good = g.good, fits = g.fits, turned = g.turned;
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

extern "C" __global__ void __launch_bounds__(128) activate(
    int n, int terms, const Source source, float *means, float *quats, float *scales, float *opacities, float *colors,
    u32 *counters, i64 *left_out) {
    const Arrays out = {means, quats, scales, opacities, colors, terms * 3};
    activate_all(n, terms, source, out, counters, left_out);
}

// `pitch`: halves of a Gaussian's coefficients.
extern "C" __global__ void __launch_bounds__(128, 8) activate_packed(
    int n, int terms, int pitch, const Source source, Shape *shapes, Half *colors, u32 *counters, i64 *left_out) {
    const PackedArrays out = {shapes, colors, pitch};
    activate_all(n, terms, source, out, counters, left_out);
}

// Packs what is activated already, a thread for each Gaussian. Nothing is lost of numbers with no more bits than halves
// have.
extern "C" __global__ void __launch_bounds__(PACKED_AT_ONCE) pack(
    int n, int terms, int pitch, const float *means, const float *quats, const float *scales, const float *opacities,
    const float *coefficients, Shape *shapes, Half *colors) {
    const i64 first = (i64)blockIdx.x * PACKED_AT_ONCE, i = first + threadIdx.x;
    if (i < n) {
        Activated g;
        for (int k = 0; k < 3; ++k) g.mean[k] = means[3 * i + k];
        for (int k = 0; k < 4; ++k) g.quat[k] = quats[4 * i + k];
        for (int k = 0; k < 3; ++k) g.scale[k] = scales[3 * i + k];
        g.opacity = opacities[i];
        put(PackedArrays{shapes, colors, pitch}, i, g);
    }
    for (int k = threadIdx.x; k < PACKED_AT_ONCE * pitch; k += PACKED_AT_ONCE) {
        const i64 row = first + k / pitch;
        const int column = k % pitch;
        if (row >= n) break;
        put(colors + first * pitch + k, column < terms * 3 ? coefficients[row * terms * 3 + column] : 0.0f);
    }
}
