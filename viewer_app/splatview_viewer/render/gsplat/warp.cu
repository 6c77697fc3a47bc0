// A picture as another camera sees the things in it, in three kernels:
//   `corners`  inverse depth at the corners of its cells, once for each picture;
//   `spread`   the cells as triangles in front of the other camera: how near the nearest thing is at each pixel;
//   `gather`   the colour that the first camera saw there.
// Beyond the picture, and where a cell would cover too much, the place is searched for from pixel to pixel.

enum Model { PINHOLE, ORTHO, FISHEYE };
constexpr float LARGEST = 16384.0f;  // pixels that a triangle may cover
constexpr int PARTS = 4;             // threads that share the rows of a triangle
constexpr int SEARCHES = 4;

// Mirrored by `Lens` and `Move` in moving.py.
struct Lens {
    float fx, fy, cx, cy;
    int width, height, model, unused;
};
struct Move {
    Lens from, to;
    float rotation[9];               // from the one camera's axes to the other's, by rows
    float translation[3];
    float middle;                    // depth of what is not there; of everything, without a grid
    float near_limit;                // what is nearer is cut off
    float cell;                      // pixels of the picture from corner to corner
    int columns, rows;               // of the grid
    u64 grid;                        // float 1 / depth at the corners, 0 where nothing is; 0: there is none
    u64 color;                       // half (height, width, 4)
    u64 nearness;                    // int (height, width) of the result: bits of 1 / distance, 0 where nothing is
    u64 out;                         // half (height, width, 4)
    i64 color_row, out_row;          // in values
};

struct Point { float x, y, z; };
struct Color { float r, g, b, a; };
struct __align__(8) Half4 { u16 r, g, b, a; };

// In the axes of the camera; `depth` is along its line of sight.
__device__ Point point_at(const Lens &lens, float x, float y, float depth) {
    const float u = (x - lens.cx) / lens.fx, v = (y - lens.cy) / lens.fy;
    if (lens.model == ORTHO) return {u, v, depth};
    if (lens.model == PINHOLE) return {u * depth, v * depth, depth};
    const float out_by = sqrtf(u * u + v * v), angle = fminf(out_by, 3.0f);
    const float across = out_by < 1e-6f ? 1.0f : sinf(angle) / out_by, along = cosf(angle);
    const float far = depth / fmaxf(along, 0.05f);
    return {u * across * far, v * across * far, along * far};
}

// Where a thing is seen: pixels.
__device__ void seen_at(const Lens &lens, const Point &p, float *x, float *y) {
    float scale = 1.0f;
    if (lens.model == PINHOLE) scale = 1.0f / fmaxf(p.z, 1e-9f);
    if (lens.model == FISHEYE) {
        const float across = sqrtf(p.x * p.x + p.y * p.y);
        scale = across < 1e-9f ? 1.0f / fmaxf(p.z, 1e-9f) : atan2f(across, p.z) / across;
    }
    *x = p.x * scale * lens.fx + lens.cx;
    *y = p.y * scale * lens.fy + lens.cy;
}

// What decides which of two things is in front: along the line of sight, or from the camera.
__device__ float distance_of(const Lens &lens, const Point &p) {
    return lens.model == FISHEYE ? sqrtf(p.x * p.x + p.y * p.y + p.z * p.z) : p.z;
}

__device__ Point there(const Move &m, const Point &p) {
    const float *const r = m.rotation, *const t = m.translation;
    return {r[0] * p.x + r[1] * p.y + r[2] * p.z + t[0], r[3] * p.x + r[4] * p.y + r[5] * p.z + t[1],
            r[6] * p.x + r[7] * p.y + r[8] * p.z + t[2]};
}

__device__ Point turned_back(const Move &m, const Point &p) {
    const float *const r = m.rotation;
    return {r[0] * p.x + r[3] * p.y + r[6] * p.z, r[1] * p.x + r[4] * p.y + r[7] * p.z,
            r[2] * p.x + r[5] * p.y + r[8] * p.z};
}

// -- once for each picture --------------------------------------------------------------------------------------

struct Picture {
    u64 rgba, depth;                 // float (height, width, 4), and accumulated depth (height, width)
    int width, height, columns, rows;
    float cell;                      // pixels from corner to corner
    float edge;                      // how many times nearer a thing is that counts as another one
    float faint;                     // alpha up to which nothing is there
    int unused;
};

__device__ float inverse_depth(const Picture &p, int x, int y) {
    x = min(max(x, 0), p.width - 1);
    y = min(max(y, 0), p.height - 1);
    const i64 at = (i64)y * p.width + x;
    const float alpha = ((const float *)p.rgba)[4 * at + 3], depth = ((const float *)p.depth)[at];
    return alpha > p.faint && depth > 0.0f ? alpha / depth : 0.0f;
}

extern "C" __global__ void corners(const Picture p, float *out) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= p.columns * p.rows) return;
    const float x = fminf((float)(i % p.columns) * p.cell, (float)p.width);
    const float y = fminf((float)(i / p.columns) * p.cell, (float)p.height);
    float sum = 0.0f, count = 0.0f;
    for (int k = 0; k < 4; ++k) {
        const float inverse = inverse_depth(p, (int)x - (k & 1), (int)y - (k >> 1));
        sum += inverse;
        count += inverse > 0.0f ? 1.0f : 0.0f;
    }
    const float here = sum / fmaxf(count, 1.0f);
    float nearest = here;
    for (int b = -2; b <= 2; ++b)
        for (int a = -2; a <= 2; ++a)
            nearest = fmaxf(nearest, inverse_depth(p, (int)(x + (float)a * p.cell * 0.5f),
                                                   (int)(y + (float)b * p.cell * 0.5f)));
    out[i] = nearest > here * p.edge ? nearest : here;
}

// -- for each camera --------------------------------------------------------------------------------------------

struct Corner { float x, y, value; };  // pixels; what is a straight line's between corners

// False: it is cut off.
__device__ bool corner(const Move &m, int column, int row, Corner *out) {
    const float x = fminf((float)column * m.cell, (float)m.from.width);
    const float y = fminf((float)row * m.cell, (float)m.from.height);
    const float inverse = ((const float *)m.grid)[row * m.columns + column];
    const Point p = there(m, point_at(m.from, x, y, inverse > 0.0f ? 1.0f / inverse : m.middle));
    const float distance = distance_of(m.to, p);
    if (!(distance > m.near_limit && distance < 1e30f)) return false;
    seen_at(m.to, p, &out->x, &out->y);
    out->value = m.to.model == ORTHO ? distance : 1.0f / distance;
    return true;
}

// The columns where the line between two corners crosses a row.
__device__ void cross(const Corner &a, const Corner &b, float y, float *left, float *right) {
    if (y < fminf(a.y, b.y) || y > fmaxf(a.y, b.y)) return;
    const float high = b.y - a.y, t = fabsf(high) < 1e-9f ? 0.0f : (y - a.y) / high;
    const float x = a.x + t * (b.x - a.x);
    *left = fminf(*left, x);
    *right = fmaxf(*right, x);
    if (fabsf(high) < 1e-9f) {
        *left = fminf(*left, b.x);
        *right = fmaxf(*right, b.x);
    }
}

// A thread draws each fourth row of half a cell.
extern "C" __global__ void spread(const Move m) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int part = (int)(i % PARTS), half = (int)(i / PARTS % 2);
    const i64 cell = i / (2 * PARTS);
    if (cell >= (i64)(m.columns - 1) * (m.rows - 1)) return;
    const int column = (int)(cell % (m.columns - 1)), row = (int)(cell / (m.columns - 1));
    Corner a, b, c;
    if (!corner(m, column + half, row + half, &a) || !corner(m, column + 1, row, &b) ||
        !corner(m, column, row + 1, &c)) return;
    const float area = (b.x - a.x) * (c.y - a.y) - (c.x - a.x) * (b.y - a.y);
    if (!(fabsf(area) > 1e-9f && fabsf(area) < 2.0f * LARGEST)) return;
    const float dx = ((b.value - a.value) * (c.y - a.y) - (c.value - a.value) * (b.y - a.y)) / area;
    const float dy = ((c.value - a.value) * (b.x - a.x) - (b.value - a.value) * (c.x - a.x)) / area;
    const float low = fminf(fminf(a.value, b.value), c.value), high = fmaxf(fmaxf(a.value, b.value), c.value);
    const float top = fminf(fminf(a.y, b.y), c.y), bottom = fmaxf(fmaxf(a.y, b.y), c.y);
    const int first = (int)clamped(ceilf(top - 0.5f), 0.0f, (float)m.to.height);
    const int last = (int)clamped(floorf(bottom - 0.5f), -1.0f, (float)(m.to.height - 1));
    int *const nearness = (int *)m.nearness;
    for (int y = first + part; y <= last; y += PARTS) {
        const float middle = (float)y + 0.5f;
        float left = 3e38f, right = -3e38f;
        cross(a, b, middle, &left, &right);
        cross(b, c, middle, &left, &right);
        cross(c, a, middle, &left, &right);
        // A little more than all, so that no line is left out between two neighbours.
        const int begin = (int)clamped(ceilf(left - 0.502f), 0.0f, (float)m.to.width);
        const int end = (int)clamped(floorf(right - 0.498f), -1.0f, (float)(m.to.width - 1));
        for (int x = begin; x <= end; ++x) {
            float value = clamped(a.value + ((float)x + 0.5f - a.x) * dx + (middle - a.y) * dy, low, high);
            if (m.to.model == ORTHO) value = 1.0f / value;
            atomicMax(nearness + (i64)y * m.to.width + x, __float_as_int(value));
        }
    }
}

__device__ Color stored(const Move &m, int x, int y) {
    x = min(max(x, 0), m.from.width - 1);
    y = min(max(y, 0), m.from.height - 1);
    const Half4 v = *(const Half4 *)((const u16 *)m.color + y * m.color_row + 4 * x);
    return {half_value(v.r), half_value(v.g), half_value(v.b), half_value(v.a)};
}

__device__ Color mixed(const Color &a, const Color &b, float t) {
    return {a.r + t * (b.r - a.r), a.g + t * (b.g - a.g), a.b + t * (b.b - a.b), a.a + t * (b.a - a.a)};
}

__device__ Color smoothed(const Move &m, float x, float y) {
    const float left = floorf(x - 0.5f), top = floorf(y - 0.5f), across = x - 0.5f - left, down = y - 0.5f - top;
    const int i = (int)left, j = (int)top;
    return mixed(mixed(stored(m, i, j), stored(m, i + 1, j), across),
                 mixed(stored(m, i, j + 1), stored(m, i + 1, j + 1), across), down);
}

// Depth of what is seen at a pixel of the picture.
__device__ float depth_at(const Move &m, float x, float y) {
    const int column = min((int)(x / m.cell + 0.5f), m.columns - 1), row = min((int)(y / m.cell + 0.5f), m.rows - 1);
    const float inverse = ((const float *)m.grid)[row * m.columns + column];
    return inverse > 0.0f ? 1.0f / inverse : m.middle;
}

extern "C" __global__ void gather(const Move m) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (i64)m.to.width * m.to.height) return;
    const int px = (int)(i % m.to.width), py = (int)(i / m.to.width);
    // All that is seen there is on the line origin + direction * distance, in the axes of the picture's camera.
    const float u = ((float)px + 0.5f - m.to.cx) / m.to.fx, v = ((float)py + 0.5f - m.to.cy) / m.to.fy;
    const float *const t = m.translation;
    Point from = {-t[0], -t[1], -t[2]}, along = {u, v, 1.0f};
    if (m.to.model == ORTHO) {
        from.x += u;
        from.y += v;
        along = {0.0f, 0.0f, 1.0f};
    } else if (m.to.model == FISHEYE) {
        const float out_by = sqrtf(u * u + v * v), angle = fminf(out_by, 3.1f);
        const float scale = out_by < 1e-6f ? 1.0f : sinf(angle) / out_by;
        along = {u * scale, v * scale, cosf(angle)};
    }
    const Point origin = turned_back(m, from), direction = turned_back(m, along);
    float distance = 0.0f;
    if (m.grid) {
        int *const nearness = (int *)m.nearness + i;
        const int bits = *nearness;
        *nearness = 0;  // for the next picture
        if (bits > 0) distance = 1.0f / __int_as_float(bits);
    }
    const bool known = distance > 0.0f;
    if (!known) {
        distance = (m.middle - origin.z) / direction.z;
        if (!(distance > m.near_limit && distance < 1e6f * m.middle)) distance = m.middle;
    }
    const float width = (float)m.from.width, height = (float)m.from.height;
    float x = 0.0f, y = 0.0f;
    for (int k = 0; ; ++k) {
        seen_at(m.from, {origin.x + direction.x * distance, origin.y + direction.y * distance,
                         origin.z + direction.z * distance}, &x, &y);
        x = clamped(x, -4.0f * width, 5.0f * width);  // whatever it is: a number
        y = clamped(y, -4.0f * height, 5.0f * height);
        if (known || !m.grid || k == SEARCHES) break;
        const float ex = clamped(x, 0.0f, width), ey = clamped(y, 0.0f, height);
        const float found = distance_of(m.to, there(m, point_at(m.from, ex, ey, depth_at(m, ex, ey))));
        if (!(found > m.near_limit && found < 1e30f)) break;
        distance = found;
    }
    const float ex = clamped(x, 0.0f, width), ey = clamped(y, 0.0f, height);
    const float out_x = fabsf(x - ex), out_y = fabsf(y - ey);
    Color color;
    if (out_x + out_y < 0.01f) {
        color = smoothed(m, ex, ey);
    } else {  // beyond the picture its edge goes on, the softer the farther away
        const float ax = 0.25f * out_y, ay = 0.25f * out_x;
        color = mixed(mixed(smoothed(m, clamped(ex - 1.5f * ax, 0.0f, width), clamped(ey - 1.5f * ay, 0.0f, height)),
                            smoothed(m, clamped(ex - 0.5f * ax, 0.0f, width), clamped(ey - 0.5f * ay, 0.0f, height)),
                            0.5f),
                      mixed(smoothed(m, clamped(ex + 0.5f * ax, 0.0f, width), clamped(ey + 0.5f * ay, 0.0f, height)),
                            smoothed(m, clamped(ex + 1.5f * ax, 0.0f, width), clamped(ey + 1.5f * ay, 0.0f, height)),
                            0.5f), 0.5f);
    }
    *(Half4 *)((u16 *)m.out + py * m.out_row + 4 * px) = {half_bits(color.r), half_bits(color.g), half_bits(color.b),
                                                         half_bits(color.a)};
}
