// The second half of a packed picture: slab by slab from Gaussians to lists of bins, and on to pixels. See packed.cuh.

__device__ Ellipse ellipse_of(const Footprint &f) { return ellipse_of(f.a, 0.5f * f.b, f.c, f.level); }

// The tiles of a row where it shows, of `width` from column `origin` on: one bit each.
__device__ u32 tiles_of_row(const Footprint &f, const Ellipse &ellipse, int row, int origin, int width) {
    const Columns columns = columns_of(ellipse, f.x, f.y, row, f.x0, f.x1);
    const int begin = max(columns.begin - origin, 0), end = min(columns.end - origin, width);
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

// The shortest axis of a Gaussian as a colour.
__device__ void normal_color(const Shape &g, const Center &p, const Frame &frame, bool ortho, float *rgb) {
    const float scales[3] = {half_value(g.ratio[0]), half_value(g.ratio[1]), half_value(g.ratio[2])};
    const float center[3] = {p.x, p.y, p.z};
    float axes[9];
    axes_of(g, axes);
    normal_color(frame.viewmat, ortho, axes, scales, center, rgb);
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
    if (threadIdx.x == 0) {
        // Millions of Gaussians that each cover the picture must not bring the sum back to 0.
        const u32 taken = *(volatile u32 *)&counters->masks[slab.index];
        large.first_mask = taken >> 31 ? taken : atomicAdd(&counters->masks[slab.index], total);
    }
    __syncthreads();
    const bool fits = large.first_mask <= lists.slots && total <= lists.slots - large.first_mask;
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
                shows = shows_in(ellipse_of(f), f.x, f.y, left, top);
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
