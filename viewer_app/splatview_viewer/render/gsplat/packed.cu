// Pictures of a packed scene, nearest Gaussians first, so that those which others hide cost next to nothing.
//
// A version of a scene is packed once (`pack`). A frame: `find_depths` finds what is in sight, and how far away; three
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
constexpr int TILE = 16;                 // pixels a side
constexpr int BIN = 4;                   // tiles a side
constexpr int GROUP = 8 * 1024 / BINS_MAX * WARP;  // Gaussians that a block lists: the bits of all bins fit into 32 KiB
constexpr float TRANSMITTANCE_MIN = 1e-4f;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOG2_255 = 7.99435344f;
constexpr u32 OUT_OF_SIGHT = ALL;        // instead of a depth
constexpr u32 NO_ROOM = ALL;             // instead of a place among the masks

// -- what the host gives: mirrored in packed.py -------------------------------------------------------------------------

// A Gaussian but for its colour. Numbers of 16 bits are halves.
struct __align__(16) Shape {
    float x, y, z;                       // relative to the scene's origin
    float size;                          // the largest standard deviation
    u16 quat[4];                         // w, x, y, z, of length 1
    u16 ratio[3];                        // standard deviations by `size`
    u16 opacity;
};

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
    int depth_shift;                     // bits of a depth that do not count for the order
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

constexpr int PASSES = 3, DIGITS = 256, SLABS_MAX = 8;

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

// The axes of a Gaussian in the world: columns.
__device__ void axes_of(const Shape &g, float *R) {
    float w = half_value(g.quat[0]), x = half_value(g.quat[1]), y = half_value(g.quat[2]), z = half_value(g.quat[3]);
    const float inverse = rsqrtf(w * w + x * x + y * y + z * z);
    w *= inverse, x *= inverse, y *= inverse, z *= inverse;
    R[0] = 1 - 2 * (y * y + z * z), R[1] = 2 * (x * y - w * z), R[2] = 2 * (x * z + w * y);
    R[3] = 2 * (x * y + w * z), R[4] = 1 - 2 * (x * x + z * z), R[5] = 2 * (y * z - w * x);
    R[6] = 2 * (x * z - w * y), R[7] = 2 * (y * z + w * x), R[8] = 1 - 2 * (x * x + y * y);
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

struct Extent { float left, right; };    // of pixel columns; left > right: none

// What the extents of a Gaussian between any two heights have in common: of the ellipse in which it shows, which has an
// alpha of ALPHA_MIN or more. Never too small: see `extent` in frame.cu.
struct Ellipse {
    float determinant, reach_y, slant, lead, half_b, inverse_a;
    bool endless;
};

__device__ Ellipse ellipse_of(const Footprint &f) {
    Ellipse e;
    e.half_b = 0.5f * f.b;
    e.determinant = f.a * f.c - e.half_b * e.half_b;
    e.endless = !(e.determinant > 0.0f && e.determinant >= 1e-3f * f.a * f.c);
    const float level = fmaxf(f.level, 0.0f) * 1.001f + 1e-3f, scaled = level / e.determinant;
    e.reach_y = sqrtf(scaled * f.a);
    e.slant = -e.half_b / f.c * sqrtf(scaled * f.c);  // dy of the rightmost point; the leftmost is opposite
    e.lead = level * f.a;
    e.inverse_a = 1.0f / f.a;
    return e;
}

// Left and right of its centre, between two heights relative to that.
__device__ Extent extent(const Ellipse &e, float top, float bottom) {
    if (e.endless) return {-3e38f, 3e38f};
    top = fmaxf(top, -e.reach_y);
    bottom = fminf(bottom, e.reach_y);
    if (top > bottom) return {1.0f, -1.0f};
    const float right_y = clamped(e.slant, top, bottom), left_y = clamped(-e.slant, top, bottom);
    return {(-e.half_b * left_y - sqrtf(fmaxf(e.lead - e.determinant * left_y * left_y, 0.0f))) * e.inverse_a,
            (-e.half_b * right_y + sqrtf(fmaxf(e.lead - e.determinant * right_y * right_y, 0.0f))) * e.inverse_a};
}

// Whether it shows in the 8 x 4 pixels from there on.
__device__ bool shows_in(const Footprint &f, int left, int top) {
    const Extent e = extent(ellipse_of(f), top + 0.48f - f.y, top + 3.52f - f.y);
    return e.left <= e.right && f.x + e.right >= left + 0.48f && f.x + e.left <= left + 7.52f;
}

// The tiles of a row where it shows, of `width` from column `origin` on: one bit each.
__device__ u32 tiles_of_row(const Footprint &f, const Ellipse &ellipse, int row, int origin, int width) {
    const Extent e = extent(ellipse, row * TILE + 0.48f - f.y, row * TILE + (TILE - 0.48f) - f.y);
    const float first = ceilf(f.x + e.left - 0.52f), last = floorf(f.x + e.right - 0.48f);  // pixel columns
    if (!(first <= last)) return 0;
    const int begin = max((int)clamped(floorf(first / TILE), f.x0, f.x1) - origin, 0);
    const int end = min((int)clamped(floorf(last / TILE) + 1.0f, f.x0, f.x1) - origin, width);
    return begin < end ? (1u << end) - (1u << begin) : 0;
}

// The tiles of a bin where it shows.
__device__ u32 tiles_of_bin(const Footprint &f, int bin_x, int bin_y) {
    const Ellipse ellipse = ellipse_of(f);
    u32 tiles = 0;
    for (int row = max((int)f.y0, bin_y * BIN); row < min((int)f.y1, bin_y * BIN + BIN); ++row)
        tiles |= tiles_of_row(f, ellipse, row, bin_x * BIN, BIN) << (row - bin_y * BIN) * BIN;
    return tiles;
}

struct Box { int x, y, columns, rows; };  // of bins

__device__ Box box_of(const Footprint &f) {
    const int x = f.x0 / BIN, y = f.y0 / BIN;
    return {x, y, (f.x1 - 1) / BIN - x + 1, (f.y1 - 1) / BIN - y + 1};
}

// The bins of a Gaussian that touches up to 2 x 2.
struct __align__(16) Touched {
    u16 x, y;                            // the first bin
    u16 tiles[4];
    u16 columns;                         // of the box of one that may touch more; 0 of others
    u16 is_any;                          // there are tiles that are not finished
};

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

// -- from Gaussians to an order by depth ----------------------------------------------------------------------------------

// Packs activated Gaussians, a thread for each. `terms`: coefficients; of scenes with no more bits than halves have,
// nothing is lost.
extern "C" __global__ void __launch_bounds__(THREADS) pack(
    int n, int terms, int pitch, const float *means, const float *quats, const float *scales, const float *opacities,
    const float *colors, Shape *shapes, u16 *packed) {
    const i64 first = (i64)blockIdx.x * THREADS, i = first + threadIdx.x;
    if (i < n) {
        Shape g;
        g.x = means[3 * i], g.y = means[3 * i + 1], g.z = means[3 * i + 2];
        const float *const q = quats + 4 * i, *const s = scales + 3 * i;
        const float inverse = rsqrtf(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
        for (int k = 0; k < 4; ++k) g.quat[k] = half_bits(q[k] * inverse);
        g.size = fmaxf(fmaxf(fabsf(s[0]), fabsf(s[1])), fabsf(s[2]));
        for (int k = 0; k < 3; ++k) g.ratio[k] = half_bits(g.size > 0.0f ? fabsf(s[k]) / g.size : 0.0f);
        g.opacity = half_bits(opacities[i]);
        shapes[i] = g;
    }
    const int halves = pitch * 8;
    for (int k = threadIdx.x; k < THREADS * halves; k += THREADS) {
        const i64 row = first + k / halves;
        const int column = k % halves;
        if (row >= n) break;
        const float value = column < terms * 3 ? colors[row * terms * 3 + column] : 0.0f;
        packed[first * halves + k] = half_bits(fmaxf(value, -65504.0f));
    }
}

// `status`: of the parts of all sorts; `open`: the tiles of each bin that are not finished.
extern "C" __global__ void __launch_bounds__(THREADS) begin_frame(
    const Picture picture, Counters *counters, u32 *status, int status_size, u32 *open) {
    const int threads = gridDim.x * THREADS, first = blockIdx.x * THREADS + threadIdx.x;
    for (int k = first; k < (int)(sizeof(Counters) / 4); k += threads) ((u32 *)counters)[k] = 0;
    for (int k = first; k < status_size; k += threads) status[k] = 0;
    for (int bin = first; bin < picture.bins; bin += threads) {
        const int x = bin % picture.bins_x * BIN, y = bin / picture.bins_x * BIN;
        u32 tiles = 0;
        for (int t = 0; t < BIN * BIN; ++t)
            if (x + t % BIN < picture.tiles_x && y + t / BIN < picture.tiles_y) tiles |= 1u << t;
        open[bin] = tiles;
    }
}

constexpr int FOUND = 8;                 // Gaussians of a thread in `find_depths`

// Depths as 24 bits, nearest lowest: the exponent and the leading bits of the mantissa, from the nearest plane on.
extern "C" __global__ void __launch_bounds__(THREADS) find_depths(
    const Frame *current, const Packed scene, const Picture picture, u32 *depths, Counters *counters) {
    __shared__ u32 histogram[PASSES][DIGITS];
    __shared__ Frame frame;
    for (u32 k = threadIdx.x; k < sizeof(Frame) / 4; k += THREADS) ((u32 *)&frame)[k] = ((const u32 *)current)[k];
    for (int p = 0; p < PASSES; ++p) histogram[p][threadIdx.x] = 0;
    __syncthreads();
    const u32 nearest = __float_as_uint(fmaxf(picture.near, 0.0f));
    for (int k = 0; k < FOUND; ++k) {
        const i64 i = (blockIdx.x * (i64)FOUND + k) * THREADS + threadIdx.x;
        if (i >= scene.n) break;
        const Shape g = shape_at(scene.shapes, (u32)i);
        const Center p = center_of(frame.viewmat, g);
        Footprint f;
        u32 depth = OUT_OF_SIGHT;
        if (!(scene.flags && scene.flags[i] & HIDDEN) && projected(g, p, frame, picture, f)) {
            const u32 bits = __float_as_uint(fmaxf(p.z, 0.0f));
            depth = min((bits - min(nearest, bits)) >> picture.depth_shift, 0xffffffu);
            for (int pass = 0; pass < PASSES; ++pass) atomicAdd(&histogram[pass][depth >> 8 * pass & 255], 1u);
        }
        depths[i] = depth;
    }
    __syncthreads();
    for (int p = 0; p < PASSES; ++p)
        if (histogram[p][threadIdx.x]) atomicAdd(&counters->histogram[p][threadIdx.x], histogram[p][threadIdx.x]);
}

// Where each digit begins. One block.
extern "C" __global__ void __launch_bounds__(THREADS) start_digits(Counters *counters) {
    u32 total;
    for (int p = 0; p < PASSES; ++p) counters->histogram[p][threadIdx.x] = sum_before(counters->histogram[p][threadIdx.x], &total);
    if (threadIdx.x == 0) counters->visible = total;
}

constexpr int SORTED = 16, PART = THREADS * SORTED;  // depths that a thread, a block sorts

// A pass of a stable radix sort, in one sweep over the data (Adinets and Merrill, "Onesweep", 2022): a block takes the
// next part, counts its digits, and adds to them those of the parts before, as far as these are known. `status`: a word
// for each part and digit: whether it is the part's own count, or the sum up to it, and that number.
// The first pass reads the depths of all Gaussians, in their order, and leaves out what is not in sight.
template <int PASS>
__device__ void sort_by_digit(int n, const u32 *keys, const u32 *ids, u32 *out_keys, u32 *out_ids, Counters *counters,
                              u32 *status) {
    constexpr u32 OWN = 1u << 30, SUM = 2u << 30, VALUE = OWN - 1;
    __shared__ u32 counts[WARPS][DIGITS];
    __shared__ u32 sorted_keys[PART], sorted_ids[PART];
    __shared__ u32 shifts[DIGITS];       // from a place in the sorted part to the place among all
    __shared__ u32 taken;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, digit_of_thread = threadIdx.x;
    if (threadIdx.x == 0) taken = atomicAdd(&counters->parts[PASS], 1u);
    for (int w = 0; w < WARPS; ++w) counts[w][threadIdx.x] = 0;
    __syncthreads();
    const u32 part = taken, count = PASS == 0 ? (u32)n : counters->visible;
    if (part * PART >= count) return;
    u32 key[SORTED], id[SORTED], rank[SORTED];
#pragma unroll
    for (int k = 0; k < SORTED; ++k) {
        const u32 i = part * PART + (warp * SORTED + k) * WARP + lane;
        key[k] = i < count ? keys[i] : OUT_OF_SIGHT;
        id[k] = PASS == 0 || i >= count ? i : ids[i];
    }
#pragma unroll
    for (int k = 0; k < SORTED; ++k) {
        const bool valid = key[k] != OUT_OF_SIGHT;
        const u32 digit = key[k] >> 8 * PASS & 255;
        u32 peers = __ballot_sync(ALL, valid);  // lanes with the same digit
#pragma unroll
        for (int b = 0; b < 8; ++b) {
            const u32 ones = __ballot_sync(ALL, digit >> b & 1);
            peers &= digit >> b & 1 ? ones : ~ones;
        }
        const u32 before = __popc(peers & ((1u << lane) - 1u));
        const u32 earlier = valid ? counts[warp][digit] : 0;
        __syncwarp();
        if (valid && before == 0) counts[warp][digit] = earlier + __popc(peers);
        __syncwarp();
        rank[k] = earlier + before;
    }
    __syncthreads();
    u32 own = 0;
    for (int w = 0; w < WARPS; ++w) {
        const u32 of_warp = counts[w][digit_of_thread];
        counts[w][digit_of_thread] = own;
        own += of_warp;
    }
    volatile u32 *const published = status + digit_of_thread;
    u32 earlier = 0;
    if (part > 0) {
        published[(i64)part * DIGITS] = OWN | own;
        for (i64 p = (i64)part - 1;;) {
            const u32 word = published[p * DIGITS];
            if (word == 0) continue;     // not known yet: its block is at work
            earlier += word & VALUE;
            if (word & SUM) break;
            --p;
        }
    }
    published[(i64)part * DIGITS] = SUM | (earlier + own);
    u32 all;
    const u32 local = sum_before(own, &all);
    shifts[digit_of_thread] = counters->histogram[PASS][digit_of_thread] + earlier - local;
    for (int w = 0; w < WARPS; ++w) counts[w][digit_of_thread] += local;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SORTED; ++k) {
        if (key[k] == OUT_OF_SIGHT) continue;
        const u32 place = counts[warp][key[k] >> 8 * PASS & 255] + rank[k];
        sorted_keys[place] = key[k];
        sorted_ids[place] = id[k];
    }
    __syncthreads();
    // From here neighbours write neighbouring words.
    for (u32 k = threadIdx.x; k < all; k += THREADS) {
        const u32 place = shifts[sorted_keys[k] >> 8 * PASS & 255] + k;
        if (PASS + 1 < PASSES) out_keys[place] = sorted_keys[k];
        out_ids[place] = sorted_ids[k];
    }
}

#define SORT(name, PASS)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS) name(                                                       \
        int n, const u32 *keys, const u32 *ids, u32 *out_keys, u32 *out_ids, Counters *counters, u32 *status) {       \
        sort_by_digit<PASS>(n, keys, ids, out_keys, out_ids, counters, status);                                       \
    }

SORT(sort_by_low_digit, 0)
SORT(sort_by_middle_digit, 1)
SORT(sort_by_high_digit, 2)

// -- a slab: from Gaussians to lists of bins ------------------------------------------------------------------------------

struct Span { int begin, count; };

// Its Gaussians, in the order of depth.
__device__ Span span_of(const Slab &slab, const Counters *counters) {
    const u64 visible = counters->visible;
    const int begin = (int)(visible * slab.begin >> 8);
    return {begin, (int)(visible * slab.end >> 8) - begin};
}

// The Gaussians that a block works on, as places in the slab.
__device__ Span group_of(const Slab &slab, int index, int count) {
    const bool is_near = index < slab.near_groups;
    const int begin = is_near ? index * WARP : slab.near_groups * WARP + (index - slab.near_groups) * GROUP;
    return {begin, max(min(is_near ? WARP : GROUP, count - begin), 0)};
}

__device__ int used_groups(const Slab &slab, int count) {
    const int beyond = max(count - slab.near_groups * WARP, 0);
    return min(slab.near_groups, (count + WARP - 1) / WARP) + (beyond + GROUP - 1) / GROUP;
}

// gsplat's real spherical harmonics (SphericalHarmonicsCUDA.cu) for a direction of length 1.
template <int DEGREE>
__device__ void harmonics(const uint4 *packed, float x, float y, float z, float *rgb) {
    constexpr int TERMS = (DEGREE + 1) * (DEGREE + 1);
    float basis[TERMS < 16 ? 16 : 25];
    const float z2 = z * z, b = -1.092548430592079f * z, c1 = x * x - y * y, s1 = 2.0f * x * y;
    const float p6 = 0.9461746957575601f * z2 - 0.3153915652525201f;
    const float c = -2.285228997322329f * z2 + 0.4570457994644658f, d = 1.445305721320277f * z;
    const float c2 = x * c1 - y * s1, s2 = x * s1 + y * c1;
    const float p12 = z * (1.865881662950577f * z2 - 1.119528997770346f);
    basis[0] = 0.2820947917738781f;
    basis[1] = -0.48860251190292f * y, basis[2] = 0.48860251190292f * z, basis[3] = -0.48860251190292f * x;
    basis[4] = 0.5462742152960395f * s1, basis[5] = b * y, basis[6] = p6, basis[7] = b * x;
    basis[8] = 0.5462742152960395f * c1;
    basis[9] = -0.5900435899266435f * s2, basis[10] = d * s1, basis[11] = c * y, basis[12] = p12;
    basis[13] = c * x, basis[14] = d * c1, basis[15] = -0.5900435899266435f * c2;
    if constexpr (DEGREE > 3) {
        const float e = z * (-4.683325804901025f * z2 + 2.007139630671868f), g = -1.770130769779931f * z;
        const float f = 3.31161143515146f * z2 - 0.47308734787878f, c3 = x * c2 - y * s2, s3 = x * s2 + y * c2;
        basis[16] = 0.6258357354491763f * s3, basis[17] = g * s2, basis[18] = f * s1, basis[19] = e * y;
        basis[20] = 1.984313483298443f * z * p12 - 1.006230589874905f * p6;
        basis[21] = e * x, basis[22] = f * c1, basis[23] = g * c2, basis[24] = 0.6258357354491763f * c3;
    }
    float sums[3] = {0.5f, 0.5f, 0.5f};
#pragma unroll
    for (int q = 0; q < (TERMS * 3 + 7) / 8; ++q) {
        const uint4 v = __ldg(packed + q);
        const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int h = 0; h < 8; ++h) {
            const int e = q * 8 + h;
            if (e < TERMS * 3) sums[e % 3] += basis[e / 3] * half_value((u16)(words[h / 2] >> 16 * (h % 2)));
        }
    }
    for (int k = 0; k < 3; ++k) rgb[k] = fminf(fmaxf(sums[k], 0.0f), COLOR_MAX);
}

// The shortest axis of a Gaussian as a colour: `normal_color` in frame.cu.
__device__ void normal_color(const Shape &g, const Center &p, const Frame &frame, bool ortho, float *rgb) {
    const float s[3] = {half_value(g.ratio[0]), half_value(g.ratio[1]), half_value(g.ratio[2])};
    const int k = s[0] <= s[1] && s[0] <= s[2] ? 0 : s[1] <= s[2] ? 1 : 2;
    const float *const V = frame.viewmat;
    float R[9], n[3];
    axes_of(g, R);
    for (int r = 0; r < 3; ++r) n[r] = V[4 * r] * R[k] + V[4 * r + 1] * R[3 + k] + V[4 * r + 2] * R[6 + k];
    const float towards = ortho ? n[2] : n[0] * p.x + n[1] * p.y + n[2] * p.z;
    for (int c = 0; c < 3; ++c) rgb[c] = 0.5f + (towards > 0.0f ? -0.5f : 0.5f) * n[c];
}

__device__ float4 tint_of(const Packed &scene, u32 i, const Frame &frame, const Picture &picture) {
    const Shape g = shape_at(scene.shapes, i);
    const Center p = center_of(frame.viewmat, g);
    float x = g.x - frame.position[0], y = g.y - frame.position[1], z = g.z - frame.position[2], rgb[3];
    const float inverse = rsqrtf(x * x + y * y + z * z);
    x *= inverse, y *= inverse, z *= inverse;
    const uint4 *const packed = scene.colors + (i64)i * scene.pitch;
    if (scene.shows_normals) normal_color(g, p, frame, picture.ortho, rgb);
    else if (scene.degree == 0) harmonics<0>(packed, x, y, z, rgb);
    else if (scene.degree == 1) harmonics<1>(packed, x, y, z, rgb);
    else if (scene.degree == 2) harmonics<2>(packed, x, y, z, rgb);
    else if (scene.degree == 3) harmonics<3>(packed, x, y, z, rgb);
    else harmonics<4>(packed, x, y, z, rgb);
    if (scene.flags && scene.flags[i] & MARKED)
        for (int c = 0; c < 3; ++c) rgb[c] = 0.5f * (rgb[c] + MARK_COLOR[c]);
    return make_float4(rgb[0], rgb[1], rgb[2], p.z);
}

// Gaussians of a group that may touch more than 2 x 2 bins. All threads of the block share in those bins: the nearest
// Gaussians may each touch all that there are.
struct Large {
    int count;
    u32 first_mask;
    u32 ends[GROUP];                     // running sum of their bins
    u16 places[GROUP];                   // in the group
};

// Which of them has bin `item` of all theirs.
__device__ int owner_of(const Large &large, u32 item) {
    int low = 0, high = large.count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (large.ends[middle] > item) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Finds the tiles of Gaussians that are large, counts them in `bin_counts`, and sets `shows` of those that have any.
__device__ void touch_many(const Slab &slab, const Lists &lists, const Picture &picture, const u32 *open, int group_begin,
                           Counters *counters, Large &large, u32 *bin_counts, u8 *shows) {
    u32 total = 0, sum;
    for (int first = 0; first < large.count; first += THREADS) {
        const int k = first + threadIdx.x;
        u32 size = 0;
        if (k < large.count) {
            const Box box = box_of(footprint_at(lists.footprints, group_begin + large.places[k]));
            size = box.columns * box.rows;
        }
        const u32 before = sum_before(size, &sum);
        if (k < large.count) large.ends[k] = total + before + size;
        total += sum;
    }
    if (threadIdx.x == 0) large.first_mask = atomicAdd(&counters->masks[slab.index], total);
    __syncthreads();
    const bool fits = large.first_mask + total <= lists.slots;
    for (int k = threadIdx.x; k < large.count; k += THREADS) {
        const u32 before = k ? large.ends[k - 1] : 0;
        lists.mask_begins[group_begin + large.places[k]] = fits ? large.first_mask + before : NO_ROOM;
    }
    if (!fits) return;
    for (u32 item = threadIdx.x; item < total; item += THREADS) {
        const int owner = owner_of(large, item), place = large.places[owner];
        const Footprint f = footprint_at(lists.footprints, group_begin + place);
        const Box box = box_of(f);
        const int within = (int)(item - (owner ? large.ends[owner - 1] : 0));
        const int x = box.x + within % box.columns, y = box.y + within / box.columns, bin = y * picture.bins_x + x;
        u32 tiles = open[bin];
        if (tiles) tiles &= tiles_of_bin(f, x, y);
        lists.masks[large.first_mask + item] = (u16)tiles;
        if (!tiles) continue;
        shows[place] = 1;
        atomicAdd(bin_counts + bin, 1u);
    }
}

// Footprints, colours and bins of a slab's Gaussians, and how many each bin gets: a block for each group. What touches
// no tile that is `open` needs no colour.
extern "C" __global__ void __launch_bounds__(THREADS) shade(
    const Frame *current, const Packed scene, const Picture picture, const Slab slab, const Lists lists, const u32 *order,
    const u32 *open, Counters *counters) {
    __shared__ u32 bin_counts[BINS_MAX];
    __shared__ Frame frame;
    __shared__ Large large;
    __shared__ u8 shows[GROUP];
    const Span span = span_of(slab, counters), group = group_of(slab, blockIdx.x, span.count);
    if (group.count == 0) return;
    for (u32 k = threadIdx.x; k < sizeof(Frame) / 4; k += THREADS) ((u32 *)&frame)[k] = ((const u32 *)current)[k];
    for (int bin = threadIdx.x; bin < picture.bins; bin += THREADS) bin_counts[bin] = 0;
    if (threadIdx.x == 0) large.count = 0;
    __syncthreads();
    order += span.begin + group.begin;
    for (int k = threadIdx.x; k < group.count; k += THREADS) {
        const Shape g = shape_at(scene.shapes, order[k]);
        Footprint f;
        Box box = {0, 0, 0, 0};
        u32 tiles[4] = {0, 0, 0, 0}, columns = 0;
        bool is_any = false;
        if (projected(g, center_of(frame.viewmat, g), frame, picture, f) && f.x0 < f.x1 && f.y0 < f.y1) {
            box = box_of(f);
            if (box.columns > 2 || box.rows > 2) {
                columns = box.columns;
                large.places[atomicAdd(&large.count, 1)] = (u16)k;
            } else {
                const int first = box.y * picture.bins_x + box.x;
                u32 still_open[4];
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    still_open[c] = c % 2 < box.columns && c / 2 < box.rows ? open[first + c / 2 * picture.bins_x + c % 2] : 0;
                if (still_open[0] | still_open[1] | still_open[2] | still_open[3]) {
                    const Ellipse ellipse = ellipse_of(f);
                    u64 all = 0;         // tiles of four bins
                    for (int row = f.y0; row < f.y1; ++row) {
                        const u32 line = tiles_of_row(f, ellipse, row, box.x * BIN, 2 * BIN);
                        const int below = row - box.y * BIN;
                        all |= ((u64)(line & 15) | (u64)(line >> 4) << 16) << (below % BIN * BIN + below / BIN * 32);
                    }
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        tiles[c] = (u32)(all >> 16 * c) & still_open[c];
                        if (!tiles[c]) continue;
                        is_any = true;
                        atomicAdd(bin_counts + first + c / 2 * picture.bins_x + c % 2, 1u);
                    }
                }
            }
            if (is_any || columns) put_footprint(lists.footprints, group.begin + k, f);
        }
        shows[k] = is_any;
        ((uint4 *)lists.touched)[group.begin + k] = make_uint4(
            box.x | (u32)box.y << 16, tiles[0] | tiles[1] << 16, tiles[2] | tiles[3] << 16, columns | (u32)is_any << 16);
    }
    __syncthreads();
    if (large.count) {
        touch_many(slab, lists, picture, open, group.begin, counters, large, bin_counts, shows);
        __syncthreads();
    }
    for (int k = threadIdx.x; k < group.count; k += THREADS)
        if (shows[k]) lists.tints[group.begin + k] = tint_of(scene, order[k], frame, picture);
    for (int bin = threadIdx.x; bin < picture.bins; bin += THREADS)
        lists.counts[(i64)bin * slab.groups + blockIdx.x] = bin_counts[bin];
}

// Where the pairs of each bin and group go, a block for each bin.
extern "C" __global__ void __launch_bounds__(THREADS) place(
    const Frame *current, const Picture picture, const Slab slab, const Lists lists, Counters *counters) {
    constexpr int PLACED = 8;            // groups of a thread at a time
    __shared__ bool is_last;
    u32 *const counts = lists.counts + (i64)blockIdx.x * slab.groups;
    const int used = used_groups(slab, span_of(slab, counters).count);
    u32 before = 0, sum;
    for (int first = 0; first < used; first += THREADS * PLACED) {
        const int begin = first + threadIdx.x * PLACED;
        u32 values[PLACED], own = 0;
#pragma unroll
        for (int k = 0; k < PLACED; ++k) {
            values[k] = begin + k < used ? counts[begin + k] : 0;
            own += values[k];
        }
        u32 next = before + sum_before(own, &sum);
#pragma unroll
        for (int k = 0; k < PLACED; ++k) {
            if (begin + k < used) counts[begin + k] = next;
            next += values[k];
        }
        before += sum;
    }
    if (threadIdx.x == 0) {
        lists.totals[blockIdx.x] = before;
        __threadfence();
        is_last = atomicAdd(&counters->placed[slab.index], 1u) + 1 == gridDim.x;
    }
    __syncthreads();
    if (!is_last) return;
    // The last block of all. `blend` reads the tiles of eight pairs at a time: a bin begins where that many would.
    u32 all = 0;
    for (int first = 0; first < picture.bins; first += THREADS) {
        const int bin = first + threadIdx.x;
        const u32 total = bin < picture.bins ? ((volatile u32 *)lists.totals)[bin] : 0;
        const u32 begin = all + sum_before((total + 7) & ~7u, &sum);
        if (bin < picture.bins) lists.bins[bin] = make_uint2(min(begin, lists.slots), min(begin + total, lists.slots));
        all += sum;
    }
    if (threadIdx.x != 0) return;
    counters->most = max(counters->most, max(all, counters->masks[slab.index]));
    if (slab.is_last) *(volatile i64 *)current->needed = counters->most;
}

// What `list` writes for a Gaussian of the group and a bin.
__device__ void put_pair(const Lists &lists, u32 slot, int group_begin, int place, const Touched &touched, int bin_x,
                         int bin_y) {
    const int x = bin_x - touched.x, y = bin_y - touched.y;
    u32 tiles;
    if (touched.columns) tiles = lists.masks[lists.mask_begins[group_begin + place] + y * touched.columns + x];
    else tiles = touched.tiles[2 * y + x];
    lists.pair_gaussians[slot] = group_begin + place;
    lists.pair_tiles[slot] = (u16)tiles;
}

// Writes the pairs of a group, a block for each. A bit for each bin and Gaussian brings them into order.
extern "C" __global__ void __launch_bounds__(THREADS) list(
    const Picture picture, const Slab slab, const Lists lists, const Counters *counters) {
    constexpr u32 FEW = 12;              // pairs of a bin that a thread writes alone
    __shared__ u32 bits[GROUP / WARP * BINS_MAX];
    __shared__ uint4 touched_words[GROUP];
    __shared__ u16 full_bins[BINS_MAX];
    __shared__ int full_count;
    const Touched *const touched = (const Touched *)touched_words;
    const Span group = group_of(slab, blockIdx.x, span_of(slab, counters).count);
    if (group.count == 0) return;
    const int words = (group.count + WARP - 1) / WARP, bins = picture.bins;
    for (int k = threadIdx.x; k < bins * words; k += THREADS) bits[k] = 0;
    if (threadIdx.x == 0) full_count = 0;
    bool is_any = false;
    for (int k = threadIdx.x; k < group.count; k += THREADS) {
        touched_words[k] = ((const uint4 *)lists.touched)[group.begin + k];
        is_any = is_any || touched[k].is_any || touched[k].columns;
    }
    if (!__syncthreads_or(is_any)) return;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int k = threadIdx.x; k < group.count; k += THREADS)
        for (int c = 0; c < 4; ++c) {
            if (!touched[k].tiles[c]) continue;
            const int bin = (touched[k].y + c / 2) * picture.bins_x + touched[k].x + c % 2;
            atomicOr(bits + k / WARP * bins + bin, 1u << k % WARP);
        }
    for (int k = warp; k < group.count; k += WARPS) {
        if (!touched[k].columns) continue;
        const u32 first = lists.mask_begins[group.begin + k];
        if (first == NO_ROOM) continue;
        const Box box = box_of(footprint_at(lists.footprints, group.begin + k));
        for (int c = lane; c < box.columns * box.rows; c += WARP) {
            if (!lists.masks[first + c]) continue;
            const int bin = (box.y + c / box.columns) * picture.bins_x + box.x + c % box.columns;
            atomicOr(bits + k / WARP * bins + bin, 1u << k % WARP);
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < bins; bin += THREADS) {
        u32 count = 0;
        for (int w = 0; w < words; ++w) count += __popc(bits[w * bins + bin]);
        if (count > FEW) full_bins[atomicAdd(&full_count, 1)] = (u16)bin;
        if (count == 0 || count > FEW) continue;
        u32 slot = lists.bins[bin].x + lists.counts[(i64)bin * slab.groups + blockIdx.x];
        for (int w = 0; w < words; ++w)
            for (u32 set = bits[w * bins + bin]; set && slot < lists.slots; set &= set - 1, ++slot) {
                const int k = w * WARP + __ffs(set) - 1;
                put_pair(lists, slot, group.begin, k, touched[k], bin % picture.bins_x, bin / picture.bins_x);
            }
    }
    __syncthreads();
    for (int f = warp; f < full_count; f += WARPS) {
        const int bin = full_bins[f];
        u32 slot = lists.bins[bin].x + lists.counts[(i64)bin * slab.groups + blockIdx.x];
        for (int w = 0; w < words; ++w) {
            const u32 set = bits[w * bins + bin], own = slot + __popc(set & ((1u << lane) - 1u));
            const int k = w * WARP + lane;
            if (set >> lane & 1 && own < lists.slots)
                put_pair(lists, own, group.begin, k, touched[k], bin % picture.bins_x, bin / picture.bins_x);
            slot += __popc(set);
        }
    }
}

// -- a slab: from lists to the picture ------------------------------------------------------------------------------------

// gsplat's rasteriser (RasterizeToPixels3DGSFwd.cu), a block for each tile, a warp for each 8 x 4 pixels of it.
// `colors` and `depths` keep what the slabs before have drawn: colour, and transmittance, which is negative where
// nothing more shows.
template <bool DEPTH>
__device__ void blend_slab(const Frame *frame, const Picture &picture, int bytes, const Slab &slab, const Lists &lists,
                           u32 *open, float4 *colors, float *depths) {
    constexpr int SCANNED = 8;           // pairs of a thread that are looked through at a time
    __shared__ u32 queue[THREADS * SCANNED];
    __shared__ float4 shapes[THREADS], tints[THREADS];
    __shared__ float2 rests[THREADS];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, first = warp * WARP;
    const int tile_x = blockIdx.x % picture.tiles_x, tile_y = blockIdx.x / picture.tiles_x;
    const int bin = tile_y / BIN * picture.bins_x + tile_x / BIN, tile = tile_y % BIN * BIN + tile_x % BIN;
    if (!(open[bin] >> tile & 1)) return;
    const int left = tile_x * TILE + warp % 2 * 8, top = tile_y * TILE + warp / 2 * 4;
    const int column = left + lane % 8, row = top + lane / 8, pixel = row * picture.width + column;
    const float px = (float)column + 0.5f, py = (float)row + 0.5f;
    const bool inside = column < picture.width && row < picture.height;
    bool done = !inside;
    float T = 1.0f, red = 0.0f, green = 0.0f, blue = 0.0f, depth = 0.0f;
    if (slab.index > 0 && inside) {
        const float4 before = colors[pixel];
        red = before.x, green = before.y, blue = before.z, T = fabsf(before.w), done = before.w < 0.0f;
        if (DEPTH) depth = depths[pixel];
    }
    const uint2 range = lists.bins[bin];
    for (u32 next = range.x; next < range.y && !__syncthreads_and(done); next += THREADS * SCANNED) {
        // Which of these pairs are of this tile? They are queued in their order.
        const u32 begin = next + threadIdx.x * SCANNED;
        u32 hits = 0, queued;
        if (begin < range.y) {
            const uint4 v = *(const uint4 *)(lists.pair_tiles + begin);
            const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int h = 0; h < SCANNED; ++h) hits |= (words[h / 2] >> (16 * (h % 2) + tile) & 1) << h;
            if (range.y - begin < SCANNED) hits &= (1u << (range.y - begin)) - 1u;
        }
        u32 slot = sum_before(__popc(hits), &queued);
        for (; hits; hits &= hits - 1) queue[slot++] = lists.pair_gaussians[begin + __ffs(hits) - 1];
        __syncthreads();
        for (u32 head = 0; head < queued && !__all_sync(ALL, done); head += WARP) {
            Footprint f;
            u32 g = 0;
            bool shows = false;
            if (head + lane < queued) {
                g = queue[head + lane];
                f = footprint_at(lists.footprints, g);
                shows = shows_in(f, left, top);
            }
            const u32 which = __ballot_sync(ALL, shows);
            if (shows) {
                const int k = first + __popc(which & ((1u << lane) - 1u));
                shapes[k] = make_float4(f.x, f.y, f.a, f.b);
                rests[k] = make_float2(f.c, f.level - LOG2_255);
                tints[k] = lists.tints[g];
            }
            __syncwarp();
            const int count = __popc(which);
            if (!done) {
#pragma unroll 4
                for (int k = first; k < first + count; ++k) {
                    const float4 shape = shapes[k], tint = tints[k];
                    const float2 rest = rests[k];
                    const float dx = shape.x - px, dy = shape.y - py;
                    const float power = rest.y - (shape.z * dx + shape.w * dy) * dx - rest.x * dy * dy;
                    if (power >= -LOG2_255 && power <= rest.y) {
                        const float alpha = fminf(ALPHA_MAX, exp2f(power)), visible = alpha * T;
                        if (T - visible <= TRANSMITTANCE_MIN) {
                            done = true;
                            break;
                        }
                        red += tint.x * visible;
                        green += tint.y * visible;
                        blue += tint.z * visible;
                        if (DEPTH) depth += tint.w * visible;
                        T -= visible;
                    }
                }
            }
            __syncwarp();
        }
    }
    const bool is_finished = __syncthreads_and(done);
    if (is_finished && threadIdx.x == 0) atomicAnd(open + bin, ~(1u << tile));
    if (!inside) return;
    if (is_finished || slab.is_last) {
        store(frame, bytes, pixel, make_float4(red, green, blue, 1.0f - T));
        if (DEPTH) ((float *)frame->depth)[pixel] = depth;
    } else {
        colors[pixel] = make_float4(red, green, blue, done ? -T : T);
        if (DEPTH) depths[pixel] = depth;
    }
}

#define BLEND(name, DEPTH)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS) name(                                                       \
        const Frame *frame, const Picture picture, int bytes, const Slab slab, const Lists lists, u32 *open,          \
        float4 *colors, float *depths) {                                                                              \
        blend_slab<DEPTH>(frame, picture, bytes, slab, lists, open, colors, depths);                                  \
    }

BLEND(blend, false)
BLEND(blend_with_depth, true)
