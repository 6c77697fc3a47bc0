// Two pictures in one: split at a line, blended, side by side, or how far they are from each other. ERROR: the sum of
// squared differences over blocks of pixels instead, one block for each pixel that is drawn.

uniform sampler2D first_picture;
uniform sampler2D second_picture;

#ifdef ERROR

uniform ivec2 low;            // the first pixel that counts, from the lower left
uniform ivec2 high;           // behind the last
uniform int block;
out float f_sum;

void main() {
    ivec2 begin = low + ivec2(gl_FragCoord.xy) * block, end = min(begin + block, high);
    float sum = 0.0;
    for (int y = begin.y; y < end.y; y++)
        for (int x = begin.x; x < end.x; x++) {
            vec3 d = texelFetch(first_picture, ivec2(x, y), 0).rgb - texelFetch(second_picture, ivec2(x, y), 0).rgb;
            sum += dot(d, d);
        }
    f_sum = sum;
}

#else

uniform vec2 corner;          // of the rectangle, in pixels from the lower left
uniform vec2 size;
uniform int how;              // 0 split, 1 difference, 2 side by side, 3 blend
uniform float at;             // 0 to 1: where the line is, how much of the second
uniform float gain;
uniform vec4 first_part;      // what is seen of it: lower left corner and size, as shares of it
uniform vec4 second_part;
out vec4 f_color;

// The Inferno colour map (Smith and van der Walt, CC0), polynomial fit by Matt Zucker, CC0.
vec3 inferno(float t) {
    const vec3 c0 = vec3(0.0002189403691192265, 0.001651004631001012, -0.01948089843709184);
    const vec3 c1 = vec3(0.1065134194856116, 0.5639564367884091, 3.932712388889277);
    const vec3 c2 = vec3(11.60249308247187, -3.972853965665698, -15.9423941062914);
    const vec3 c3 = vec3(-41.70399613139459, 17.43639888205313, 44.35414519872813);
    const vec3 c4 = vec3(77.162935699427, -33.40235894210092, -81.80730925738993);
    const vec3 c5 = vec3(-71.31942824499214, 32.62606426397723, 73.20951985803202);
    const vec3 c6 = vec3(25.13112622477341, -12.24266895238567, -23.07032500287172);
    return c0 + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * (c5 + t * c6)))));
}

vec3 first(vec2 p) { return texture(first_picture, first_part.xy + p * first_part.zw).rgb; }
vec3 second(vec2 p) { return texture(second_picture, second_part.xy + p * second_part.zw).rgb; }

void main() {
    vec2 place = (gl_FragCoord.xy - corner) / size;
    vec3 color;
    if (how == 0) color = place.x < at ? first(place) : second(place);
    else if (how == 1) {
        vec3 d = abs(first(place) - second(place));
        color = clamp(inferno(clamp((d.r + d.g + d.b) / 3.0 * gain, 0.0, 1.0)), 0.0, 1.0);
    } else if (how == 2) {
        float half_width = floor(size.x / 2.0), x = gl_FragCoord.x - corner.x;
        color = x < half_width ? first(vec2(x / half_width, place.y))
                               : second(vec2((x - half_width) / (size.x - half_width), place.y));
    } else color = mix(first(place), second(place), at);
    f_color = vec4(clamp(color, 0.0, 1.0), 1.0);
}

#endif
