"""Draws pictures that other programs ask for and publishes them back, for `splatview_viewer.app.grab`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_ipc.control.errors import IpcError
from splatview_ipc.control.render_requests import GPU, HOST, RenderRequest, RenderResult
from splatview_ipc.publisher.publisher import Publisher
from splatview_viewer.app.offscreen import Look, Still, Stills
from splatview_viewer.core.screen import MAX_SIZE, MIN_SIZE
from splatview_viewer.screens.offscreen import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_viewer.core.view import Value

log = logging.getLogger("splatview")

_LARGE = 1 << 26
"""Bytes of a picture that is not kept after it was asked for."""


class Grabber:
    """Follows all runs, draws what is requested and publishes it in a hidden run of its own."""

    def __init__(self, gpu_uuid: str | None = None) -> None:
        """`gpu_uuid`: the GPU that is best drawn on, as `OffscreenScreen` takes it. Raises ViewerError, IpcError."""
        self._stills = Stills("grab", "camera", gpu_uuid=gpu_uuid)
        self._screen = self._stills.screen
        self._publisher = Publisher("grab", lambda e: log.warning("grab: %s", e), hidden=True)
        self._layouts: dict[str, _PictureLayout] = {}
        self._pixels = np.empty(0, np.uint8)
        self._shares: bool | None = None

    @property
    def run_id(self) -> str:
        """The id of the hidden run."""
        return self._publisher.run_id

    def draw(self, request: RenderRequest) -> RenderResult:
        """Draw and publish. Raises ViewerError, of which NotFoundError, LateError and those for what makes no sense;
        SharingError."""
        size = request.size
        if size is not None and not all(MIN_SIZE <= n <= MAX_SIZE for n in size):
            raise ValueError(f"grab: a size of {size[0]} x {size[1]} is out of range; both sides must be {MIN_SIZE} to "
                             f"{MAX_SIZE} pixels")
        look = Look(size, request.camera, request.background)

        def publish(still: Still, value: Value | None, overlays: Sequence[Frame]) -> RenderResult | None:
            size = still.prepare(value, look)
            if size is None:
                return None
            picture = still.tensor(size)
            flipped = picture is None
            if picture is None:
                still.draw(size, overlays, shared=request.gpu and self._can_share())
                picture = self._drawn()
            if not request.gpu and picture.is_cuda:
                picture = picture.cpu()
            return self._publish(picture, flipped) if still.whole() else None

        return self._stills.draw(request, publish)

    def _drawn(self) -> torch.Tensor:
        """Return OpenGL's picture, (H, W, 3 or 4) uint8, the lowest row first: on the GPU where CUDA can read it there.
        The drawing is complete then."""
        import torch

        screen = self._screen
        picture = screen.tensor()
        if picture is not None:
            screen.ctx.finish()  # whether a frame stayed whole that OpenGL reads in place is asked next
            return picture
        width, height = screen.size
        if self._pixels.shape != (height, width, 3):
            self._pixels = np.empty((height, width, 3), np.uint8)
        screen.framebuffer.read_into(self._pixels, components=3, alignment=1)
        return torch.from_numpy(self._pixels)

    def _can_share(self) -> bool:
        """Return whether OpenGL's pictures come to CUDA without going through the host; tried once."""
        import torch

        if self._shares is None:
            self._shares = torch.cuda.is_available()
            try:
                if self._shares:
                    Target(self._screen.ctx, (MIN_SIZE, MIN_SIZE), shared=True).release()
            except (IpcError, moderngl.Error, RuntimeError) as e:
                self._shares = False
                log.warning("grab: what OpenGL draws goes through the host: %s", e)
        return self._shares

    def _publish(self, picture: torch.Tensor, flipped: bool) -> RenderResult:
        name = GPU if picture.is_cuda else HOST
        stream = self._publisher.stream(name, "image")
        layout = self._layouts.get(name)
        if layout is None or not layout.fits(picture):
            layout = self._layouts[name] = _PictureLayout(picture)
            stream.describe(layout, copy=True if picture.is_cuda else None)
        stream.publish(((picture,), {"layout": "HWC"}))
        return RenderResult(name, stream.version, flipped)

    def rest(self) -> None:
        """Do what is due between requests; keep no picture that takes much memory after its stream was released."""
        if not self._stills.rest():
            return
        import torch

        self._screen.resize(MIN_SIZE, MIN_SIZE)
        self._pixels = np.empty(0, np.uint8)
        for name, layout in list(self._layouts.items()):
            if layout.bytes > _LARGE:
                self._publish(torch.zeros((1, 1, 3), dtype=torch.uint8, device=layout.device), False)
                self._layouts.pop(name)

    def close(self) -> None:
        self._publisher.close()
        self._stills.close()


class _PictureLayout:
    """The layout of pictures of one size on one device (`splatview_ipc.kinds.ValueLayout`)."""

    kind = "image"
    dtype = "uint8"

    def __init__(self, picture: torch.Tensor) -> None:
        self.shape = tuple(picture.shape)
        self.device = str(picture.device)
        self.bytes = picture.numel()

    def fits(self, picture: torch.Tensor) -> bool:
        return tuple(picture.shape) == self.shape and str(picture.device) == self.device

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {"image": tensors[0]}
