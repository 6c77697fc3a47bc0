// One fragment per tile of the picture: 1 when all of its pixels are finished, so that the vertex stage can drop
// what lies behind such tiles only.

uniform sampler2D finished;   // the picture so far
uniform float enough;         // alpha from which a pixel is finished

layout(location = 0) out vec4 out_tile;

const int TILE = 16;

void main() {
    ivec2 low = ivec2(gl_FragCoord.xy) * TILE, high = min(low + TILE, textureSize(finished, 0));
    float least = 1.0;
    for (int y = low.y; y < high.y && least >= enough; ++y)
        for (int x = low.x; x < high.x; ++x)
            least = min(least, texelFetch(finished, ivec2(x, y), 0).a);
    out_tile = vec4(least >= enough ? 1.0 : 0.0);
}
