// Stored values of a picture, from any memory and layout. It begins the shader: only #version, extensions and the source's
// defines precede it.
//   CHANNELS 1..4
//   SOURCE_TEXTURE   u_source_0 is a 2D texture; with PLANAR, the rows of each channel follow those of the one before
//   SOURCE_BUFFER    u_source_0.. are buffer textures over PIECES consecutive pieces of memory:
//     FETCH_TEXEL    one texel holds a pixel's channels
//     FETCH_ELEMENT  one texel holds one value; channels u_source_plane texels apart
//     STEP           texels from a pixel to the one beside it, if few; else u_source_column
//     AT_START       the pixel at 0, 0 is u_source_0's first texel; else it is texel u_source_base
//   DTYPE_U8  DTYPE_U16  DTYPE_F16  DTYPE_BF16  DTYPE_F32

uniform ivec2 u_source_size;

// Width and height of the picture in pixels.
ivec2 source_size() { return u_source_size; }

#ifdef DTYPE_BF16  // the upper half of a float32
#define SOURCE_TEXEL uvec4
vec4 source_values(uvec4 texel) { return uintBitsToFloat(texel << 16u); }
#else
#define SOURCE_TEXEL vec4
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

// `stored`: the channels at column, row (row 0 is the top one), missing ones 0; uint8 and uint16 as 0..1.

#ifdef SOURCE_TEXTURE

#ifdef DTYPE_BF16
uniform usampler2D u_source_0;
#else
uniform sampler2D u_source_0;
#endif

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

#ifdef DTYPE_BF16
#define SOURCE_SAMPLER usamplerBuffer
#else
#define SOURCE_SAMPLER samplerBuffer
#endif

uniform int u_source_row;           // texels to the pixel below
uniform int u_source_plane;         // texels to the next channel
uniform int u_source_cuts[PIECES];  // the first texel of each piece
uniform SOURCE_SAMPLER u_source_0, u_source_1, u_source_2, u_source_3, u_source_4, u_source_5, u_source_6, u_source_7;
#ifdef AT_START  // every instruction per pixel counts
#define SOURCE_BASE 0
#else
uniform int u_source_base;
#define SOURCE_BASE u_source_base
#endif
#ifdef STEP  // a constant costs nothing, and 1 not even a multiplication
#define SOURCE_COLUMN STEP
#else
uniform int u_source_column;
#define SOURCE_COLUMN u_source_column
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

vec4 stored(ivec2 p) {
    int i = p.y * u_source_row + (p.x * SOURCE_COLUMN + SOURCE_BASE);
#ifdef FETCH_TEXEL
    return source_masked(source_values(source_texel(i)));
#else
    vec4 v = vec4(0.0);
    for (int c = 0; c < CHANNELS; ++c)
        v[c] = source_values(source_texel(i + c * u_source_plane)).r;
    return v;
#endif
}

#endif
