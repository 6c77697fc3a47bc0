// Gaussians from packed blocks: `splatview_viewer.blocks.layout` is the table of their bits.

uniform usampler2D words;      // a row is a block of 1,024 Gaussians: two texels each, of the quick form one
uniform sampler2D headers;     // six texels a block; what they do not use, of the second one, is 1 once the block has
                               // harmonics
uniform usampler2D harmonics;  // `sh_rows` rows a block
uniform int sh_rows;

const float QUICK = 1.0;
const float SQRT_2 = 1.4142135623730951;

vec4 block_header(int index, int texel) {
    return texelFetch(headers, ivec2(texel, index >> 10), 0);
}

bool is_quick(int index) {
    return block_header(index, 0).w == QUICK;
}

uvec4 quick_words(int index) {
    return texelFetch(words, ivec2(index & 1023, index >> 10), 0);
}

uvec4 exact_words(int index, int half_of_it) {
    return texelFetch(words, ivec2((index & 1023) * 2 + half_of_it, index >> 10), 0);
}

// Numbers from 0 to 1 in the range that begins at a texel of the block's header.
vec3 in_range(int index, int texel, vec3 shares) {
    return block_header(index, texel).xyz + block_header(index, texel + 1).xyz * shares;
}

vec3 gaussian_mean(int index) {
    if (!is_quick(index)) return uintBitsToFloat(exact_words(index, 0).xyz);
    uvec4 w = quick_words(index);
    return in_range(index, 0, vec3(w.x & 0x7fffu, w.x >> 15 & 0x7fffu, w.y & 0x7fffu) / 32767.0);
}

float gaussian_opacity(int index) {
    if (!is_quick(index)) return unpackHalf2x16(exact_words(index, 0).w).x;
    return float(quick_words(index).w >> 24) / 255.0;
}

vec3 gaussian_scales(int index) {
    if (!is_quick(index)) {
        uvec4 w = exact_words(index, 1);
        return exp(vec3(unpackHalf2x16(w.y), unpackHalf2x16(w.z).x));
    }
    uvec4 w = quick_words(index);
    return exp(in_range(index, 2, vec3(w.y >> 16 & 0xffu, w.y >> 24, w.z & 0xffu) / 255.0));
}

vec3 gaussian_sh0(int index) {
    if (!is_quick(index)) {
        return vec3(unpackHalf2x16(exact_words(index, 0).w).y, unpackHalf2x16(exact_words(index, 1).x));
    }
    uint w = quick_words(index).z;
    return in_range(index, 4, vec3(w >> 8 & 0xffu, w >> 16 & 0xffu, w >> 24) / 255.0);
}

// A quaternion from its three smallest parts, which are numbers from 0 to 1 here.
vec4 smallest_three(vec3 shares, uint largest) {
    vec3 part = (shares - 0.5) * SQRT_2;
    float last = sqrt(max(1.0 - dot(part, part), 0.0));
    if (largest == 0u) return vec4(last, part);
    if (largest == 1u) return vec4(part.x, last, part.yz);
    if (largest == 2u) return vec4(part.xy, last, part.z);
    return vec4(part, last);
}

vec4 gaussian_quat(int index) {
    if (is_quick(index)) {
        uvec4 w = quick_words(index);
        return smallest_three(vec3(w.w & 0xffu, w.w >> 8 & 0xffu, w.w >> 16 & 0xffu) / 255.0, w.x >> 30);
    }
    uvec4 w = exact_words(index, 1);
    return smallest_three(vec3(w.w & 0x7fffu, w.w >> 15 & 0x7fffu, w.z >> 16 & 0x7fffu) / 32767.0, w.w >> 30);
}

bool has_harmonics(int index) {
    return block_header(index, 1).w > 0.0;
}

vec3 sh_coefficient(int index, int k) {
    int row = (index >> 10) * sh_rows + (k - 1 >> 2);
    uint w = texelFetch(harmonics, ivec2(index & 1023, row), 0)[k - 1 & 3];
    ivec3 mantissas = ivec3(uvec3(w) << uvec3(23, 14, 5)) >> 23;  // and their signs
    return vec3(mantissas) * uintBitsToFloat((w >> 27) + 104u << 23);  // 2^(exponent - 23)
}
