// Resolves an image from wherever its bytes are. fetch.glsl of splatview_ipc.gl comes first: it gives `stored` and
// `source_size`, and CHANNELS; then `color_maps.SHADER`. With COUNT it counts broken values, otherwise it draws the picture:
//   COMPUTE      by a compute shader, into an image
//   ENLARGED     a pixel of the picture is as large as one of the screen or larger
//   THREE_TAPS   it is smaller, but at least half as large
//   FINITE       no value is NaN or infinite, and values are colours as they are
//   OPAQUE       alpha is ignored, or there is none
//   RANGE        values go from u_range.x to u_range.y
//   MAPPED       one channel of measurements, by the colour map over that range
//   BGR          blue comes first

uniform vec2 u_range;       // what is shown as 0 and 1

// Straight (not premultiplied) colour and alpha: grey, grey + alpha, RGB or RGBA.
vec4 rgba(ivec2 p) {
    vec4 v = stored(p);
#ifdef MAPPED
    // Where nothing was measured, which is 0, lies the ground.
    return vec4(mapped((v.r - u_range.x) / max(u_range.y - u_range.x, 1e-12)), v.r > 0.0 ? 1.0 : 0.0);
#endif
#if CHANNELS == 1
    v = vec4(v.rrr, 1.0);
#elif CHANNELS == 2
    v = vec4(v.rrr, v.g);
#elif CHANNELS == 3
    v.a = 1.0;
#endif
#if defined(BGR) && CHANNELS > 2
    v.rgb = v.bgr;
#endif
#ifdef RANGE
    // An infinite depth lies at the end of the range; NaN stays what it is.
    if (CHANNELS < 3 && (floatBitsToUint(v.r) & 0x7fffffffu) <= 0x7f800000u) v.rgb = clamp(v.rgb, u_range.x, u_range.y);
    v.rgb = (v.rgb - u_range.x) / max(u_range.y - u_range.x, 1e-12);
#endif
    return v;
}

// isnan and isinf may be optimised away; bits are not.
bool broken(float v) { return (floatBitsToUint(v) & 0x7f800000u) == 0x7f800000u; }
bool broken(vec4 v) { return broken(v.r) || broken(v.g) || broken(v.b) || broken(v.a); }

#ifdef COUNT

// Of a block of COUNT by COUNT pixels the values in the middle, and how many are NaN or infinite.
out vec4 f_count;

void main() {
    ivec2 first = ivec2(gl_FragCoord.xy) * COUNT, end = min(first + COUNT, source_size());
    int n = 0;
#ifndef DTYPE_U16
    for (int y = first.y; y < end.y; ++y)
        for (int x = first.x; x < end.x; ++x) {
            vec4 v = stored(ivec2(x, y));
            n += int(broken(v.r)) + int(broken(v.g)) + int(broken(v.b)) + int(broken(v.a));
        }
#endif
    f_count = vec4(stored((first + end) / 2).rgb, float(n));
}

#else

const vec3 BROKEN = vec3(1.0, 0.0, 1.0);  // no tone mapping makes this of a grey or natural colour
const int MAX_TAPS = 8;                   // along an axis

uniform vec2 u_origin;      // the picture's top left corner on the screen, in pixels from the top left
uniform float u_zoom;       // screen pixels per picture pixel
uniform float u_height;     // of the framebuffer
uniform vec3 u_background;
uniform int u_alpha;        // 0 checkerboard, 1 background
uniform float u_checker;    // size of a square in pixels
uniform float u_gain;
uniform float u_inv_gamma;

bool bad = false;           // a pixel that was read is broken

// Premultiplied colour and alpha of a pixel.
vec4 tap(ivec2 p) {
    vec4 c = rgba(p);
#ifndef FINITE
    bad = bad || broken(c);
#endif
#ifdef OPAQUE
    return vec4(c.rgb, 1.0);
#else
    return vec4(c.rgb * c.a, c.a);
#endif
}

#ifdef THREE_TAPS

// Shares of the footprint from `lo` to `hi` that lie on the pixel `first` and the two after it.
vec3 shares(float lo, float hi, int first) {
    vec3 edges = float(first) + vec3(0.0, 1.0, 2.0);
    return max(min(edges + 1.0, hi) - max(edges, lo), 0.0);
}

// The sum over the footprint, every picture pixel by its share. Taps beyond it have none, and read its last pixel again:
// one that is not there may be broken.
vec4 sum_over(vec2 lo, vec2 hi) {
    ivec2 first = ivec2(lo);
    vec3 wx = shares(lo.x, hi.x, first.x), wy = shares(lo.y, hi.y, first.y);
    vec4 sum = vec4(0.0);
    ivec2 last = ivec2(ceil(hi)) - 1;
    for (int j = 0; j < 3; ++j) {
        vec4 row = vec4(0.0);
        for (int i = 0; i < 3; ++i) row += tap(min(first + ivec2(i, j), last)) * wx[i];
        sum += row * wy[j];
    }
    return sum;
}

#else

// The sum over the footprint: every picture pixel by its share, or, where the footprint covers more than MAX_TAPS of
// them, evenly spread samples.
vec4 sum_over(vec2 lo, vec2 hi) {
    ivec2 first = ivec2(lo), count = ivec2(ceil(hi)) - first;
    ivec2 taps = min(count, ivec2(MAX_TAPS));
    bvec2 exact = lessThanEqual(count, ivec2(MAX_TAPS));
    vec2 pace = (hi - lo) / vec2(taps);
    vec4 sum = vec4(0.0);
    for (int j = 0; j < taps.y; ++j) {
        int y = exact.y ? first.y + j : int(lo.y + (float(j) + 0.5) * pace.y);
        float wy = exact.y ? min(hi.y, float(y + 1)) - max(lo.y, float(y)) : pace.y;
        for (int i = 0; i < taps.x; ++i) {
            int x = exact.x ? first.x + i : int(lo.x + (float(i) + 0.5) * pace.x);
            float wx = exact.x ? min(hi.x, float(x + 1)) - max(lo.x, float(x)) : pace.x;
            sum += tap(ivec2(x, y)) * (wx * wy);
        }
    }
    return sum;
}

#endif

vec3 behind_at(vec2 at) {
    if (u_alpha != 0) return u_background;
    ivec2 square = ivec2(floor((at - u_origin) / u_checker));
    return vec3(((square.x + square.y) & 1) == 0 ? 0.32 : 0.22);
}

// The colour of the screen at a place, in pixels from the top left.
vec3 color_at(vec2 at) {
    vec2 p = (at - u_origin) / u_zoom;
    vec2 size = vec2(source_size());
#ifdef ENLARGED
    bool inside = all(greaterThanEqual(p, vec2(0.0))) && all(lessThan(p, size));
    float covered = inside ? 1.0 : 0.0;
    vec4 c = tap(clamp(ivec2(floor(p)), ivec2(0), source_size() - 1));
#else
    // The average over the part inside the picture of what one screen pixel covers.
    vec2 lo = clamp(p - 0.5 / u_zoom, vec2(0.0), size), hi = clamp(p + 0.5 / u_zoom, vec2(0.0), size);
    float area = (hi.x - lo.x) * (hi.y - lo.y);
    if (area <= 0.0) return u_background;
    float covered = min(area * u_zoom * u_zoom, 1.0);
    vec4 c = sum_over(lo, hi) / area;
#endif
#ifndef FINITE
    if (bad) {
        c = vec4(BROKEN, 1.0);
    } else if (c.a > 0.0) {
        c.rgb = pow(max(c.rgb / c.a * u_gain, 0.0), vec3(u_inv_gamma)) * c.a;
    }
#endif
    vec3 color = clamp(c.rgb, 0.0, 1.0);
#ifndef OPAQUE
    color += (1.0 - clamp(c.a, 0.0, 1.0)) * behind_at(at);
#endif
    return mix(u_background, color, covered);
}

#ifdef COMPUTE

layout(local_size_x = 16, local_size_y = 16) in;
layout(rgba8) writeonly uniform image2D u_target;   // lowest row first
uniform ivec4 u_viewport;                           // left, bottom, width and height in the framebuffer

void main() {
    ivec2 texel = ivec2(gl_GlobalInvocationID.xy);
    if (texel.x >= u_viewport.z || texel.y >= u_viewport.w) return;
    vec2 place = vec2(u_viewport.xy + texel) + 0.5;
    imageStore(u_target, texel, vec4(color_at(vec2(place.x, u_height - place.y)), 1.0));
}

#else

out vec4 f_color;

void main() { f_color = vec4(color_at(vec2(gl_FragCoord.x, u_height - gl_FragCoord.y)), 1.0); }

#endif
#endif
