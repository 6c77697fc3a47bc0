// What lies between the projection (projection.cu) and the picture, without ever asking the host.
//
// A frame: every Gaussian is projected; `shade` finds colour, depth key and the number of tiles of each; a sort by
// depth and a running sum (torch) give each Gaussian its place; `fill` writes (tile, Gaussian) pairs in depth order;
// stable sorts by tile (torch) group them, one part of the pairs after the other, since a sort takes five times the
// room of what it sorts; `gather` turns each part into a list per tile; `blend` draws them by the rules of gsplat's
// rasteriser. Arrays hold a fixed number of pairs, so that all sizes are known beforehand; the true number goes to
// memory that the host can read.
//
// KEY (short or int: the type of a tile's number in a sort) and ALPHA_MAX (`Rules` in base.py) are defined by whoever
// compiles this.

// What is drawn of a Gaussian, and the numbers of it: `RenderOptions.paint` and base.py.
enum Paint { COLOR, NORMALS, BODIES, RINGS, POINTS, OVERDRAW };
constexpr float BODY_SIGMAS = 2.0f, RING_PX = 1.5f, RING_INSIDE = 0.06f, AMBIENT = 0.25f;
__device__ const float LIGHT[3] = {-0.4f, -0.6f, -0.69282032f};
constexpr KEY NO_TILE = sizeof(KEY) == 2 ? 0x7fff : 0x7fffffff;  // sorts behind every tile

// A projected Gaussian.
struct __align__(16) Footprint {
    float x, y;                      // centre in pixels
    float a, b, c;                   // conic: sigma = (a dx^2 + c dy^2) / 2 + b dx dy
    float opacity;
    u16 x0, y0, x1, y1;              // box of tiles, ends excluded
};

// The surface of a Gaussian drawn as a body: see `Bodies` in tests/support/reference.py.
struct __align__(16) Body {
    float l11, l12, l22, thickness;  // whitening, by rows, of an offset in pixels
    float slope[2];
    float normals[9];                // rows
    float unused;
};

// Where it shows: sigma, half the squared Mahalanobis distance, is as much as takes its alpha to ALPHA_MIN.
__device__ Ellipse ellipse_of(const Footprint &f) {
    return ellipse_of(f.a, f.b, f.c, 2.0f * __logf(f.opacity / ALPHA_MIN));
}

// The tiles of one row where it shows. Not inlined: `shade` counts what `fill` writes, and a compiler may round the same
// formula differently in two places.
__device__ __noinline__ Columns row_of(const Footprint f, int row) {
    return columns_of(ellipse_of(f), f.x, f.y, row, f.x0, f.x1);
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
    if (degree < 4) return result;
    const float e = z * (-4.683325804901025f * z2 + 2.007139630671868f), f = 3.31161143515146f * z2 - 0.47308734787878f;
    const float g = -1.770130769779931f * z, c3 = x * c2 - y * s2, s3 = x * s2 + y * c2;
    result += 0.6258357354491763f * s3 * rest[45] + g * s2 * rest[48] + f * s1 * rest[51] + e * y * rest[54] +
              (1.984313483298443f * z * p12 - 1.006230589874905f * p6) * rest[57] + e * x * rest[60] +
              f * c1 * rest[63] + g * c2 * rest[66] + 0.6258357354491763f * c3 * rest[69];
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

// What `shade` needs to know for anything but colours of all Gaussians.
struct Other {
    int paint, ortho, width, height;  // of the picture
    const u8 *flags;                 // of each Gaussian, or null
    const float *quats, *scales;
};

__device__ void axes_of(const float *q, float *axes) { axes_of(q[0], q[1], q[2], q[3], axes); }

// The shortest axis of Gaussian `i` as a colour.
__device__ void normal_color(const Frame *frame, const Other &other, const float *means, int i, float *rgb) {
    const float *const V = frame->viewmat;
    float axes[9], center[3];
    axes_of(other.quats + 4 * (i64)i, axes);
    turned(V, means + 3 * (i64)i, center);
    for (int c = 0; c < 3; ++c) center[c] += V[4 * c + 3];
    normal_color(V, other.ortho, axes, other.scales + 3 * (i64)i, center, rgb);
}

// What is drawn of Gaussians that are not drawn by their density. False: nothing.
__device__ bool reshape(Footprint &f, const Frame *frame, const Other &other, const float *mean, int tiles_x,
                        int tiles_y) {
    if (other.paint == BODIES || other.paint == RINGS) f.opacity = ALPHA_MIN * expf(0.5f * BODY_SIGMAS * BODY_SIGMAS);
    if (other.paint != POINTS) return true;
    if (!(mean[0] >= 0.0f && mean[0] < other.width && mean[1] >= 0.0f && mean[1] < other.height)) return false;
    const float reach = frame->point_reach, steep = -2.0f * __logf(ALPHA_MIN) / (reach * reach);
    const float conic[3] = {steep, 0.0f, steep};
    const int radius[2] = {(int)reach + 1, (int)reach + 1};
    f = footprint(mean, conic, radius, 1.0f, tiles_x, tiles_y);
    return true;
}

// See `shade`. MORE: what `other` says.
template <bool MORE>
__device__ void shaded(
    int n, const Frame *frame, const float *means, const float *opacities, const float *compensations,
    const float *sh0, i64 sh0_stride, const float *shN, i64 shN_stride, int degree, const int *radii,
    const float *means2d, const float *conics, const float *depths, int tiles_x, int tiles_y, Footprint *footprints,
    float *keys, i64 *counts, float *colors, const Other &other) {
    __shared__ float staged[128 * 45];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int first = i - threadIdx.x % 32;
    int count = 0;
    float opacity = 0.0f;
    if (i < n && radii[2 * i] > 0 && radii[2 * i + 1] > 0) {
        opacity = opacities[i] * (compensations ? compensations[i] : 1.0f);
        Footprint f = footprint(means2d + 2 * i, conics + 3 * i, radii + 2 * i, opacity, tiles_x, tiles_y);
        bool there = true;
        if constexpr (MORE) there = reshape(f, frame, other, means2d + 2 * i, tiles_x, tiles_y);
        for (int row = f.y0; row < f.y1 && there; ++row) {
            const Columns columns = row_of(f, row);
            count += max(columns.end - columns.begin, 0);
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
    float *const rgb = colors + (i64)i * 4;
    rgb[3] = depths[i];
    if constexpr (MORE) {
        if (other.paint == NORMALS) {
            normal_color(frame, other, means, i, rgb);
            if (other.flags && other.flags[i] & MARKED)
                for (int c = 0; c < 3; ++c) rgb[c] = 0.5f * (rgb[c] + MARK_COLOR[c]);
            return;
        }
    }
    float x = means[3 * i] - frame->position[0], y = means[3 * i + 1] - frame->position[1];
    float z = means[3 * i + 2] - frame->position[2];
    const float scale = rsqrtf(x * x + y * y + z * z);
    x *= scale, y *= scale, z *= scale;
    // Degree 4 is rare: room to stage it would cost all others some of the warps that run at a time.
    const float *const rest = degree == 4 ? shN + i * shN_stride : mine + threadIdx.x % 32 * pitch;
    for (int c = 0; c < 3; ++c) {
        const float value = harmonics(degree, x, y, z, sh0[i * sh0_stride + c], rest + c);
        rgb[c] = fminf(fmaxf(value + 0.5f, 0.0f), COLOR_MAX);
        if constexpr (MORE)
            if (other.flags && other.flags[i] & MARKED) rgb[c] = 0.5f * (rgb[c] + MARK_COLOR[c]);
    }
}

// One thread per Gaussian, blocks of 128. `counts`: how many tiles; `keys`: depth, or infinity out of sight.
extern "C" __global__ void __launch_bounds__(128) shade(
    int n, const Frame *frame, const float *means, const float *opacities, const float *compensations,
    const float *sh0, i64 sh0_stride, const float *shN, i64 shN_stride, int degree, const int *radii,
    const float *means2d, const float *conics, const float *depths, int tiles_x, int tiles_y, Footprint *footprints,
    float *keys, i64 *counts, float *colors) {
    shaded<false>(n, frame, means, opacities, compensations, sh0, sh0_stride, shN, shN_stride, degree, radii, means2d,
                  conics, depths, tiles_x, tiles_y, footprints, keys, counts, colors, Other());
}

// The same for another paint, or with marks. `quats`, `scales`: as they are, not scaled.
extern "C" __global__ void __launch_bounds__(128) shade_as(
    int n, const Frame *frame, const float *means, const float *opacities, const float *compensations,
    const float *sh0, i64 sh0_stride, const float *shN, i64 shN_stride, int degree, const int *radii,
    const float *means2d, const float *conics, const float *depths, int tiles_x, int tiles_y, Footprint *footprints,
    float *keys, i64 *counts, float *colors, int paint, int ortho, int width, int height, const u8 *flags,
    const float *quats, const float *scales) {
    const Other other = {paint, ortho, width, height, flags, quats, scales};
    shaded<true>(n, frame, means, opacities, compensations, sh0, sh0_stride, shN, shN_stride, degree, radii, means2d,
                 conics, depths, tiles_x, tiles_y, footprints, keys, counts, colors, other);
}

// What is to be projected, one thread per Gaussian: opacity 0 of what is hidden, 1 of what can be seen at all if
// opacity counts no further (`shaped`); and scales times the frame's, if they are asked for.
extern "C" __global__ void choose(int n, const Frame *frame, const float *opacities, const float *scales,
                                  const u8 *flags, int shaped, float *out_opacities, float *out_scales) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float opacity = opacities[i];
    const bool hidden = flags && flags[i] & HIDDEN;
    out_opacities[i] = hidden ? 0.0f : !shaped ? opacity : opacity >= ALPHA_MIN ? 1.0f : 0.0f;
    if (out_scales)
        for (i64 k = 3 * (i64)i; k < 3 * (i64)i + 3; ++k) out_scales[k] = scales[k] * frame->scale;
}

// The surfaces of those that are seen, one thread per Gaussian. `model`: 0 pinhole, 1 ortho, 2 fisheye; `blur` as
// gsplat's eps2d.
extern "C" __global__ void bodies(int n, const Frame *frame, const float *means, const float *quats,
                                  const float *scales, const i64 *counts, int model, int width, int height, float blur,
                                  Body *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || counts[i] == 0) return;
    const float *const V = frame->viewmat, *const K = frame->intrinsics;
    const float fx = K[0], fy = K[4], cx = K[2], cy = K[5];
    float p[3], axes[9], m[3][3];  // by rows of the camera's axes, columns of the Gaussian's
    turned(V, means + 3 * (i64)i, p);
    for (int c = 0; c < 3; ++c) p[c] += V[4 * c + 3];
    axes_of(quats + 4 * (i64)i, axes);
    for (int k = 0; k < 3; ++k) {
        const float s = scales[3 * (i64)i + k];
        const float axis[3] = {axes[k] * s, axes[3 + k] * s, axes[6 + k] * s};
        float column[3];
        turned(V, axis, column);
        for (int r = 0; r < 3; ++r) m[r][k] = column[r];
    }
    float J[2][3] = {{fx, 0.0f, 0.0f}, {0.0f, fy, 0.0f}};
    if (model == 0) {
        const float beyond_x = 0.15f * width / fx, beyond_y = 0.15f * height / fy;
        J[0][0] = fx / p[2], J[1][1] = fy / p[2];
        J[0][2] = -J[0][0] * clamped(p[0] / p[2], -(cx / fx + beyond_x), (width - cx) / fx + beyond_x);
        J[1][2] = -J[1][1] * clamped(p[1] / p[2], -(cy / fy + beyond_y), (height - cy) / fy + beyond_y);
    } else if (model == 2) {
        const float tiny = 1e-7f, from_axis = sqrtf(p[0] * p[0] + p[1] * p[1]) + tiny;
        const float x2 = p[0] * p[0] + tiny, y2 = p[1] * p[1], inverse = 1.0f / (x2 + y2 + p[2] * p[2]);
        const float across = atan2f(from_axis, p[2]) / from_axis / (x2 + y2), along = p[2] * inverse / (x2 + y2);
        const float mixed = p[0] * p[1] * (along - across);
        J[0][0] = fx * (x2 * along + y2 * across), J[0][1] = fx * mixed, J[0][2] = -fx * p[0] * inverse;
        J[1][0] = fy * mixed, J[1][1] = fy * (y2 * along + x2 * across), J[1][2] = -fy * p[1] * inverse;
    }
    float row[2][3];
    for (int r = 0; r < 2; ++r)
        for (int k = 0; k < 3; ++k) row[r][k] = J[r][0] * m[0][k] + J[r][1] * m[1][k] + J[r][2] * m[2][k];
    float xx = 0.0f, xy = 0.0f, yy = 0.0f, zz = 0.0f, rise_x = 0.0f, rise_y = 0.0f, det = 0.0f;
    for (int k = 0; k < 3; ++k) {
        xx += row[0][k] * row[0][k], xy += row[0][k] * row[1][k], yy += row[1][k] * row[1][k];
        zz += m[2][k] * m[2][k], rise_x += row[0][k] * m[2][k], rise_y += row[1][k] * m[2][k];
        const int a = (k + 1) % 3, b = (k + 2) % 3;
        const float crossed = row[0][a] * row[1][b] - row[0][b] * row[1][a];
        det += crossed * crossed;  // by Cauchy and Binet: exact for thin ones as well
    }
    det += blur * (xx + yy) + blur * blur;
    yy += blur;
    Body body;
    body.l11 = sqrtf(yy / det), body.l12 = -xy / sqrtf(yy * det), body.l22 = 1.0f / sqrtf(yy);
    body.slope[0] = body.l11 * rise_x + body.l12 * rise_y, body.slope[1] = body.l22 * rise_y;
    body.thickness = sqrtf(fmaxf(zz - body.slope[0] * body.slope[0] - body.slope[1] * body.slope[1], 0.0f));
    for (int c = 0; c < 3; ++c) {
        const float first = body.l11 * J[0][c] + body.l12 * J[1][c], second = body.l22 * J[1][c];
        body.normals[c] = body.slope[0] * first + body.slope[1] * second - (c == 2 ? 1.0f : 0.0f);
        body.normals[3 + c] = body.thickness * first;
        body.normals[6 + c] = body.thickness * second;
    }
    body.unused = 0.0f;
    out[i] = body;
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
        const Columns columns = row_of(f, row);
        for (int column = columns.begin; column < columns.end && slot < end; ++column, ++slot) {
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

// gsplat's rasteriser (RasterizeToPixels3DGSFwd.cu), a block of 256 per tile. Each warp has 8 x 4 pixels of its own
// and leaves out what does not show there: a small Gaussian shows in few of a tile's eight. `starts`: of each part, in
// the order of depth, `pitch` apart. `colors`: n, 4 with depth.
template <int PAINT>
__device__ void blended(
    int width, int height, int tiles_x, int bytes, int parts, int pitch, const int *starts, const int *ids,
    const Footprint *footprints, const float4 *colors, const Frame *frame) {
    __shared__ float4 geometry[256], conics[256], tints[256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = warp * 32;
    const int left = blockIdx.x % tiles_x * TILE + warp % 2 * 8, top = blockIdx.x / tiles_x * TILE + warp / 2 * 4;
    const int column = left + lane % 8, row = top + lane / 8;
    const float px = (float)column + 0.5f, py = (float)row + 0.5f;
    const bool inside = column < width && row < height;
    bool done = !inside;
    [[maybe_unused]] int many = 0;
    [[maybe_unused]] bool hides = false;  // of a count: what lies behind is there, but not seen
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
            shows = shows_in(ellipse_of(f), f.x, f.y, left, top);
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
            float alpha;
            if constexpr (PAINT == POINTS) {
                alpha = fminf(ALPHA_MAX, clamped(frame->point_reach - sqrtf(dx * dx + dy * dy), 0.0f, 1.0f));
                if (alpha < ALPHA_MIN) continue;
            } else {
                const float sigma = 0.5f * (conic.x * dx * dx + conic.z * dy * dy) + conic.y * dx * dy;
                if constexpr (PAINT == RINGS) {
                    const float m = sqrtf(2.0f * fmaxf(sigma, 0.0f));
                    if (m > BODY_SIGMAS) continue;
                    const float x = conic.x * dx + conic.y * dy, y = conic.y * dx + conic.z * dy;
                    const float inwards = (BODY_SIGMAS - m) * m / fmaxf(sqrtf(x * x + y * y), 1e-12f);
                    const float line = clamped(fminf(inwards, RING_PX + 1.0f - inwards), 0.0f, 1.0f);
                    alpha = fminf(ALPHA_MAX, fmaxf(line, RING_INSIDE));
                } else {
                    alpha = fminf(ALPHA_MAX, xy_opacity.z * __expf(-sigma));
                    if (sigma < 0.0f || alpha < ALPHA_MIN) continue;
                }
            }
            const float next = T * (1.0f - alpha);
            if constexpr (PAINT == OVERDRAW) {
                ++many;
                hides = hides || next <= 1e-4f;
                if (hides) continue;
            } else if constexpr (PAINT == RINGS || PAINT == POINTS) {
                done = next <= 1e-4f;  // after it: these are all but opaque
            } else if (next <= 1e-4f) {
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
    if constexpr (PAINT == OVERDRAW)
        store(frame, bytes, pixel, make_float4((float)many, (float)many, (float)many, many ? 1.0f : 0.0f));
    else
        store(frame, bytes, pixel, make_float4(red, green, blue, 1.0f - T));
    if (frame->depth) ((float *)frame->depth)[pixel] = depth;
}

#define BLEND(name, PAINT)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) name(                                                        \
        int width, int height, int tiles_x, int bytes, int parts, int pitch, const int *starts, const int *ids,    \
        const Footprint *footprints, const float4 *colors, const Frame *frame) {                                   \
        blended<PAINT>(width, height, tiles_x, bytes, parts, pitch, starts, ids, footprints, colors, frame);       \
    }

BLEND(blend, COLOR)
BLEND(blend_rings, RINGS)
BLEND(blend_points, POINTS)
BLEND(blend_overdraw, OVERDRAW)

// The nearest surface at each pixel; blocks and lists as for `blend`. Centres come in the order of depth, surfaces need
// not. What is nearer than `near` is cut away.
extern "C" __global__ void __launch_bounds__(256) blend_bodies(
    int width, int height, int tiles_x, int bytes, int parts, int pitch, const int *starts, const int *ids,
    const Footprint *footprints, const float4 *colors, const Frame *frame, const Body *surfaces, float near) {
    __shared__ float4 geometry[256], forms[256];
    __shared__ float middles[256];
    __shared__ int owners[256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = warp * 32;
    const int left = blockIdx.x % tiles_x * TILE + warp % 2 * 8, top = blockIdx.x / tiles_x * TILE + warp / 2 * 4;
    const int column = left + lane % 8, row = top + lane / 8;
    const float px = (float)column + 0.5f, py = (float)row + 0.5f;
    float nearest = 3e38f;
    int seen = -1;
    int part = 0, begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    while (true) {
        if (begin >= end) {
            if (++part == parts) break;
            begin = starts[part * pitch + blockIdx.x], end = starts[part * pitch + blockIdx.x + 1];
            continue;
        }
        int g = 0;
        bool shows = false;
        Footprint f;
        if (begin + lane < end) {
            g = ids[begin + lane];
            f = footprints[g];
            shows = shows_in(ellipse_of(f), f.x, f.y, left, top);
        }
        const u32 which = __ballot_sync(0xffffffffu, shows);
        if (shows) {
            const int place = first + __popc(which & ((1u << lane) - 1u));
            const Body &body = surfaces[g];
            geometry[place] = make_float4(f.x, f.y, body.slope[0], body.slope[1]);
            forms[place] = make_float4(body.l11, body.l12, body.l22, body.thickness);
            middles[place] = colors[g].w;
            owners[place] = g;
        }
        __syncwarp();
        const int count = __popc(which);
        for (int t = 0; t < count; ++t) {
            const float4 at = geometry[first + t], form = forms[first + t];
            const float dx = px - at.x, dy = py - at.y, u = form.x * dx + form.y * dy, v = form.z * dy;
            const float square = BODY_SIGMAS * BODY_SIGMAS - (u * u + v * v);
            if (square < 0.0f) continue;
            const float z = middles[first + t] + at.z * u + at.w * v - form.w * sqrtf(square);
            if (z < near || !(z < nearest)) continue;
            nearest = z;
            seen = owners[first + t];
        }
        begin += 32;
        __syncwarp();
    }
    if (column >= width || row >= height) return;
    const int pixel = row * width + column;
    float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (seen >= 0) {
        const Body &body = surfaces[seen];
        const float dx = px - footprints[seen].x, dy = py - footprints[seen].y;
        const float u = body.l11 * dx + body.l12 * dy, v = body.l22 * dy;
        const float s = sqrtf(fmaxf(BODY_SIGMAS * BODY_SIGMAS - (u * u + v * v), 0.0f));
        float square = 0.0f, lit = 0.0f;
        for (int c = 0; c < 3; ++c) {
            const float n = s * body.normals[c] + u * body.normals[3 + c] + v * body.normals[6 + c];
            square += n * n, lit += n * LIGHT[c];
        }
        lit = AMBIENT + (1.0f - AMBIENT) * fmaxf(lit / fmaxf(sqrtf(square), 1e-30f), 0.0f);
        const float4 color = colors[seen];
        result = make_float4(color.x * lit, color.y * lit, color.z * lit, 1.0f);
    }
    store(frame, bytes, pixel, result);
    if (frame->depth) ((float *)frame->depth)[pixel] = seen >= 0 ? nearest : 0.0f;
}
