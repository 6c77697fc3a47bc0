// Gaussians from textures of floats.

uniform sampler2D gaussians;  // four texels side by side each: mean relative to the scene's origin and opacity,
                              // unit quaternion wxyz, standard deviations, sh0
uniform sampler2D shN;        // K-1 texels side by side per Gaussian
uniform int packed_columns;   // Gaussians per row of `gaussians`
uniform int sh_columns;       // Gaussians per row of shN
uniform int sh_stored;        // K-1

vec4 gaussian_texel(int index, int place) {
    return texelFetch(gaussians, ivec2(index % packed_columns * 4 + place, index / packed_columns), 0);
}

vec3 gaussian_mean(int index) {
    return gaussian_texel(index, 0).xyz;
}

float gaussian_opacity(int index) {
    return gaussian_texel(index, 0).w;
}

vec4 gaussian_quat(int index) {
    return gaussian_texel(index, 1);
}

vec3 gaussian_scales(int index) {
    return gaussian_texel(index, 2).xyz;
}

vec3 gaussian_sh0(int index) {
    return gaussian_texel(index, 3).rgb;
}

// Whether there are coefficients beyond the first.
bool has_harmonics(int index) {
    return true;
}

vec3 sh_coefficient(int index, int k) {
    return texelFetch(shN, ivec2(index % sh_columns * sh_stored + k - 1, index / sh_columns), 0).rgb;
}
