// Projects every Gaussian once: one fragment per Gaussian. A fragment pass, because that is what GL 3.3 spreads
// over all cores and lanes of every implementation. Its results lie in drawing order, so that the draw, whose vertex
// stage a software rasteriser runs on one core, reads memory in sequence.
// What it reads of a Gaussian it reads through the functions of read_floats.glsl or read_blocks.glsl.
// The rules are those of gsplat 1.5.3 (ProjectionEWA3DGSFused.cu, Utils.cuh, SphericalHarmonicsCUDA.cu).
// NORMALS, BODIES, RINGS, POINTS, OVERDRAW: for another paint than colour (`RenderOptions.paint`).

uniform isampler2D order;     // which Gaussian comes when; from 2^30 on it is marked
uniform int count;            // how many of `order` count
uniform int columns;          // Gaussians per row of `order` and the targets
uniform int sh_degree;
uniform mat3 rotation;        // world to camera
uniform vec3 translation;     // with the scene's origin in it
uniform vec2 focal;
uniform vec2 center;
uniform vec2 size;            // of the picture
uniform vec2 limit_low;       // x/z, y/z are clamped to these before the Jacobian
uniform vec2 limit_high;
uniform float z_near;
uniform float z_far;
uniform float eps_2d;
uniform float covariance_max;
uniform int model;             // 0 pinhole, 1 ortho, 2 fisheye
uniform bool antialiased;
uniform float scale;           // of standard deviations
uniform vec3 mark_color;       // mixed into those that are marked
uniform float body_sigmas;
uniform float point_reach;     // where a point ends, pixels from its centre

#if defined(BODIES) || defined(RINGS) || defined(POINTS)
#define SHAPED
#endif

#ifdef TILES
layout(location = 0) out vec4 out_form;   // centre in pixels; l11, l12 of the inverse covariance's Cholesky factor
layout(location = 1) out uvec4 out_light; // l22; red, green and blue with log2 opacity: see walk.frag
layout(location = 2) out float out_depth; // camera z
layout(location = 3) out ivec2 out_box;   // tiles with pixels in the box around the ellipse: number of the first,
                                          // width and height << 16
const int TILE_BITS = 3;
const float MARGIN = 1e-3;                // in pixels, so that rounding at the border loses none
const float SQRT_HALF_LOG2_E = 0.849321800288019;
const float TWO_TO_MINUS_109 = 1.5407439555097887e-33;
#else
layout(location = 0) out vec4 out_place;  // centre in pixels, camera z, opacity
layout(location = 1) out vec4 out_shape;  // major half axis (1 sigma, pixels), minor sigma, radius in sigmas
layout(location = 2) out vec4 out_color;
#endif
#ifdef BODIES  // numbers of the surface by `reference.Bodies`: slope, thickness, then the rows of its normals
#ifdef TILES
layout(location = 4) out vec4 out_body0;
layout(location = 5) out vec4 out_body1;
layout(location = 6) out vec4 out_body2;
#else
layout(location = 3) out vec4 out_body0;
layout(location = 4) out vec4 out_body1;
layout(location = 5) out vec4 out_body2;
#endif
#endif

mat3 rotation_of(vec4 q) {
    float w = q.x, x = q.y, y = q.z, z = q.w;
    return mat3(1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y),
                2.0 * (x * y - w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + w * x),
                2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y));
}

// atan(y, x) for y > 0, to two units in the last place (Cephes' atanf): drivers' own is good to 1e-5, which shows.
float angle(float y, float x) {
    float ratio = min(y, abs(x)) / max(y, abs(x)), base = 0.0;
    if (ratio > 0.4142135623730950) {
        base = 0.7853981633974483;
        ratio = (ratio - 1.0) / (ratio + 1.0);
    }
    float r = ratio * ratio;
    float a = base + ratio + ratio * r * (((8.05374449538e-2 * r - 1.38776856032e-1) * r + 1.99777106478e-1) * r
                                          - 3.33329491539e-1);
    if (y > abs(x)) a = 1.5707963267948966 - a;
    return x < 0.0 ? 3.1415926535897932 - a : a;
}

// Sloan, "Efficient Spherical Harmonic Evaluation", JCGT 2013, degrees 1 to 4.
vec3 view_dependent(int index, vec3 dir) {
    float x = dir.x, y = dir.y, z = dir.z;
    vec3 rgb = 0.48860251190292 * (-y * sh_coefficient(index, 1) + z * sh_coefficient(index, 2) - x * sh_coefficient(index, 3));
    if (sh_degree < 2) return rgb;
    float z2 = z * z, c1 = x * x - y * y, s1 = 2.0 * x * y, b0 = -1.092548430592079 * z;
    rgb += 0.5462742152960395 * s1 * sh_coefficient(index, 4) + b0 * y * sh_coefficient(index, 5)
         + (0.9461746957575601 * z2 - 0.3153915652525201) * sh_coefficient(index, 6)
         + b0 * x * sh_coefficient(index, 7) + 0.5462742152960395 * c1 * sh_coefficient(index, 8);
    if (sh_degree < 3) return rgb;
    float c0 = -2.285228997322329 * z2 + 0.4570457994644658, b1 = 1.445305721320277 * z;
    float c2 = x * c1 - y * s1, s2 = x * s1 + y * c1;
    rgb += -0.5900435899266435 * s2 * sh_coefficient(index, 9) + b1 * s1 * sh_coefficient(index, 10)
         + c0 * y * sh_coefficient(index, 11)
         + z * (1.865881662950577 * z2 - 1.119528997770346) * sh_coefficient(index, 12)
         + c0 * x * sh_coefficient(index, 13) + b1 * c1 * sh_coefficient(index, 14)
         - 0.5900435899266435 * c2 * sh_coefficient(index, 15);
    if (sh_degree < 4) return rgb;
    float d0 = z * (2.007139630671868 - 4.683325804901025 * z2), d1 = 3.31161143515146 * z2 - 0.47308734787878;
    float d2 = -1.770130769779931 * z;
    rgb += 0.6258357354491763 * ((x * s2 + y * c2) * sh_coefficient(index, 16) + (x * c2 - y * s2) * sh_coefficient(index, 24))
         + d2 * (s2 * sh_coefficient(index, 17) + c2 * sh_coefficient(index, 23))
         + d1 * (s1 * sh_coefficient(index, 18) + c1 * sh_coefficient(index, 22))
         + d0 * (y * sh_coefficient(index, 19) + x * sh_coefficient(index, 21))
         + 0.10578554691520430 * ((35.0 * z2 - 30.0) * z2 + 3.0) * sh_coefficient(index, 20);
    return rgb;
}

void main() {
    ivec2 slot = ivec2(gl_FragCoord.xy);
#ifdef TILES
    out_form = vec4(0.0);
    out_light = uvec4(0u);
    out_box = ivec2(0);
    out_depth = 0.0;
#else
    out_place = out_shape = out_color = vec4(0.0);
#endif
#ifdef BODIES
    out_body0 = out_body1 = out_body2 = vec4(0.0);
#endif
    if (slot.y * columns + slot.x >= count) return;
    int entry = texelFetch(order, slot, 0).r, index = entry & 0x3fffffff;

    vec3 p = rotation * gaussian_mean(index) + translation;
    if (!(p.z >= z_near && p.z <= z_far)) return;
    vec3 s = gaussian_scales(index);
    mat3 m = rotation * rotation_of(gaussian_quat(index));
#ifdef NORMALS
    vec3 shortest = s.x <= s.y && s.x <= s.z ? m[0] : s.y <= s.z ? m[1] : m[2];
#endif
    s *= scale;
    m = mat3(m[0] * s.x, m[1] * s.y, m[2] * s.z);  // m m^T is the covariance in camera space

    // The Jacobian's rows times m: a square root of the projected covariance. Working with it instead of the
    // covariance keeps the determinant of thin Gaussians exact (Cauchy-Binet: it is |row_x x row_y|^2).
    vec3 mx = vec3(m[0].x, m[1].x, m[2].x), my = vec3(m[0].y, m[1].y, m[2].y), mz = vec3(m[0].z, m[1].z, m[2].z);
    vec3 row_x, row_y, jacobian_x, jacobian_y;
    vec2 c;
    if (model == 1) {
        jacobian_x = vec3(focal.x, 0.0, 0.0);
        jacobian_y = vec3(0.0, focal.y, 0.0);
        row_x = focal.x * mx;
        row_y = focal.y * my;
        c = focal * p.xy + center;
    } else if (model == 2) {  // equidistant; with gsplat's guard against dividing by 0 on the axis
        const float EPS = 1e-7;
        float from_axis = length(p.xy) + EPS;
        c = focal * p.xy * (angle(from_axis, p.z + EPS) / from_axis) + center;
        float x2 = p.x * p.x + EPS, y2 = p.y * p.y, x2y2 = x2 + y2, inverse = 1.0 / (x2y2 + p.z * p.z);
        float across = angle(from_axis, p.z) / from_axis / x2y2, along = p.z * inverse / x2y2;
        float mixed = p.x * p.y * (along - across);
        jacobian_x = focal.x * vec3(x2 * along + y2 * across, mixed, -p.x * inverse);
        jacobian_y = focal.y * vec3(mixed, y2 * along + x2 * across, -p.y * inverse);
        row_x = focal.x * ((x2 * along + y2 * across) * mx + mixed * my - p.x * inverse * mz);
        row_y = focal.y * (mixed * mx + (y2 * along + x2 * across) * my - p.y * inverse * mz);
    } else {
        vec2 slope = clamp(p.xy / p.z, limit_low, limit_high);
        jacobian_x = focal.x / p.z * vec3(1.0, 0.0, -slope.x);
        jacobian_y = focal.y / p.z * vec3(0.0, 1.0, -slope.y);
        row_x = focal.x / p.z * (mx - slope.x * mz);
        row_y = focal.y / p.z * (my - slope.y * mz);
        c = focal * (p.xy / p.z) + center;
    }
    float xx = dot(row_x, row_x), xy = dot(row_x, row_y), yy = dot(row_y, row_y);
    vec3 crossed = cross(row_x, row_y);
    float det_sharp = dot(crossed, crossed);
    float det = det_sharp + eps_2d * (xx + yy) + eps_2d * eps_2d;
    xx += eps_2d;
    yy += eps_2d;
    if (!(xx + yy < covariance_max)) return;

    float opacity = gaussian_opacity(index);
#ifndef SHAPED
    if (antialiased) opacity *= sqrt(det_sharp / det);
#endif
    if (!(opacity >= 1.0 / 255.0)) return;
#ifdef POINTS
    vec2 half_box = vec2(point_reach);
    if (any(lessThan(c, vec2(0.0))) || any(greaterThanEqual(c, size))) return;
#else
#ifdef SHAPED
    float radius = body_sigmas;
#else
    float radius = sqrt(2.0 * log(255.0 * opacity));
#endif
    vec2 half_box = radius * sqrt(vec2(xx, yy));
#endif
    if (!(all(greaterThan(c + half_box, vec2(0.0))) && all(lessThan(c - half_box, size)))) return;

#ifdef NORMALS
    vec3 rgb = 0.5 + 0.5 * (dot(shortest, model == 1 ? vec3(0.0, 0.0, 1.0) : p) > 0.0 ? -shortest : shortest);
#elif defined(OVERDRAW)
    vec3 rgb = vec3(1.0);
#else
    vec3 rgb = 0.2820947917738781 * gaussian_sh0(index);
    // From the camera to the mean, in world axes.
    if (sh_degree > 0 && has_harmonics(index)) rgb += view_dependent(index, transpose(rotation) * normalize(p));

    rgb = clamp(rgb + 0.5, 0.0, 16383.0);
#endif
#ifndef OVERDRAW
    if (entry >= 0x40000000) rgb = 0.5 * (rgb + mark_color);
#endif

#ifdef TILES
    ivec2 low = ivec2(max(ceil(c - half_box - 0.5 - MARGIN), 0.0));
    ivec2 high = ivec2(min(floor(c + half_box - 0.5 + MARGIN), size - 1.0));
    if (high.x < low.x || high.y < low.y) return;  // between the centres of pixels
    low >>= TILE_BITS;
    ivec2 sides = (high >> TILE_BITS) - low + 1;
    int row = (int(size.x) - 1 >> TILE_BITS) + 1;
    out_box = ivec2(low.y * row + low.x, sides.y << 16 | sides.x);
    // alpha is exp2(log2 opacity - |l d|^2) at an offset of d pixels: l^T l is the inverse covariance times
    // log2(e)/2. A square root again, which stays exact for needles whose conic would cancel.
#ifdef POINTS
    out_form = vec4(c, 1.0, 0.0);
    float l22 = 1.0;
#elif defined(SHAPED)  // in standard deviations
    out_form = vec4(c, sqrt(yy / det), -xy / sqrt(yy * det));
    float l22 = 1.0 / sqrt(yy);
#else
    out_form = vec4(c, SQRT_HALF_LOG2_E * vec2(sqrt(yy / det), -xy / sqrt(yy * det)));
    float l22 = SQRT_HALF_LOG2_E / sqrt(yy);
#endif
    uvec3 light = (floatBitsToUint(min(rgb, 16383.0) * TWO_TO_MINUS_109) + 8u) >> 4 << 8;
    uint fade = min(uint(max(-log2(opacity), 0.0) * 2097152.0 + 0.5), 0xffffffu);
    out_light = uvec4(floatBitsToUint(l22), light | (uvec3(fade) >> uvec3(16, 8, 0) & 0xffu));
    out_depth = p.z;
    vec2 whiten_0 = out_form.zw, whiten_1 = vec2(0.0, l22);
#else
    // Eigenvectors of [[xx, xy], [xy, yy]], each formula on the side where nothing cancels.
    float d = 0.5 * (xx - yy);
    float root = length(vec2(d, xy));
    float major = 0.5 * (xx + yy) + root;
    vec2 axis = d >= 0.0 ? vec2(root + d, xy) : vec2(xy, root - d);
    axis = root > 0.0 ? normalize(axis) : vec2(1.0, 0.0);

    out_place = vec4(c, p.z, opacity);
#ifdef POINTS
    out_shape = vec4(point_reach, 0.0, point_reach, 1.0);
#else
    out_shape = vec4(sqrt(major) * axis, sqrt(det / major), radius);
#endif
    out_color = vec4(rgb, 1.0);
    vec2 whiten_0 = axis / sqrt(major), whiten_1 = vec2(-axis.y, axis.x) / sqrt(det / major);
#endif
#ifdef BODIES
    vec2 together = vec2(dot(row_x, mz), dot(row_y, mz));
    vec2 rise = vec2(dot(whiten_0, together), dot(whiten_1, together));
    float thickness = sqrt(max(dot(mz, mz) - dot(rise, rise), 0.0));
    vec3 side_0 = whiten_0.x * jacobian_x + whiten_0.y * jacobian_y;
    vec3 side_1 = whiten_1.x * jacobian_x + whiten_1.y * jacobian_y;
    vec3 front = rise.x * side_0 + rise.y * side_1 - vec3(0.0, 0.0, 1.0);
    out_body0 = vec4(rise, thickness, front.x);
    out_body1 = vec4(front.yz, thickness * side_0.xy);
    out_body2 = thickness * vec4(side_0.z, side_1);
#endif
}
