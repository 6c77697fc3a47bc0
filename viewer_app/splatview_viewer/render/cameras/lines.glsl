// The frustums of cameras: ten lines each, a few pixels wide with smooth edges and a dark seam, so that they are seen on
// anything. One instance for each camera, six vertices for each line.
#ifdef VERTEX

uniform float u_width;        // of a line, in pixels
uniform vec4 u_color;
uniform vec4 u_marked_color;
uniform vec4 u_current_color;
uniform int u_marked;         // cameras that stand out, -1: none
uniform int u_current;
out vec4 v_color;
out float v_across;

const ivec2 LINES[10] = ivec2[](ivec2(0, 1), ivec2(0, 2), ivec2(0, 3), ivec2(0, 4), ivec2(1, 2), ivec2(2, 3),
                                ivec2(3, 4), ivec2(4, 1), ivec2(5, 7), ivec2(7, 6));

void main() {
    int corner = gl_VertexID % 6;
    ivec2 line = LINES[gl_VertexID / 6];
    vec3 a = in_view(line.x), b = in_view(line.y);
    bool seen = between(a, b);
    vec2 from = on_screen(a), to = on_screen(b), along = to - from;
    float reach = length(along), half_width = u_width * 0.5 + 1.5;
    along = reach > 1e-4 ? along / reach : vec2(1.0, 0.0);
    bool last = corner == 1 || corner == 2 || corner == 4;
    float side = corner == 0 || corner == 1 || corner == 3 ? -1.0 : 1.0;
    vec2 at = (last ? to : from) + vec2(-along.y, along.x) * side * half_width;
    v_across = side * half_width;
    v_color = a_camera == u_marked ? u_marked_color : a_camera == u_current ? u_current_color : u_color;
    v_color.a *= a_camera == u_marked || a_camera == u_current ? 1.0 : fade();
    gl_Position = seen && v_color.a > 0.0 ? to_clip(at) : vec4(2.0, 2.0, 2.0, 1.0);
}

#else

uniform float u_width;
in vec4 v_color;
in float v_across;
out vec4 f_color;

void main() {
    float off = abs(v_across), line = clamp(u_width * 0.5 + 0.5 - off, 0.0, 1.0);
    float seam = clamp(u_width * 0.5 + 1.5 - off, 0.0, 1.0) * 0.45;
    f_color = vec4(v_color.rgb * line, line + (1.0 - line) * seam) * v_color.a;
}

#endif
