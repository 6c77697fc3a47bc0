"""Looking through a training camera, with its photograph over what is rendered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.orbit import SECONDS
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.scene_view.psnr_meter import PsnrMeter
from splatview_viewer.ui.divider import Divider
from splatview_viewer.ui.legend import draw_difference_legend, place_legend
from splatview_viewer.ui.text_cards import tag

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.orbit import Orbit
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.render.pair_compositor import PairMode
    from splatview_viewer.scene_view.protocol import TrainedView

_MAX_ZOOM = 8.0
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


class PhotoOnScreen(NamedTuple):
    """A photograph over a picture."""

    photo: np.ndarray
    """As `PhotoStore.photo`."""
    rect: Rect
    """The rectangle that it fills, in pixels of the screen."""
    clip: Rect
    """The part of that which is seen."""
    opacity: float = 1.0


class LookingThrough:
    """The camera that a view looks through, and the comparison with its photograph."""

    def __init__(self, view: TrainedView) -> None:
        self.view = view
        self.index: int | None = None
        """The camera; None: the view looks from elsewhere."""
        self.divider = Divider()
        self._camera: Camera | None = None
        self._size = _FreeSize(0, 0, 0)
        """The sizes when the view went to the camera."""
        self._has_arrived = False
        self._zoom = 1.0
        """How much larger the photograph is than one that is seen whole."""
        self._shift = (0.0, 0.0)
        """Pixels by which it is moved then."""
        self._origin: _ViewBefore | None = None
        ctx = view.data.ctx
        self._pair = PairCompositor(ctx, view.data.work)
        self._photo = PhotoTexture(ctx)
        self.meter = PsnrMeter(view, self._photo)

    # -- going there and back ------------------------------------------------------

    def enter(self, cameras: CameraSet, index: int, seconds: float = SECONDS) -> bool:
        """Look through a camera; return whether it is valid.

        Args:
            seconds: duration of the flight to it.
        """
        rig = self.view.rig
        camera = cameras.camera(index)
        current = rig.camera()
        if camera is None or current is None:
            return False
        if self.index is None:
            self._origin = _ViewBefore(current, rig.orbit.copy())
        if index != self.index:
            self.meter.forget()
        self._set_arrived(False)
        self._zoom = 1.0
        self._shift = (0.0, 0.0)
        self.index = index
        self._camera = camera
        self._fly_to_target(seconds)
        return True

    def leave(self, back: bool = False) -> None:
        """Look through no camera.

        Args:
            back: fly to where the view looked before.
        """
        origin = self._origin
        self._origin = None
        self.index = None
        self._camera = None
        self._set_arrived(False)
        self.meter.forget()
        self._pair.drop()
        self.meter.drop()
        if back and origin is not None:
            self.view.rig.fly_to(origin.camera, pivot=origin.orbit.target)

    def _set_arrived(self, has_arrived: bool) -> None:
        """Say in the state whether the view looks through the camera."""
        self._has_arrived = has_arrived
        through = self.index if has_arrived else None
        self.view.change(training=replace(self.view.state.training, through=through))

    def _fly_to_target(self, seconds: float) -> None:
        self._size = self._free_size(self.view.rig.rect)
        self.view.rig.fly_to(self._target(), seconds)

    def _free_size(self, rect: Rect) -> _FreeSize:
        bars = round(self.view.tools.bars_height)
        above_bars = max(rect.height - bars, rect.height // 2, 1)
        return _FreeSize(rect.width, rect.height, above_bars)

    def _target(self) -> Camera:
        """Return the camera of the picture; the photograph lies above the bars."""
        assert self._camera is not None
        size = self._size
        camera = self._camera.fitted(size.width, size.above_bars)
        K = camera.K.copy()
        K[:2, :2] *= self._zoom
        middle = np.array([size.width, size.above_bars]) / 2
        K[:2, 2] = (K[:2, 2] - middle) * self._zoom + middle + self._shift
        return replace(camera, K=K, height=size.height)

    def pan(self, dx: float, dy: float, rect: Rect) -> None:
        """Move the photograph by pixels, as far as it is larger than the picture."""
        size = self._free_size(rect)
        most_x = (self._zoom - 1) * size.width / 2
        most_y = (self._zoom - 1) * size.above_bars / 2
        x = min(max(self._shift[0] + dx, -most_x), most_x)
        y = min(max(self._shift[1] + dy, -most_y), most_y)
        if (x, y) != self._shift:
            self._shift = (x, y)
            self._show_target()

    def magnify(self, factor: float, point: tuple[float, float], rect: Rect) -> None:
        """Magnify the photograph around a pixel of the screen.

        factor: 0 to see all of it again.
        """
        size = self._free_size(rect)
        zoom = min(max(self._zoom * factor, 1.0), _MAX_ZOOM)
        ratio = zoom / self._zoom
        x = point[0] - rect.x - size.width / 2
        y = point[1] - rect.y - size.above_bars / 2
        self._zoom = zoom
        # The pixel stays where it is.
        shift_x = x + (self._shift[0] - x) * ratio
        shift_y = y + (self._shift[1] - y) * ratio
        self._shift = (0.0, 0.0)
        self.pan(shift_x, shift_y, rect)
        self._show_target()

    def _show_target(self) -> None:
        """Show the camera's picture as it is magnified and moved now."""
        if self._has_arrived and self._camera is not None:
            self._fly_to_target(0.0)

    @property
    def is_there(self) -> bool:
        """True while the picture shows what the camera sees."""
        return self._has_arrived and self.view.rig.is_fixed and self._camera is not None

    def tick(self, content: CamerasContent, cameras: CameraSet, now: float) -> bool:
        """Advance to `now`; return whether to draw the picture again."""
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
                self._fly_to_target(0.0)
            return True
        if rig.motion.is_under_way and not self._has_arrived:
            return False
        if rig.is_fixed and self._free_size(rig.rect) != self._size:
            self._fly_to_target(0.0)
            return True
        if not rig.is_fixed or not _is_same_pose(current, self._target()):
            # The user has gone elsewhere.
            self.leave()
            return True
        if not self._has_arrived:
            self._set_arrived(True)
            return True
        photo = self.photo(content)
        if photo is None:
            return False
        return self.meter.tick(now, self.index, self._camera, photo)

    def _follow_state(self, cameras: CameraSet) -> None:
        """Take the camera from the state, if that came from a view that is followed."""
        through = self.view.state.training.through
        known_index = self.index if self._has_arrived else None
        if through == known_index:
            return
        self._origin = None
        self.index = through
        self._has_arrived = through is not None
        if through is None:
            self._camera = None
        else:
            self._camera = cameras.camera(through)
        self._size = self._free_size(self.view.rig.rect)

    # -- the photograph ------------------------------------------------------------

    def photo(self, content: CamerasContent) -> np.ndarray | None:
        """Return the photograph of the camera, as `PhotoStore.photo`."""
        if self.index is None:
            return None
        return content.photos.photo(self.index)

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
        if columns == 1:
            middle_x = rect.x + rect.width / 2
            middle_y = rect.y + above_bars / 2
            left = middle_x + (left - middle_x) * self._zoom + self._shift[0]
            top = middle_y + (top - middle_y) * self._zoom + self._shift[1]
            scale *= self._zoom
        x = round(left)
        y = round(top)
        right = round(left + width * scale)
        bottom = round(top + height * scale)
        return Rect(x, y, max(right - x, columns), max(bottom - y, 1))

    def camera_on_screen(
        self, camera: Camera, rect: Rect, content: CamerasContent
    ) -> Camera:
        """Return the camera of a screen that draws what `camera` sees by itself.

        Beside the photograph it draws it in the size that it has there, and `draw`
        covers the rest.
        """
        is_beside = self.is_there and self.view.state.training.comparison == "side"
        if not is_beside or self.photo(content) is None:
            return camera
        whole = self.photo_rect(rect)
        both = self.photo_rect(rect, columns=2)
        scale = np.array([both.width // 2 / whole.width, both.height / whole.height])
        corner = np.array([whole.x - rect.x, whole.y - rect.y])
        corner_beside = np.array([both.x - rect.x, both.y - rect.y])
        K = camera.K.copy()
        K[:2] *= scale[:, None]
        K[:2, 2] += corner_beside - corner * scale
        return replace(camera, K=K)

    def photo_on_screen(
        self, rect: Rect, content: CamerasContent
    ) -> PhotoOnScreen | None:
        """Return the photograph for a screen that draws the picture in `rect` by itself.

        None: none is shown.
        """
        state = self.view.state.training
        photo = self.photo(content)
        if not self.is_there or photo is None:
            return None
        photo_rect = self.photo_rect(rect)
        # It may be magnified beyond the picture.
        visible = _overlap(photo_rect, rect)
        if state.comparison == "photo":
            return PhotoOnScreen(photo, photo_rect, visible, state.opacity)
        if state.comparison == "wipe":
            self.divider.position = state.divider_position
            right_part = replace(rect, x=self.divider.x(photo_rect))
            return PhotoOnScreen(photo, photo_rect, _overlap(visible, right_part))
        if state.comparison == "side":
            both = self.photo_rect(rect, columns=2)
            left_width = both.width // 2
            column = replace(both, x=both.x + left_width, width=both.width - left_width)
            return PhotoOnScreen(photo, column, column)
        return None

    def draw(
        self, framebuffer: moderngl.Framebuffer, rect: Rect, content: CamerasContent
    ) -> None:
        """Draw the photograph over what was rendered in `rect`."""
        state = self.view.state.training
        if state.comparison == "render":
            return
        photo = self.photo(content)
        if photo is None:
            return
        if self.view.is_handed:
            # The screen has the photograph.
            if state.comparison == "side":
                self._leave_columns_open(framebuffer, rect)
            return
        photo_rect = self.photo_rect(rect)
        self._draw_targets(rect, photo_rect, photo)
        if state.comparison == "side":
            background = self.view.background
            viewport = rect.viewport(framebuffer.height)
            framebuffer.use()
            framebuffer.clear(*background, 1.0, viewport=viewport)
            self._pair.draw(framebuffer, self.photo_rect(rect, columns=2), "side")
            return
        mode: PairMode = "difference"
        position = 0.5
        if state.comparison == "photo":
            mode = "blend"
            position = state.opacity
        elif state.comparison == "wipe":
            mode = "split"
            position = state.divider_position
        self._pair.draw(framebuffer, photo_rect, mode, position, state.gain)

    def _leave_columns_open(
        self, framebuffer: moderngl.Framebuffer, rect: Rect
    ) -> None:
        """Cover all of a picture but the two that are beside each other."""
        viewport = rect.viewport(framebuffer.height)
        framebuffer.clear(*self.view.background, 1.0, viewport=viewport)
        both = self.photo_rect(rect, columns=2)
        framebuffer.clear(viewport=both.viewport(framebuffer.height))

    def _draw_targets(self, rect: Rect, photo_rect: Rect, photo: np.ndarray) -> None:
        """Draw the rendered picture and the photograph into the pair's targets."""
        width = photo_rect.width
        height = photo_rect.height
        rendered = self._pair.target(0, width, height, "f1")
        x = rect.x - photo_rect.x
        y = rect.y - photo_rect.y
        self.view.lay_picture(rendered, Rect(x, y, rect.width, rect.height))
        photographed = self._pair.target(1, width, height, "f1")
        full_rect = Rect(0, 0, width, height)
        self._photo.take(photo)
        self._photo.draw(photographed, full_rect, background=self.view.background)

    def legend_place(self, rect: Rect, scale: float) -> Rect | None:
        """Return where the legend of an error map lies; None: none is shown."""
        if self.index is None or self.view.state.training.comparison != "error":
            return None
        return place_legend(self.photo_rect(rect), scale)

    def draw_over(self, rect: Rect, scale: float, content: CamerasContent) -> None:
        """Write over the picture which part shows what."""
        comparison = self.view.state.training.comparison
        inset = 12 * scale
        if self.photo(content) is None:
            if comparison != "render":
                photo_rect = self.photo_rect(rect)
                text = content.photos.problem(self.index or 0)
                text = text or "The photograph is on its way"
                tag(text, photo_rect.x + inset, photo_rect.y + inset, rect)
        elif comparison == "wipe":
            self.divider.position = self.view.state.training.divider_position
            names = ("Render", "Photograph")
            touch = self.view.host.around == "phone"
            self.divider.draw(self.photo_rect(rect), scale, names, touch=touch)
        elif comparison == "error":
            gain = self.view.state.training.gain
            draw_difference_legend(gain, self.photo_rect(rect), scale)
        elif comparison == "side":
            both = self.photo_rect(rect, columns=2)
            middle = both.x + both.width / 2
            tag("Render", both.x + inset, both.y + inset, rect)
            tag("Photograph", middle + inset, both.y + inset, rect)

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._pair.close()
        self.meter.close()
        self._photo.close()


def _overlap(rect: Rect, other: Rect) -> Rect:
    """Return what two rectangles have in common; one without pixels for nothing."""
    x = max(rect.x, other.x)
    y = max(rect.y, other.y)
    right = min(rect.x + rect.width, other.x + other.width)
    bottom = min(rect.y + rect.height, other.y + other.height)
    return Rect(x, y, max(right - x, 0), max(bottom - y, 0))


def _is_same_pose(camera: Camera, target: Camera) -> bool:
    """Return whether two cameras stand and look alike."""
    difference = abs(camera.viewmat - target.viewmat).max()
    return difference <= _SAME_POSE * max(1.0, abs(target.viewmat).max())
