"""The CUDA renderer's pictures as another camera sees them, while the next one is drawn."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview_viewer.core.errors import RendererError
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import FAINT
from splatview_viewer.render.gsplat.cuda import GpuClock, OnStream, blocks, kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.gsplat.cuda import Launcher

BRIDGES = ("import",)
"""Canvases, by name, whose pictures are moved: those where CUDA draws straight into
memory of OpenGL's."""


@dataclass
class MovablePicture:
    """A picture on the GPU that can be moved; it stays as long as it is referenced."""

    mover: Mover
    color: torch.Tensor
    """(H, W, 4) float16."""
    grid: torch.Tensor | None
    """`grid_of` it; None: nothing is known of where its things are, and its colours lie
    where the renderer draws."""
    ready_event: Any
    """An event: from then on these can be read."""


class Mover:
    """Moves pictures on a stream of its own.

    So none waits for the scene that is being drawn meanwhile.
    """

    def __init__(self, device: torch.device, make_canvas: Callable[[], Any]) -> None:
        """Compile the kernels if that was not done yet.

        Where that is impossible, `failure` says so.

        Args:
            device: the GPU.
            make_canvas: makes what OpenGL reads; called once.
        """
        self.clock = GpuClock()
        self.failure = ""
        """Reason why it moves nothing any more."""
        self._device = device
        self._make_canvas = make_canvas
        self._canvas: Any = None
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device, priority=-1)
        self._nearness = self._no_pixels()
        try:
            self._kernels = kernels("warp.cu", (), device.index or 0)
        except (RendererError, RuntimeError) as e:
            self.failure = str(e) or type(e).__name__

    def copy(
        self,
        color: torch.Tensor,
        rgba: torch.Tensor,
        depth: torch.Tensor,
        stream: torch.cuda.Stream,
    ) -> MovablePicture:
        """Copy a picture that was drawn on `stream`, the current one, with its depth.

        Args:
            color: float16 (H, W, 4).
            rgba: the same in float32.
            depth: (H, W) float32, accumulated.
            stream: the stream.
        """
        grid = grid_of(rgba, depth, self._kernels)
        copy = color.clone()
        # This memory is written again only when it has been read.
        copy.record_stream(self._stream)
        grid.record_stream(self._stream)
        return MovablePicture(self, copy, grid, stream.record_event())

    def borrow(self, color: torch.Tensor, stream: torch.cuda.Stream) -> MovablePicture:
        """Return a picture of colours alone, for as long as nothing is written there."""
        return MovablePicture(self, color, None, stream.record_event())

    def move(
        self,
        picture: MovablePicture,
        picture_camera: Camera,
        camera: Camera,
        middle: float,
    ) -> PixelSource:
        """Return a picture as another camera sees it, valid until the next but one.

        Args:
            picture: the picture.
            picture_camera: the camera that took it.
            camera: the camera that looks now, of the size of the result.
            middle: distance of the scene's middle from `picture_camera`, world units,
                more than 0.

        Raises:
            RendererError, SharingError, RuntimeError: it cannot be done.
        """
        if self.failure:
            raise RendererError(self.failure)
        with OnStream(self._stream):
            self._canvas = self._canvas or self._make_canvas()
            out = self._canvas.begin(camera.height, camera.width, 4, "float16")
            self._stream.wait_event(picture.ready_event)
            size = out.shape[:2]
            if self._nearness.shape != size:
                self._nearness = torch.zeros(
                    size, dtype=torch.int32, device=self._device
                )
            self.clock.begin(self._stream)
            warp(
                picture.color,
                picture.grid,
                (picture_camera, camera),
                middle,
                self._nearness,
                out,
                self._kernels,
            )
            self.clock.end(self._stream)
            return self._canvas.show()

    def free_pictures(self) -> None:
        """Release what depends on the pictures' size."""
        self._nearness = self._no_pixels()

    def _no_pixels(self) -> torch.Tensor:
        return torch.empty((0, 0), dtype=torch.int32, device=self._device)

    def close(self) -> None:
        """Release everything. Idempotent. The OpenGL context must be current."""
        if not self.failure:
            self.failure = (
                "gsplat: this renderer is closed; it moves no pictures any more"
            )
        self.clock.clear()
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None


# -- the kernels --------------------------------------------------------------------------

_BLOCK = 128
"""Threads of a block."""
_THREADS_PER_CELL = 8
_CELL = 4
"""Pixels from corner to corner of the cells that a picture is cut into, at least."""
_CORNERS = 300_000
"""More than this many are never made: cells are larger then."""
_EDGE = 1.1
"""A thing this many times nearer than what is around it is another one."""


class Lens(ctypes.Structure):
    """A camera without its place."""

    _fields_ = (
        *((name, ctypes.c_float) for name in ("fx", "fy", "cx", "cy")),
        *((name, ctypes.c_int) for name in ("width", "height", "model", "unused")),
    )

    @classmethod
    def of(cls, camera: Camera) -> Lens:
        """Make the lens of a camera."""
        K = camera.K
        return cls(
            fx=K[0, 0],
            fy=K[1, 1],
            cx=K[0, 2],
            cy=K[1, 2],
            width=camera.width,
            height=camera.height,
            model=MODELS.index(camera.model),
        )


class Move(ctypes.Structure):
    """Mirrors the struct of this name in warp.cu."""

    _fields_ = (
        ("from_lens", Lens),
        ("to_lens", Lens),
        ("rotation", ctypes.c_float * 9),
        ("translation", ctypes.c_float * 3),
        *((name, ctypes.c_float) for name in ("middle", "near_limit", "cell")),
        *((name, ctypes.c_int) for name in ("columns", "rows")),
        *((name, ctypes.c_uint64) for name in ("grid", "color", "nearness", "out")),
        *((name, ctypes.c_int64) for name in ("color_row", "out_row")),
    )


class _MovablePicture(ctypes.Structure):
    """Mirrors `Picture` in warp.cu."""

    _fields_ = (
        ("rgba", ctypes.c_uint64),
        ("depth", ctypes.c_uint64),
        *((name, ctypes.c_int) for name in ("width", "height", "columns", "rows")),
        *((name, ctypes.c_float) for name in ("cell", "edge", "faint")),
        ("unused", ctypes.c_int),
    )


def grid_of(
    rgba: torch.Tensor, depth: torch.Tensor, launcher: Launcher
) -> torch.Tensor:
    """Return 1 / depth at the corners of a picture's cells, float32 (rows, columns).

    0 where nothing is.

    Args:
        rgba: (H, W, 4) float32, contiguous, premultiplied.
        depth: (H, W) float32, contiguous, accumulated depth.
        launcher: launches the kernels of warp.cu.
    """
    height, width = depth.shape
    cell = cell_of(width, height)
    columns = math.ceil(width / cell) + 1
    rows = math.ceil(height / cell) + 1
    grid = torch.empty((rows, columns), dtype=torch.float32, device=depth.device)
    picture = _MovablePicture(
        rgba=rgba.data_ptr(),
        depth=depth.data_ptr(),
        width=width,
        height=height,
        columns=columns,
        rows=rows,
        cell=cell,
        edge=_EDGE,
        faint=FAINT,
    )
    launcher.launch("corners", blocks(columns * rows, _BLOCK), _BLOCK, picture, grid)
    return grid


def warp(
    color: torch.Tensor,
    grid: torch.Tensor | None,
    cameras: tuple[Camera, Camera],
    middle: float,
    nearness: torch.Tensor,
    out: torch.Tensor,
    launcher: Launcher,
) -> None:
    """Write into `out` what the second camera sees of a picture of the first one.

    Args:
        color: (H, W, 4) float16, premultiplied; each row's values lie side by side.
        grid: `grid_of` that picture; None: all of it is `middle` away.
        cameras: the one that took the picture, of its size; the one that looks now, of
            the size of `out`.
        middle: distance of the scene on the whole, world units along the first camera's
            line of sight, more than 0.
        nearness: (h, w) int32 zeros; zeros again when it is done. For no picture without
            a grid.
        out: (h, w, 4) float16; each row's values lie side by side.
        launcher: launches the kernels of warp.cu.
    """
    picture_camera, camera = cameras
    transform = camera.viewmat @ np.linalg.inv(picture_camera.viewmat)
    rows = 0
    columns = 0
    grid_address = 0
    if grid is not None:
        rows, columns = grid.shape
        grid_address = grid.data_ptr()
    move = Move(
        from_lens=Lens.of(picture_camera),
        to_lens=Lens.of(camera),
        rotation=(ctypes.c_float * 9)(*transform[:3, :3].ravel().tolist()),
        translation=(ctypes.c_float * 3)(*transform[:3, 3].tolist()),
        middle=middle,
        near_limit=camera.near,
        cell=cell_of(picture_camera.width, picture_camera.height),
        columns=columns,
        rows=rows,
        grid=grid_address,
        color=color.data_ptr(),
        nearness=nearness.data_ptr(),
        out=out.data_ptr(),
        color_row=color.stride(0),
        out_row=out.stride(0),
    )
    if grid is not None:
        threads = _THREADS_PER_CELL * (columns - 1) * (rows - 1)
        launcher.launch("spread", blocks(threads, _BLOCK), _BLOCK, move)
    pixels = camera.width * camera.height
    launcher.launch("gather", blocks(pixels, _BLOCK), _BLOCK, move)


def cell_of(width: int, height: int) -> float:
    """Return the pixels from corner to corner of the cells of a picture of this size."""
    return float(max(_CELL, math.ceil(math.sqrt(width * height / _CORNERS))))
