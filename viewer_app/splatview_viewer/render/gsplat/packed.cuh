// Pictures of a packed scene, nearest Gaussians first, so that those which others hide cost next to nothing. Compiled
// before packed_order.cu and packed_slab.cu.
//
// A version of a scene is packed once (activation.cu). A frame: `find_depths` finds what is in sight, and how far away; four
// passes of a radix sort bring that into order. Then, in slabs of depth from the nearest on: `shade` works out the
// footprint and the colour of each Gaussian that touches a tile which is not finished; `place` and `list` make a list
// of them for each bin of 4 x 4 tiles, in the order of depth; `blend` draws the lists over what the slabs before have
// drawn, by the rules of gsplat's rasteriser, and notes which tiles are finished: where nothing more can show.
//
// Arrays hold a fixed number of pairs (of a Gaussian and a bin), so that all sizes are known beforehand and nothing is
// asked of the host; the true number goes to memory that the host can read.
//
// ALPHA_MAX and LEAST_COMPENSATION (`Rules` in rules.py) and BINS_MAX are defined by whoever compiles this.

constexpr u32 ALL = 0xffffffffu;         // lanes of a warp
constexpr int THREADS = 256;             // of a block
constexpr int WARP = 32, WARPS = THREADS / WARP;
constexpr int BIN = 4;                   // tiles a side
constexpr int GROUP = 8 * 1024 / BINS_MAX * WARP;  // Gaussians that a block lists: the bits of all bins fit into 32 KiB
constexpr float TRANSMITTANCE_MIN = 1e-4f;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOG2_255 = 7.99435344f;
constexpr u32 OUT_OF_SIGHT = ALL;        // instead of a depth
constexpr u32 NO_ROOM = ALL;             // instead of a place among the masks

// -- what the host gives: mirrored in packed.py -------------------------------------------------------------------------

// Coefficients of a Gaussian lie together, by term and channel, as halves in `pitch` words of 16 bytes.
struct Packed {
    int n, degree, pitch, shows_normals;
    const Shape *shapes;
    const uint4 *colors;
    const u8 *flags;                     // of a selection; or null
};

struct Picture {
    int width, height;                   // pixels
    int tiles_x, tiles_y, bins_x, bins;
    int ortho, antialiased;
    float near, far, blur;
};

// A part of what is in sight: from `begin` to `end` in 256ths of it.
struct Slab {
    int index, is_last, begin, end;
    int near_groups;                     // that have a warp's Gaussians only: the nearest may cover much of the picture
    int groups;                          // at most
};

struct __align__(16) Footprint;
struct __align__(16) Touched;

// What the steps of a slab hand on. Pairs: of a Gaussian and a bin.
struct Lists {
    u32 slots;                           // pairs that there is room for
    u32 unused;
    Footprint *footprints;               // of each Gaussian of the slab
    float4 *tints;                       // its colour, and its distance along the camera's axis
    Touched *touched;
    u32 *mask_begins;                    // of Gaussians that touch many bins: where their masks are
    u16 *masks;                          // their tiles in each bin of their box
    u32 *counts;                         // bins, groups: pairs; then how many are before them in the bin
    u32 *totals;                         // of each bin
    uint2 *bins;                         // first and end of each bin's pairs
    u32 *pair_gaussians;                 // of each pair: place in the slab
    u16 *pair_tiles;                     // its tiles, bit 4 * row + column
};

constexpr int PASSES = 4, DIGITS = 256, SLABS_MAX = 8;

// Cleared at the start of each frame.
struct Counters {
    u32 histogram[PASSES][DIGITS];       // of the digits of all depths; then where each digit begins
    u32 parts[PASSES];                   // of a sort, taken by blocks
    u32 visible;                         // Gaussians in sight
    u32 placed[SLABS_MAX];               // blocks of `place` that are done
    u32 masks[SLABS_MAX];                // taken in `Lists.masks`
    u32 most;                            // pairs of a slab
};

// -- a Gaussian in the picture --------------------------------------------------------------------------------------------

// Its alpha is 2 ^ (level - (a dx^2 + b dx dy + c dy^2)) / 255 in pixels from its centre.
struct __align__(16) Footprint {
    float x, y, a, b, c, level;
    u16 x0, y0, x1, y1;                  // box of tiles, ends excluded
};

__device__ Footprint footprint_at(const Footprint *footprints, u32 i) {
    const uint4 v = ((const uint4 *)(footprints + i))[0], w = ((const uint4 *)(footprints + i))[1];
    return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w), __uint_as_float(w.x),
            __uint_as_float(w.y), (u16)w.z, (u16)(w.z >> 16), (u16)w.w, (u16)(w.w >> 16)};
}

__device__ void put_footprint(Footprint *footprints, u32 i, const Footprint &f) {
    ((uint4 *)(footprints + i))[0] = make_uint4(__float_as_uint(f.x), __float_as_uint(f.y), __float_as_uint(f.a),
                                                __float_as_uint(f.b));
    ((uint4 *)(footprints + i))[1] = make_uint4(__float_as_uint(f.c), __float_as_uint(f.level), f.x0 | (u32)f.y0 << 16,
                                                f.x1 | (u32)f.y1 << 16);
}

__device__ Shape shape_at(const Shape *shapes, u32 i) {
    const uint4 v = __ldg((const uint4 *)(shapes + i)), w = __ldg((const uint4 *)(shapes + i) + 1);
    Shape g;
    g.x = __uint_as_float(v.x), g.y = __uint_as_float(v.y), g.z = __uint_as_float(v.z), g.size = __uint_as_float(v.w);
    g.quat[0] = (u16)w.x, g.quat[1] = (u16)(w.x >> 16), g.quat[2] = (u16)w.y, g.quat[3] = (u16)(w.y >> 16);
    g.ratio[0] = (u16)w.z, g.ratio[1] = (u16)(w.z >> 16), g.ratio[2] = (u16)w.w, g.opacity = (u16)(w.w >> 16);
    return g;
}

struct Center { float x, y, z; };        // in the camera's axes

__device__ Center center_of(const float *V, const Shape &g) {
    return {V[0] * g.x + V[1] * g.y + V[2] * g.z + V[3], V[4] * g.x + V[5] * g.y + V[6] * g.z + V[7],
            V[8] * g.x + V[9] * g.y + V[10] * g.z + V[11]};
}

__device__ void axes_of(const Shape &g, float *axes) {
    axes_of(half_value(g.quat[0]), half_value(g.quat[1]), half_value(g.quat[2]), half_value(g.quat[3]), axes);
}

// By the rules of projection.cu, not to the last bit. False: it is not in the picture.
__device__ bool projected(const Shape &g, const Center &p, const Frame &frame, const Picture &picture, Footprint &f) {
    float opacity = half_value(g.opacity);
    if (!(p.z >= picture.near && p.z <= picture.far) || opacity < ALPHA_MIN) return false;
    const float *const V = frame.viewmat, *const K = frame.intrinsics;
    const float fx = K[0], fy = K[4], cx = K[2], cy = K[5];
    float j0 = fx, j1 = fy, j02 = 0.0f, j12 = 0.0f;  // the Jacobian: [j0 0 j02; 0 j1 j12]
    if (!picture.ortho) {
        const float rz = 1.0f / p.z, beyond_x = 0.15f * picture.width / fx, beyond_y = 0.15f * picture.height / fy;
        j0 = fx * rz, j1 = fy * rz;
        j02 = -j0 * clamped(p.x * rz, -(cx / fx + beyond_x), (picture.width - cx) / fx + beyond_x);
        j12 = -j1 * clamped(p.y * rz, -(cy / fy + beyond_y), (picture.height - cy) / fy + beyond_y);
    }
    f.x = j0 * p.x + cx, f.y = j1 * p.y + cy;
    float R[9], u[3], v[3];              // u, v: where the axes of one standard deviation go
    axes_of(g, R);
    const float size = g.size * frame.scale;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const float deviation = half_value(g.ratio[k]) * size;
        const float m0 = V[0] * R[k] + V[1] * R[3 + k] + V[2] * R[6 + k];
        const float m1 = V[4] * R[k] + V[5] * R[3 + k] + V[6] * R[6 + k];
        const float m2 = V[8] * R[k] + V[9] * R[3 + k] + V[10] * R[6 + k];
        u[k] = (j0 * m0 + j02 * m2) * deviation, v[k] = (j1 * m1 + j12 * m2) * deviation;
    }
    float xx = u[0] * u[0] + u[1] * u[1] + u[2] * u[2], yy = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
    const float xy = u[0] * v[0] + u[1] * v[1] + u[2] * v[2], sharp = xx * yy - xy * xy;
    xx += picture.blur, yy += picture.blur;
    const float determinant = xx * yy - xy * xy;
    if (!(determinant > 0.0f)) return false;
    if (picture.antialiased)
        opacity *= sqrtf(fmaxf(LEAST_COMPENSATION * LEAST_COMPENSATION, sharp / determinant));
    if (opacity < ALPHA_MIN) return false;
    f.level = __log2f(opacity * 255.0f);
    const float reach = fminf(3.33f, sqrtf(2.0f / LOG2_E * f.level));
    const float rx = ceilf(reach * sqrtf(xx)), ry = ceilf(reach * sqrtf(yy));
    if (!(rx > 0.0f && ry > 0.0f && f.x + rx > 0.0f && f.x - rx < picture.width && f.y + ry > 0.0f &&
          f.y - ry < picture.height)) return false;
    const float half = 0.5f * LOG2_E / determinant;
    f.a = yy * half, f.b = -2.0f * xy * half, f.c = xx * half;
    f.x0 = (u16)clamped(floorf((f.x - rx) / TILE), 0.0f, (float)picture.tiles_x);
    f.y0 = (u16)clamped(floorf((f.y - ry) / TILE), 0.0f, (float)picture.tiles_y);
    f.x1 = (u16)clamped(ceilf((f.x + rx) / TILE), 0.0f, (float)picture.tiles_x);
    f.y1 = (u16)clamped(ceilf((f.y + ry) / TILE), 0.0f, (float)picture.tiles_y);
    return true;
}

// -- sums -----------------------------------------------------------------------------------------------------------------

// The sum of the threads before, over a block; `total` of all.
__device__ u32 sum_before(u32 value, u32 *total) {
    __shared__ u32 sums[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u32 sum = value;
    for (int d = 1; d < WARP; d *= 2) {
        const u32 other = __shfl_up_sync(ALL, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == WARP - 1) sums[warp] = sum;
    __syncthreads();
    u32 before = 0, all = 0;
    for (int w = 0; w < WARPS; ++w) {
        if (w == warp) before = all;
        all += sums[w];
    }
    __syncthreads();
    *total = all;
    return before + sum - value;
}
