#version 330
// Corners of a picture's cells, each put where its depth belongs, seen by another camera. Row 0 of the result is its
// top row. Around the picture lies a ring of cells that continue its edges.

uniform sampler2D u_grid;     // 1 / depth at the corners, 0 where nothing is (warp_grid.glsl)
uniform int u_columns;        // of the grid, the ring included
uniform float u_cell;         // pixels of the picture from corner to corner
uniform vec2 u_from_size;     // of the picture, in pixels
uniform vec2 u_from_focal;
uniform vec2 u_from_center;
uniform int u_from_model;     // 0 pinhole, 1 ortho, 2 fisheye
uniform vec2 u_to_size;
uniform vec2 u_to_focal;
uniform vec2 u_to_center;
uniform int u_to_model;
uniform mat3 u_rotation;      // from the one camera's axes to the other's
uniform vec3 u_translation;
uniform float u_plane;        // depth of everything; 0: as the grid says
uniform float u_nowhere;      // depth of what is not there
uniform float u_near;
uniform float u_ring;         // how far the ring reaches, in widths and heights of the picture

out vec3 v_point;             // in the axes of the camera that took the picture

vec3 point_at(vec2 pixel, float depth) {
    vec2 at = (pixel - u_from_center) / u_from_focal;
    if (u_from_model == 1) return vec3(at, depth);
    if (u_from_model == 0) return vec3(at, 1.0) * depth;
    float angle = min(length(at), 3.0);
    vec3 line = vec3(angle < 1e-6 ? at : at / length(at) * sin(angle), cos(angle));
    return line * (depth / max(line.z, 0.05));
}

void main() {
    ivec2 corner = ivec2(gl_VertexID % u_columns, gl_VertexID / u_columns) - 1, last = textureSize(u_grid, 0) - 1;
    ivec2 inside = clamp(corner, ivec2(0), last);
    vec2 pixel = min(vec2(inside) * u_cell, u_from_size);
    pixel += vec2(corner - inside) * u_from_size * u_ring;
    float inverse = texelFetch(u_grid, inside, 0).r;
    float depth = u_plane > 0.0 ? u_plane : inverse > 0.0 ? 1.0 / inverse : u_nowhere;
    v_point = point_at(pixel, depth);
    vec3 p = u_rotation * v_point + u_translation;
    // In pixels, times w: what lies between corners is then found as a straight line's points are in perspective.
    float w = u_to_model == 0 ? p.z : u_to_model == 1 ? 1.0 : length(p);
    vec2 across = u_to_focal * p.xy;
    if (u_to_model == 2) {
        float out_by = length(p.xy), angle = atan(out_by, p.z);
        across *= out_by < 1e-9 ? 1.0 : angle / out_by * w;
    }
    vec2 at = across + u_to_center * w;
    // The nearest is -1, what is farther approaches 1; what is nearer is cut off.
    float z = u_to_model != 1 ? w - 2.0 * u_near : p.z > 0.0 ? 1.0 - 2.0 * u_near / p.z : -2.0;
    gl_Position = vec4(2.0 * at / u_to_size - w, z, w);
}
