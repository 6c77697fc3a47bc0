// What lines and pictures share: where a point of a camera's frustum lies on the screen.
uniform int u_per_row;        // cells of the atlas

#ifdef VERTEX

uniform sampler2D u_cameras;  // one row each: three of the camera's matrix to the world, x0 y0 x1 y1 at depth 1, flags
uniform mat4 u_view;          // world to the camera from which is looked
uniform vec4 u_K;             // its fx, fy, cx, cy
uniform vec2 u_size;          // of the picture, in pixels
uniform int u_model;          // 0 pinhole, 1 orthographic, 2 fisheye
uniform float u_near;
uniform float u_depth;        // where the photographs hang, in world units
uniform vec2 u_fade;          // distances between which they become faint
uniform float u_opacity;
in int a_camera;

vec4 row(int i) { return texelFetch(u_cameras, ivec2(i, a_camera), 0); }

vec3 in_world(vec3 p) {
    vec4 q = vec4(p, 1.0);
    return vec3(dot(row(0), q), dot(row(1), q), dot(row(2), q));
}

// 0: the camera's centre; 1 to 4: the corners of its picture from the upper left, clockwise; 5 to 7: a mark above it.
vec3 in_view(int i) {
    vec4 e = row(3) * u_depth;
    vec3 p = vec3(0.0);
    if (i >= 1 && i <= 4) p = vec3(i == 1 || i == 4 ? e.x : e.z, i < 3 ? e.y : e.w, u_depth);
    float middle = 0.5 * (e.x + e.z), mark = 0.12 * (e.z - e.x), gap = 0.06 * (e.w - e.y);
    if (i == 5) p = vec3(middle - mark, e.y - gap, u_depth);
    if (i == 6) p = vec3(middle + mark, e.y - gap, u_depth);
    if (i == 7) p = vec3(middle, e.y - gap - mark, u_depth);
    return (u_view * vec4(in_world(p), 1.0)).xyz;
}

// Cut a line off where it goes behind whoever looks; whether anything is left.
bool between(inout vec3 a, inout vec3 b) {
    if (u_model == 2) return min(a.z, b.z) > -4.0 * max(length(a.xy), length(b.xy));
    if (max(a.z, b.z) <= u_near) return false;
    if (a.z < u_near) a = mix(a, b, (u_near - a.z) / (b.z - a.z));
    if (b.z < u_near) b = mix(b, a, (u_near - b.z) / (a.z - b.z));
    return true;
}

bool in_front() {
    if (u_model == 0) return true;  // what is behind is cut off
    for (int i = 1; i <= 4; i++) if (in_view(i).z <= u_near) return false;
    return true;
}

vec2 on_screen(vec3 p) {
    vec2 at = p.xy;
    if (u_model == 0) at /= p.z;
    if (u_model == 2) {
        float off = length(p.xy);
        at *= off > 1e-9 ? atan(off, p.z) / off : 1.0 / max(p.z, 1e-9);
    }
    return at * u_K.xy + u_K.zw;
}

vec4 to_clip(vec2 at) { return vec4(at.x / u_size.x * 2.0 - 1.0, 1.0 - at.y / u_size.y * 2.0, 0.0, 1.0); }

// Faint where it is far off, and nothing for whoever stands in it.
float fade() {
    float away = length((u_view * vec4(row(0).w, row(1).w, row(2).w, 1.0)).xyz);
    float there = row(4).y;
    return there * mix(1.0, 0.3, smoothstep(u_fade.x, u_fade.y, away)) * smoothstep(0.4, 1.5, away / u_depth);
}

#endif
