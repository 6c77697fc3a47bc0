"""Looking through a training camera: its photograph over what is rendered, the PSNR."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.controls import SECONDS
from splatview_viewer.geometry.training_cameras import at_size
from splatview_viewer.render.cameras.content import PhotoTexture
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.ui.divider import Divider
from splatview_viewer.ui.widgets import tag

if TYPE_CHECKING:
    import moderngl
    import numpy as np

    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.controls import Orbit
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.render.pair_compositor import How
    from splatview_viewer.scene_view.protocol import TrainedView

_READ_DELAY = 0.05
"""Seconds until the GPU is asked what the PSNR came to."""
_MEASURE_PERIOD = 0.5
"""Seconds between two measurements of a scene that changes."""
_SAME_POSE = 1e-6
"""Relative difference of two view matrices that counts as none."""


class _FreeSize(NamedTuple):
    """Size of the view's picture, in pixels."""

    width: int
    height: int
    above_bars: int
    """Height that the bars at the lower edge leave to the photograph."""


class _ViewBefore(NamedTuple):
    """The camera from which the view looked before."""

    camera: Camera
    orbit: Orbit


class _PsnrKey(NamedTuple):
    """The inputs of a measurement: others make another PSNR."""

    camera_index: int | None
    photo_id: int
    scene_version: int
    background: Color


class LookingThrough:
    """The camera that a view looks through, and the comparison with its photograph."""

    def __init__(self, view: TrainedView) -> None:
        self.view = view
        self.index: int | None = None
        """The camera; None: the view looks from elsewhere."""
        self.divider = Divider()
        self.psnr: float | None = None
        """In dB, of the whole photograph and what is rendered at its size; None while
        it is not known."""
        self._camera: Camera | None = None
        self._size = _FreeSize(0, 0, 0)
        """The sizes when the view went to the camera."""
        self._has_arrived = False
        self._before: _ViewBefore | None = None
        ctx = view.data.ctx
        self._pair = PairCompositor(ctx, view.data.work)
        self._meter = PairCompositor(ctx, view.data.work)
        self._photo = PhotoTexture(ctx)
        self._measured: _PsnrKey | None = None
        self._pending: _PsnrKey | None = None
        """The measurement that the GPU makes now."""
        self._next_at = 0.0
        """Time of the next step of a measurement."""

    @property
    def psnr_text(self) -> str:
        """The PSNR for users; "" while it is not known."""
        if self.psnr is None:
            return ""
        return "Equal" if math.isinf(self.psnr) else f"PSNR {self.psnr:.2f} dB"

    # -- going there and back ------------------------------------------------------

    def enter(self, cameras: CameraSet, index: int, seconds: float = SECONDS) -> bool:
        """Look through this camera. Returns False if it is none.

        seconds: duration of the flight to it.
        """
        rig = self.view.rig
        camera = cameras.camera(index)
        current = rig.camera()
        if camera is None or current is None:
            return False
        if self.index is None:
            self._before = _ViewBefore(current, rig.orbit.copy())
        if index != self.index:
            self._forget_psnr()
        self._set_arrived(False)
        self.index = index
        self._camera = camera
        self._go(seconds)
        return True

    def leave(self, back: bool = False) -> None:
        """Look through no camera.

        back: fly to where the view looked before.
        """
        before = self._before
        self._before = None
        self.index = None
        self._camera = None
        self._set_arrived(False)
        self._forget_psnr()
        self._pair.drop()
        self._meter.drop()
        if back and before is not None:
            self.view.rig.fly_to(before.camera, pivot=before.orbit.target)

    def _forget_psnr(self) -> None:
        self.psnr = None
        self._measured = None
        self._pending = None

    def _set_arrived(self, has_arrived: bool) -> None:
        """Have the state say that the view looks through the camera, or through none."""
        self._has_arrived = has_arrived
        through = self.index if has_arrived else None
        self.view.change(training=replace(self.view.state.training, through=through))

    def _go(self, seconds: float) -> None:
        self._size = self._free_size(self.view.rig.rect)
        self.view.rig.fly_to(self._target(), seconds)

    def _free_size(self, rect: Rect) -> _FreeSize:
        bars = round(self.view.tools.bars_height)
        above_bars = max(rect.height - bars, rect.height // 2, 1)
        return _FreeSize(rect.width, rect.height, above_bars)

    def _target(self) -> Camera:
        """Return the camera for the whole picture: the photograph lies above the bars."""
        assert self._camera is not None
        size = self._size
        return replace(
            self._camera.fitted(size.width, size.above_bars), height=size.height
        )

    @property
    def is_there(self) -> bool:
        """True while the picture shows what the camera sees."""
        return self._has_arrived and self.view.rig.is_fixed and self._camera is not None

    def tick(self, content: CamerasContent, cameras: CameraSet, now: float) -> bool:
        """Advance to `now`. Returns True when the picture has to be drawn again."""
        rig = self.view.rig
        self._follow_state(cameras)
        current = rig.camera()
        if self.index is None or self._camera is None or current is None:
            return False
        camera = cameras.camera(self.index)
        if camera is None:
            self.leave()
            return True
        if camera.key != self._camera.key:
            # The camera's pose is being optimised.
            self._camera = camera
            if self._has_arrived:
                self._go(0.0)
            return True
        if rig.motion.is_under_way and not self._has_arrived:
            return False
        if rig.is_fixed and self._free_size(rig.rect) != self._size:
            self._go(0.0)
            return True
        if not rig.is_fixed or not _is_same_pose(current, self._target()):
            # The user has gone elsewhere.
            self.leave()
            return True
        if not self._has_arrived:
            self._set_arrived(True)
            return True
        return self._measure(content, now)

    def _follow_state(self, cameras: CameraSet) -> None:
        """Take the camera from the state, if that came from a view that is followed."""
        through = self.view.state.training.through
        if through == (self.index if self._has_arrived else None):
            return
        self._before = None
        self.index = through
        self._has_arrived = through is not None
        self._camera = None if through is None else cameras.camera(through)
        self._size = self._free_size(self.view.rig.rect)

    # -- the photograph ------------------------------------------------------------

    def photo(self, content: CamerasContent) -> np.ndarray | None:
        """Return the photograph of the camera, as `PhotoStore.whole`."""
        return None if self.index is None else content.photos.whole(self.index)

    def photo_rect(self, rect: Rect, columns: int = 1) -> Rect:
        """Return the rectangle of the photograph, as large as it fits into the view's.

        Args:
            rect: the view's rectangle.
            columns: number of pictures of that shape side by side.
        """
        assert self._camera is not None
        width = self._camera.width * columns
        height = self._camera.height
        above_bars = self._free_size(rect).above_bars
        scale = min(rect.width / width, above_bars / height)
        left = rect.x + (rect.width - width * scale) / 2
        top = rect.y + (above_bars - height * scale) / 2
        x = round(left)
        y = round(top)
        right = round(left + width * scale)
        bottom = round(top + height * scale)
        return Rect(x, y, max(right - x, columns), max(bottom - y, 1))

    def draw(
        self, framebuffer: moderngl.Framebuffer, rect: Rect, content: CamerasContent
    ) -> None:
        """Lay the photograph over what was rendered in `rect`."""
        state = self.view.state.training
        if state.how == "render":
            return
        photo = self.photo(content)
        if photo is None:
            return
        photo_rect = self.photo_rect(rect)
        self._draw_targets(rect, photo_rect, photo)
        if state.how == "side":
            background = self.view.background
            viewport = rect.viewport(framebuffer.height)
            framebuffer.use()
            framebuffer.clear(*background, 1.0, viewport=viewport)
            self._pair.draw(framebuffer, self.photo_rect(rect, columns=2), "side")
            return
        how: How = "difference"
        position = 0.5
        if state.how == "photo":
            how = "blend"
            position = state.opacity
        elif state.how == "wipe":
            how = "split"
            position = state.at
        self._pair.draw(framebuffer, photo_rect, how, position, state.gain)

    def _draw_targets(self, rect: Rect, photo_rect: Rect, photo: np.ndarray) -> None:
        """Draw the rendered picture and the photograph into the pair's targets."""
        width = photo_rect.width
        height = photo_rect.height
        rendered = self._pair.target(0, width, height, "f1")
        x = rect.x - photo_rect.x
        y = rect.y - photo_rect.y
        self.view.lay_picture(rendered, Rect(x, y, rect.width, rect.height))
        photographed = self._pair.target(1, width, height, "f1")
        whole = Rect(0, 0, width, height)
        self._photo.take(photo)
        self._photo.draw(photographed, whole, background=self.view.background)

    def over(self, rect: Rect, scale: float, content: CamerasContent) -> None:
        """Write over the picture which part shows what."""
        how = self.view.state.training.how
        inset = 12 * scale
        if self.photo(content) is None:
            if how != "render":
                photo_rect = self.photo_rect(rect)
                text = content.photos.trouble(self.index or 0)
                text = text or "The photograph is on its way"
                tag(text, photo_rect.x + inset, photo_rect.y + inset, rect)
        elif how == "wipe":
            self.divider.at = self.view.state.training.at
            self.divider.over(self.photo_rect(rect), scale, ("Render", "Photo"))
        elif how == "side":
            both = self.photo_rect(rect, columns=2)
            middle = both.x + both.width / 2
            tag("Render", both.x + inset, both.y + inset, rect)
            tag("Photo", middle + inset, both.y + inset, rect)

    # -- the PSNR ------------------------------------------------------------------

    def _measure(self, content: CamerasContent, now: float) -> bool:
        """Compare with the scene as it was trained, at the photograph's own size.

        Returns True when the PSNR is another one.
        """
        view = self.view
        photo = self.photo(content)
        if photo is None or now < self._next_at:
            return False
        if view.data.facts is None or view.data.stale:
            return False
        if self._pending is not None:
            previous = self.psnr
            self.psnr = self._meter.psnr()
            self._measured = self._pending
            self._pending = None
            self._next_at = now + _MEASURE_PERIOD
            return previous != self.psnr
        key = _PsnrKey(self.index, id(photo), view.data.loads, view.background)
        if key == self._measured or view.is_moving:
            return False
        self._start_measurement(photo)
        self._pending = key
        self._next_at = now + _READ_DELAY
        return False

    def _start_measurement(self, photo: np.ndarray) -> None:
        """Have the GPU compare the photograph with the scene."""
        assert self._camera is not None
        height, width = photo.shape[:2]
        rect = Rect(0, 0, width, height)
        # The bound framebuffer must not stay ours: it may be given back before
        # anything else is drawn.
        bound = self.view.data.ctx.fbo
        copy = self.view.trained_copy()
        try:
            copy.rig.use_camera(at_size(self._camera, width, height))
            copy.draw(self._meter.target(0, width, height, "f1"), rect)
        finally:
            copy.release("closed")
        self._photo.take(photo)
        photographed = self._meter.target(1, width, height, "f1")
        self._photo.draw(photographed, rect, background=self.view.background)
        self._meter.measure()
        bound.use()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._pair.close()
        self._meter.close()
        self._photo.close()


def _is_same_pose(camera: Camera, other: Camera) -> bool:
    """Return whether two cameras stand and look alike."""
    difference = abs(camera.viewmat - other.viewmat).max()
    return difference <= _SAME_POSE * max(1.0, abs(other.viewmat).max())
