// What the kernels of all files use. Compiled before each of them.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ float clamped(float v, float low, float high) { return fminf(fmaxf(v, low), high); }

// float16: NVRTC has its header only where CUDA is installed. The other branches are for a build for the CPU.
__device__ float half_value(u16 bits) {
#ifdef __CUDA_ARCH__
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
#else
    return host_half_value(bits);
#endif
}

__device__ u16 half_bits(float v) {
    v = fminf(v, 65504.0f);
#ifdef __CUDA_ARCH__
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
#else
    return host_half_bits(v);
#endif
}
