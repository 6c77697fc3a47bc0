"""From pointer and wheel to a view: panning and zooming a picture. Plain maths, no graphics. Scenes: `Orbit`."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatview_viewer.core.events import Event, Key, Pinch, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.orbit import Orbit, limited

__all__ = ["ZOOM_STEP", "Orbit", "PanZoom", "Rect"]

ZOOM_STEP = 1.2
"""Factor of one notch of the wheel."""


@dataclass
class PanZoom:
    """How a picture of `size` pixels lies in a rectangle: fitted, or zoomed and moved by hand."""

    size: tuple[int, int] = (1, 1)
    """(width, height) of the picture."""
    fitted: bool = True
    zoom: float = 1.0
    """Screen pixels per picture pixel when not fitted."""
    center: tuple[float, float] = (0.5, 0.5)
    """The picture's point in the middle of the rectangle when not fitted, in picture pixels."""
    _seen_in: tuple[int, int] | None = field(default=None, repr=False)
    """The size of the rectangle that `zoom` is for, of which every other one shows all: somebody else's; None: of the
    rectangle at hand."""
    _grab: tuple[float, float] | None = field(default=None, repr=False)

    def placed(self, rect: Rect) -> tuple[float, float, float]:
        """(x, y, zoom): where the picture's top left corner lies on the screen, and its magnification."""
        width, height = self.size
        if self.fitted:
            zoom = min(rect.width / width, rect.height / height)
            center = width / 2, height / 2
        else:
            zoom, center = self.zoom, self.center
            if self._seen_in is not None:
                zoom *= min(rect.width / self._seen_in[0], rect.height / self._seen_in[1])
        return rect.x + rect.width / 2 - center[0] * zoom, rect.y + rect.height / 2 - center[1] * zoom, zoom

    def to_picture(self, x: float, y: float, rect: Rect) -> tuple[float, float]:
        """The picture's point under a point of the screen, in picture pixels; may lie outside the picture."""
        left, top, zoom = self.placed(rect)
        return (x - left) / zoom, (y - top) / zoom

    def set_zoom(self, zoom: float, rect: Rect, at: tuple[float, float] | None = None) -> None:
        """Magnify by `zoom` around a point of the screen (default: the middle), which stays where it is."""
        middle = rect.x + rect.width / 2, rect.y + rect.height / 2
        x, y = at or middle
        px, py = self.to_picture(x, y, rect)
        longest = max(self.size)
        self.zoom = min(max(zoom, 8 / longest), 256.0)
        self.fitted, self._seen_in = False, None
        self.center = px - (x - middle[0]) / self.zoom, py - (y - middle[1]) / self.zoom
        self._keep_near(rect)

    def fit(self) -> None:
        self.fitted = True

    def move(self, dx: float, dy: float, rect: Rect) -> None:
        """The picture follows a drag of (dx, dy) pixels of the screen."""
        _, _, zoom = self.placed(rect)
        cx, cy = self.to_picture(rect.x + rect.width / 2, rect.y + rect.height / 2, rect)
        self.fitted, self._seen_in, self.zoom, self.center = False, None, zoom, (cx - dx / zoom, cy - dy / zoom)
        self._keep_near(rect)

    def look_like(self, other: PanZoom, rect: Rect) -> None:
        """Show what another one shows in `rect`, all of it, in whatever rectangle, until somebody moves this one."""
        self.fitted, self.zoom, self.center = other.fitted, other.zoom, other.center
        self._seen_in = other._seen_in or (rect.width, rect.height)

    def resize_picture(self, width: int, height: int) -> None:
        """The picture has another size now; a fitted one stays fitted."""
        if (width, height) != self.size and not self.fitted:
            sx, sy = width / self.size[0], height / self.size[1]
            self.center = self.center[0] * sx, self.center[1] * sy
            self.zoom /= max(sx, sy)
        self.size = width, height

    def _keep_near(self, rect: Rect) -> None:
        """The picture's middle third can leave the rectangle, the whole picture cannot."""
        clamped = []
        for c, extent, room in zip(self.center, self.size, (rect.width, rect.height), strict=True):
            slack = max(room / 2 / self.zoom - 24 / self.zoom, 0)
            clamped.append(min(max(c, -slack), extent + slack))
        self.center = clamped[0], clamped[1]

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event; True when the picture lies elsewhere now.

        Wheel zooms at the pointer, two fingers at their middle, any drag pans, a double click or F fits.
        """
        match event:
            case Wheel():
                zoom = self.placed(rect)[2] * ZOOM_STEP ** max(min(event.dy, 8.0), -8.0)
                self.set_zoom(zoom, rect, (event.x, event.y))
                return event.dy != 0
            case PointerPress(clicks=2, button="left"):
                self._grab = None
                self.fit()
                return True
            case PointerPress():
                self._grab = event.x, event.y
            case PointerMove() if self._grab is not None:
                dx, dy = event.x - self._grab[0], event.y - self._grab[1]
                if not (dx or dy):
                    return False
                self._grab = event.x, event.y
                self.move(dx, dy, rect)
                return True
            case PointerRelease():
                self._grab = None
            case Pinch():
                self._grab = None  # of the finger that came first
                if not (event.dx or event.dy or event.factor != 1):
                    return False
                self.move(event.dx, event.dy, rect)
                self.set_zoom(self.placed(rect)[2] * limited(event.factor), rect, (event.x, event.y))
                return True
            case Key(name="f", pressed=True):
                self.fit()
                return True
            case Key(name="1", pressed=True):
                self.set_zoom(1.0, rect)
                return True
        return False
