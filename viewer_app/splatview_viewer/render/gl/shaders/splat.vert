// One triangle strip of up to four corners per Gaussian, just large enough for the ellipse of the alpha test.

uniform sampler2D place;              // what project.frag wrote, in drawing order
uniform sampler2D shape;
uniform sampler2D color;
uniform sampler2D tiles;              // 1 where a tile of the picture is finished; not read in the first batch
uniform int columns;
uniform int first;                    // of this batch
uniform vec2 size;                    // of the picture
uniform float small;                  // radius in pixels up to which a triangle is drawn instead of a rectangle

// Not noperspective, though w is 1 throughout: llvmpipe (Mesa 22.3) interpolates that wrongly in clipped triangles.
out vec2 v_sigmas;                    // position in standard deviations along the ellipse's axes
flat out vec4 v_color;                // rgb, opacity
flat out float v_depth;
#ifdef RINGS
flat out vec2 v_axes;                 // standard deviations along them, pixels
#endif
#ifdef BODIES
uniform sampler2D body0, body1, body2;
flat out vec4 v_body0, v_body1, v_body2;
#endif

const int TILE = 16;
// Beyond this the whole picture is taken: corners far outside it would cost precision.
const float LARGE = 4096.0;
const float MARGIN = 1e-3;            // in sigmas, so that rounding at the border loses no pixel
const float SQRT_3 = 1.7320508;
const vec4 NOWHERE = vec4(2.0, 2.0, 2.0, 1.0);  // outside the clip volume

// Whether a box in pixels lies behind finished tiles only.
bool hidden(vec2 center, vec2 half_box) {
    ivec2 most = textureSize(tiles, 0) - 1;
    ivec2 low = clamp(ivec2((center - half_box) / float(TILE)), ivec2(0), most);
    ivec2 high = clamp(ivec2((center + half_box) / float(TILE)), ivec2(0), most);
    if (any(greaterThan(high - low, ivec2(2)))) return false;  // so large that looking costs more than it saves
    for (int y = low.y; y <= high.y; ++y)
        for (int x = low.x; x <= high.x; ++x)
            if (texelFetch(tiles, ivec2(x, y), 0).r < 0.5) return false;
    return true;
}

void main() {
    int index = first + gl_InstanceID;
    ivec2 at = ivec2(index % columns, index / columns);
    vec4 p = texelFetch(place, at, 0);
    vec4 s = texelFetch(shape, at, 0);
    v_color = vec4(texelFetch(color, at, 0).rgb, p.w);
    v_depth = p.z;
    v_sigmas = vec2(0.0);
#ifdef RINGS
    v_axes = vec2(max(length(s.xy), 1e-20), max(s.z, 1e-20));
#endif
#ifdef BODIES
    v_body0 = texelFetch(body0, at, 0);
    v_body1 = texelFetch(body1, at, 0);
    v_body2 = texelFetch(body2, at, 0);
#endif
    gl_Position = NOWHERE;
    if (s.w <= 0.0) return;           // the projection found nothing to draw
    float major = length(s.xy), reach = s.w * major;
    vec2 axis = s.xy / major, across = vec2(-axis.y, axis.x);
    vec2 position;
    if (reach < LARGE) {
        if (first > 0 && hidden(p.xy, s.w * sqrt(s.xy * s.xy + s.z * s.z * across * across))) return;
        vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
        // The triangle around the unit circle points along the major axis: it is shorter that way.
        if (reach < small)
            corner = gl_VertexID == 0 ? vec2(2.0, 0.0) : vec2(-1.0, gl_VertexID == 1 ? SQRT_3 : -SQRT_3);
        v_sigmas = corner * (s.w + MARGIN);
        position = p.xy + v_sigmas.x * s.xy + v_sigmas.y * s.z * across;
    } else {
        position = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 * size;  // the first triangle covers it all
        v_sigmas = vec2(dot(position - p.xy, axis) / major, dot(position - p.xy, across) / s.z);
    }
    // Row 0 of the target is the top row of the picture, so y is not flipped.
    gl_Position = vec4(position / size * 2.0 - 1.0, 0.0, 1.0);
}
