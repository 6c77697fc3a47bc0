// What lies over a picture: outlines of boxes (BOX), lines and points (SEGMENT), masks (MASK). VERTEX: the first stage.
// Coordinates are those of the result's picture until they are placed; widths are pixels of the screen.

uniform vec4 u_place;       // of the picture's corner in the rectangle, and pixels of the screen per pixel of its own
uniform vec2 u_size;        // of the rectangle
uniform float u_threshold;  // what has a lower score is not drawn
uniform float u_opacity;
uniform float u_half;       // half of a line's width
uniform float u_rim;        // of what is dark around it
uniform float u_core;       // 0: the rims; 1: the lines; of boxes both are drawn at once
#ifdef VERTEX

in vec4 in_color;
in float in_floor;          // the score
flat out vec4 v_color;
out vec2 v_at;

vec2 placed(vec2 p) { return u_place.xy + p * u_place.zw; }

void put(vec2 at) {
    v_at = at;
    vec2 ndc = at / u_size * 2.0 - 1.0;
    gl_Position = in_floor < u_threshold ? vec4(2.0, 2.0, 2.0, 1.0) : vec4(ndc.x, -ndc.y, 0.0, 1.0);
}

vec2 corner(int i) { return vec2(i == 1 || i == 2 || i == 4 ? 1.0 : 0.0, i >= 2 && i != 3 ? 1.0 : 0.0); }

#ifdef MASK

in vec4 in_place;           // fractions of the picture
in vec4 in_part;            // texels
uniform vec2 u_picture;
flat out vec4 v_part;
out vec2 v_texel;

void main() {
    vec2 a = placed(in_place.xy * u_picture), b = placed(in_place.zw * u_picture);
    vec2 per = (in_part.zw - in_part.xy) / max(b - a, 1e-6), grow = vec2(2.0 * u_half + 1.0);
    vec2 c = corner(gl_VertexID);
    v_texel = mix(in_part.xy - grow * per, in_part.zw + grow * per, c);
    v_part = in_part;
    v_color = in_color;
    put(mix(a - grow, b + grow, c));
}

#else

in vec2 in_a, in_b;
in float in_thick;
flat out vec4 v_ends;
flat out float v_half;

void main() {
    vec2 a = placed(in_a), b = placed(in_b);
#ifdef BOX
    float off = 0.5 * mod(floor(2.0 * u_half * in_thick + 0.5), 2.0);  // lines of whole pixels fill them
    a = floor(a - off + 0.5) + off, b = floor(b - off + 0.5) + off;
#endif
    v_ends = vec4(a, b);
    v_half = u_half * in_thick;
    v_color = in_color;
    float m = v_half + u_rim + 0.5;
#ifdef BOX
    // Four strips that do not lie on each other: above, below, left, right.
    int strip = gl_VertexID / 6;
    vec2 c = corner(gl_VertexID % 6), middle = 0.5 * (a + b);
    vec2 low = a - m, high = b + m, inner = min(a + m, middle), outer = max(b - m, middle);
    vec4 s = strip == 0 ? vec4(low, high.x, inner.y) : strip == 1 ? vec4(low.x, outer.y, high)
           : strip == 2 ? vec4(low.x, inner.y, inner.x, outer.y) : vec4(outer.x, inner.y, high.x, outer.y);
    put(mix(s.xy, s.zw, c));
#else
    vec2 along = b - a;
    float len = length(along);
    along = len > 1e-4 ? along / len : vec2(1.0, 0.0);
    vec2 c = corner(gl_VertexID) * 2.0 - 1.0, across = vec2(-along.y, along.x);
    put((c.x < 0.0 ? a : b) + m * (c.x * along + c.y * across));
#endif
}

#endif
#else  // the second stage

flat in vec4 v_color;
in vec2 v_at;
out vec4 f_color;

#ifdef MASK

uniform sampler2D u_atlas;
flat in vec4 v_part;
in vec2 v_texel;

float inside(vec2 texel) {
    texel = clamp(texel, v_part.xy - 0.5, v_part.zw + 0.5);  // around each there is nothing
    return smoothstep(0.3, 0.7, textureLod(u_atlas, texel / vec2(textureSize(u_atlas, 0)), 0.0).r);
}

void main() {
    vec2 dx = dFdx(v_texel) * (u_half + 0.25), dy = dFdy(v_texel) * (u_half + 0.25);
    float low = 1.0, high = 0.0, sum = 0.0;
    for (int y = -1; y <= 1; ++y)
        for (int x = -1; x <= 1; ++x) {
            float round_off = x != 0 && y != 0 ? 0.7071 : 1.0;
            float v = inside(v_texel + round_off * (float(x) * dx + float(y) * dy));
            low = min(low, v);
            high = max(high, v);
            sum += v;
        }
    float fill = 0.40 * sum / 9.0, edge = 0.95 * (high - low);
    f_color = vec4(v_color.rgb, v_color.a * u_opacity * (1.0 - (1.0 - fill) * (1.0 - edge)));
    if (f_color.a <= 0.0) discard;
}

#else

flat in vec4 v_ends;
flat in float v_half;

float away() {  // from the line's middle
#ifdef BOX
    vec2 middle = 0.5 * (v_ends.xy + v_ends.zw), d = abs(v_at - middle) - 0.5 * (v_ends.zw - v_ends.xy);
    return abs(max(d.x, d.y));  // with sharp corners
#else
    vec2 along = v_ends.zw - v_ends.xy, from = v_at - v_ends.xy;
    float t = clamp(dot(from, along) / max(dot(along, along), 1e-8), 0.0, 1.0);
    return length(from - t * along);
#endif
}

void main() {
    float d = away();
    float line = clamp(v_half - d + 0.5, 0.0, 1.0), rim = 0.5 * clamp(v_half + u_rim - d + 0.5, 0.0, 1.0);
#ifdef BOX
    float covered = line + (1.0 - line) * rim;
    f_color = vec4(v_color.rgb * line / max(covered, 1e-4), v_color.a * covered * u_opacity);
#else
    f_color = u_core > 0.5 ? vec4(v_color.rgb, v_color.a * line * u_opacity)
                           : vec4(0.0, 0.0, 0.0, v_color.a * rim * u_opacity);
#endif
}

#endif
#endif
