// Inverse depth at the corners of a picture's cells: once for each picture that is moved later (warp.vert).
// Where a picture is cut through by an edge, the nearer side wins: the cells that are stretched when the edge moves
// away from what lies behind begin outside of the near thing then, and are filled with what lies behind it.
// TEXTURES: accumulated depth and a picture with alpha, in textures. Otherwise fetch.glsl of splatview_ipc.gl comes
// first, and `stored` gives expected depth, 0 where nothing is.
#ifdef TEXTURES
uniform sampler2D u_color;
uniform sampler2D u_depth;
#endif
uniform float u_cell;         // pixels from corner to corner
uniform float u_edge;         // how many times nearer a thing is that counts as another one
uniform float u_faint;        // alpha up to which nothing is there
out float f_inverse;

#ifdef TEXTURES
ivec2 extent() { return textureSize(u_depth, 0); }
#else
ivec2 extent() { return source_size(); }
#endif

// 1 / depth at a pixel, 0 where nothing is.
float inverse_depth(ivec2 p) {
    p = clamp(p, ivec2(0), extent() - 1);
#ifdef TEXTURES
    float alpha = texelFetch(u_color, p, 0).a, depth = texelFetch(u_depth, p, 0).r;
    return alpha > u_faint && depth > 0.0 ? alpha / depth : 0.0;
#else
    float depth = stored(p).r;
    return depth > 0.0 ? 1.0 / depth : 0.0;
#endif
}

void main() {
    vec2 corner = min(floor(gl_FragCoord.xy) * u_cell, vec2(extent()));
    ivec2 at = ivec2(corner);
    float sum = 0.0, count = 0.0;
    for (int k = 0; k < 4; ++k) {
        float inverse = inverse_depth(at - ivec2(k & 1, k >> 1));
        sum += inverse;
        count += inverse > 0.0 ? 1.0 : 0.0;
    }
    float here = sum / max(count, 1.0), nearest = here;
    for (int j = -2; j <= 2; ++j)
        for (int i = -2; i <= 2; ++i)
            nearest = max(nearest, inverse_depth(ivec2(corner + vec2(i, j) * u_cell * 0.5)));
    f_inverse = nearest > here * u_edge ? nearest : here;
}
