// The whole timeline, low: live bytes before reserved ones, and the window that the plot shows.
uniform sampler2D u_curves;     // a texel for each column: live and reserved, in rows from the bottom
uniform vec2 u_corner;
uniform vec2 u_size;
uniform vec2 u_window;          // columns from the left
uniform int u_windowed;
uniform int u_line;
uniform vec3 u_ground;
uniform vec3 u_reserved;
uniform vec3 u_live;
uniform vec3 u_accent;

out vec4 f_color;

void main() {
    vec2 p = vec2(gl_FragCoord.x - u_corner.x, u_corner.y - gl_FragCoord.y);
    float up = u_size.y - p.y;
    vec2 tops = texelFetch(u_curves, ivec2(int(p.x), 0), 0).rg;
    vec3 color = mix(u_ground, u_reserved, clamp(tops.g - up + 0.5, 0.0, 1.0));
    color = mix(color, u_live, clamp(tops.r - up + 0.5, 0.0, 1.0));
    if (u_windowed != 0) {
        float line = float(u_line);
        bool inside = p.x >= u_window.x && p.x <= u_window.y;
        bool edge = p.x >= u_window.x - line && p.x <= u_window.y + line &&
                    (p.x < u_window.x + line || p.x > u_window.y - line || up < line || p.y < line);
        color = edge ? u_accent : inside ? mix(color, vec3(1.0), 0.07) : mix(color, u_ground, 0.55);
    }
    f_color = vec4(color, 1.0);
}
