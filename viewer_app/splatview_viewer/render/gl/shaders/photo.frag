// A photograph in a rectangle, top row first, over a background. MULTIPLY: its colours multiplied by its alpha.

uniform sampler2D photo;      // colours multiplied by alpha; MULTIPLY: as they are
uniform vec2 corner;          // of the rectangle, in pixels from the lower left
uniform vec2 size;
uniform vec3 background;
out vec4 f_color;

#ifdef MULTIPLY
void main() {
    vec4 straight = texelFetch(photo, ivec2(gl_FragCoord.xy), 0);
    f_color = vec4(straight.rgb * straight.a, straight.a);
}
#else
void main() {
    vec2 at = (gl_FragCoord.xy - corner) / size;
    if (min(at.x, at.y) < 0.0 || max(at.x, at.y) > 1.0) discard;
    vec4 color = texture(photo, vec2(at.x, 1.0 - at.y));
    f_color = vec4(color.rgb + (1.0 - color.a) * background, 1.0);
}
#endif
