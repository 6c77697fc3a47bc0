// Where Gaussians lie in the picture, and the ellipses that they are there: what `gsplat.fully_fused_projection`
// returns, for one camera.
//
// It does what gsplat does (ProjectionEWA3DGSFused.cu, Utils.cuh), sum by sum in the same order and without loops, so
// that a compiler rounds the same products: results are gsplat's, bit for bit. Products with 0 stay for that; they are
// not 0 where a number is infinite.
//
// LEAST_COMPENSATION (`Rules` in base.py) is defined by whoever compiles this.

constexpr float REACH = 3.33f;           // standard deviations from its centre at which a Gaussian ends
enum Model { PINHOLE, ORTHO, FISHEYE };  // `MODELS` in geometry/cameras.py

struct Vec2 { float x, y; };
struct Vec3 { float x, y, z; };
struct Mat2 { Vec2 x, y; };              // columns, as in the next two
struct Mat3 { Vec3 x, y, z; };
struct Jacobian { Vec2 x, y, z; };       // of a place in the picture, by the axes of the camera

__device__ Vec2 operator*(const Jacobian &m, const Vec3 &v) {
    return {m.x.x * v.x + m.y.x * v.y + m.z.x * v.z, m.x.y * v.x + m.y.y * v.y + m.z.y * v.z};
}

__device__ Vec3 operator*(const Mat3 &m, const Vec3 &v) {
    return {m.x.x * v.x + m.y.x * v.y + m.z.x * v.z, m.x.y * v.x + m.y.y * v.y + m.z.y * v.z,
            m.x.z * v.x + m.y.z * v.y + m.z.z * v.z};
}

__device__ Mat3 operator*(const Mat3 &a, const Mat3 &b) { return {a * b.x, a * b.y, a * b.z}; }

__device__ Mat3 transposed(const Mat3 &m) {
    return {{m.x.x, m.y.x, m.z.x}, {m.x.y, m.y.y, m.z.y}, {m.x.z, m.y.z, m.z.z}};
}

// The covariance of a Gaussian in the world.
__device__ Mat3 covariance_of(const float *quat, const float *scale) {
    float w = quat[0], x = quat[1], y = quat[2], z = quat[3];
    const float inverse = rsqrtf(x * x + y * y + z * z + w * w);
    x *= inverse, y *= inverse, z *= inverse, w *= inverse;
    const float x2 = x * x, y2 = y * y, z2 = z * z, xy = x * y, xz = x * z, yz = y * z;
    const float wx = w * x, wy = w * y, wz = w * z;
    const Mat3 axes = {{1.0f - 2.0f * (y2 + z2), 2.0f * (xy + wz), 2.0f * (xz - wy)},
                       {2.0f * (xy - wz), 1.0f - 2.0f * (x2 + z2), 2.0f * (yz + wx)},
                       {2.0f * (xz + wy), 2.0f * (yz - wx), 1.0f - 2.0f * (x2 + y2)}};
    const Mat3 root = axes * Mat3{{scale[0], 0.0f, 0.0f}, {0.0f, scale[1], 0.0f}, {0.0f, 0.0f, scale[2]}};
    return root * transposed(root);
}

struct Lens { float fx, fy, cx, cy; };   // in pixels

// A Gaussian in the picture.
struct Ellipse {
    Vec2 center;
    Mat2 covariance;
};

__device__ Ellipse ellipse(Vec2 center, const Jacobian &m, const Mat3 &covariance) {
    const Jacobian left = {m * covariance.x, m * covariance.y, m * covariance.z};
    return {center, {left * Vec3{m.x.x, m.y.x, m.z.x}, left * Vec3{m.x.y, m.y.y, m.z.y}}};
}

// Each of these projects a Gaussian at `p` in camera axes, with its covariance there.

__device__ Ellipse project_pinhole(Vec3 p, const Mat3 &covariance, Lens lens, int width, int height) {
    const float half_x = 0.5f * width / lens.fx, half_y = 0.5f * height / lens.fy;
    const float right = (width - lens.cx) / lens.fx + 0.3f * half_x, left = lens.cx / lens.fx + 0.3f * half_x;
    const float bottom = (height - lens.cy) / lens.fy + 0.3f * half_y, top = lens.cy / lens.fy + 0.3f * half_y;
    const float inverse = 1.0f / p.z, inverse2 = inverse * inverse;
    const float x = p.z * fminf(right, fmaxf(-left, p.x * inverse));
    const float y = p.z * fminf(bottom, fmaxf(-top, p.y * inverse));
    const Jacobian m = {{lens.fx * inverse, 0.0f},
                        {0.0f, lens.fy * inverse},
                        {-lens.fx * x * inverse2, -lens.fy * y * inverse2}};
    return ellipse({lens.fx * p.x * inverse + lens.cx, lens.fy * p.y * inverse + lens.cy}, m, covariance);
}

__device__ Ellipse project_ortho(Vec3 p, const Mat3 &covariance, Lens lens) {
    const Jacobian m = {{lens.fx, 0.0f}, {0.0f, lens.fy}, {0.0f, 0.0f}};
    return ellipse({lens.fx * p.x + lens.cx, lens.fy * p.y + lens.cy}, m, covariance);
}

__device__ Ellipse project_fisheye(Vec3 p, const Mat3 &covariance, Lens lens) {
    const float tiny = 1e-7f, from_axis = sqrtf(p.x * p.x + p.y * p.y) + tiny, angle = atan2f(from_axis, p.z + tiny);
    const float x2 = p.x * p.x + tiny, y2 = p.y * p.y, xy = p.x * p.y, flat = x2 + y2;
    const float inverse = 1.0f / (flat + p.z * p.z);
    const float across = atan2f(from_axis, p.z) / from_axis / flat, along = p.z * inverse / flat;
    const Jacobian m = {{lens.fx * (x2 * along + y2 * across), lens.fy * xy * (along - across)},
                        {lens.fx * xy * (along - across), lens.fy * (y2 * along + x2 * across)},
                        {-lens.fx * p.x * inverse, -lens.fy * p.y * inverse}};
    const Vec2 center = {p.x * lens.fx * angle / from_axis + lens.cx, p.y * lens.fy * angle / from_axis + lens.cy};
    return ellipse(center, m, covariance);
}

// One thread per Gaussian. `viewmat`: 4 x 4, world to camera; `K`: 3 x 3, both by rows. `blur`: added to the diagonal
// of a projected covariance.
//
// `radii`: half of the box that the Gaussian may show in, pixels; 0, 0 of one that cannot be seen, whose other results
// stay as they were. `conics`: inverse covariances: xx, xy, yy. `compensations`: null if not antialiased.
extern "C" __global__ void project(
    int n, const float *means, const float *quats, const float *scales, const float *opacities, const float *viewmat,
    const float *K, int width, int height, float blur, float near, float far, float radius_clip, int model,
    int *radii, float *means2d, float *depths, float *conics, float *compensations) {
    const i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    radii[2 * i] = radii[2 * i + 1] = 0;
    const Mat3 rotation = {{viewmat[0], viewmat[4], viewmat[8]},
                           {viewmat[1], viewmat[5], viewmat[9]},
                           {viewmat[2], viewmat[6], viewmat[10]}};
    const Vec3 turned = rotation * Vec3{means[3 * i], means[3 * i + 1], means[3 * i + 2]};
    const Vec3 p = {turned.x + viewmat[3], turned.y + viewmat[7], turned.z + viewmat[11]};
    if (p.z < near || p.z > far) return;
    const Mat3 local = rotation * covariance_of(quats + 4 * i, scales + 3 * i) * transposed(rotation);
    const Lens lens = {K[0], K[4], K[2], K[5]};
    const Ellipse e = model == PINHOLE ? project_pinhole(p, local, lens, width, height)
                      : model == ORTHO ? project_ortho(p, local, lens) : project_fisheye(p, local, lens);
    const float xy = e.covariance.x.y, yx = e.covariance.y.x;
    const float sharp = e.covariance.x.x * e.covariance.y.y - xy * yx;
    const float xx = e.covariance.x.x + blur, yy = e.covariance.y.y + blur;
    const float determinant = xx * yy - xy * yx;
    if (determinant <= 0.0f) return;
    const float compensation = sqrtf(fmaxf(LEAST_COMPENSATION * LEAST_COMPENSATION, sharp / determinant));
    const float opacity = compensations ? opacities[i] * compensation : opacities[i];
    if (opacity < ALPHA_MIN) return;
    const float reach = fminf(REACH, sqrtf(2.0f * __logf(opacity / ALPHA_MIN)));
    const float radius_x = ceilf(reach * sqrtf(xx)), radius_y = ceilf(reach * sqrtf(yy));
    if (radius_x <= radius_clip && radius_y <= radius_clip) return;
    if (e.center.x + radius_x <= 0.0f || e.center.x - radius_x >= width) return;
    if (e.center.y + radius_y <= 0.0f || e.center.y - radius_y >= height) return;
    const float inverse = 1.0f / determinant;
    radii[2 * i] = (int)radius_x, radii[2 * i + 1] = (int)radius_y;
    means2d[2 * i] = e.center.x, means2d[2 * i + 1] = e.center.y;
    depths[i] = p.z;
    conics[3 * i] = yy * inverse, conics[3 * i + 1] = -xy * inverse, conics[3 * i + 2] = xx * inverse;
    if (compensations) compensations[i] = compensation;
}
