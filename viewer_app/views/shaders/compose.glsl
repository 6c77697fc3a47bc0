// Lays a rendered picture over the background. ipc/interop/shaders/fetch.glsl comes first: `stored` gives
// premultiplied colour and alpha; for depth: depth in [0, 1] and alpha. SMOOTH: the picture has another size than its
// place on the screen. COPY: nothing but the picture's values, pixel by pixel.
#ifdef COPY

out vec4 f_value;

void main() { f_value = stored(ivec2(gl_FragCoord.xy)); }

#else

uniform vec2 u_corner;        // of the rectangle on the screen, in pixels from the top left
uniform vec2 u_size;
uniform float u_height;       // of the framebuffer
uniform vec3 u_background;
uniform int u_show;           // 0 colour, 1 depth, 2 alpha
out vec4 f_color;

// The Turbo colour map (Mikhailov, Google 2019), polynomial fit by Ruofei Du, Apache-2.0.
vec3 turbo(float x) {
    vec4 v4 = vec4(1.0, x, x * x, x * x * x);
    vec2 v2 = v4.zw * v4.z;
    return vec3(
        dot(v4, vec4(0.13572138, 4.61539260, -42.66032258, 132.13108234)) + dot(v2, vec2(-152.94239396, 59.28637943)),
        dot(v4, vec4(0.09140261, 2.19418839, 4.84296658, -14.18503333)) + dot(v2, vec2(4.27729857, 2.82956604)),
        dot(v4, vec4(0.10667330, 12.64194608, -60.58204836, 110.36276771)) + dot(v2, vec2(-89.90310912, 27.34824973)));
}

// The picture at a point of it, in its pixels. By hand, since memory that is read in place has no filters.
vec4 picture(vec2 at) {
    ivec2 last = source_size() - 1;
#ifdef SMOOTH
    vec2 corner = floor(at - 0.5), part = at - 0.5 - corner;
    ivec2 lo = clamp(ivec2(corner), ivec2(0), last), hi = clamp(ivec2(corner) + 1, ivec2(0), last);
    return mix(mix(stored(lo), stored(ivec2(hi.x, lo.y)), part.x),
               mix(stored(ivec2(lo.x, hi.y)), stored(hi), part.x), part.y);
#else
    return stored(clamp(ivec2(at), ivec2(0), last));
#endif
}

void main() {
    vec2 at = vec2(gl_FragCoord.x, u_height - gl_FragCoord.y) - u_corner;
    vec4 c = picture(at * vec2(source_size()) / u_size);
    float alpha = clamp(c.a, 0.0, 1.0);
    vec3 color = c.rgb;
    if (u_show == 1) color = clamp(turbo(clamp(c.r, 0.0, 1.0)), 0.0, 1.0) * alpha;
    if (u_show == 2) {
        f_color = vec4(vec3(alpha), 1.0);
        return;
    }
    f_color = vec4(clamp(color + (1.0 - alpha) * u_background, 0.0, 1.0), 1.0);
}

#endif
