// The photographs of cameras, each on the plane at the end of its frustum.
#ifdef VERTEX

out vec2 v_uv;
out float v_alpha;
flat out vec2 v_cell;

const int CORNERS[6] = int[](1, 2, 3, 1, 3, 4);
const vec2 UV[5] = vec2[](vec2(0.0), vec2(0.0, 0.0), vec2(1.0, 0.0), vec2(1.0, 1.0), vec2(0.0, 1.0));

void main() {
    int corner = CORNERS[gl_VertexID % 6];
    vec3 at = in_view(corner);
    v_uv = UV[corner];
    v_cell = vec2(a_camera % u_per_row, a_camera / u_per_row);
    v_alpha = u_opacity * fade() * texelFetch(u_cameras, ivec2(4, a_camera), 0).x;
    bool seen = v_alpha > 0.0 && in_front();
    float w = u_model == 0 ? at.z : 1.0;
    gl_Position = seen ? vec4(to_clip(on_screen(at)).xy * w, 0.0, w) : vec4(2.0, 2.0, 2.0, 1.0);
}

#else

uniform sampler2D u_atlas;    // colours multiplied by alpha
uniform vec3 u_background;    // seen where a photograph is transparent
uniform float u_side;         // pixels of a cell
uniform float u_levels;       // of the atlas, beyond the first
in vec2 v_uv;
in float v_alpha;
flat in vec2 v_cell;
out vec4 f_color;

void main() {
    vec2 x = dFdx(v_uv) * u_side, y = dFdy(v_uv) * u_side;
    float level = clamp(0.5 * log2(max(max(dot(x, x), dot(y, y)), 1e-8)), 0.0, u_levels);
    float edge = 0.5 * exp2(ceil(level)) / u_side;  // so that nothing of the cells beside it is mixed in
    vec2 uv = clamp(v_uv, edge, 1.0 - edge);
    vec2 at = (v_cell + uv) * u_side / vec2(textureSize(u_atlas, 0));
    vec4 color = textureLod(u_atlas, at, level);
    f_color = vec4(color.rgb + (1.0 - color.a) * u_background, 1.0) * v_alpha;
}

#endif
