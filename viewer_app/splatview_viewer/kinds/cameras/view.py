"""Shows the cameras of a training by themselves: where they stand, and their photographs in rows; a click opens one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.old_view import Simple
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import CamerasSettings
from splatview_viewer.core.view import KeyHelp, meta_phrases
from splatview_viewer.geometry.cameras import frame_points
from splatview_viewer.geometry.controls import PanZoom
from splatview_viewer.geometry.orbit import Orbit
from splatview_viewer.geometry.training_cameras import snapped, up_of_cameras
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.render.cameras import drawing
from splatview_viewer.render.cameras.content import CamerasContent
from splatview_viewer.render.cameras.drawing import Grid, Look, Outlines
from splatview_viewer.render.cameras.photos import PhotoTexture

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.host import Host
    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.view import Value
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet

_LINES = 0.87, 0.88, 0.90, 0.8
_GROUND = 0.13, 0.14, 0.155
"""What has no photograph yet. It lies among pictures, so it is the same in light and dark."""
_PHOTO, _GAP = 150.0, 10.0
"""Points: the width of small photographs, and between them."""
_WIDE = 640.0
"""Points of width from which cameras are seen beside their photographs."""
_STILL = 4.0
_NOTCH = 60.0
"""Points that a notch of the wheel moves the rows."""


class CamerasView(Simple):
    """One user's look at the cameras. The left part shows where they stand, the right one their photographs."""

    kind: ClassVar[str] = "cameras"
    keys: Sequence[KeyHelp] = (
        KeyHelp("Cameras", "Click", "Open the photograph"),
        KeyHelp("Cameras", "Escape", "Close it"),
        KeyHelp("Cameras", "Page up, Page down", "The one before, after"),
        KeyHelp("Cameras", "Drag, wheel", "Turn, move, scroll"),
        KeyHelp("Cameras", "F", "See all cameras"),
    )

    def __init__(self, ctx: moderngl.Context, settings: CamerasSettings | None = None, *, work: GpuWork | None = None,
                 beside: CamerasView | None = None) -> None:
        """`beside`: a view of the same cameras, whose context and `work` this one takes."""
        self.settings = settings or CamerasSettings()
        self.host: Host = Simple.host
        self.content = beside.content if beside is not None else CamerasContent(ctx, work or GpuWork(ctx))
        """What it may share with others."""
        self.content.join(self)
        self.orbit = Orbit()
        self.opened: int | None = None
        """The camera whose photograph fills the picture."""
        self.hovered: int | None = None
        self._pan_zoom = PanZoom()
        self._framed = False
        self._seen_in: tuple[int, int] | None = None
        """The size of somebody else's picture of where they stand, all of which is to be seen."""
        self._scroll = 0.0
        self._photo = PhotoTexture(ctx)
        self._outlines = Outlines()
        self._told = self.content.changes
        """What of the content was drawn, or for which drawing was asked."""
        self._press: tuple[float, float] | None = None
        self._turning = False
        self._rect = Rect(0, 0, 1, 1)

    def wake(self) -> None:
        """Something came, in another thread."""
        self.host.wake()

    def beside(self, settings: CamerasSettings) -> CamerasView:
        return CamerasView(self.content.ctx, settings, beside=self)

    def like(self, other: View) -> None:
        if not isinstance(other, CamerasView):
            raise ViewerError(f"cameras: a view of {other.kind} cannot be followed")
        self.orbit.look_like(other.orbit)
        self._framed, self._scroll, self.opened = other._framed, other._scroll, other.opened
        self.hovered = other.hovered  # it stands out in the picture
        stand, _ = other._parts(other._rect)
        self._seen_in = other._seen_in or (stand.width, stand.height)
        self._pan_zoom.place = other._pan_zoom.place.seen_from(other._rect)
        self.settings.take(other.settings)

    def update(self, value: Value) -> bool:
        taken = self.content.update(value)
        if taken:
            self._told = self.content.changes  # whoever calls knows
        return taken

    # -- where things lie ----------------------------------------------------------------------------------------

    @property
    def _cameras(self) -> CameraSet | None:
        return self.content.cameras

    def _parts(self, rect: Rect) -> tuple[Rect, Rect | None]:
        """Where cameras are seen, and where their photographs are."""
        cameras = self._cameras
        if cameras is None or not (cameras.photos or any(cameras.paths)) or rect.width < _WIDE * self.host.scale:
            return rect, None
        left = rect.width // 2
        return Rect(rect.x, rect.y, left, rect.height), Rect(rect.x + left, rect.y, rect.width - left, rect.height)

    def _grid(self, rows: Rect) -> Grid:
        cameras, scale = self._cameras, self.host.scale
        gap = _GAP * scale
        columns = max(round((rows.width - gap) / ((_PHOTO + _GAP) * scale)), 1)
        width = (rows.width - gap) / columns
        shape = 0.75 if cameras is None else cameras.shape
        grid = Grid(columns, (width, (width - gap) * min(max(shape, 0.3), 2.0) + gap), gap)
        rest = 0.0 if cameras is None else max(grid.height(len(cameras)) - rows.height, 0.0)
        self._scroll = min(max(self._scroll, 0.0), rest)
        return Grid(columns, grid.cell, gap, self._scroll)

    @property
    def _depth(self) -> float:
        cameras = self._cameras
        return 1.0 if cameras is None else 0.5 * cameras.spacing * self.settings.size

    def _frame(self, rect: Rect) -> None:
        """See all of them."""
        cameras = self._cameras
        if cameras is None or not cameras.fine.any():
            return
        fine = cameras.fine
        up = up_of_cameras(cameras.viewmats[fine])
        if up is not None:
            self.orbit.up = snapped(up)
        ends = cameras.positions[fine] + cameras.viewmats[fine, 2, :3] * self._depth
        camera = frame_points(np.concatenate([cameras.positions[fine], ends]), rect.width, rect.height,
                              up=self.orbit.up)
        self.orbit.take(camera, ends.mean(0))
        self._framed, self._seen_in = True, None

    def _camera(self, stand: Rect) -> Camera:
        """From where they are seen."""
        if not self._framed:
            self._frame(stand)
        size = stand.width, stand.height
        if self._seen_in is not None and self._seen_in != size:
            return self.orbit.camera(*self._seen_in).fitted(*size)
        return self.orbit.camera(*size)

    def _turn(self, event: Event, stand: Rect) -> bool:
        """Have the user's hand move the camera, from where it is: at first sight, or where somebody is who was followed
        until now."""
        camera = self._camera(stand)
        if self._seen_in is not None:
            self.orbit.take(camera, self.orbit.target)
            self._seen_in = None
        return self.orbit.handle(event, stand)

    # -- events --------------------------------------------------------------------------------------------------

    def open(self, number: int | None) -> None:
        """Have this photograph fill the picture; None: none."""
        cameras = self._cameras
        if number is not None and (cameras is None or not 0 <= number < len(cameras)):
            return
        self.opened = number
        self._pan_zoom.fit()

    def handle(self, event: Event, rect: Rect) -> bool:
        self._rect = rect
        cameras = self._cameras
        if cameras is None:
            return False
        if isinstance(event, Key):
            return self._key(event, rect)
        if self.opened is not None:
            return self._pan_zoom.handle(event, rect)
        stand, rows = self._parts(rect)
        match event:
            case PointerMove():
                if self._press is not None and math.dist(self._press, (event.x, event.y)) > _STILL * self.host.scale:
                    self._press = None
                if self._turning:
                    return self._turn(event, stand)
                return self._hover(event.x, event.y, rect)
            case PointerLeave():
                return self._hover(math.nan, math.nan, rect)
            case PointerPress():
                self._hover(event.x, event.y, rect)
                self._press = (event.x, event.y) if event.button == "left" and not event.mods else None
                self._turning = rows is None or not rows.contains(event.x, event.y)
                if self._turning:
                    self._turn(event, stand)
                return True
            case PointerRelease():
                pressed, self._press, self._turning = self._press, None, False
                self.orbit.let_go()
                if pressed is not None and self.hovered is not None:
                    self.open(self.hovered)
                return True
            case Wheel() if rows is not None and rows.contains(event.x, event.y):
                self._scroll -= event.dy * _NOTCH * self.host.scale
                self._hover(event.x, event.y, rect)
                return True
            case Pinch() if rows is not None and rows.contains(event.x, event.y):
                self._press = None
                self._scroll -= event.dy
                return True
            case Wheel() | Pinch():
                self._press = None
                return self._turn(event, stand)
        return False

    def _key(self, event: Key, rect: Rect) -> bool:
        if not event.pressed or event.mods:
            return False
        cameras = self._cameras
        assert cameras is not None
        match event.name:
            case "escape" if self.opened is not None:
                self.open(None)
            case "page_up" | "page_down" if self.opened is not None:
                self.open((self.opened + (1 if event.name == "page_down" else -1)) % len(cameras))
            case "page_up" | "page_down":
                self._scroll += rect.height * (0.9 if event.name == "page_down" else -0.9)
            case "f" if self.opened is None:
                self._framed = False
            case _:
                return self.opened is not None and self._pan_zoom.handle(event, rect)
        return True

    def _hover(self, x: float, y: float, rect: Rect) -> bool:
        cameras = self._cameras
        before, self.hovered = self.hovered, None
        if cameras is not None and rect.contains(x, y):
            stand, rows = self._parts(rect)
            if rows is not None and rows.contains(x, y):
                self.hovered = self._grid(rows).at(x - rows.x, y - rows.y, len(cameras))
            else:
                self.hovered = self._outlines.at(cameras, self._camera(stand), self._depth, x - stand.x, y - stand.y,
                                                 8 * self.host.scale)
        return before != self.hovered

    def tick(self, now: float) -> bool:
        content = self.content
        content.small = True
        content.tick(now)
        again, self._told = self._told != content.changes, content.changes
        return again and content.cameras is not None

    # -- pictures ------------------------------------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._rect, self._told = rect, self.content.changes
        framebuffer.use()
        framebuffer.clear(*self.settings.background, 1.0, viewport=rect.viewport(framebuffer.height))
        cameras = self._cameras
        if cameras is None:
            return
        if self.opened is not None and self.opened < len(cameras):
            self._draw_photo(framebuffer, rect, self.opened)
            return
        stand, rows = self._parts(rect)
        from splatview_viewer.ui import theme

        accent, alive = theme.MARK, theme.NOW
        current = self.content.current
        look = Look(_LINES, (accent.x, accent.y, accent.z, 1.0), (alive.x, alive.y, alive.z, 1.0), self._depth,
                    1.5 * self.host.scale, -1 if self.hovered is None else self.hovered,
                    -1 if current is None else current, opacity=1.0)
        self.content.drawing.draw(framebuffer, stand, self._camera(stand), look)
        if rows is not None:
            self.content.drawing.draw_gallery(framebuffer, rows, self._grid(rows), _GROUND)

    def _draw_photo(self, framebuffer: moderngl.Framebuffer, rect: Rect, number: int) -> None:
        photo = self.content.photos.whole(number)
        if photo is None:
            return
        self._photo.take(photo)
        self._pan_zoom.size = photo.shape[1], photo.shape[0]
        self._photo.draw(framebuffer, self._placed(rect), clip=rect)

    def _placed(self, rect: Rect) -> Rect:
        """Where the photograph lies that is open; parts of it may be outside."""
        x, y, zoom = self._pan_zoom.placed(rect)
        width, height = self._pan_zoom.size
        return Rect(round(x), round(y), max(round(width * zoom), 1), max(round(height * zoom), 1))

    def over(self, rect: Rect, scale: float) -> bool:
        cameras = self._cameras
        if cameras is None:
            return False
        if self.opened is not None and self.opened < len(cameras):
            trouble = self.content.photos.trouble(self.opened)
            waiting = not trouble and self.content.photos.whole(self.opened) is None
            drawing.title(cameras.called(self.opened), trouble or ("The photograph is on its way" if waiting else ""),
                          rect, scale)
            return False
        stand, rows = self._parts(rect)
        grid = None if rows is None else self._grid(rows)
        if rows is not None and grid is not None:
            drawing.rows(cameras, grid, rows, (self.hovered, self.content.current), scale)
        if self.hovered is not None and self.hovered < len(cameras):
            drawing.named(cameras, self.hovered, self._camera(stand), self._depth, stand)
        return False

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return ()

    def panel(self) -> bool:
        from splatview_viewer.ui import widgets as ui

        s, before = self.settings, (self.settings.size, self.settings.background)
        if ui.buttons("Cameras", ["See all"], ["All cameras (F)"]) is not None:
            self.opened, self._framed = None, False
            return True
        s.size = ui.slider("Size", s.size, (0.1, 10.0), "%.2f", reset=1.0)
        s.background = ui.color("Backdrop", s.background)
        return before != (s.size, s.background)

    @property
    def empty(self) -> bool:
        return self._cameras is None

    @property
    def details(self) -> list[str]:
        cameras = self._cameras
        if cameras is None:
            return []
        wrong = len(cameras) - int(cameras.fine.sum())
        sizes = cameras.distinct_sizes
        out = [f"{len(cameras):,} cameras"]
        out += [f"{w} x {h}" for w, h in sizes] if len(sizes) == 1 else [f"{len(sizes)} sizes"] if sizes else []
        if wrong:
            out.append(f"{wrong:,} of them are none: their matrices are no poses")
        return [*out, *meta_phrases(self.content.meta, ("photos", "trouble"))]

    @property
    def extras(self) -> list[str]:
        return []

    @property
    def readout(self) -> str:
        cameras, number = self._cameras, self.hovered
        if cameras is None or number is None or number >= len(cameras) or not cameras.fine[number]:
            return ""
        x, y, z = cameras.positions[number].round(6) + 0.0
        return f"{cameras.called(number)}   at {x:.3g}, {y:.3g}, {z:.3g}"

    @property
    def path(self) -> list[str]:
        return ["cameras uploaded"]

    @property
    def timings(self) -> dict[str, float]:
        return {"draw": self.content.work.ms.get("frustums", 0.0)}

    def drop(self) -> None:
        self._photo.close()

    def close(self) -> None:
        self._photo.close()
        self.content.leave(self)
