// A picture as another camera sees the things in it: the corners of its cells, each where its depth puts it. Around the
// picture lies one more ring of cells, whose outer corners are as deep as its edge.

const int PINHOLE = 0, ORTHO = 1;
const ivec2 CORNERS[6] = ivec2[6](ivec2(0, 0), ivec2(1, 0), ivec2(0, 1), ivec2(1, 1), ivec2(0, 1), ivec2(1, 0));

uniform sampler2D grid;       // 1 / depth at the corners, top row first; 0 where nothing is
uniform float cell;           // pixels of the picture from corner to corner
uniform vec2 picture_size;
uniform vec2 ring;            // pixels beyond the picture
uniform vec4 from_lens;       // fx, fy, cx, cy of the camera that took it
uniform vec4 to_lens;         // of the one that looks now
uniform vec2 to_size;
uniform mat4 motion;          // from the one camera's axes to the other's
uniform int model;            // of both
uniform float near_limit;     // what is nearer is cut off
uniform float nowhere;        // depth of what is not there
out vec2 v_source;            // pixels of the picture, from its upper left
out float v_cut;              // over 0: a corner was cut off

vec3 point_at(vec2 pixel, float depth) {
    vec2 slope = (pixel - from_lens.zw) / from_lens.xy;
    if (model == ORTHO) return vec3(slope, depth);
    if (model == PINHOLE) return vec3(slope * depth, depth);
    float out_by = length(slope), angle = min(out_by, 3.0), along = cos(angle);
    float across = out_by < 1e-6 ? 1.0 : sin(angle) / out_by;
    return vec3(slope * across, along) * depth / max(along, 0.05);
}

vec2 pixel_of(vec3 p) {
    float scale = 1.0;
    if (model == PINHOLE) scale = 1.0 / p.z;
    else if (model != ORTHO) {
        float across = length(p.xy);
        scale = across < 1e-9 ? 1.0 / max(p.z, 1e-9) : atan(across, p.z) / across;
    }
    return p.xy * scale * to_lens.xy + to_lens.zw;
}

void main() {
    ivec2 counts = textureSize(grid, 0), cells = counts + 1;
    int index = gl_VertexID / 6;
    ivec2 corner = ivec2(index % cells.x, index / cells.x) + CORNERS[gl_VertexID % 6] - 1;
    ivec2 inside = clamp(corner, ivec2(0), counts - 1);
    v_source = min(vec2(inside) * cell, picture_size) + vec2(corner - inside) * ring;
    float inverse = texelFetch(grid, inside, 0).r;
    vec3 p = (motion * vec4(point_at(v_source, inverse > 0.0 ? 1.0 / inverse : nowhere), 1.0)).xyz;
    float distance = model > ORTHO ? length(p) : p.z;
    v_cut = distance > near_limit ? 0.0 : 1.0;
    gl_Position = vec4(0.0, 0.0, 0.0, 1.0);
    if (v_cut > 0.0) return;
    gl_Position.xy = clamp(pixel_of(p) / to_size * 2.0 - 1.0, -50.0, 50.0);
    gl_Position.z = 1.0 - 2.0 * near_limit / distance;
}
