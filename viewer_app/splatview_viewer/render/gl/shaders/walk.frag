// Composites as gsplat does (RasterizeToPixels3DGSFwd.cu): pixels walk along the list of their tile, nearest first.
// A fragment is 2x4 pixels, each with an output of its own; the 4x2 fragments of a tile are what llvmpipe runs in
// one go with AVX. So what is fetched, which costs most, serves eight pixels per lane.
// RINGS, POINTS: with another alpha, `form` and l22 in standard deviations or pixels. OVERDRAW: counts. BODIES: finds
// which surface is the nearest.

uniform isampler2D lists;     // which Gaussians touch a tile, as places in drawing order
uniform isampler2D ranges;    // first and end of each tile's list
uniform sampler2D form;       // what project.frag wrote
uniform usampler2D light;     // l22 as it is; red, green, blue in 24 bits each: 5 of exponent (2^-17 to 16383), 19 of
                              // mantissa; in the 8 below them the thirds of -log2 opacity, 24 bits from 0 to 8
uniform int list_bits;        // log2 of the texels in a row of `lists` and `ranges`
uniform int bits;             // and of `form` and `light`
uniform int across;           // tiles of the picture in a row
uniform int tiles;            // and in all
uniform int slot_bits;        // log2 of the columns that tiles are laid out in, see below
#if defined(DEPTH) || defined(BODIES)
uniform sampler2D depth;      // camera z
#endif
#ifdef BODIES
uniform sampler2D body0;      // slope and thickness
uniform float z_near;
#endif
#if defined(BODIES) || defined(RINGS)
uniform float body_sigmas;
#endif
#ifdef RINGS
uniform float ring_px;
uniform float ring_inside;
#endif
#ifdef POINTS
uniform float point_reach;
#endif
#ifdef RESUME
uniform sampler2D before0, before1, before2, before3, before4, before5, before6, before7;  // what earlier lists gave
#endif

layout(location = 0) out vec4 parts[8];  // of pixels x, y: number 2 y + x. rgb, transmittance, negative once finished;
                                         // BODIES: the Gaussian's place, divided by 4096 and what is left, z, and 0

const float ALPHA_MIN = 1.0 / 255.0, ALPHA_MAX = 0.999, TRANSMITTANCE_MIN = 1e-4;
const float TWO_TO_109 = 6.490371073168535e32;  // between exponents of 5 bits and of 8
const vec4 NONE = vec4(0.0);
const float FAR = 3e38;

ivec2 texel(int i, int bits) {
    return ivec2(i & ((1 << bits) - 1), i >> bits);
}

vec4 visible(vec4 alpha) {
    alpha = min(alpha, ALPHA_MAX);
    return mix(NONE, alpha, greaterThanEqual(alpha, vec4(ALPHA_MIN)));
}

#ifdef RINGS
vec4 outline(vec4 u, vec4 v, vec2 l1, float l22) {
    vec4 m = sqrt(u * u + v * v), x = l1.x * u, y = l1.y * u + l22 * v;
    vec4 inwards = (body_sigmas - m) * m / max(sqrt(x * x + y * y), 1e-12);
    vec4 line = clamp(min(inwards, ring_px + 1.0 - inwards), 0.0, 1.0);
    return mix(NONE, max(line, ring_inside), lessThanEqual(m, vec4(body_sigmas)));
}
#endif

void main() {
    // Tiles lie eight in a column, columns side by side. Mesa shares out the work in squares of 64 fragments: few of
    // these would be the whole picture, most of the work in one; so they are 128 tiles each.
    ivec2 lane = ivec2(gl_FragCoord.xy), slot = lane >> ivec2(2, 1);
    int number = (((slot.y >> 3) << slot_bits) + slot.x) * 8 + (slot.y & 7);
    if (number >= tiles) return;
    ivec2 range = texelFetch(ranges, texel(number, list_bits), 0).rg;
    ivec2 tile = ivec2(number % across, number / across);
    vec2 first = vec2(tile * 8 + (lane & ivec2(3, 1)) * ivec2(2, 4)) + 0.5;
    vec4 y = first.y + vec4(0.0, 1.0, 2.0, 3.0);

    // Left and right column of pixels; a vector holds one quantity of four rows.
    vec4 r0 = NONE, g0 = NONE, b0 = NONE, t0 = vec4(1.0);
    vec4 r1 = NONE, g1 = NONE, b1 = NONE, t1 = vec4(1.0);
#ifdef RESUME
    vec4 p0 = texelFetch(before0, lane, 0), p2 = texelFetch(before2, lane, 0);
    vec4 p4 = texelFetch(before4, lane, 0), p6 = texelFetch(before6, lane, 0);
    vec4 p1 = texelFetch(before1, lane, 0), p3 = texelFetch(before3, lane, 0);
    vec4 p5 = texelFetch(before5, lane, 0), p7 = texelFetch(before7, lane, 0);
    r0 = vec4(p0.r, p2.r, p4.r, p6.r), g0 = vec4(p0.g, p2.g, p4.g, p6.g);
    b0 = vec4(p0.b, p2.b, p4.b, p6.b), t0 = vec4(p0.a, p2.a, p4.a, p6.a);
    r1 = vec4(p1.r, p3.r, p5.r, p7.r), g1 = vec4(p1.g, p3.g, p5.g, p7.g);
    b1 = vec4(p1.b, p3.b, p5.b, p7.b), t1 = vec4(p1.a, p3.a, p5.a, p7.a);
#endif

    for (int i = range.x; i < range.y; ++i) {
#ifdef BODIES
        int place = texelFetch(lists, texel(i, list_bits), 0).r;
        ivec2 at = texel(place, bits);
        vec4 f = texelFetch(form, at, 0), body = texelFetch(body0, at, 0);
        float high = float(place >> 12), low = float(place & 4095), z = texelFetch(depth, at, 0).r;
        vec4 dy = y - f.y, v = uintBitsToFloat(texelFetch(light, at, 0).x) * dy;
        vec4 u0 = f.z * (first.x - f.x) + f.w * dy, u1 = f.z * (first.x + 1.0 - f.x) + f.w * dy;
        vec4 s0 = body_sigmas * body_sigmas - (u0 * u0 + v * v), s1 = body_sigmas * body_sigmas - (u1 * u1 + v * v);
        vec4 z0 = z + body.x * u0 + body.y * v - body.z * sqrt(max(s0, 0.0));
        vec4 z1 = z + body.x * u1 + body.y * v - body.z * sqrt(max(s1, 0.0));
        // Out of the body or cut away: as far as can be.
        z0 = mix(vec4(FAR), z0, greaterThanEqual(min(s0, z0 - z_near), NONE));
        z1 = mix(vec4(FAR), z1, greaterThanEqual(min(s1, z1 - z_near), NONE));
        bvec4 nearer0 = lessThan(z0, mix(b0, vec4(FAR), t0)), nearer1 = lessThan(z1, mix(b1, vec4(FAR), t1));
        r0 = mix(r0, vec4(high), nearer0), g0 = mix(g0, vec4(low), nearer0), b0 = mix(b0, z0, nearer0);
        r1 = mix(r1, vec4(high), nearer1), g1 = mix(g1, vec4(low), nearer1), b1 = mix(b1, z1, nearer1);
        t0 = mix(t0, NONE, nearer0), t1 = mix(t1, NONE, nearer1);
    }
#else
        ivec2 at = texel(texelFetch(lists, texel(i, list_bits), 0).r, bits);
        vec4 f = texelFetch(form, at, 0);
        uvec4 l = texelFetch(light, at, 0);
        uvec3 thirds = l.yzw & 0xffu;
        float log_opacity = float(thirds.x << 16 | thirds.y << 8 | thirds.z) / -2097152.0;  // 2^21
#ifdef DEPTH
        vec3 rgb = vec3(texelFetch(depth, at, 0).r, 0.0, 0.0);
#else
        vec3 rgb = uintBitsToFloat(l.yzw >> 4 & 0xffffff0u) * TWO_TO_109;
#endif
        vec4 dy = y - f.y, v = uintBitsToFloat(l.x) * dy;
        vec4 peak = log_opacity - v * v;
        vec4 u0 = f.z * (first.x - f.x) + f.w * dy, u1 = f.z * (first.x + 1.0 - f.x) + f.w * dy;
#if defined(OVERDRAW)
        r0 += sign(visible(exp2(peak - u0 * u0))), r1 += sign(visible(exp2(peak - u1 * u1)));
    }
    g0 = b0 = r0, g1 = b1 = r1;
    t0 = vec4(1.0) - sign(r0), t1 = vec4(1.0) - sign(r1);
#else
#if defined(RINGS)
        float l22 = uintBitsToFloat(l.x);
        vec4 w0 = visible(outline(u0, v, f.zw, l22)) * max(t0, 0.0);
        vec4 w1 = visible(outline(u1, v, f.zw, l22)) * max(t1, 0.0);
#elif defined(POINTS)
        vec4 w0 = visible(clamp(point_reach - sqrt(u0 * u0 + v * v), 0.0, 1.0)) * max(t0, 0.0);
        vec4 w1 = visible(clamp(point_reach - sqrt(u1 * u1 + v * v), 0.0, 1.0)) * max(t1, 0.0);
#else
        vec4 w0 = visible(exp2(peak - u0 * u0)) * t0, w1 = visible(exp2(peak - u1 * u1)) * t1;
#endif
        // A pixel ends before the Gaussian that would take it to the minimum: then its sign says so.
        vec4 after0 = t0 - w0, after1 = t1 - w1;
        bvec4 open0 = greaterThan(after0, vec4(TRANSMITTANCE_MIN));
        bvec4 open1 = greaterThan(after1, vec4(TRANSMITTANCE_MIN));
#if defined(RINGS) || defined(POINTS)  // these are all but opaque: it ends after it
        t0 = after0, t1 = after1;
#else
        w0 = mix(NONE, w0, open0);
        w1 = mix(NONE, w1, open1);
#endif
        r0 += w0 * rgb.r;
        g0 += w0 * rgb.g;
        b0 += w0 * rgb.b;
        r1 += w1 * rgb.r;
        g1 += w1 * rgb.g;
        b1 += w1 * rgb.b;
        t0 = mix(-abs(t0), after0, open0);
        t1 = mix(-abs(t1), after1, open1);
        vec4 most = max(t0, t1);
        if (max(max(most.x, most.y), max(most.z, most.w)) < 0.0) break;
    }
#endif
#endif
    parts[0] = vec4(r0.x, g0.x, b0.x, t0.x), parts[1] = vec4(r1.x, g1.x, b1.x, t1.x);
    parts[2] = vec4(r0.y, g0.y, b0.y, t0.y), parts[3] = vec4(r1.y, g1.y, b1.y, t1.y);
    parts[4] = vec4(r0.z, g0.z, b0.z, t0.z), parts[5] = vec4(r1.z, g1.z, b1.z, t1.z);
    parts[6] = vec4(r0.w, g0.w, b0.w, t0.w), parts[7] = vec4(r1.w, g1.w, b1.w, t1.w);
}
