// What lies between gsplat's projection and the picture, without ever asking the host.
//
// A frame: gsplat projects every Gaussian; `shade` finds colour, depth key and the number of tiles of each; a sort by
// depth and a running sum (torch) give each Gaussian its place; `fill` writes (tile, Gaussian) pairs in depth order;
// stable sorts by tile (torch) group them, one part of the pairs after the other, since a sort takes five times the
// room of what it sorts; `gather` turns each part into a list per tile; `blend` draws them by the rules of gsplat's
// rasteriser, or that one itself does, and `pack` writes its picture where the caller wants it. Arrays hold a fixed
// number of pairs, so that all sizes are known beforehand; the true number goes to memory that the host can read.
//
// KEY (short or int: the type of a tile's number in a sort) is defined by whoever compiles this.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int TILE = 16;             // pixels a side
constexpr float ALPHA_MIN = 1.0f / 255.0f;
constexpr KEY NO_TILE = sizeof(KEY) == 2 ? 0x7fff : 0x7fffffff;  // sorts behind every tile

// What changes from frame to frame. Mirrored by `Parameters` in frame.py.
struct Frame {
    float viewmat[16];               // world to camera, by rows
    float intrinsics[9];             // K by rows
    float position[3];               // of the camera in the world
    u64 rgba;                        // where the picture goes: height, width, 4
    u64 depth;                       // float height, width; 0: not wanted
    u64 needed;                      // i64: how many pairs the frame has, in pinned host memory
};

// A projected Gaussian.
struct __align__(16) Footprint {
    float x, y;                      // centre in pixels
    float a, b, c;                   // conic: sigma = (a dx^2 + c dy^2) / 2 + b dx dy
    float opacity;
    u16 x0, y0, x1, y1;              // box of tiles, ends excluded
};

struct Span { int begin, end; };     // tile columns, end excluded
struct Extent { float left, right; };  // of pixel columns; left > right: none

__device__ float clamped(float v, float low, float high) { return fminf(fmaxf(v, low), high); }

// How far left and right of its centre a Gaussian shows between two heights, as differences to the centre. Shows: has
// an alpha of ALPHA_MIN or more, so sigma, half the squared Mahalanobis distance, is at most `level`. Never too
// little. Rounding shifts sigma by a few units in the last place of its terms, which cancel the more the thinner the
// ellipse: 1.001 covers that down to the thinness tested here, and thinner ones count as endless.
__device__ Extent extent(const Footprint &f, float top, float bottom) {
    const float determinant = f.a * f.c - f.b * f.b;
    if (!(determinant > 0.0f && determinant >= 1e-3f * f.a * f.c)) return {-3e38f, 3e38f};
    const float level = fmaxf(__logf(f.opacity / ALPHA_MIN), 0.0f) * 1.001f + 1e-3f;
    const float scaled = 2.0f * level / determinant;
    const float reach_x = sqrtf(scaled * f.c), reach_y = sqrtf(scaled * f.a);
    top = fmaxf(top, -reach_y);
    bottom = fminf(bottom, reach_y);
    if (top > bottom) return {1.0f, -1.0f};
    const float slant = -f.b / f.c * reach_x;  // dy of the rightmost point; the leftmost is opposite
    const float right_y = clamped(slant, top, bottom), left_y = clamped(-slant, top, bottom);
    const float lead = 2.0f * level * f.a;
    return {(-f.b * left_y - sqrtf(fmaxf(lead - determinant * left_y * left_y, 0.0f))) / f.a,
            (-f.b * right_y + sqrtf(fmaxf(lead - determinant * right_y * right_y, 0.0f))) / f.a};
}

// The tiles of one row that hold the centre of a pixel where the Gaussian shows; 0.02 pixels allow for rounding. An
// ellipse is convex, so they are neighbours. Not inlined: `shade` counts what `fill` writes, and a compiler may round
// the same formula differently in two places.
__device__ __noinline__ Span row_span(const Footprint f, int row) {
    const Extent e = extent(f, row * TILE + 0.48f - f.y, row * TILE + (TILE - 0.48f) - f.y);
    const float first = ceilf(f.x + e.left - 0.52f), last = floorf(f.x + e.right - 0.48f);  // pixel columns
    if (!(first <= last)) return {0, 0};
    const int begin = (int)clamped(floorf(first / TILE), f.x0, f.x1);
    const int end = (int)clamped(floorf(last / TILE) + 1.0f, f.x0, f.x1);
    return {begin, end};
}

// With the box that gsplat fills with pairs.
__device__ Footprint footprint(const float *mean, const float *conic, const int *radius, float opacity,
                               int tiles_x, int tiles_y) {
    const float x = mean[0] / TILE, y = mean[1] / TILE, rx = (float)radius[0] / TILE, ry = (float)radius[1] / TILE;
    Footprint f;
    f.x = mean[0];
    f.y = mean[1];
    f.a = conic[0];
    f.b = conic[1];
    f.c = conic[2];
    f.opacity = opacity;
    f.x0 = (u16)clamped(floorf(x - rx), 0.0f, (float)tiles_x);
    f.y0 = (u16)clamped(floorf(y - ry), 0.0f, (float)tiles_y);
    f.x1 = (u16)clamped(ceilf(x + rx), 0.0f, (float)tiles_x);
    f.y1 = (u16)clamped(ceilf(y + ry), 0.0f, (float)tiles_y);
    return f;
}

// gsplat's real spherical harmonics (SphericalHarmonicsCUDA.cu) of one channel; `rest` steps by 3.
__device__ float harmonics(int degree, float x, float y, float z, float constant, const float *rest) {
    float result = 0.2820947917738781f * constant;
    if (degree < 1) return result;
    result += 0.48860251190292f * (-y * rest[0] + z * rest[3] - x * rest[6]);
    if (degree < 2) return result;
    const float z2 = z * z, b = -1.092548430592079f * z, c1 = x * x - y * y, s1 = 2.0f * x * y;
    const float p6 = 0.9461746957575601f * z2 - 0.3153915652525201f;
    result += 0.5462742152960395f * s1 * rest[9] + b * y * rest[12] + p6 * rest[15] + b * x * rest[18] +
              0.5462742152960395f * c1 * rest[21];
    if (degree < 3) return result;
    const float c = -2.285228997322329f * z2 + 0.4570457994644658f, d = 1.445305721320277f * z;
    const float c2 = x * c1 - y * s1, s2 = x * s1 + y * c1;
    const float p12 = z * (1.865881662950577f * z2 - 1.119528997770346f);
    result += -0.5900435899266435f * s2 * rest[24] + d * s1 * rest[27] + c * y * rest[30] + p12 * rest[33] +
              c * x * rest[36] + d * c1 * rest[39] - 0.5900435899266435f * c2 * rest[42];
    return result;
}

// A warp brings the coefficients of its 32 Gaussians into shared memory, neighbours reading neighbouring words;
// those of Gaussians out of sight are not read.
template <int LENGTH>
__device__ void stage(float *to, const float *from, i64 stride, u32 wanted) {
    const int lane = threadIdx.x % 32;
#pragma unroll 5
    for (int e = lane; e < 32 * LENGTH; e += 32) {
        const int row = e / LENGTH, column = e % LENGTH;
        if (wanted >> row & 1) to[row * (LENGTH | 1) + column] = from[row * stride + column];  // odd: no bank twice
    }
}

extern "C" __global__ void set_frame(const Frame frame, Frame *out) {
    const u32 i = threadIdx.x;
    if (i < sizeof(Frame) / 4) ((u32 *)out)[i] = ((const u32 *)&frame)[i];
}

// One thread per Gaussian, blocks of 128. `counts`: how many tiles; `keys`: depth, or infinity out of sight.
extern "C" __global__ void __launch_bounds__(128) shade(
    int n, const Frame *frame, const float *means, const float *opacities, const float *compensations,
    const float *sh0, i64 sh0_stride, const float *shN, i64 shN_stride, int degree, const int *radii,
    const float *means2d, const float *conics, const float *depths, int tiles_x, int tiles_y, int channels,
    Footprint *footprints, float *keys, i64 *counts, float *colors, float *weights) {
    __shared__ float staged[128 * 45];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int first = i - threadIdx.x % 32;
    int count = 0;
    float opacity = 0.0f;
    if (i < n && radii[2 * i] > 0 && radii[2 * i + 1] > 0) {
        opacity = opacities[i] * (compensations ? compensations[i] : 1.0f);
        const Footprint f = footprint(means2d + 2 * i, conics + 3 * i, radii + 2 * i, opacity, tiles_x, tiles_y);
        for (int row = f.y0; row < f.y1; ++row) {
            const Span span = row_span(f, row);
            count += max(span.end - span.begin, 0);
        }
        if (count) footprints[i] = f;
    }
    if (i < n) {
        counts[i] = count;
        keys[i] = count ? depths[i] : __int_as_float(0x7f800000);
    }
    const u32 seen = __ballot_sync(0xffffffffu, count > 0);
    float *const mine = staged + (threadIdx.x - threadIdx.x % 32) * 45;
    int pitch = 1;
    if (degree == 1) stage<9>(mine, shN + first * shN_stride, shN_stride, seen), pitch = 9;
    if (degree == 2) stage<24>(mine, shN + first * shN_stride, shN_stride, seen), pitch = 25;
    if (degree == 3) stage<45>(mine, shN + first * shN_stride, shN_stride, seen), pitch = 45;
    __syncwarp();
    if (!count) return;
    if (weights) weights[i] = opacity;
    float x = means[3 * i] - frame->position[0], y = means[3 * i + 1] - frame->position[1];
    float z = means[3 * i + 2] - frame->position[2];
    const float scale = rsqrtf(x * x + y * y + z * z);
    x *= scale, y *= scale, z *= scale;
    const float *const rest = mine + threadIdx.x % 32 * pitch;
    for (int c = 0; c < 3; ++c) {
        const float value = harmonics(degree, x, y, z, sh0[i * sh0_stride + c], rest + c);
        colors[(i64)i * channels + c] = fmaxf(value + 0.5f, 0.0f);
    }
    if (channels == 4) colors[(i64)i * 4 + 3] = depths[i];
}

// `order`: Gaussians by depth; `sorted_counts`: their tiles; `ends`: the running sum of those. Threads: as many as
// there are Gaussians or slots, whichever is more. Slots that no pair takes get NO_TILE.
extern "C" __global__ void fill(int n, int slots, const i64 *order, const i64 *sorted_counts, const i64 *ends,
                                const Footprint *footprints, int tiles_x, KEY *tiles, int *gaussians) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < slots && i >= ends[n - 1]) tiles[i] = NO_TILE;
    if (i >= n || sorted_counts[i] == 0) return;
    const int g = (int)order[i];
    const Footprint f = footprints[g];
    const i64 end = min(ends[i], (i64)slots);
    i64 slot = ends[i] - sorted_counts[i];
    for (int row = f.y0; row < f.y1 && slot < end; ++row) {
        const Span span = row_span(f, row);
        for (int column = span.begin; column < span.end && slot < end; ++column, ++slot) {
            tiles[slot] = (KEY)(row * tiles_x + column);
            gaussians[slot] = g;
        }
    }
    for (; slot < end; ++slot) tiles[slot] = NO_TILE;  // never, as long as both count alike; no garbage in any case
}

// One thread per slot of a part, which begins at slot `first`. `tiles` sorted, `places`: where each was before, from the
// part's begin on; `starts` (n_tiles + 1): a tile's first slot, and one more that ends the last tile. `ids`: the
// Gaussians of each slot.
extern "C" __global__ void gather(int n, int first, int slots, int n_tiles, const KEY *tiles, const i64 *places,
                                  const int *gaussians, const i64 *ends, const Frame *frame, int *ids, int *starts) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= slots) return;
    if (i == 0 && first == 0) *(volatile i64 *)frame->needed = ends[n - 1];
    const int tile = min((int)tiles[i], n_tiles);
    const int before = i ? min((int)tiles[i - 1], n_tiles) : -1;
    for (int t = before + 1; t <= tile; ++t) starts[t] = first + i;
    if (i == slots - 1)
        for (int t = tile + 1; t <= n_tiles; ++t) starts[t] = first + slots;
    if (tile < n_tiles) ids[i] = gaussians[places[i]];
}

__device__ u16 half_bits(float v) {
#ifdef __CUDA_ARCH__
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(fminf(v, 65504.0f)));
    return bits;
#else
    return host_half_bits(fminf(v, 65504.0f));  // only in a build for the CPU
#endif
}

__device__ u8 byte(float v) { return (u8)(clamped(v, 0.0f, 1.0f) * 255.0f + 0.5f); }

// `bytes`: of a channel of the picture, 1 (uint8), 2 (float16) or 4 (float32).
__device__ void store(const Frame *frame, int bytes, int pixel, float4 v) {
    if (bytes == 4) ((float4 *)frame->rgba)[pixel] = v;
    if (bytes == 2)
        ((uint2 *)frame->rgba)[pixel] = make_uint2(half_bits(v.x) | (u32)half_bits(v.y) << 16,
                                                   half_bits(v.z) | (u32)half_bits(v.w) << 16);
    if (bytes == 1) ((uchar4 *)frame->rgba)[pixel] = make_uchar4(byte(v.x), byte(v.y), byte(v.z), byte(v.w));
}

// The picture of gsplat's rasteriser to where it is wanted, one thread per pixel.
extern "C" __global__ void pack(int pixels, int channels, int bytes, const float *colors, const float *alphas,
                                const Frame *frame) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pixels) return;
    const float *const c = colors + (i64)i * channels;
    store(frame, bytes, i, make_float4(c[0], c[1], c[2], alphas[i]));
    if (channels == 4 && frame->depth) ((float *)frame->depth)[i] = c[3];
}

// gsplat's rasteriser (RasterizeToPixels3DGSFwd.cu), a block of 256 per tile. Each warp has 8 x 4 pixels of its own
// and leaves out what does not show there: a small Gaussian shows in few of a tile's eight. `starts`: of each part, in
// the order of depth, `pitch` apart. `colors`: n, 4 with depth.
extern "C" __global__ void __launch_bounds__(256) blend(
    int width, int height, int tiles_x, int bytes, int parts, int pitch, const int *starts, const int *ids,
    const Footprint *footprints, const float4 *colors, const Frame *frame) {
    __shared__ float4 geometry[256], conics[256], tints[256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = warp * 32;
    const int left = blockIdx.x % tiles_x * TILE + warp % 2 * 8, top = blockIdx.x / tiles_x * TILE + warp / 2 * 4;
    const int column = left + lane % 8, row = top + lane / 8;
    const float px = (float)column + 0.5f, py = (float)row + 0.5f;
    const bool inside = column < width && row < height;
    bool done = !inside;
    float T = 1.0f, red = 0.0f, green = 0.0f, blue = 0.0f, depth = 0.0f;
    int part = 0, begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    while (!__all_sync(0xffffffffu, done)) {
        if (begin >= end) {
            if (++part == parts) break;
            begin = starts[part * pitch + blockIdx.x], end = starts[part * pitch + blockIdx.x + 1];
            continue;
        }
        Footprint f;
        int g = 0;
        bool shows = false;
        if (begin + lane < end) {
            g = ids[begin + lane];
            f = footprints[g];
            const Extent e = extent(f, top + 0.48f - f.y, top + 3.52f - f.y);
            shows = e.left <= e.right && f.x + e.right >= left + 0.48f && f.x + e.left <= left + 7.52f;
        }
        const u32 which = __ballot_sync(0xffffffffu, shows);
        if (shows) {
            const int place = first + __popc(which & ((1u << lane) - 1u));
            geometry[place] = make_float4(f.x, f.y, f.opacity, 0.0f);
            conics[place] = make_float4(f.a, f.b, f.c, 0.0f);
            tints[place] = colors[g];
        }
        __syncwarp();
        const int count = __popc(which);
        for (int t = 0; t < count && !done; ++t) {
            const float4 xy_opacity = geometry[first + t], conic = conics[first + t];
            const float dx = xy_opacity.x - px, dy = xy_opacity.y - py;
            const float sigma = 0.5f * (conic.x * dx * dx + conic.z * dy * dy) + conic.y * dx * dy;
            const float alpha = fminf(0.999f, xy_opacity.z * __expf(-sigma));
            if (sigma < 0.0f || alpha < ALPHA_MIN) continue;
            const float next = T * (1.0f - alpha);
            if (next <= 1e-4f) {
                done = true;
                break;
            }
            const float4 tint = tints[first + t];
            const float visible = alpha * T;
            red += tint.x * visible;
            green += tint.y * visible;
            blue += tint.z * visible;
            depth += tint.w * visible;
            T = next;
        }
        begin += 32;
        __syncwarp();
    }
    if (!inside) return;
    const int pixel = row * width + column;
    store(frame, bytes, pixel, make_float4(red, green, blue, 1.0f - T));
    if (frame->depth) ((float *)frame->depth)[pixel] = depth;
}
