// Small photographs in rows: one instance for each, six vertices. Those that have not come are a plain ground.
#ifdef VERTEX

uniform sampler2D u_cameras;  // as in common.glsl
uniform vec2 u_size;          // of the gallery, in pixels
uniform vec2 u_cell;          // of a photograph with the gap beside and below it
uniform float u_gap;
uniform float u_scroll;       // pixels that are above the upper edge
uniform int u_columns;
uniform int u_first;          // the camera of the first instance
out vec2 v_uv;
flat out vec2 v_cell;
flat out float v_there;

const vec2 UV[6] = vec2[](vec2(0, 0), vec2(1, 0), vec2(1, 1), vec2(0, 0), vec2(1, 1), vec2(0, 1));

void main() {
    int camera = u_first + gl_InstanceID;
    vec2 corner = vec2(camera % u_columns, camera / u_columns) * u_cell + u_gap - vec2(0.0, u_scroll);
    v_uv = UV[gl_VertexID % 6];
    vec2 at = corner + v_uv * (u_cell - u_gap);
    v_cell = vec2(camera % u_per_row, camera / u_per_row);
    v_there = texelFetch(u_cameras, ivec2(4, camera), 0).x;
    gl_Position = vec4(at.x / u_size.x * 2.0 - 1.0, 1.0 - at.y / u_size.y * 2.0, 0.0, 1.0);
}

#else

uniform sampler2D u_atlas;
uniform float u_side;
uniform float u_levels;
uniform vec3 u_ground;
in vec2 v_uv;
flat in vec2 v_cell;
flat in float v_there;
out vec4 f_color;

void main() {
    vec2 x = dFdx(v_uv) * u_side, y = dFdy(v_uv) * u_side;
    float level = clamp(0.5 * log2(max(max(dot(x, x), dot(y, y)), 1e-8)), 0.0, u_levels);
    float edge = 0.5 * exp2(ceil(level)) / u_side;
    vec2 at = (v_cell + clamp(v_uv, edge, 1.0 - edge)) * u_side / vec2(textureSize(u_atlas, 0));
    vec3 color = textureLod(u_atlas, at, level).rgb;
    f_color = vec4(v_there > 0.0 ? color : u_ground, 1.0);
}

#endif
