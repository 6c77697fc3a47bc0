"""Looking through a training's camera: its photograph over what is rendered, how far they are apart, and their PSNR."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.orbit import SECONDS
from splatview_viewer.geometry.training_cameras import at_size
from splatview_viewer.kinds.gaussians.state import GaussianState
from splatview_viewer.render.cameras.content import PhotoTexture
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.ui.divider import Divider

if TYPE_CHECKING:
    import moderngl
    import numpy as np

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.orbit import Orbit
    from splatview_viewer.kinds.gaussians.state import Training
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.render.pair_compositor import How

HOWS = {"render": "Render", "photo": "Photo", "wipe": "Wipe", "side": "Side by side", "error": "Error"}
_LATER = 0.05
"""Seconds until the GPU is asked what the PSNR came to."""
_PERIOD = 0.5
"""Seconds between two measurements of a scene that changes."""
_SAME = 1e-6


class Through:
    """The camera that a view looks through, and its photograph. The loop's thread."""

    def __init__(self, view: GaussianView) -> None:
        self.view = view
        self.index: int | None = None
        """The camera; None: the view looks from elsewhere."""
        self.divider = Divider()
        self.psnr: float | None = None
        """In dB, of the whole photograph and what is rendered at its size; None while it is not known."""
        self._camera: Camera | None = None
        self._size = (0, 0, 0)
        self._arrived = False
        self._before: tuple[Camera, Orbit] | None = None
        """From where one looked before."""
        self._pair, self._meter = (PairCompositor(view.data.ctx, view.data.work) for _ in range(2))
        self._photo = PhotoTexture(view.data.ctx)
        self._measured: tuple[object, ...] = ()
        self._pending: tuple[object, ...] = ()
        self._next = 0.0

    @property
    def state(self) -> Training:
        return self.view.state.training

    # -- going there and back ------------------------------------------------------------------------------------

    def enter(self, content: CamerasContent, index: int, seconds: float = SECONDS) -> bool:
        """Look through this camera, after a flight of so many seconds. False if it is none."""
        cameras, view = content.cameras, self.view
        camera = None if cameras is None else cameras.camera(index)
        here = view.camera()
        if camera is None or here is None:
            return False
        if self.index is None:
            self._before = here, view.orbit.copy()
        if index != self.index:
            self.psnr, self._measured, self._pending = None, (), ()
        self._there(False)
        self.index, self._camera = index, camera
        self._go(seconds)
        return True

    def _there(self, there: bool) -> None:
        """Have the state say that the view looks through the camera, or through none."""
        self._arrived = there
        self.view.change(training=replace(self.state, through=self.index if there else None))

    def _follow(self, content: CamerasContent) -> None:
        """Look through the camera of the state, which another view left there."""
        self._before, self.index, self._arrived = None, self.state.through, self.state.through is not None
        self._camera = None
        if content.cameras is not None and self.index is not None:
            self._camera = content.cameras.camera(self.index)
        self._size = self._room(self.view.rect)

    def _go(self, seconds: float) -> None:
        self._size = self._room(self.view.rect)
        self.view.fly_to(self._target(), seconds)

    def _room(self, rect: Rect) -> tuple[int, int, int]:
        """Width and height of the picture, and how much of that the bars at its lower edge leave to the photograph."""
        bars = round(self.view.bars_height)
        return rect.width, rect.height, max(rect.height - bars, rect.height // 2, 1)

    def _target(self) -> Camera:
        """The camera, for the whole picture: the photograph lies above the bars."""
        assert self._camera is not None
        width, height, free = self._size
        return replace(self._camera.fitted(width, free), height=height)

    def leave(self, back: bool = False) -> None:
        """Look through none. `back`: from where one looked before."""
        before, self._before = self._before, None
        self.index = self._camera = self.psnr = None
        self._there(False)
        self._measured, self._pending = (), ()
        self._pair.drop()
        self._meter.drop()
        if back and before is not None:
            camera, orbit = before
            self.view.fly_to(camera, pivot=orbit.target)

    @property
    def there(self) -> bool:
        """True if what is seen is what the camera sees."""
        return self._arrived and self.view.fixed and self._camera is not None

    def tick(self, content: CamerasContent, now: float) -> bool:
        """Advance to `now`. True when the picture has to be drawn again."""
        if self.state.through != (self.index if self._arrived else None):
            self._follow(content)
        if self.index is None or self._camera is None:
            return False
        view = self.view
        rect = view.rect
        camera = view.camera()
        if camera is None:
            return False
        known = content.cameras.camera(self.index) if content.cameras is not None else None
        if known is None:
            self.leave()
            return True
        if known.key != self._camera.key:  # its pose is being optimised
            self._camera = known
            if self._arrived:
                self._go(0.0)
            return True
        if view.navigate.under_way and not self._arrived:
            return False
        if view.fixed and self._room(rect) != self._size:
            self._go(0.0)
            return True
        target = self._target()
        apart = abs(camera.viewmat - target.viewmat).max() > _SAME * max(1.0, abs(target.viewmat).max())
        if not view.fixed or apart:  # the user went elsewhere
            self.leave()
            return True
        if not self._arrived:
            self._there(True)
            return True
        return self._measure(content, now)

    # -- the photograph ------------------------------------------------------------------------------------------

    def photo(self, content: CamerasContent) -> np.ndarray | None:
        """(H, W, 3) uint8 of the camera one looks through, once it is here."""
        return None if self.index is None else content.photos.whole(self.index)

    def place(self, rect: Rect, across: int = 1) -> Rect:
        """Return the place of so many pictures of the photograph's shape side by side: all of it, as large as it fits
        in the view's rectangle."""
        assert self._camera is not None
        width, height, free = self._camera.width * across, self._camera.height, self._room(rect)[2]
        s = min(rect.width / width, free / height)
        left, top = rect.x + (rect.width - width * s) / 2, rect.y + (free - height * s) / 2
        x, y = round(left), round(top)
        return Rect(x, y, max(round(left + width * s) - x, across), max(round(top + height * s) - y, 1))

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, content: CamerasContent) -> None:
        """Lay the photograph over what was rendered in `rect`."""
        if not self.there or self.state.how == "render" or (photo := self.photo(content)) is None:
            return
        view, place = self.view, self.place(rect)
        self._photo.take(photo)
        rendered = self._pair.target(0, place.width, place.height, "f1")
        whole = Rect(rect.x - place.x, rect.y - place.y, rect.width, rect.height)
        view.lay(view.picture.source, rendered, whole)
        self._photo.draw(self._pair.target(1, place.width, place.height, "f1"), Rect(0, 0, place.width, place.height))
        if self.state.how == "side":
            framebuffer.use()
            framebuffer.clear(*view.background, 1.0, viewport=rect.viewport(framebuffer.height))
            self._pair.draw(framebuffer, self.place(rect, 2), "side")
            return
        ways: dict[str, tuple[How, float]] = {
            "photo": ("blend", self.state.opacity), "wipe": ("split", self.state.at), "error": ("difference", 0.5)}
        how, at = ways[self.state.how]
        self._pair.draw(framebuffer, place, how, at, self.state.gain)

    # -- the PSNR ------------------------------------------------------------------------------------------------

    def _measure(self, content: CamerasContent, now: float) -> bool:
        """Render at the photograph's own size once in a while, as the scene was trained, and compare. True when the
        PSNR is another one."""
        view, photo = self.view, self.photo(content)
        if photo is None or now < self._next or view.data.facts is None or view.data.stale:
            return False
        wanted = self.index, id(photo), view.data.loads, view.background
        if self._pending:
            before, self.psnr = self.psnr, self._meter.psnr()
            self._measured, self._pending, self._next = self._pending, (), now + _PERIOD
            return before != self.psnr
        if wanted == self._measured or view.moving:
            return False
        self._render(content, photo)
        self._pending, self._next = wanted, now + _LATER
        return False

    def _render(self, content: CamerasContent, photo: np.ndarray) -> None:
        assert self._camera is not None
        height, width = photo.shape[:2]
        rect = Rect(0, 0, width, height)
        bound = content.ctx.fbo  # ours must not stay so: it may be given back before anything else is drawn
        eye = type(self.view)(self.view.data, GaussianState(background=self.view.background))
        eye.host = Host(exact="scene")
        try:
            eye.use_camera(at_size(self._camera, width, height))
            eye.draw(self._meter.target(0, width, height, "f1"), rect)
        finally:
            eye.release("closed")
        self._photo.take(photo)
        self._photo.draw(self._meter.target(1, width, height, "f1"), rect)
        self._meter.measure()
        bound.use()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        for held in (self._pair, self._meter, self._photo):
            held.close()
