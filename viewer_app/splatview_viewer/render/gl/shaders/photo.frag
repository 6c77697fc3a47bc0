#version 330
// A photograph in a rectangle, top row first.

uniform sampler2D photo;
uniform vec2 corner;          // of the rectangle, in pixels from the lower left
uniform vec2 size;
out vec4 f_color;

void main() {
    vec2 at = (gl_FragCoord.xy - corner) / size;
    if (min(at.x, at.y) < 0.0 || max(at.x, at.y) > 1.0) discard;
    f_color = vec4(texture(photo, vec2(at.x, 1.0 - at.y)).rgb, 1.0);
}
