"""Cameras of a training as frames bring them, checked. No graphics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.geometry.cameras import Camera, bounds

if TYPE_CHECKING:
    from splatview_ipc.control.frame import StreamFrame

_ROTATION_TOLERANCE = 1e-2
"""Largest entry of |R R^T - 1| of a rotation R."""
_NEIGHBOURS = 256
"""Cameras of which the distance to the nearest other one is measured."""


@dataclass(frozen=True, eq=False)
class CameraSet:
    """N cameras; a camera is known by its index from 0 on."""

    viewmats: np.ndarray
    """(N, 4, 4) float64, world to camera, OpenCV axes."""
    Ks: np.ndarray
    """(N, 3, 3) float64 in pixels."""
    sizes: np.ndarray
    """(N, 2) int, width and height in pixels."""
    paths: tuple[str, ...] = ()
    """Names of the photographs, "" where there is none; () if there are none at all."""
    photos: int = 0
    """The set of photographs that their publisher can be asked for; 0: none."""

    def __len__(self) -> int:
        return len(self.viewmats)

    @cached_property
    def is_valid(self) -> np.ndarray:
        """(N,) bool: True for matrices of a camera. Those on a GPU were not checked before."""
        rotations = self.viewmats[:, :3, :3]
        transposed = rotations.transpose(0, 2, 1)
        with np.errstate(all="ignore"):
            sums = self.viewmats.sum((1, 2)) + self.Ks.sum((1, 2))
            is_finite = np.isfinite(sums)
            residuals = np.abs(rotations @ transposed - np.eye(3))
            is_orthonormal = residuals.max((1, 2)) < _ROTATION_TOLERANCE
            finite_rotations = np.where(is_finite[:, None, None], rotations, 0)
            is_right_handed = np.linalg.det(finite_rotations) > 0
            focal_lengths = np.stack([self.Ks[:, 0, 0], self.Ks[:, 1, 1]], 1)
            has_focal_lengths = (focal_lengths > 0).all(1)
            has_size = (self.sizes > 0).all(1)
        is_pose = is_finite & is_orthonormal & is_right_handed
        return is_pose & has_focal_lengths & has_size

    @cached_property
    def distinct_sizes(self) -> set[tuple[int, int]]:
        """All pairs of width and height."""
        return {(int(width), int(height)) for width, height in self.sizes}

    @cached_property
    def positions(self) -> np.ndarray:
        """(N, 3) in the world; 0 for invalid cameras."""
        views = np.where(self.is_valid[:, None, None], self.viewmats, np.eye(4))
        rotations = views[:, :3, :3]
        translations = views[:, :3, 3]
        return -np.einsum("nji,nj->ni", rotations, translations)

    @cached_property
    def extents(self) -> np.ndarray:
        """(N, 4) x0, y0, x1, y1 of the picture at depth 1."""
        Ks = np.where(self.is_valid[:, None, None], self.Ks, 1.0)
        fx = Ks[:, 0, 0]
        fy = Ks[:, 1, 1]
        cx = Ks[:, 0, 2]
        cy = Ks[:, 1, 2]
        width, height = self.sizes.T
        x0 = -cx / fx
        y0 = -cy / fy
        x1 = (width - cx) / fx
        y1 = (height - cy) / fy
        return np.stack([x0, y0, x1, y1], 1)

    @cached_property
    def spacing(self) -> float:
        """A length over 0 that fits the distances between cameras: their size as drawn."""
        positions = self.positions[self.is_valid]
        if len(positions) < 2:
            return 1.0
        step = ceil_div(len(positions), _NEIGHBOURS)
        sample = positions[::step]
        offsets = sample[:, None] - positions[None]
        distances = np.linalg.norm(offsets, axis=2)
        # A camera's distance to itself and to others at the same place does not count.
        distances[distances < 1e-9] = np.inf
        nearest = distances.min(1)
        nearest = nearest[np.isfinite(nearest)]
        if not len(nearest):
            return 1.0
        _, radius = bounds(positions)
        return float(np.clip(np.median(nearest), 0.03 * radius, 0.5 * radius))

    def camera(self, index: int) -> Camera | None:
        """Return a camera at the size of its photograph; None if it is invalid."""
        if not 0 <= index < len(self) or not self.is_valid[index]:
            return None
        stored = self.Ks[index]
        K = np.eye(3)
        K[:2, 2] = stored[:2, 2]
        K[0, 0] = stored[0, 0]
        K[1, 1] = stored[1, 1]
        viewmat = self.viewmats[index].copy()
        viewmat[3] = 0, 0, 0, 1
        width, height = self.sizes[index]
        return Camera(viewmat, K, int(width), int(height))

    def outline(self, index: int, depth: float) -> np.ndarray:
        """Return a camera's centre and the corners of its picture at `depth`, (5, 3).

        They are in the world.
        """
        x0, y0, x1, y1 = self.extents[index] * depth
        local = np.zeros((5, 3))
        local[1:, 0] = x0, x1, x1, x0
        local[1:, 1] = y0, y0, y1, y1
        local[1:, 2] = depth
        rotation = np.eye(3)
        if self.is_valid[index]:
            rotation = self.viewmats[index, :3, :3]
        return local @ rotation + self.positions[index]

    def path(self, index: int) -> str:
        """Return the name of a camera's photograph; "" where there is none."""
        if index < len(self.paths):
            return self.paths[index]
        return ""

    @cached_property
    def has_photos(self) -> bool:
        """True if cameras may have photographs: in files, or from their publisher."""
        return bool(self.photos) or any(self.paths)

    def has_photo(self, index: int) -> bool:
        """Return whether a camera may have a photograph."""
        return bool(self.photos or self.path(index))

    def label(self, index: int) -> str:
        """Return a camera's name for users: its index, and its file's name if it has one."""
        name = PurePath(self.path(index)).name
        if not name:
            return f"Camera {index}"
        return f"{index}  {name}"


NO_CAMERAS = CameraSet(
    np.empty((0, 4, 4)), np.empty((0, 3, 3)), np.empty((0, 2), np.int64)
)


def cameras_of(frame: StreamFrame) -> CameraSet:
    """Copy the content of a frame of kind cameras.

    Raises:
        ViewerError: the frame holds no cameras.
        SharingError: the frame is on a GPU; its tensors are small, and wanted in host
            memory.
    """
    if frame.on_gpu:
        raise SharingError("cameras are read from host memory")
    if "viewmats" not in frame.tensors:
        raise ViewerError("a part of cameras without the cameras themselves")
    arrays = {name: np.array(tensor.array) for name, tensor in frame.tensors.items()}  # type: ignore[union-attr]
    count = len(arrays["viewmats"])
    paths: tuple[str, ...] = ()
    if len(arrays.get("paths", ())):
        # Every path ends in a zero byte.
        texts = arrays["paths"].tobytes().split(b"\0")[:-1]
        paths = tuple(text.decode("utf-8", "replace") for text in texts)
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
    """Return the same camera for a photograph of another size, which shows the same."""
    scale_x = width / camera.width
    scale_y = height / camera.height
    K = np.diag([scale_x, scale_y, 1.0]) @ camera.K
    return replace(camera, K=K, width=width, height=height)
