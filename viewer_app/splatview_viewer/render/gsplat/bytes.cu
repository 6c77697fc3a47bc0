// A picture that was drawn, over a background, as the bytes that OpenGL would make of it.

struct Background { float rgb[3]; };

// From `pixels` pixels of colour, premultiplied, and alpha: of 2 bytes a value, or of 4.
extern "C" __global__ void over_background(const void *rgba, int value_bytes, i64 pixels, Background background, u8 *rgb) {
    const i64 pixel = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    float values[4];
    if (value_bytes == 2) {
        const u64 halves = ((const u64 *)rgba)[pixel];
        for (int k = 0; k < 4; ++k) values[k] = half_value((u16)(halves >> 16 * k));
    } else {
        for (int k = 0; k < 4; ++k) values[k] = ((const float *)rgba)[4 * pixel + k];
    }
    const float transmittance = 1.0f - clamped(values[3], 0.0f, 1.0f);
    for (int k = 0; k < 3; ++k) {
        const float color = values[k] + transmittance * background.rgb[k];
        rgb[3 * pixel + k] = (u8)(clamped(color, 0.0f, 1.0f) * 255.0f + 0.5f);
    }
}
