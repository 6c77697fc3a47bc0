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

// -- packed scenes: activation.cu, packed.cuh ----------------------------------------------------------------------------

// A packed Gaussian but for its colour. Numbers of 16 bits are halves. Mirrored by `unpacked` in packed_scene.py.
struct __align__(16) Shape {
    float x, y, z;                       // relative to the scene's origin
    float size;                          // the largest standard deviation
    u16 quat[4];                         // w, x, y, z, of length 1
    u16 ratio[3];                        // standard deviations by `size`
    u16 opacity;
};

// -- frames: frame.cu, projection.cu, packed.cu ------------------------------------------------------------------------

constexpr float ALPHA_MIN = 1.0f / 255.0f;
constexpr float COLOR_MAX = 16383.0f;
__device__ const float MARK_COLOR[3] = {1.0f, 0.25f, 0.85f};
constexpr int HIDDEN = 1, MARKED = 2;  // bits of `scene.flags`

// What changes from frame to frame. Mirrored by `Parameters` in parameters.py.
struct Frame {
    float viewmat[16];               // world to camera, by rows
    float intrinsics[9];             // K by rows
    float position[3];               // of the camera in the world
    float scale;                     // of standard deviations, where Gaussians are scaled
    float point_reach;               // where points end, pixels from their centre
    u64 rgba;                        // where the picture goes: height, width, 4
    u64 depth;                       // float height, width; 0: not wanted
    u64 needed;                      // i64: how many pairs the frame has, in pinned host memory
};

// `bytes`: of a channel of the picture, 2 (float16) or 4 (float32).
__device__ void store(const Frame *frame, int bytes, int pixel, float4 v) {
    if (bytes == 4) ((float4 *)frame->rgba)[pixel] = v;
    if (bytes == 2)
        ((uint2 *)frame->rgba)[pixel] = make_uint2(half_bits(v.x) | (u32)half_bits(v.y) << 16,
                                                   half_bits(v.z) | (u32)half_bits(v.w) << 16);
}

extern "C" __global__ void set_frame(const Frame frame, Frame *out) {
    const u32 i = threadIdx.x;
    if (i < sizeof(Frame) / 4) ((u32 *)out)[i] = ((const u32 *)&frame)[i];
}
