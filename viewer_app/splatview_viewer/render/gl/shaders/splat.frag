// alpha = min(0.999, opacity exp(-sigma)), nothing below 1/255. Premultiplied, blended front to back.
// RINGS, POINTS: with another alpha. OVERDRAW: 1 for each Gaussian, to be added. BODIES: the nearest surface, by the
// depth test.

in vec2 v_sigmas;
flat in vec4 v_color;
flat in float v_depth;
#ifdef RINGS
flat in vec2 v_axes;
uniform float body_sigmas;
uniform float ring_px;
uniform float ring_inside;
#endif
#ifdef POINTS
uniform float point_reach;
#endif
#ifdef BODIES
flat in vec4 v_body0, v_body1, v_body2;
uniform float body_sigmas;
uniform float z_near;
uniform vec3 light;
uniform float ambient;
#endif

layout(location = 0) out vec4 out_color;
layout(location = 1) out vec4 out_depth;  // with alpha, for that is what blending weighs each target by

void main() {
#ifdef BODIES
    float s = sqrt(max(body_sigmas * body_sigmas - dot(v_sigmas, v_sigmas), 0.0));
    float z = v_depth + dot(v_body0.xy, v_sigmas) - v_body0.z * s;
    if (length(v_sigmas) > body_sigmas || !(z >= z_near)) discard;
    vec3 n = s * vec3(v_body0.w, v_body1.xy) + v_sigmas.x * vec3(v_body1.zw, v_body2.x) + v_sigmas.y * v_body2.yzw;
    float lit = max(dot(n, light) / max(length(n), 1e-30), 0.0);
    out_color = vec4(v_color.rgb * (ambient + (1.0 - ambient) * lit), 1.0);
    out_depth = vec4(z, 0.0, 0.0, 1.0);
    gl_FragDepth = (log2(z) + 32.0) / 80.0;  // in order, and as fine far away as close by
#else
#if defined(POINTS)
    float alpha = min(0.999, clamp(point_reach - point_reach * length(v_sigmas), 0.0, 1.0));
#elif defined(RINGS)
    float m = length(v_sigmas), inwards = (body_sigmas - m) * m / max(length(v_sigmas / v_axes), 1e-12);
    float line = clamp(min(inwards, ring_px + 1.0 - inwards), 0.0, 1.0);
    float alpha = m <= body_sigmas ? min(0.999, max(line, ring_inside)) : 0.0;
#else
    float alpha = min(0.999, v_color.a * exp(-0.5 * dot(v_sigmas, v_sigmas)));
#endif
    // Blending with alpha 0 changes nothing, and costs software rasterisers less than discard does.
    if (alpha < 1.0 / 255.0) alpha = 0.0;
#ifdef OVERDRAW
    out_color = out_depth = vec4(alpha > 0.0 ? 1.0 : 0.0);
#else
    out_color = vec4(v_color.rgb * alpha, alpha);
    out_depth = vec4(v_depth * alpha, 0.0, 0.0, alpha);
#endif
#endif
}
