#version 330
// Four corners per Gaussian: a rectangle along the ellipse's axes, just as large as the alpha test needs.

uniform sampler2D place;
uniform sampler2D shape;
uniform sampler2D color;
uniform int columns;
uniform vec2 size;

in int in_index;              // per instance, in drawing order

out vec2 v_sigmas;            // position in standard deviations along the axes
flat out vec4 v_color;        // rgb, opacity
flat out float v_depth;

// Beyond this many pixels the whole picture is taken instead: corners far outside it cost precision.
const float LARGE = 4096.0;
const float MARGIN = 1e-3;    // so that rounding at the border loses no pixel

void main() {
    ivec2 at = ivec2(in_index % columns, in_index / columns);
    vec4 p = texelFetch(place, at, 0);
    vec4 s = texelFetch(shape, at, 0);
    vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
    float major = length(s.xy);
    vec2 axis = s.w > 0.0 ? s.xy / major : vec2(1.0, 0.0);
    vec2 across = vec2(-axis.y, axis.x);
    vec2 position;
    if (s.w * major < LARGE) {
        v_sigmas = corner * (s.w + MARGIN);
        position = p.xy + v_sigmas.x * s.xy + v_sigmas.y * s.z * across;
    } else {
        position = (corner * 0.5 + 0.5) * size;
        v_sigmas = vec2(dot(position - p.xy, axis) / major, dot(position - p.xy, across) / s.z);
    }
    v_color = vec4(texelFetch(color, at, 0).rgb, p.w);
    v_depth = p.z;
    // Row 0 of the target is the top row of the picture, so y is not flipped. What is not drawn (radius 0)
    // goes outside the clip volume.
    gl_Position = s.w > 0.0 ? vec4(position / size * 2.0 - 1.0, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
}
