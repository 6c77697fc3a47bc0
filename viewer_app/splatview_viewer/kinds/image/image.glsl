// Resolves an image from wherever its bytes lie. fetch.glsl of splatview_ipc.gl comes first: it gives `stored` and
// `source_size`, and CHANNELS; then `color_maps.SHADER`. With COUNT it counts broken values, otherwise it draws the picture; with NEAR only one
// whose pixels are as large as the screen's or larger, and whose values are colours as they are; with RANGE one
// whose values go from u_range.x to u_range.y. MAPPED: one channel of measurements, by the colour map over that range.
// BGR: blue comes first.

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
uniform int u_alpha;        // 0 checkerboard, 1 background, 2 ignored
uniform float u_checker;    // size of a square in pixels
uniform float u_gain;
uniform float u_inv_gamma;
out vec4 f_color;

vec3 behind_at(vec2 at) {
    if (u_alpha != 0) return u_background;
    ivec2 square = ivec2(floor((at - u_origin) / u_checker));
    return vec3(((square.x + square.y) & 1) == 0 ? 0.32 : 0.22);
}

#ifdef NEAR

// What the other one comes to then: on a CPU that draws, in a third of its time.
void main() {
    vec2 at = vec2(gl_FragCoord.x, u_height - gl_FragCoord.y);
    vec2 p = (at - u_origin) / u_zoom;
    ivec2 pixel = ivec2(floor(p)), size = source_size();
    bool inside = pixel.x >= 0 && pixel.y >= 0 && pixel.x < size.x && pixel.y < size.y;
    vec4 c = rgba(clamp(pixel, ivec2(0), size - 1));
#if CHANNELS == 2 || CHANNELS == 4 || defined(MAPPED)
    if (u_alpha != 2) c.rgb = c.rgb * c.a + (1.0 - c.a) * behind_at(at);
#endif
    f_color = vec4(inside ? c.rgb : u_background, 1.0);
}

#else

void main() {
    vec2 at = vec2(gl_FragCoord.x, u_height - gl_FragCoord.y);
    vec2 p = (at - u_origin) / u_zoom;
    vec2 size = vec2(source_size());
    vec4 sum = vec4(0.0);   // premultiplied colour and alpha, weighted
    float weight = 0.0;     // of the part of the footprint that lies inside the picture
    float whole = 1.0;
    bool bad = false;

    if (u_zoom >= 1.0) {
        if (all(greaterThanEqual(p, vec2(0.0))) && all(lessThan(p, size))) {
            vec4 c = rgba(ivec2(p));
            bad = broken(c);
            if (u_alpha == 2) c.a = 1.0;
            sum = vec4(c.rgb * c.a, c.a);
            weight = 1.0;
        }
    } else {
        // The average over what one screen pixel covers: every picture pixel by its share, or, where one covers
        // more than MAX_TAPS of them, evenly spread samples.
        vec2 lo = p - 0.5 / u_zoom, hi = p + 0.5 / u_zoom;
        whole = (hi.x - lo.x) * (hi.y - lo.y);
        lo = clamp(lo, vec2(0.0), size);
        hi = clamp(hi, vec2(0.0), size);
        ivec2 first = ivec2(floor(lo)), count = ivec2(ceil(hi)) - first;
        ivec2 taps = min(count, ivec2(MAX_TAPS));
        bvec2 exact = lessThanEqual(count, ivec2(MAX_TAPS));
        vec2 pace = (hi - lo) / vec2(max(taps, ivec2(1)));
        for (int j = 0; j < taps.y; ++j) {
            int y = exact.y ? first.y + j : int(lo.y + (float(j) + 0.5) * pace.y);
            float wy = exact.y ? min(hi.y, float(y + 1)) - max(lo.y, float(y)) : pace.y;
            for (int i = 0; i < taps.x; ++i) {
                int x = exact.x ? first.x + i : int(lo.x + (float(i) + 0.5) * pace.x);
                float wx = exact.x ? min(hi.x, float(x + 1)) - max(lo.x, float(x)) : pace.x;
                vec4 c = rgba(ivec2(x, y));
                bad = bad || broken(c);
                if (u_alpha == 2) c.a = 1.0;
                sum += vec4(c.rgb * c.a, c.a) * (wx * wy);
                weight += wx * wy;
            }
        }
    }

    if (weight <= 0.0) {
        f_color = vec4(u_background, 1.0);
        return;
    }
    vec4 c = sum / weight;
    if (bad) {
        c = vec4(BROKEN, 1.0);
    } else if (c.a > 0.0) {
        c.rgb = pow(max(c.rgb / c.a * u_gain, 0.0), vec3(u_inv_gamma)) * c.a;
    }
    vec3 color = clamp(c.rgb, 0.0, 1.0) + (1.0 - clamp(c.a, 0.0, 1.0)) * behind_at(at);
    f_color = vec4(mix(u_background, color, weight / whole), 1.0);
}

#endif
#endif
