// Lays a rendered picture over the background. fetch.glsl of splatview_ipc.gl and `color_maps.SHADER` come first: `stored` gives
// premultiplied colour and alpha; for what is shown by a colour map: a number and alpha. SMOOTH: the picture has another size than its
// place on the screen. COPY: nothing but the picture's values, pixel by pixel. NUMBERS: the first channel is shown by the colour map,
// which only that pass contains: a software renderer takes its time in each pixel, shown or not.
#ifdef COPY

out vec4 f_value;

void main() { f_value = stored(ivec2(gl_FragCoord.xy)); }

#else

uniform vec2 u_corner;        // of the rectangle on the screen, in pixels from the top left
uniform vec2 u_size;
uniform float u_height;       // of the framebuffer
uniform vec3 u_background;
#ifdef NUMBERS
uniform vec2 u_range;         // what is at both ends of the map
#else
uniform bool u_shows_alpha;   // alpha instead of colour
#endif
out vec4 f_color;

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
#ifdef NUMBERS
    vec3 color = mapped((c.r - u_range.x) / max(u_range.y - u_range.x, 1e-12)) * alpha;
#else
    vec3 color = c.rgb;
#endif
    vec3 seen = clamp(color + (1.0 - alpha) * u_background, 0.0, 1.0);
#ifndef NUMBERS
    if (u_shows_alpha) seen = vec3(alpha);
#endif
    f_color = vec4(seen, 1.0);
}

#endif
