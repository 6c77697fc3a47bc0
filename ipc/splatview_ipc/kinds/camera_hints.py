"""Signs that cameras or their photographs are in another convention than is published.

Each check is silent if it is not sure: a false alarm costs more than a missing hint.
All work on samples, in milliseconds, and never change the picture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class CameraHint(NamedTuple):
    """A doubt about published cameras."""

    name: str
    """Names the doubt, so that it is reported once whatever its numbers are."""
    text: str
    """The sign, and what to publish instead, in one line."""


_TOLERANCE = 1e-2
"""Largest deviation of a matrix from a rotation, as for what is published."""
_MIN_SIDE = 32
"""Pixels along a picture from which on its intrinsics can be judged."""
_MAX_INTRINSICS = 500
"""Cameras whose intrinsics are checked."""
_MAX_CAMERAS = 32
"""Cameras whose poses are checked."""
_MAX_POINTS = 2000
"""Points with which they are checked."""
_MIN_CAMERAS = 3
_MIN_POINTS = 30
_BLIND = 0.035
"""A camera that has less than this share of the scene's inner half in its picture does
not see the scene."""
_SEEING = 0.5
"""A camera that has at least this share of it in its picture sees the scene."""
_OUTSIDE_DISTANCE = 1.5
"""Cameras at this distance from the middle of a scene are outside of it, in radii of
its inner half."""
_INSIDE_DISTANCE = 0.7
"""Cameras below this distance are within it."""


# -- intrinsics ------------------------------------------------------------------------


def intrinsics_hints(Ks: np.ndarray, sizes: np.ndarray) -> list[CameraHint]:
    """Return doubts about intrinsics.

    Args:
        Ks: (N, 3, 3).
        sizes: (N, 2) width and height in pixels.
    """
    step = len(Ks) // _MAX_INTRINSICS + 1
    Ks = Ks[::step]
    sizes = sizes[::step]
    is_usable = np.all(np.isfinite(Ks), axis=(1, 2)) & (sizes >= _MIN_SIDE).all(1)
    is_usable &= (Ks[:, 0, 0] > 0) & (Ks[:, 1, 1] > 0)
    if not is_usable.any():
        return []
    Ks = Ks[is_usable].astype(np.float64)
    sizes = sizes[is_usable].astype(np.float64)
    checks = (_transposed, _normalised, _swapped_sides, _other_size, _skewed)
    hints = (check(Ks, sizes) for check in checks)
    return [hint for hint in hints if hint is not None]


def _transposed(Ks: np.ndarray, sizes: np.ndarray) -> CameraHint | None:
    has_last_row = (Ks[:, 2, :2] > 1).all(1)
    has_no_middle = (Ks[:, :2, 2] == 0).all(1)
    if not (has_last_row & has_no_middle).all():
        return None
    return CameraHint(
        "transposed",
        "Ks look transposed: the principal points are in the last row. Publish "
        "Ks.transpose(1, 2)",
    )


def _normalised(Ks: np.ndarray, sizes: np.ndarray) -> CameraHint | None:
    focal = Ks[:, [0, 1], [0, 1]]
    middle = np.abs(Ks[:, :2, 2])
    # In pixels such a camera would see nearly half of the world, from the first pixel
    # of its picture.
    if not ((focal < 10).all() and (middle <= 1.5).all()):
        return None
    if (Ks[:, 2, :2] > 1).any():
        return None
    width = int(sizes[0, 0])
    return CameraHint(
        "normalised",
        f"Ks look normalised: fx is {Ks[0, 0, 0]:.4g} where the picture is {width} wide. "
        "They are in pixels: multiply the first row by the width and the second by the "
        "height",
    )


def _swapped_sides(Ks: np.ndarray, sizes: np.ndarray) -> CameraHint | None:
    size_by_centre = 2 * Ks[:, :2, 2]
    swapped = sizes[:, ::-1]
    is_oblong = np.abs(sizes[:, 0] - sizes[:, 1]) > 0.1 * sizes.max(1)
    fits_swapped = np.all(np.abs(size_by_centre - swapped) < 0.04 * swapped, axis=1)
    if not (is_oblong & fits_swapped).any():
        return None
    # Square pictures say nothing either way.
    if not fits_swapped[is_oblong].all():
        return None
    width, height = sizes[is_oblong][0].astype(int)
    return CameraHint(
        "sides",
        f"width and height look swapped: they are {width} and {height}, and the principal "
        f"points lie in the middle of {height}x{width}",
    )


def _other_size(Ks: np.ndarray, sizes: np.ndarray) -> CameraHint | None:
    factors = 2 * Ks[:, :2, 2] / sizes
    factor = float(2 ** np.round(np.log2(max(np.median(factors), 1e-3))))
    is_off = (np.abs(factors - factor) < 0.04 * factor).all()
    if factor not in (0.125, 0.25, 0.5, 2.0, 4.0, 8.0) or not is_off:
        return None
    relation = "larger" if factor > 1 else "smaller"
    times = max(factor, 1 / factor)
    return CameraHint(
        "other size",
        f"Ks look made for pictures {times:.0f} times {relation} than width and height: "
        f"divide their first two rows by {factor:g}",
    )


def _skewed(Ks: np.ndarray, sizes: np.ndarray) -> CameraHint | None:
    skews = np.abs(Ks[:, 0, 1])
    # Less than a tenth of a pixel at the edge of the picture cannot be seen.
    shift = skews * sizes[:, 1] / (2 * Ks[:, 1, 1])
    if not (shift > 0.1).any():
        return None
    worst = int(shift.argmax())
    return CameraHint(
        "skew",
        f"Ks have a skew, {Ks[worst, 0, 1]:.4g} pixels in the first row, which is not "
        f"drawn: the scene is up to {shift[worst]:.1f} pixels off its photograph. Undistort "
        "the photographs to pixels without skew",
    )


# -- poses -----------------------------------------------------------------------------

_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])
"""From OpenGL's camera (y up, z backward) to OpenCV's (y down, z forward), and back."""
_ADVICE = "from where they are the cameras do not see the scene. Publish "
_POSES = {
    "inverse": (
        f"viewmats look like camera to world: {_ADVICE}torch.linalg.inv(viewmats)"
    ),
    "opengl": (
        f"viewmats look like OpenGL's axes (y up, z backward): {_ADVICE}"
        "OpenCV's: viewmats[:, 1:3] *= -1"
    ),
    "opengl inverse": (
        "viewmats look like camera to world in OpenGL's axes, as Blender and nerfstudio "
        f"have them: {_ADVICE}torch.linalg.inv(viewmats) after viewmats[:, :3, 1:3] *= -1"
    ),
}
"""The hint by the convention in which the cameras see their scene."""


def pose_hint(
    viewmats: np.ndarray, Ks: np.ndarray, sizes: np.ndarray, points: np.ndarray
) -> CameraHint | None:
    """Return a doubt about the poses of cameras that do not see their scene.

    There is one if they would see it in another convention.

    Args:
        viewmats: (N, 4, 4) world to camera.
        Ks: (N, 3, 3) in pixels.
        sizes: (N, 2) width and height in pixels.
        points: (M, 3) centres of the scene's Gaussians.
    """
    step = len(viewmats) // _MAX_CAMERAS + 1
    indices = step * _rigid_indices(viewmats[::step])
    points = points[:: len(points) // _MAX_POINTS + 1].astype(np.float64)
    points = points[np.isfinite(points).all(1)]
    if len(indices) < _MIN_CAMERAS or len(points) < _MIN_POINTS:
        return None
    scene = _SceneBounds.from_points(points)
    views = viewmats[indices].astype(np.float64)
    tangents = _half_tangents(Ks[indices], sizes[indices])
    as_published = scene.visibility_from(views, tangents)
    # From within a scene every convention sees some of it.
    if as_published.distance < _INSIDE_DISTANCE or as_published.half_see >= _BLIND:
        return None
    inverses = np.linalg.inv(views)
    visibilities = {
        "opengl": scene.visibility_from(_FLIP @ views, tangents),
        "inverse": scene.visibility_from(inverses, tangents),
        "opengl inverse": scene.visibility_from(_FLIP @ inverses, tangents),
    }
    name = max(visibilities, key=lambda name: visibilities[name].rank)
    if not visibilities[name].is_likelier_than(as_published):
        return None
    return CameraHint(f"poses {name}", _POSES[name])


class _Visibility(NamedTuple):
    """The part of a scene's inner half that is in the pictures of some cameras."""

    ninety_percent_see: float
    half_see: float
    ten_percent_see: float
    """The share of the scene that nine tenths, half and a tenth of the cameras have at
    least in their pictures."""
    straight: float
    """The cosine of the angle between their axes and its middle, on average."""
    distance: float
    """From its middle, in its radii; the median."""

    @property
    def rank(self) -> tuple[float, float]:
        """Return the key by which conventions are compared.

        The share that they see, in steps of a tenth, then how straight they look at it.
        """
        return round(self.half_see, 1), self.straight

    def is_likelier_than(self, published: _Visibility) -> bool:
        """Return whether cameras that see nothing as published are meant so."""
        if self.half_see < _SEEING:
            return False
        if published.distance > _OUTSIDE_DISTANCE:
            return True
        # Amid its surroundings, as in an outdoor scene, each must look at what all look
        # at, from as near. Random points between cameras that look ahead are no such
        # scene.
        all_see = self.ninety_percent_see > 0.25 and self.straight > 0.9
        none_saw = published.ten_percent_see < 2 * _BLIND
        return all_see and none_saw and self.distance < 3


class _SceneBounds(NamedTuple):
    """The inner half of a scene's points.

    The points far outside say nothing of where cameras look.
    """

    points: np.ndarray
    """(M, 3)."""
    middle: np.ndarray
    radius: float
    """Distance from the middle within which the half lies."""

    @classmethod
    def from_points(cls, points: np.ndarray) -> _SceneBounds:
        middle = np.median(points, axis=0)
        distances = np.linalg.norm(points - middle, axis=1)
        radius = float(np.median(distances))
        return cls(points[distances <= radius], middle, max(radius, 1e-12))

    def visibility_from(self, views: np.ndarray, tangents: np.ndarray) -> _Visibility:
        """Return the visible part of the scene in the pictures of cameras.

        Args:
            views: (N, 4, 4) world to camera.
            tangents: (N, 4) extents of the pictures, as of `_half_tangents`.
        """
        shares = _seen_share(views, tangents, self.points)
        towards = views[:, :3, :3] @ self.middle + views[:, :3, 3]
        lengths = np.maximum(np.linalg.norm(towards, axis=1), 1e-12)
        ninety_percent, half, ten_percent = np.percentile(shares, (10, 50, 90)).tolist()
        return _Visibility(
            ninety_percent_see=ninety_percent,
            half_see=half,
            ten_percent_see=ten_percent,
            straight=float((towards[:, 2] / lengths).mean()),
            distance=float(np.median(lengths)) / self.radius,
        )


def _rigid_indices(viewmats: np.ndarray) -> np.ndarray:
    """Return the indices of those matrices that are poses."""
    is_finite = np.all(np.isfinite(viewmats), axis=(1, 2))
    rotations = np.where(is_finite[:, None, None], viewmats[:, :3, :3], 0.0)
    products = rotations @ rotations.transpose(0, 2, 1)
    deviation = np.abs(products - np.eye(3)).max((1, 2))
    return np.flatnonzero(deviation < _TOLERANCE)


def _half_tangents(Ks: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return (N, 4): the minima, then the maxima of x / z and y / z in the pictures.

    Those of a field of view of 60 degrees for doubtful intrinsics.
    """
    with np.errstate(all="ignore"):
        low = -Ks[:, [0, 1], 2] / Ks[:, [0, 1], [0, 1]]
        high = low + sizes / Ks[:, [0, 1], [0, 1]]
    tangents = np.concatenate([low, high], 1)
    is_plausible = np.all(np.isfinite(tangents) & (np.abs(tangents) < 4), axis=1)
    usual = np.array([-0.58, -0.58, 0.58, 0.58])
    return np.where(is_plausible[:, None], tangents, usual)


def _seen_share(
    views: np.ndarray, tangents: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Return (N,) the share of the points (M, 3) in the picture of each camera."""
    local = points @ views[:, :3, :3].transpose(0, 2, 1) + views[:, None, :3, 3]
    depths = local[..., 2]
    with np.errstate(all="ignore"):
        image_points = local[..., :2] / depths[..., None]
    is_seen = (image_points >= tangents[:, None, :2]) & (
        image_points <= tangents[:, None, 2:]
    )
    return ((depths > 0) & is_seen.all(2)).mean(1)


# -- photographs -----------------------------------------------------------------------


def photo_range_hint(values: np.ndarray) -> CameraHint | None:
    """Return a doubt about the range of floating-point photographs.

    Args:
        values: (M,) a sample of their numbers.
    """
    values = values[np.isfinite(values) & (values != 0)]
    if not len(values):
        return None
    low, high = np.percentile(values, (1, 99))
    is_signed = -1.3 <= low < -0.1 and high <= 1.3 and (values < 0).mean() > 0.1
    is_wide = low > -26 and 16 < high < 282 and (values > 1).mean() > 0.5
    if not (is_signed or is_wide):
        return None
    limits = "-1 to 1"
    advice = "images / 2 + 0.5"
    if is_wide:
        limits = "0 to 255"
        advice = "images / 255, or uint8"
    return CameraHint(
        "range",
        f"images are floats from {limits}, of which only 0 to 1 is seen: publish {advice}",
    )


def photo_sides_hint(
    photo: tuple[int, int], camera: tuple[int, int], index: int
) -> CameraHint | None:
    """Return a doubt about a photograph whose sides are swapped against its camera's.

    Args:
        photo: width and height of the photograph, in pixels.
        camera: width and height of the camera's picture, in pixels.
        index: the index of the camera.
    """
    width, height = photo
    camera_width, camera_height = camera
    deviation = abs(np.log(width * camera_height / (height * camera_width)))
    swapped_deviation = abs(np.log(width * camera_width / (height * camera_height)))
    if not (swapped_deviation < 0.03 and deviation > 0.1):
        return None
    return CameraHint(
        "photo sides",
        f"images[{index}] is {width}x{height} pixels and its camera "
        f"{camera_width}x{camera_height}: width and height look swapped",
    )
