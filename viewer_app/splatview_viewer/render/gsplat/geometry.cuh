// The geometry of Gaussians that both ways of drawing share. Compiled before frame.cu and before packed.cuh.

constexpr int TILE = 16;                 // pixels a side

// The camera's view of a direction.
__device__ void turned(const float *viewmat, const float *v, float *out) {
    for (int r = 0; r < 3; ++r) out[r] = viewmat[4 * r] * v[0] + viewmat[4 * r + 1] * v[1] + viewmat[4 * r + 2] * v[2];
}

// The axes of a Gaussian in the world: columns. The quaternion may have any length but 0.
__device__ void axes_of(float w, float x, float y, float z, float *axes) {
    const float inverse = rsqrtf(w * w + x * x + y * y + z * z);
    w *= inverse, x *= inverse, y *= inverse, z *= inverse;
    axes[0] = 1 - 2 * (y * y + z * z), axes[1] = 2 * (x * y - w * z), axes[2] = 2 * (x * z + w * y);
    axes[3] = 2 * (x * y + w * z), axes[4] = 1 - 2 * (x * x + z * z), axes[5] = 2 * (y * z - w * x);
    axes[6] = 2 * (x * z - w * y), axes[7] = 2 * (y * z + w * x), axes[8] = 1 - 2 * (x * x + y * y);
}

// The shortest axis of a Gaussian, towards the camera, as a colour. `scales`: in any unit; `center`: in the camera's axes.
__device__ void normal_color(const float *viewmat, bool ortho, const float *axes, const float *scales, const float *center,
                             float *rgb) {
    const int k = scales[0] <= scales[1] && scales[0] <= scales[2] ? 0 : scales[1] <= scales[2] ? 1 : 2;
    const float axis[3] = {axes[k], axes[3 + k], axes[6 + k]};
    float n[3];
    turned(viewmat, axis, n);
    const float towards = ortho ? n[2] : n[0] * center[0] + n[1] * center[1] + n[2] * center[2];
    for (int c = 0; c < 3; ++c) rgb[c] = 0.5f + (towards > 0.0f ? -0.5f : 0.5f) * n[c];
}

struct Extent { float left, right; };    // of pixel columns; left > right: none

// What the extents of a Gaussian between any two heights have in common: of the ellipse where it shows, which has an alpha
// of ALPHA_MIN or more.
struct Ellipse {
    float determinant, b, inverse_a, lead, reach_y;
    float slant;                         // dy of the rightmost point; the leftmost is opposite
    bool endless;
};

// The ellipse a dx^2 + 2 b dx dy + c dy^2 <= level, in pixels from its centre. Never too small. Rounding shifts the sum by
// a few units in the last place of its terms, which cancel the more the thinner the ellipse: a thousandth covers that down
// to the thinness tested here, and thinner ones count as endless.
__device__ Ellipse ellipse_of(float a, float b, float c, float level) {
    Ellipse e;
    e.b = b;
    e.determinant = a * c - b * b;
    e.endless = !(e.determinant > 0.0f && e.determinant >= 1e-3f * a * c);
    level = fmaxf(level, 0.0f) * 1.001f + 2e-3f;
    const float scaled = level / e.determinant;
    e.reach_y = sqrtf(scaled * a);
    e.slant = -b / c * sqrtf(scaled * c);
    e.lead = level * a;
    e.inverse_a = 1.0f / a;
    return e;
}

// How far it shows left and right of its centre, between two heights relative to that.
__device__ Extent extent(const Ellipse &e, float top, float bottom) {
    if (e.endless) return {-3e38f, 3e38f};
    top = fmaxf(top, -e.reach_y);
    bottom = fminf(bottom, e.reach_y);
    if (top > bottom) return {1.0f, -1.0f};
    const float right_y = clamped(e.slant, top, bottom), left_y = clamped(-e.slant, top, bottom);
    return {(-e.b * left_y - sqrtf(fmaxf(e.lead - e.determinant * left_y * left_y, 0.0f))) * e.inverse_a,
            (-e.b * right_y + sqrtf(fmaxf(e.lead - e.determinant * right_y * right_y, 0.0f))) * e.inverse_a};
}

// Whether a Gaussian at x, y shows in the 8 x 4 pixels from there on; 0.02 pixels allow for rounding.
__device__ bool shows_in(const Ellipse &ellipse, float x, float y, int left, int top) {
    const Extent e = extent(ellipse, top + 0.48f - y, top + 3.52f - y);
    return e.left <= e.right && x + e.right >= left + 0.48f && x + e.left <= left + 7.52f;
}

struct Columns { int begin, end; };      // of tiles, end excluded

// The tiles of a row, of those from `begin` to `end`, that hold the centre of a pixel where it shows. An ellipse is
// convex, so they are neighbours.
__device__ Columns columns_of(const Ellipse &ellipse, float x, float y, int row, int begin, int end) {
    const Extent e = extent(ellipse, row * TILE + 0.48f - y, row * TILE + (TILE - 0.48f) - y);
    const float first = ceilf(x + e.left - 0.52f), last = floorf(x + e.right - 0.48f);  // pixel columns
    if (!(first <= last)) return {0, 0};
    return {(int)clamped(floorf(first / TILE), begin, end), (int)clamped(floorf(last / TILE) + 1.0f, begin, end)};
}
