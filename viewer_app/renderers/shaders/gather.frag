#version 330
// From the eight outputs of walk.frag, side by side in as many textures, to one picture.

uniform sampler2D part0, part1, part2, part3, part4, part5, part6, part7;
uniform int across;           // tiles of the picture in a row
uniform int slot_bits;        // log2 of the columns that tiles are laid out in, see walk.frag

layout(location = 0) out vec4 out_color;

// The first fragment of a tile.
ivec2 first_lane(ivec2 tile) {
    int number = tile.y * across + tile.x, column = number >> 3;
    return ivec2(column & ((1 << slot_bits) - 1), (column >> slot_bits) * 8 + (number & 7)) * ivec2(4, 2);
}

void main() {
    ivec2 pixel = ivec2(gl_FragCoord.xy), lane = first_lane(pixel >> 3) + ((pixel & 7) >> ivec2(1, 2));
    int row = pixel.y & 3;
    vec4 left = row == 0 ? texelFetch(part0, lane, 0) : row == 1 ? texelFetch(part2, lane, 0)
              : row == 2 ? texelFetch(part4, lane, 0) : texelFetch(part6, lane, 0);
    vec4 right = row == 0 ? texelFetch(part1, lane, 0) : row == 1 ? texelFetch(part3, lane, 0)
               : row == 2 ? texelFetch(part5, lane, 0) : texelFetch(part7, lane, 0);
    vec4 color = (pixel.x & 1) == 0 ? left : right;
    out_color = vec4(color.rgb, 1.0 - abs(color.a));
}
