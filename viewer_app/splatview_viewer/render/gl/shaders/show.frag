// Lays a blended picture over a background. NUMBERS: a number by a colour map, with DEPTH the mean depth of what was
// blended; ALPHA: how much is covered. SAMPLE: instead of colours the number and alpha of some pixels, row by row.

uniform sampler2D picture;     // premultiplied, row 0 at the top
uniform sampler2D depth;
uniform vec3 background;
#ifdef NUMBERS
const int KNOTS = 33;
uniform vec3 map[KNOTS];       // colours from one end of the range to the other, straight between these
uniform vec2 range;
#endif

#ifdef SAMPLE
uniform int columns;           // of the target
uniform int stride;            // every how manieth pixel of the picture is in it
#endif

layout(location = 0) out vec4 out_color;

void main() {
#ifdef SAMPLE
    ivec2 size = textureSize(picture, 0);
    int pixel = (int(gl_FragCoord.y) * columns + int(gl_FragCoord.x)) * stride;
    ivec2 at = ivec2(pixel % size.x, pixel / size.x);
    out_color = vec4(0.0);
    if (at.y >= size.y) return;
#else
    ivec2 at = ivec2(int(gl_FragCoord.x), textureSize(picture, 0).y - 1 - int(gl_FragCoord.y));
#endif
    vec4 blended = texelFetch(picture, at, 0);
    float alpha = clamp(blended.a, 0.0, 1.0);
    vec3 color = blended.rgb;
#ifdef NUMBERS
#ifdef DEPTH
    float number = blended.a > 1e-6 ? texelFetch(depth, at, 0).r / blended.a : 0.0;
#else
    float number = blended.r;
#endif
#ifdef SAMPLE
    out_color = vec4(number, alpha, 0.0, 0.0);
    return;
#endif
    float place = clamp((number - range.x) / max(range.y - range.x, 1e-12), 0.0, 1.0) * float(KNOTS - 1);
    int knot = min(int(place), KNOTS - 2);
    color = mix(map[knot], map[knot + 1], place - float(knot)) * alpha;
#endif
    vec3 seen = clamp(color + (1.0 - alpha) * background, 0.0, 1.0);
#ifdef ALPHA
    seen = vec3(alpha);
#endif
    out_color = vec4(seen, 1.0);
}
