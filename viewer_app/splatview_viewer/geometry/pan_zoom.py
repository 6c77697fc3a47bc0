"""A picture in a rectangle, as a hand pans and zooms it. Plain maths."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.events import (
    Event,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.geometry.orbit import MAX_NOTCHES, clamp_pinch

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect

_PRESS = 0.12
"""Share of a range that one press of a key moves it."""
ZOOM_STEP = 1.2
"""Factor of one notch of the wheel."""
MAX_ZOOM = 256.0
MIN_SIDE = 8
"""Pixels of the screen that the picture's longer side takes at least."""
MARGIN = 24
"""Pixels of the screen by which a picture stays in its rectangle."""


@dataclass(frozen=True)
class Place:
    """Place of a picture in a rectangle, independent of its resolution.

    It is fitted, or zoomed and moved by hand.
    """

    across: float | None = None
    """Pixels of the screen that its longer side takes; None if it is fitted."""
    center: tuple[float, float] = (0.5, 0.5)
    """Its point in the middle of the rectangle, in shares of its width and height."""
    seen_in: tuple[int, int] | None = None
    """Size of the rectangle that `across` is for, of which any other one shows all; None:
    the one at hand."""

    def seen_from(self, rect: Rect) -> Place:
        """Return a place with which any other rectangle shows all that `rect` shows."""
        return replace(self, seen_in=self.seen_in or (rect.width, rect.height))


FITTED = Place()


class PicturePlacement(NamedTuple):
    """A picture on the screen."""

    left: float
    """Pixels of the screen, of the picture's top left corner."""
    top: float
    zoom: float
    """Magnification."""


def moved_range(
    span: tuple[float, float], *, right: int = 0, closer: int = 0
) -> tuple[float, float]:
    """Return the range of an axis after presses of keys.

    Args:
        span: before.
        right: presses that move it by a share of its length; negative to the left.
        closer: presses that zoom in at its middle; negative out.
    """
    low, high = span
    middle = (low + high) / 2 + right * _PRESS * (high - low)
    half = (high - low) / 2 / ZOOM_STEP ** (2 * closer)
    return middle - half, middle + half


@dataclass
class PanZoom:
    """Places a picture of `size` pixels, as a hand moves it."""

    size: tuple[int, int] = (1, 1)
    """(width, height) of the picture."""
    place: Place = FITTED
    _grab: tuple[float, float] | None = field(default=None, repr=False)

    def placed(self, rect: Rect) -> PicturePlacement:
        """Return the picture's corner on the screen, and its magnification."""
        width, height = self.size
        place = self.place
        if place.across is None:
            zoom = min(rect.width / width, rect.height / height)
            cx = 0.5
            cy = 0.5
        else:
            zoom = place.across / max(self.size)
            cx, cy = place.center
            if place.seen_in is not None:
                seen_width, seen_height = place.seen_in
                zoom *= min(rect.width / seen_width, rect.height / seen_height)
        left = rect.x + rect.width / 2 - cx * width * zoom
        top = rect.y + rect.height / 2 - cy * height * zoom
        return PicturePlacement(left, top, zoom)

    def to_picture(self, x: float, y: float, rect: Rect) -> tuple[float, float]:
        """Return the picture's point under a point of the screen, in picture pixels.

        It may lie outside the picture.
        """
        left, top, zoom = self.placed(rect)
        return (x - left) / zoom, (y - top) / zoom

    def set_zoom(
        self, zoom: float, rect: Rect, anchor: tuple[float, float] | None = None
    ) -> None:
        """Magnify by `zoom` around a point of the screen, which stays in its place.

        Args:
            anchor: the point; None for the middle of `rect`.
        """
        center_x = rect.x + rect.width / 2
        center_y = rect.y + rect.height / 2
        x, y = anchor or (center_x, center_y)
        picture_x, picture_y = self.to_picture(x, y, rect)
        zoom = min(max(zoom, MIN_SIDE / max(self.size)), MAX_ZOOM)
        picture_x -= (x - center_x) / zoom
        picture_y -= (y - center_y) / zoom
        self._center(picture_x, picture_y, zoom, rect)

    def fit(self) -> None:
        """Show the whole picture, as large as the rectangle lets it."""
        self.place = FITTED

    def move(self, dx: float, dy: float, rect: Rect) -> None:
        """Have the picture follow a drag of (dx, dy) pixels of the screen."""
        zoom = self.placed(rect).zoom
        center_x = rect.x + rect.width / 2
        center_y = rect.y + rect.height / 2
        x, y = self.to_picture(center_x, center_y, rect)
        self._center(x - dx / zoom, y - dy / zoom, zoom, rect)

    def _center(self, x: float, y: float, zoom: float, rect: Rect) -> None:
        """Bring a point of the picture to the middle of the rectangle.

        The picture's middle third can leave the rectangle, the whole picture cannot.
        """
        width, height = self.size
        share_x = _bounded_share(x, width, rect.width, zoom)
        share_y = _bounded_share(y, height, rect.height, zoom)
        self.place = Place(zoom * max(self.size), (share_x, share_y))

    def handle(self, event: Event, rect: Rect) -> bool:
        """Handle a user's event; return True when the picture lies elsewhere now.

        Wheel zooms at the pointer, two fingers at their middle, any drag pans, a double
        click fits.
        """
        match event:
            case Wheel():
                notches = max(min(event.dy, MAX_NOTCHES), -MAX_NOTCHES)
                zoom = self.placed(rect).zoom * ZOOM_STEP**notches
                self.set_zoom(zoom, rect, (event.x, event.y))
                return event.dy != 0
            case PointerPress(clicks=2, button="left"):
                self._grab = None
                self.fit()
                return True
            case PointerPress():
                self._grab = event.x, event.y
            case PointerMove() if self._grab is not None:
                x, y = self._grab
                self._grab = event.x, event.y
                return self._drag(event.x - x, event.y - y, rect)
            case PointerRelease():
                self._grab = None
            case Pinch():
                # The drag is of the finger that came first.
                self._grab = None
                return self._pinch(event, rect)
        return False

    def _drag(self, dx: float, dy: float, rect: Rect) -> bool:
        if not (dx or dy):
            return False
        self.move(dx, dy, rect)
        return True

    def _pinch(self, event: Pinch, rect: Rect) -> bool:
        if not (event.dx or event.dy or event.factor != 1):
            return False
        self.move(event.dx, event.dy, rect)
        zoom = self.placed(rect).zoom * clamp_pinch(event.factor)
        self.set_zoom(zoom, rect, (event.x, event.y))
        return True


def _bounded_share(pixel: float, extent: int, available: int, zoom: float) -> float:
    """Return a pixel as a share of a side, so that the picture stays in its rectangle.

    Args:
        pixel: the pixel of the picture that comes into the middle of the rectangle.
        extent: pixels along the picture's side.
        available: pixels of the screen along the rectangle's side.
        zoom: magnification.
    """
    slack = max(available / 2 / zoom - MARGIN / zoom, 0)
    bounded = min(max(pixel, -slack), extent + slack)
    return bounded / extent
