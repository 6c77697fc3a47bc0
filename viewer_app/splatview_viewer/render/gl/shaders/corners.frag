// How near the things are at the corners of a picture's cells, which moved.vert moves: one corner for each pixel.

const int REACH = 3;          // steps to each side within a cell
const float EDGE = 1.1;       // a thing this many times nearer than what is around it is another one

uniform sampler2D depth;      // top row first; not over 0 or not finite where nothing is
uniform float cell;           // pixels from corner to corner
out float f_inverse;          // 1 / depth; 0 where nothing is

float inverse_at(ivec2 p) {
    float d = texelFetch(depth, clamp(p, ivec2(0), textureSize(depth, 0) - 1), 0).r;
    return d > 1e-30 && d < 1e30 ? 1.0 / d : 0.0;
}

void main() {
    vec2 corner = min(floor(gl_FragCoord.xy) * cell, vec2(textureSize(depth, 0)));
    float sum = 0.0, count = 0.0;
    for (int k = 0; k < 4; k++) {
        float inverse = inverse_at(ivec2(corner) - ivec2(k & 1, k >> 1));
        sum += inverse;
        count += inverse > 0.0 ? 1.0 : 0.0;
    }
    float here = sum / max(count, 1.0), nearest = here;
    for (int b = -REACH; b <= REACH; b++)
        for (int a = -REACH; a <= REACH; a++)
            nearest = max(nearest, inverse_at(ivec2(floor(corner + vec2(a, b) * cell / float(REACH)))));
    f_inverse = nearest > here * EDGE ? nearest : here;
}
