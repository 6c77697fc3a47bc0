// From the eight outputs of walk.frag, side by side in as many textures, to one picture. BODIES: and the nearest surface
// is shaded; with DEPTH, its camera z.

uniform sampler2D part0, part1, part2, part3, part4, part5, part6, part7;
uniform int across;           // tiles of the picture in a row
uniform int slot_bits;        // log2 of the columns that tiles are laid out in, see walk.frag

#ifdef BODIES
uniform sampler2D form, body0, body1, body2;  // what project.frag wrote
uniform usampler2D light;
uniform int bits;             // log2 of the texels in a row of these
uniform float body_sigmas;
uniform vec3 towards_light;
uniform float ambient;
#endif

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
#ifndef BODIES
    out_color = vec4(color.rgb, 1.0 - abs(color.a));
#elif defined(DEPTH)
    out_color = vec4(color.b, 0.0, 0.0, 1.0) * (1.0 - color.a);
#else
    out_color = vec4(0.0);
    if (color.a > 0.5) return;  // none
    int place = int(color.r) * 4096 + int(color.g);
    ivec2 at = ivec2(place & ((1 << bits) - 1), place >> bits);
    vec4 f = texelFetch(form, at, 0), b0 = texelFetch(body0, at, 0);
    vec4 b1 = texelFetch(body1, at, 0), b2 = texelFetch(body2, at, 0);
    uvec4 l = texelFetch(light, at, 0);
    vec2 d = gl_FragCoord.xy - f.xy, v = vec2(f.z * d.x + f.w * d.y, uintBitsToFloat(l.x) * d.y);
    float s = sqrt(max(body_sigmas * body_sigmas - dot(v, v), 0.0));
    vec3 n = s * vec3(b0.w, b1.xy) + v.x * vec3(b1.zw, b2.x) + v.y * b2.yzw;
    float lit = max(dot(n, towards_light) / max(length(n), 1e-30), 0.0);
    vec3 rgb = uintBitsToFloat(l.yzw >> 4 & 0xffffff0u) * 6.490371073168535e32;  // as in walk.frag
    out_color = vec4(rgb * (ambient + (1.0 - ambient) * lit), 1.0);
#endif
}
