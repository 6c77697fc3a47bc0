// CUDA C++ as plain C++: a launch runs the blocks one after another, so that `__shared__` is simply static; the threads
// of a block are coroutines of one thread. A lane runs until it waits for those of its warp (__ballot_sync, __syncwarp,
// ...), then the next lane does; a warp runs until all of its lanes wait for the block (__syncthreads, ...) or have
// ended, then the next warp does. The order of lanes and that of warps are reversed every now and then, so that a missing
// wait is seen. Only what render/gsplat/*.cu* use.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#define __global__
#define __device__ static inline
#define __shared__ static
#define __launch_bounds__(...)
#define __noinline__
#define __align__(bytes) alignas(bytes)

// -- threads -----------------------------------------------------------------------------------------------------------

constexpr int HOST_WARP = 32, HOST_THREADS = 256;  // lanes; threads of a block, at most
// What a lane waits for. From FOR_BLOCK on, other warps run meanwhile.
enum Wait { FOR_WARP, FOR_VOTES, FOR_VALUES, FOR_BLOCK, FOR_ALL, FOR_ANY, FOR_NOTHING };
struct Index { unsigned x; };
struct Lane {
    Index thread;
    Wait wait;
    unsigned value;  // for the others
    bool started;
    jmp_buf waiting;
    ucontext_t start;
    char stack[1 << 16];
};
static Lane lanes[HOST_THREADS];
static Lane *resumed;  // the lane that runs
static jmp_buf scheduler;
static std::function<void()> body;  // of every lane
static Index blockIdx, blockDim, gridDim;
#define threadIdx resumed->thread
static unsigned values[HOST_WARP], votes;  // of the warp's lanes, when they waited last
static int block_votes;                    // how many threads of the block were for it
static unsigned turns;  // of all launches

// At irregular turns, or else a loop might always come to the same place in the same order.
static bool next_is_reversed() { return __builtin_parity(turns++); }
static int in_turn(bool is_reversed, int i, int count) { return is_reversed ? count - 1 - i : i; }

// Functions that call setjmp are kept apart: they have no variables that a jump could change.
__attribute__((noinline)) static void wait(Wait wait, unsigned value = 0) {
    resumed->wait = wait;
    resumed->value = value;
    if (!_setjmp(resumed->waiting)) _longjmp(scheduler, 1);
}
static void run_lane() {
    for (;; wait(FOR_NOTHING)) body();
}
__attribute__((noinline)) static void resume() {
    if (_setjmp(scheduler)) return;
    if (resumed->started) _longjmp(resumed->waiting, 1);
    resumed->started = true;
    setcontext(&resumed->start);
}

// False: its lanes do not wait for the same.
static bool run_warp(Lane *warp) {
    do {
        const bool is_reversed = next_is_reversed();
        for (int i = 0; i < HOST_WARP; ++i) {
            resumed = warp + in_turn(is_reversed, i, HOST_WARP);
            resume();
        }
        votes = 0;
        for (int i = 0; i < HOST_WARP; ++i) {
            if (warp[i].wait != warp->wait) return false;
            values[i] = warp[i].value;
            votes |= (unsigned)(values[i] != 0) << i;
        }
    } while (warp->wait < FOR_BLOCK);
    return true;
}

// 0, 2 where lanes of a warp do not wait for the same, or 3 where warps do not.
static int run_block(int threads) {
    const int warps = threads / HOST_WARP;
    do {
        const bool is_reversed = next_is_reversed();
        int sum = 0;
        for (int i = 0; i < warps; ++i) {
            if (!run_warp(lanes + in_turn(is_reversed, i, warps) * HOST_WARP)) return 2;
            sum += __builtin_popcount(votes);
        }
        block_votes = sum;
        for (int i = 0; i < warps; ++i)
            if (lanes[i * HOST_WARP].wait != lanes->wait) return 3;
    } while (lanes->wait != FOR_NOTHING);
    return 0;
}

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void **args, std::index_sequence<I...>) {
    kernel(*(std::remove_const_t<A> *)args[I]...);
}

// As cuLaunchKernel: `args` points to each argument. Returns 0, what `run_block` says, or 4 for blocks of odd sizes.
template <class... A>
static int run(void (*kernel)(A...), int grid, int block, void **args) {
    if (block < HOST_WARP || block > HOST_THREADS || block % HOST_WARP) return 4;
    blockDim.x = block;
    gridDim.x = grid;
    body = [=] { call(kernel, args, std::index_sequence_for<A...>()); };
    for (int i = 0; i < block; ++i) {
        lanes[i].thread.x = i;
        if (lanes[i].started) continue;
        getcontext(&lanes[i].start);
        lanes[i].start.uc_stack.ss_sp = lanes[i].stack;
        lanes[i].start.uc_stack.ss_size = sizeof lanes[i].stack;
        makecontext(&lanes[i].start, run_lane, 0);
    }
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        const int mistake = run_block(block);
        if (!mistake) continue;
        for (Lane &lane : lanes) lane.started = false;  // some hang in the middle
        return mistake;
    }
    return 0;
}

static inline void __syncwarp() { wait(FOR_WARP); }
static inline unsigned __ballot_sync(unsigned, bool vote) {
    wait(FOR_VOTES, vote);
    return votes;
}
static inline bool __all_sync(unsigned lanes, bool vote) { return __ballot_sync(lanes, vote) == 0xffffffffu; }
static inline unsigned __shfl_up_sync(unsigned, unsigned value, unsigned distance) {
    wait(FOR_VALUES, value);
    const unsigned lane = threadIdx.x % HOST_WARP;
    return values[lane < distance ? lane : lane - distance];
}
static inline void __syncthreads() { wait(FOR_BLOCK); }
static inline bool __syncthreads_and(bool vote) {
    wait(FOR_ALL, vote);
    return block_votes == (int)blockDim.x;
}
static inline bool __syncthreads_or(bool vote) {
    wait(FOR_ANY, vote);
    return block_votes > 0;
}

// -- memory ------------------------------------------------------------------------------------------------------------

static inline void __threadfence() {}
template <class T>
static T __ldg(const T *at) { return *at; }
// One thread runs at a time.
template <class T>
static T exchanged(T *at, T value) {
    const T before = *at;
    *at = value;
    return before;
}
static inline unsigned atomicOr(unsigned *at, unsigned v) { return exchanged(at, *at | v); }
static inline unsigned atomicAnd(unsigned *at, unsigned v) { return exchanged(at, *at & v); }
static inline unsigned atomicAdd(unsigned *at, unsigned v) { return exchanged(at, *at + v); }
static inline int atomicAdd(int *at, int v) { return exchanged(at, *at + v); }
static inline unsigned atomicExch(unsigned *at, unsigned v) { return exchanged(at, v); }
static inline int atomicMax(int *at, int v) { return exchanged(at, *at > v ? *at : v); }

// -- numbers -----------------------------------------------------------------------------------------------------------

struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
#define __logf logf
#define __log2f log2f
#define __expf expf
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
template <class To, class From>
static To same_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __int_as_float(int bits) { return same_bits<float>(bits); }
static inline int __float_as_int(float v) { return same_bits<int>(v); }
static inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static inline unsigned __float_as_uint(float v) { return same_bits<unsigned>(v); }
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __ffs(unsigned bits) { return __builtin_ffs(bits); }
static inline float host_half_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, rest = bits & 1023;
    const float v = exponent == 31 ? (rest ? NAN : INFINITY)
                    : exponent ? ldexpf((float)(rest + 1024), exponent - 25) : ldexpf((float)rest, -24);
    return bits & 0x8000 ? -v : v;
}
static inline unsigned short host_half_bits(float v) {  // no infinity: enough for colours
    const unsigned bits = __float_as_uint(v);
    const int exponent = (int)(bits >> 23 & 255) - 112;
    if (exponent <= 0) return (bits >> 16 & 0x8000) | (unsigned)nearbyintf(fabsf(v) * 0x1p24f);
    const unsigned rounded = ((unsigned)exponent << 23 | (bits & 0x7fffff)) + 0xfff + (bits >> 13 & 1);
    return (bits >> 16 & 0x8000) | rounded >> 13;
}
