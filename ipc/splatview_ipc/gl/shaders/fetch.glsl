// Gives a picture's stored values from wherever its bytes lie. It starts the fragment shader: only #version and the
// source's defines come before it.
//   CHANNELS 1..4
//   SOURCE_TEXTURE   u_source_0 is a 2D texture; with PLANAR, rows of one channel below each other
//   SOURCE_BUFFER    u_source_0.. are buffer textures over PIECES pieces of memory that lie one after the other:
//     FETCH_TEXEL    one texel holds a pixel's channels
//     FETCH_ELEMENT  one texel holds one value; channels u_source_plane texels apart
//     FETCH_WORDS    texels are 32-bit words; a pixel's channels, of ELEMENT_BYTES 1 or 2 each, lie side by side
//     STEP         from a pixel to the one beside it, where that is short; else u_source_column says it
//     AT_START     the pixel at 0, 0 lies where u_source_0 starts; else u_source_base says where
//   DTYPE_U8  DTYPE_U16  DTYPE_F16  DTYPE_BF16  DTYPE_F32
#ifdef GL_ARB_shading_language_packing
#extension GL_ARB_shading_language_packing : enable
#endif

uniform ivec2 u_source_size;

// Width and height of the picture in pixels.
ivec2 source_size() { return u_source_size; }

#if defined(DTYPE_BF16) || defined(FETCH_WORDS)
#define SOURCE_TEXEL uvec4
#else
#define SOURCE_TEXEL vec4
#endif

// The values of a texel: bfloat16 is the upper half of a float32.
#ifdef DTYPE_BF16
vec4 source_values(uvec4 texel) { return uintBitsToFloat(texel << 16u); }
#else
vec4 source_values(vec4 texel) { return texel; }
#endif

vec4 source_masked(vec4 v) {
#if CHANNELS == 1
    return vec4(v.r, 0.0, 0.0, 0.0);
#elif CHANNELS == 2
    return vec4(v.rg, 0.0, 0.0);
#elif CHANNELS == 3
    return vec4(v.rgb, 0.0);
#else
    return v;
#endif
}

#ifdef SOURCE_TEXTURE

#ifdef DTYPE_BF16
uniform usampler2D u_source_0;
#else
uniform sampler2D u_source_0;
#endif

// The channels at column, row (row 0 is the top one), missing ones 0. uint8 and uint16 as 0..1.
vec4 stored(ivec2 p) {
#ifdef PLANAR
    vec4 v = vec4(0.0);
    for (int c = 0; c < CHANNELS; ++c)
        v[c] = source_values(texelFetch(u_source_0, ivec2(p.x, p.y + c * u_source_size.y), 0)).r;
    return v;
#else
    return source_masked(source_values(texelFetch(u_source_0, p, 0)));
#endif
}

#else

#if defined(DTYPE_BF16) || defined(FETCH_WORDS)
#define SOURCE_SAMPLER usamplerBuffer
#else
#define SOURCE_SAMPLER samplerBuffer
#endif

uniform int u_source_row;      // to the pixel below: texels, for FETCH_WORDS bytes
#ifndef AT_START
uniform int u_source_base;     // where the pixel at 0, 0 lies from u_source_0's start, in the same unit
#endif
#ifdef STEP  // a constant costs nothing, and 1 not even a multiplication
#define SOURCE_COLUMN STEP
#else
uniform int u_source_column;   // to the pixel beside
#define SOURCE_COLUMN u_source_column
#endif
uniform SOURCE_SAMPLER u_source_0;
#if PIECES > 1
uniform int u_source_cuts[PIECES];  // the first texel of each piece
uniform SOURCE_SAMPLER u_source_1;
#endif
#if PIECES > 2
uniform SOURCE_SAMPLER u_source_2;
#endif
#if PIECES > 3
uniform SOURCE_SAMPLER u_source_3;
#endif
#if PIECES > 4
uniform SOURCE_SAMPLER u_source_4;
#endif
#if PIECES > 5
uniform SOURCE_SAMPLER u_source_5;
#endif
#if PIECES > 6
uniform SOURCE_SAMPLER u_source_6;
#endif
#if PIECES > 7
uniform SOURCE_SAMPLER u_source_7;
#endif

SOURCE_TEXEL source_texel(int i) {
#if PIECES > 7
    if (i >= u_source_cuts[7]) return texelFetch(u_source_7, i - u_source_cuts[7]);
#endif
#if PIECES > 6
    if (i >= u_source_cuts[6]) return texelFetch(u_source_6, i - u_source_cuts[6]);
#endif
#if PIECES > 5
    if (i >= u_source_cuts[5]) return texelFetch(u_source_5, i - u_source_cuts[5]);
#endif
#if PIECES > 4
    if (i >= u_source_cuts[4]) return texelFetch(u_source_4, i - u_source_cuts[4]);
#endif
#if PIECES > 3
    if (i >= u_source_cuts[3]) return texelFetch(u_source_3, i - u_source_cuts[3]);
#endif
#if PIECES > 2
    if (i >= u_source_cuts[2]) return texelFetch(u_source_2, i - u_source_cuts[2]);
#endif
#if PIECES > 1
    if (i >= u_source_cuts[1]) return texelFetch(u_source_1, i - u_source_cuts[1]);
#endif
    return texelFetch(u_source_0, i);
}

// Where a pixel lies, in the unit of u_source_row. One multiplication with addition for most pictures.
int source_place(ivec2 p) {
#ifdef AT_START
    return p.y * u_source_row + p.x * SOURCE_COLUMN;
#else
    return p.y * u_source_row + (p.x * SOURCE_COLUMN + u_source_base);
#endif
}

#ifdef FETCH_TEXEL

vec4 stored(ivec2 p) {
    return source_masked(source_values(source_texel(source_place(p))));
}

#elif defined(FETCH_ELEMENT)

uniform int u_source_plane;

vec4 stored(ivec2 p) {
    int i = source_place(p);
    vec4 v = vec4(0.0);
    v.r = source_values(source_texel(i)).r;
#if CHANNELS > 1
    v.g = source_values(source_texel(i + u_source_plane)).r;
#endif
#if CHANNELS > 2
    v.b = source_values(source_texel(i + 2 * u_source_plane)).r;
#endif
#if CHANNELS > 3
    v.a = source_values(source_texel(i + 3 * u_source_plane)).r;
#endif
    return v;
}

#else  // FETCH_WORDS

// 32 bits out of two neighbouring words, from bit `shift` (0..31) of the first one on.
uint source_funnel(uint first, uint second, uint shift) {
    return (first >> shift) | ((second << 1u) << (31u - shift));
}

#if ELEMENT_BYTES == 1

vec4 stored(ivec2 p) {
    int at = source_place(p);
    int over = at & 3;
    uint first = source_texel(at >> 2).r;
    uint second = over + CHANNELS > 4 ? source_texel((at >> 2) + 1).r : 0u;
    uint bits = source_funnel(first, second, uint(over) * 8u);
#ifdef GL_ARB_shading_language_packing
    return source_masked(unpackUnorm4x8(bits));
#else
    return source_masked(vec4(bits & 255u, (bits >> 8) & 255u, (bits >> 16) & 255u, bits >> 24) / 255.0);
#endif
}

#else

vec2 source_pair(uint bits) {  // the lower half first
#ifdef DTYPE_BF16
    return uintBitsToFloat(uvec2(bits << 16u, bits & 0xffff0000u));
#elif defined(DTYPE_U16)
    return vec2(bits & 65535u, bits >> 16u) / 65535.0;
#elif defined(GL_ARB_shading_language_packing)
    return unpackHalf2x16(bits);
#else
    vec2 v;
    for (int k = 0; k < 2; ++k) {
        uint h = (bits >> (16 * k)) & 65535u;
        uint sign = (h & 0x8000u) << 16u, exponent = (h >> 10u) & 31u, mantissa = h & 1023u;
        uint magnitude = exponent == 0u ? floatBitsToUint(float(mantissa) * 5.9604644775390625e-8)
                       : (exponent == 31u ? 0x7f800000u : (exponent + 112u) << 23u) | (mantissa << 13u);
        v[k] = uintBitsToFloat(sign | magnitude);
    }
    return v;
#endif
}

vec4 stored(ivec2 p) {
    int at = source_place(p);
    uint over = uint(at & 2);
    int i = at >> 2;
    uint words[3];
    words[0] = source_texel(i).r;
    words[1] = CHANNELS > 2 || over > 0u ? source_texel(i + 1).r : 0u;
    words[2] = CHANNELS > 3 && over > 0u ? source_texel(i + 2).r : 0u;
    return source_masked(vec4(source_pair(source_funnel(words[0], words[1], over * 8u)),
                              source_pair(source_funnel(words[1], words[2], over * 8u))));
}

#endif
#endif
#endif
