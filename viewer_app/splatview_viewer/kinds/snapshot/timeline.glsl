// Draws a painted timeline where it belongs, though it may have been painted for another place; lifts what is under the
// pointer and what is selected.
uniform sampler2D u_rows;       // the picture, its lowest row first
uniform isampler2D u_ids;       // the allocation at each pixel; a column of the picture is a row of it, from the top
uniform vec2 u_corner;          // the plot's lower left corner in the framebuffer
uniform vec4 u_place;           // column = x * u_place.x + u_place.y, row = y * u_place.z + u_place.w
uniform ivec2 u_sheet;          // columns and rows of the picture
uniform vec3 u_ground;
uniform int u_hovered;
uniform int u_selected;
uniform int u_line;             // width of outlines

out vec4 f_color;

int id_at(ivec2 p) {
    int rows = textureSize(u_ids, 0).x;
    return any(lessThan(p, ivec2(0))) || any(greaterThanEqual(p, u_sheet)) ? -1
        : texelFetch(u_ids, ivec2(rows - 1 - p.y, p.x), 0).r;
}

void main() {
    vec2 p = gl_FragCoord.xy - u_corner;
    ivec2 at = ivec2(floor(p * u_place.xz + u_place.yw));
    if (any(lessThan(at, ivec2(0))) || any(greaterThanEqual(at, u_sheet))) {
        f_color = vec4(u_ground, 1.0);
        return;
    }
    vec3 color = texelFetch(u_rows, at, 0).rgb;
    if (u_hovered >= 0 || u_selected >= 0) {
        int id = id_at(at);
        if (id >= 0 && id == u_selected) {
            int d = u_line;
            bool edge = id_at(at + ivec2(d, 0)) != id || id_at(at - ivec2(d, 0)) != id ||
                        id_at(at + ivec2(0, d)) != id || id_at(at - ivec2(0, d)) != id;
            color = edge ? vec3(0.97, 0.98, 1.0) : mix(color, vec3(1.0), 0.22);
        } else if (id >= 0 && id == u_hovered) {
            color = mix(color, vec3(1.0), 0.30);
        }
    }
    f_color = vec4(color, 1.0);
}
