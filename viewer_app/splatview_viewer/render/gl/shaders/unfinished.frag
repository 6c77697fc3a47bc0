// One fragment per tile: 1 where a pixel of it is not finished.

uniform sampler2D part0, part1, part2, part3, part4, part5, part6, part7;
uniform int across;           // tiles of the picture in a row
uniform int slot_bits;        // log2 of the columns that tiles are laid out in, see walk.frag

layout(location = 0) out float out_open;

// The first fragment of a tile.
ivec2 first_lane(ivec2 tile) {
    int number = tile.y * across + tile.x, column = number >> 3;
    return ivec2(column & ((1 << slot_bits) - 1), (column >> slot_bits) * 8 + (number & 7)) * ivec2(4, 2);
}

void main() {
    ivec2 low = first_lane(ivec2(gl_FragCoord.xy));
    float most = -1.0;
    for (int y = low.y; y < low.y + 2; ++y) {
        for (int x = low.x; x < low.x + 4; ++x) {
            ivec2 lane = ivec2(x, y);
            most = max(most, max(max(texelFetch(part0, lane, 0).a, texelFetch(part1, lane, 0).a),
                                 max(texelFetch(part2, lane, 0).a, texelFetch(part3, lane, 0).a)));
            most = max(most, max(max(texelFetch(part4, lane, 0).a, texelFetch(part5, lane, 0).a),
                                 max(texelFetch(part6, lane, 0).a, texelFetch(part7, lane, 0).a)));
        }
    }
    out_open = most > 0.0 ? 1.0 : 0.0;
}
