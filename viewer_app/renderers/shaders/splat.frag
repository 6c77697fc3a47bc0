#version 330
// alpha = min(0.999, opacity exp(-sigma)), nothing below 1/255. Premultiplied, blended front to back.

in vec2 v_sigmas;
flat in vec4 v_color;
flat in float v_depth;

layout(location = 0) out vec4 out_color;
layout(location = 1) out vec4 out_depth;  // with alpha, for that is what blending weighs each target by

void main() {
    float alpha = min(0.999, v_color.a * exp(-0.5 * dot(v_sigmas, v_sigmas)));
    // Blending with alpha 0 changes nothing, and costs software rasterisers less than discard does.
    if (alpha < 1.0 / 255.0) alpha = 0.0;
    out_color = vec4(v_color.rgb * alpha, alpha);
    out_depth = vec4(v_depth * alpha, 0.0, 0.0, alpha);
}
