#version 330
// One triangle strip of four corners per Gaussian, just large enough for the alpha test's ellipse.

uniform sampler2D place;
uniform sampler2D shape;
uniform sampler2D color;
uniform int columns;
uniform vec2 size;

in int in_index;                      // per instance, in drawing order

out vec2 v_sigmas;      // position in standard deviations along the ellipse's axes
flat out vec4 v_color;                // rgb, opacity
flat out float v_depth;

// Up to this radius in pixels one triangle around the ellipse (the strip's other one is empty) costs less than
// the two of a rectangle, though it covers 30 % more: software rasterisers pay per triangle and 4x4 block.
const float SMALL = 40.0;
// Beyond this the whole picture is taken: corners far outside it would cost precision.
const float LARGE = 4096.0;
const float MARGIN = 1e-3;            // in sigmas, so that rounding at the border loses no pixel
const float SQRT_3 = 1.7320508;

void main() {
    ivec2 at = ivec2(in_index % columns, in_index / columns);
    vec4 p = texelFetch(place, at, 0);
    vec4 s = texelFetch(shape, at, 0);
    v_color = vec4(texelFetch(color, at, 0).rgb, p.w);
    v_depth = p.z;
    v_sigmas = vec2(0.0);
    if (s.w <= 0.0) {                 // not drawn: outside the clip volume
        gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
        return;
    }
    float major = length(s.xy), reach = s.w * major;
    vec2 axis = s.xy / major, across = vec2(-axis.y, axis.x);
    vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
    vec2 position;
    if (reach < LARGE) {
        // The circumscribed triangle of the unit circle points along the major axis: shorter than across it.
        if (reach < SMALL) corner = gl_VertexID == 0 ? vec2(2.0, 0.0) : vec2(-1.0, gl_VertexID == 1 ? SQRT_3 : -SQRT_3);
        v_sigmas = corner * (s.w + MARGIN);
        position = p.xy + v_sigmas.x * s.xy + v_sigmas.y * s.z * across;
    } else {
        position = (corner * 0.5 + 0.5) * size;
        v_sigmas = vec2(dot(position - p.xy, axis) / major, dot(position - p.xy, across) / s.z);
    }
    // Row 0 of the target is the top row of the picture, so y is not flipped.
    gl_Position = vec4(position / size * 2.0 - 1.0, 0.0, 1.0);
}
