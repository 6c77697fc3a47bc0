// A picture as another camera sees its surface (warp.vert). fetch.glsl of splatview_ipc.gl comes first.

uniform vec2 u_from_focal;
uniform vec2 u_from_center;
uniform int u_from_model;     // 0 pinhole, 1 ortho, 2 fisheye
in vec3 v_point;              // in the axes of the camera that took the picture
out vec4 f_color;

vec4 smoothed(vec2 at) {
    ivec2 last = source_size() - 1;
    vec2 corner = floor(at - 0.5), part = at - 0.5 - corner;
    ivec2 lo = clamp(ivec2(corner), ivec2(0), last), hi = clamp(ivec2(corner) + 1, ivec2(0), last);
    return mix(mix(stored(lo), stored(ivec2(hi.x, lo.y)), part.x),
               mix(stored(ivec2(lo.x, hi.y)), stored(hi), part.x), part.y);
}

void main() {
    vec3 p = v_point;
    vec2 at = p.xy;
    if (u_from_model == 0) at /= p.z;
    if (u_from_model == 2) {
        float across = length(at);
        at *= across < 1e-9 ? 1.0 / max(p.z, 1e-9) : atan(across, p.z) / across;
    }
    at = at * u_from_focal + u_from_center;
    vec2 size = vec2(source_size()), edge = clamp(at, vec2(0.0), size), out_by = abs(at - edge);
    if (out_by.x + out_by.y == 0.0) {
        f_color = smoothed(at);
        return;
    }
    // Beyond the picture its edge goes on, the softer the farther away.
    vec2 along = out_by.yx * 0.25;
    f_color = 0.25 * (smoothed(edge - 1.5 * along) + smoothed(edge - 0.5 * along)
                      + smoothed(edge + 0.5 * along) + smoothed(edge + 1.5 * along));
}
