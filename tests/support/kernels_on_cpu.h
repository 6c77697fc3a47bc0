// CUDA C++ as plain C++: a launch runs the blocks one after another, the lanes of a warp as 32 coroutines of one thread,
// so that __ballot_sync and __syncwarp mean what they mean on a GPU. A lane runs until the next of them; the order of
// lanes is reversed each time, so that a missing one is seen. Only what render/gsplat/*.cu use.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#define __global__
#define __device__ static inline
#define __shared__ static
#define __launch_bounds__(threads)
#define __noinline__
#define __align__(bytes) alignas(bytes)

struct Index { unsigned x; };
struct Lane {
    Index thread, block;
    ucontext_t start;
    jmp_buf waiting;
    bool started, over;
    char stack[1 << 17];
};
static Lane lanes[32];
static Lane *resumed;  // the lane that runs
static jmp_buf scheduler;
static std::function<void()> body;  // of every lane
#define threadIdx resumed->thread
#define blockIdx resumed->block
static Index blockDim, gridDim;
static bool votes[32];

// Functions that call setjmp are kept apart: they have no variables that a jump could change.
__attribute__((noinline)) static void wait_for_warp() {
    if (!_setjmp(resumed->waiting)) _longjmp(scheduler, 1);
}
static void run_lane() {
    for (;; wait_for_warp()) {
        body();
        resumed->over = true;
    }
}
__attribute__((noinline)) static void resume() {
    if (_setjmp(scheduler)) return;
    if (resumed->started) _longjmp(resumed->waiting, 1);
    resumed->started = true;
    setcontext(&resumed->start);
}

struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
#define __logf logf
#define __expf expf
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static inline float __int_as_float(int bits) { float v; memcpy(&v, &bits, 4); return v; }
static inline int __float_as_int(float v) { int bits; memcpy(&bits, &v, 4); return bits; }
static inline unsigned atomicOr(unsigned *at, unsigned v) { return __atomic_fetch_or(at, v, __ATOMIC_SEQ_CST); }
static inline unsigned atomicAdd(unsigned *at, unsigned v) { return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST); }
static inline unsigned atomicExch(unsigned *at, unsigned v) { return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST); }
static inline int atomicMax(int *at, int v) {
    int before = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (before < v && !__atomic_compare_exchange_n(at, &before, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return before;
}
static inline void __threadfence() {}
static inline void __syncwarp() { wait_for_warp(); }
static inline unsigned __ballot_sync(unsigned, bool vote) {
    votes[threadIdx.x % 32] = vote;
    wait_for_warp();
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= (unsigned)votes[i] << i;
    wait_for_warp();
    return bits;
}
static inline bool __all_sync(unsigned lanes, bool vote) { return __ballot_sync(lanes, vote) == 0xffffffffu; }
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline float host_half_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, rest = bits & 1023;
    const float v = exponent == 31 ? (rest ? NAN : INFINITY)
                    : exponent ? ldexpf((float)(rest + 1024), exponent - 25) : ldexpf((float)rest, -24);
    return bits & 0x8000 ? -v : v;
}
static inline unsigned short host_half_bits(float v) {  // no infinity: enough for colours
    unsigned bits;
    memcpy(&bits, &v, 4);
    const int exponent = (int)(bits >> 23 & 255) - 112;
    if (exponent <= 0) return (bits >> 16 & 0x8000) | (unsigned)nearbyintf(fabsf(v) * 0x1p24f);
    const unsigned rounded = ((unsigned)exponent << 23 | (bits & 0x7fffff)) + 0xfff + (bits >> 13 & 1);
    return (bits >> 16 & 0x8000) | rounded >> 13;
}

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void **args, std::index_sequence<I...>) {
    kernel(*(std::remove_const_t<A> *)args[I]...);
}

// As cuLaunchKernel: `args` points to each argument. Returns 0, or 2 where some lanes of a warp wait more often than others.
template <class... A>
static int run(void (*kernel)(A...), bool lockstep, int grid, int block, void **args) {
    blockDim.x = block;
    gridDim.x = grid;
    body = [=] {
        for (int first = 0; first < grid * block; first += 32) {
            blockIdx.x = first / block;
            threadIdx.x = first % block + (resumed - lanes);
            call(kernel, args, std::index_sequence_for<A...>());
            if (lockstep) wait_for_warp();  // before the next warp uses the same shared memory
        }
    };
    for (auto &made : lanes) {
        made.over = false;
        if (made.started) continue;
        getcontext(&made.start);
        made.start.uc_stack.ss_sp = made.stack;
        made.start.uc_stack.ss_size = sizeof made.stack;
        makecontext(&made.start, run_lane, 0);
    }
    for (int round = 0, running = 32; running; ++round) {
        if (running != 32) return 2;
        for (int i = 0; i < 32; ++i) {
            resumed = lanes + (round % 2 ? 31 - i : i);
            resume();
            running -= resumed->over;
        }
    }
    return 0;
}
