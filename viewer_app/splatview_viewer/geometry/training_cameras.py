"""Cameras of a training as frames bring them, checked, and what is up by them or by a ground. No graphics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.geometry.cameras import Camera, bounds

if TYPE_CHECKING:
    from splatview_ipc.control.frame import StreamFrame

_STRAIGHT = 1e-2
"""Largest deviation of a matrix from a rotation."""
_NEIGHBOURS = 256
"""Cameras of which the distance to the nearest other one is looked at."""


@dataclass(frozen=True)
class CameraSet:
    """N cameras; a camera is known by its number from 0 on."""

    viewmats: np.ndarray
    """(N, 4, 4) float64, world to camera, OpenCV axes."""
    Ks: np.ndarray
    """(N, 3, 3) float64 in pixels."""
    sizes: np.ndarray
    """(N, 2) int, width and height in pixels."""
    paths: tuple[str, ...] = ()
    """Names of the photographs, "" where there is none; () if there are none at all."""
    photos: int = 0
    """Which set of photographs their publisher can be asked for; 0: none."""

    def __len__(self) -> int:
        return len(self.viewmats)

    @cached_property
    def fine(self) -> np.ndarray:
        """(N,) bool: which of them are cameras. What lay on a GPU nobody has looked at before."""
        turn = self.viewmats[:, :3, :3]
        with np.errstate(all="ignore"):
            whole = np.isfinite(self.viewmats.sum((1, 2)) + self.Ks.sum((1, 2)))
            off = np.abs(turn @ turn.transpose(0, 2, 1) - np.eye(3)).max((1, 2))
            handed = np.linalg.det(np.where(whole[:, None, None], turn, 0)) > 0
            return (
                whole
                & (off < _STRAIGHT)
                & handed
                & (self.Ks[:, 0, 0] > 0)
                & (self.Ks[:, 1, 1] > 0)
                & (self.sizes > 0).all(1)
            )

    @cached_property
    def distinct_sizes(self) -> set[tuple[int, int]]:
        """Widths and heights that there are."""
        return {(int(w), int(h)) for w, h in self.sizes}

    @cached_property
    def positions(self) -> np.ndarray:
        """(N, 3) in the world; 0 for what is no camera."""
        views = np.where(self.fine[:, None, None], self.viewmats, np.eye(4))
        return -np.einsum("nji,nj->ni", views[:, :3, :3], views[:, :3, 3])

    @cached_property
    def extents(self) -> np.ndarray:
        """(N, 4) x0, y0, x1, y1 of the picture at depth 1."""
        fx, fy, cx, cy = (
            np.where(self.fine, self.Ks[:, i, j], 1.0)
            for i, j in ((0, 0), (1, 1), (0, 2), (1, 2))
        )
        width, height = self.sizes.T
        return np.stack([-cx / fx, -cy / fy, (width - cx) / fx, (height - cy) / fy], 1)

    @cached_property
    def spacing(self) -> float:
        """A length that fits how far they are from each other, > 0, for the size at which they are drawn."""
        places = self.positions[self.fine]
        if len(places) < 2:
            return 1.0
        some = places[:: -(-len(places) // _NEIGHBOURS)]
        distance = np.linalg.norm(some[:, None] - places[None], axis=2)
        distance[distance < 1e-9] = np.inf  # itself, and those at the same place
        nearest = distance.min(1)
        nearest = nearest[np.isfinite(nearest)]
        radius = bounds(places)[1]
        if len(nearest):
            return float(np.clip(np.median(nearest), 0.03 * radius, 0.5 * radius))
        return 1.0

    def camera(self, number: int) -> Camera | None:
        """One of them, at the size of its photograph; None for a number that none has."""
        if not 0 <= number < len(self) or not self.fine[number]:
            return None
        K = self.Ks[number].copy()
        K[0, 1] = 0.0
        K[1, 0] = 0.0
        K[2, 0] = 0.0
        K[2, 1] = 0.0
        K[2, 2] = 1.0
        viewmat = self.viewmats[number].copy()
        viewmat[3] = 0, 0, 0, 1
        width, height = self.sizes[number]
        return Camera(viewmat, K, int(width), int(height))

    def outline(self, number: int, depth: float) -> np.ndarray:
        """(5, 3) the centre of one of them and the corners of its picture at `depth`, in the world."""
        x0, y0, x1, y1 = self.extents[number] * depth
        local = np.array(
            [
                (0, 0, 0),
                (x0, y0, depth),
                (x1, y0, depth),
                (x1, y1, depth),
                (x0, y1, depth),
            ]
        )
        turn = self.viewmats[number, :3, :3] if self.fine[number] else np.eye(3)
        return local @ turn + self.positions[number]

    def path(self, number: int) -> str:
        return self.paths[number] if number < len(self.paths) else ""

    def called(self, number: int) -> str:
        """Name for users: its number, and its file's name if it has one."""
        name = PurePath(self.path(number)).name
        return f"{number}  {name}" if name else f"Camera {number}"


NO_CAMERAS = CameraSet(
    np.empty((0, 4, 4)), np.empty((0, 3, 3)), np.empty((0, 2), np.int64)
)


def cameras_of(frame: StreamFrame) -> CameraSet:
    """Copy the content of a frame of kind cameras. Raises ViewerError for one that holds no cameras,
    SharingError for one on a GPU: its tensors are small, and wanted in host memory.
    """
    if frame.on_gpu:
        raise SharingError("cameras are read from host memory")
    if "viewmats" not in frame.tensors:
        raise ViewerError("a part of cameras without the cameras themselves")
    arrays = {name: np.array(tensor.array) for name, tensor in frame.tensors.items()}  # type: ignore[union-attr]
    count = len(arrays["viewmats"])
    paths: tuple[str, ...] = ()
    if len(arrays.get("paths", ())):
        paths = tuple(
            text.decode("utf-8", "replace")
            for text in arrays["paths"].tobytes().split(b"\0")[:-1]
        )
        if len(paths) != count:
            raise ViewerError(f"{len(paths)} paths of photographs for {count} cameras")
    return CameraSet(
        arrays["viewmats"].astype(np.float64),
        arrays["Ks"].astype(np.float64),
        arrays["sizes"].astype(np.int64),
        paths,
        int(frame.meta.get("photos", 0)),
    )


def at_size(camera: Camera, width: int, height: int) -> Camera:
    """The same camera for a photograph of another size: what is seen stays the same."""
    K = np.diag([width / camera.width, height / camera.height, 1.0]) @ camera.K
    return replace(camera, K=K, width=width, height=height)


_SAMPLE = 20_000
_FEW = 1500
"""Points that are looked at, and those of them by which planes are judged."""
_TRIES = 250
_LEAST = 500
"""Points of which something can be said."""
_THICK = 0.015
"""A ground is so thick, in radii of the scene."""
_GROUND = 0.12
"""The least share of the points that a ground holds."""
_LEVEL = 0.08
"""Cameras whose horizons spread less than this around one direction say nothing of the other."""


def up_of_cameras(viewmats: np.ndarray) -> np.ndarray | None:
    """The direction (3,), of length 1, that was upward when these cameras were held level.

    Where they look in different directions it is the one that all their horizons are square to, however much they look
    down; otherwise the mean of what is up in their pictures. None where that is no direction either.

    Args:
        viewmats: (N, 4, 4) world to camera, OpenCV axes.
    """
    viewmats = np.asarray(viewmats, np.float64).reshape(-1, 4, 4)
    rotations = viewmats[np.isfinite(viewmats).all(axis=(1, 2)), :3, :3]
    if not len(rotations):
        return None
    mean = -rotations[:, 1].mean(axis=0)
    length = float(np.linalg.norm(mean))
    rights = rotations[:, 0]
    values, axes = np.linalg.eigh(rights.T @ rights / len(rights))
    up = axes[:, 0]
    # Cameras that are rolled by chance spread in all directions; then the mean is better.
    if values[1] > _LEVEL and values[0] < 0.2 * values[1] and abs(up @ mean) > 0.1:
        return up * np.sign(up @ mean)
    return mean / length if length > 0.1 else None


def up_of_scene(
    points: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray | None:
    """The direction (3,), of length 1, that is square to the ground of a scene, away from it; None where no plane holds
    enough of the points to be one.

    Args:
        points: (N, 3) centres of Gaussians.
        weights: (N,) opacities; those of 0 do not count.
    """
    points = np.asarray(points)
    keep = (np.abs(points) < 1e18).all(axis=1)
    if weights is not None:
        keep &= np.asarray(weights) > 0
    points = points[keep]
    points = points[:: max(len(points) // _SAMPLE, 1)].astype(np.float64)
    if len(points) < _LEAST:
        return None
    middle = np.median(points, axis=0)
    radius = float(np.percentile(np.linalg.norm(points - middle, axis=1), 80))
    if radius <= 0:
        return None
    points = (points - middle) / radius
    points = points[np.linalg.norm(points, axis=1) < 2.5]
    random = np.random.default_rng(0)
    few = points[random.choice(len(points), min(len(points), _FEW), replace=False)]
    a, b, c = few[random.integers(len(few), size=(_TRIES, 3))].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    normals = normals[lengths > 1e-3] / lengths[lengths > 1e-3, None]
    a = a[lengths > 1e-3]
    # The plane that holds most of the points, away from which most of the others lie: something stands on it.
    offsets = (normals * a).sum(axis=1)
    heights = few @ normals.T - offsets
    above = (heights >= _THICK).sum(axis=0)
    below = (heights <= -_THICK).sum(axis=0)
    most = np.maximum(above, below)
    least = np.minimum(above, below)
    inside = 1 - (most + least) / len(few)
    share = np.where(
        least <= 0.25 * most, inside * (1 - least / np.maximum(most, 1)), 0.0
    )
    if share.max(initial=0.0) <= _GROUND:
        return None
    best = int(np.argmax(share))
    sign = 1.0 if above[best] >= below[best] else -1.0
    normal = sign * normals[best]
    offset = sign * float(offsets[best])
    for thick in (2 * _THICK, _THICK):
        flat = points[np.abs(points @ normal - offset) < thick]
        center = flat.mean(axis=0)
        axis = np.linalg.svd(flat - center, full_matrices=False)[2][2]
        normal = axis * np.sign(axis @ normal)
        offset = float(normal @ center)
    return normal


def snapped(up: np.ndarray) -> np.ndarray:
    """Return the axis within 4 degrees of a direction of length 1, or the direction itself."""
    axis = int(np.argmax(np.abs(up)))
    if abs(up[axis]) < np.cos(np.radians(4.0)):
        return up
    return np.sign(up[axis]) * np.eye(3)[axis] + 0.0  # no -0
