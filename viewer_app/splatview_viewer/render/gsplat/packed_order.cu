// The first half of a packed picture: Gaussians are brought into an order by depth. See packed.cuh.

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

// Depths as the bits of a float, which are in the order of positive floats.
extern "C" __global__ void __launch_bounds__(THREADS) find_depths(
    const Frame *current, const Packed scene, const Picture picture, u32 *depths, Counters *counters) {
    __shared__ u32 histogram[PASSES][DIGITS];
    __shared__ Frame frame;
    for (u32 k = threadIdx.x; k < sizeof(Frame) / 4; k += THREADS) ((u32 *)&frame)[k] = ((const u32 *)current)[k];
    for (int p = 0; p < PASSES; ++p) histogram[p][threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < FOUND; ++k) {
        const i64 i = (blockIdx.x * (i64)FOUND + k) * THREADS + threadIdx.x;
        if (i >= scene.n) break;
        const Shape g = shape_at(scene.shapes, (u32)i);
        const Center p = center_of(frame.viewmat, g);
        Footprint f;
        u32 depth = OUT_OF_SIGHT;
        if (!(scene.flags && scene.flags[i] & HIDDEN) && projected(g, p, frame, picture, f)) {
            depth = __float_as_uint(fmaxf(p.z, 0.0f));
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

SORT(sort_by_first_digit, 0)
SORT(sort_by_second_digit, 1)
SORT(sort_by_third_digit, 2)
SORT(sort_by_last_digit, 3)
