"""What the timeline is painted on, and with which colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatview_viewer.kinds.snapshot.timeline.compiled import kernels

Color = tuple[int, int, int]
MAX_PIXELS = 1 << 27


class Canvas:
    """A picture whose columns lie one behind the other, so that threads can paint columns of their own."""

    def __init__(self, width: int, height: int, *, blank: bool = True) -> None:
        """`blank`: False where every pixel is written before it is read."""
        if width < 1 or height < 1 or width * height > MAX_PIXELS:
            raise ValueError(f"a canvas cannot have {width} x {height} pixels: 1 x 1 up to {MAX_PIXELS} in all")
        self.rgba = np.zeros((width, height, 4), np.uint8) if blank else np.empty((width, height, 4), np.uint8)
        """uint8 (W, H, 4): rgba[x, y], y from the top."""
        self.ids = np.full((width, height), -1, np.int32) if blank else np.empty((width, height), np.int32)
        """int32 (W, H): the allocation under the centre of each pixel; -1: none."""

    @property
    def width(self) -> int:
        return self.ids.shape[0]

    @property
    def height(self) -> int:
        return self.ids.shape[1]

    def first(self, columns: int) -> Canvas:
        """The first columns of it, in the same memory."""
        part = Canvas.__new__(Canvas)
        part.rgba, part.ids = self.rgba[:columns], self.ids[:columns]
        return part

    @property
    def packed(self) -> np.ndarray:
        """uint32 (W, H): the same memory as `rgba`, a pixel in one number."""
        return self.rgba.view("<u4").reshape(self.ids.shape)


def assemble(before: Canvas | None, fresh: Canvas, origin: tuple[np.ndarray, np.ndarray], canvas: Canvas,
             rows: np.ndarray, part: tuple[int, int], grain: int = 1) -> None:
    """Puts columns of two canvases into one, and as rows into a picture; without the GIL.

    origin: int64 (W,) twice: which column of `before` each is, or -1; which one of `fresh` otherwise. rows: uint32
    (H * grain, W * grain) or cut there, the lowest row first. part: first and last column (exclusive)."""
    work = kernels().assemble
    old = fresh if before is None else before
    work((old.packed, old.ids), (fresh.packed, fresh.ids), origin, (canvas.packed, canvas.ids), rows, part, grain)


def paint_ground(rgba: np.ndarray, top: np.ndarray, bottom: np.ndarray, shades: tuple[Color, Color], line: int
                 ) -> None:
    """Paints the rows from top to bottom of each column in a colour, the highest `line` of them in another unless they
    are the picture's highest. rgba: uint8 (W, H, 4), contiguous; top, bottom: int64 (W,), within 0..H."""
    work = kernels().paint_ground
    pixels = rgba.view("<u4").reshape(rgba.shape[:2])
    ground, edge = (np.array([*shade, 255], np.uint8).view(np.uint32)[0] for shade in shades)
    work(pixels, top, bottom, (ground, edge), line)


@dataclass(frozen=True, eq=False)
class Paint:
    """The colour of each allocation."""

    classes: np.ndarray
    """uint16 (A,): a row of the palette for each allocation."""
    palette: np.ndarray
    """uint8 (K, 3)"""
    lit: np.ndarray | None = None
    """bool or uint8 (A,): those that keep their colour while the others are dimmed; None: all do."""
    background: Color = (18, 20, 24)
    """Where nothing is."""
    reserved: Color = (34, 38, 46)
    """In `Addresses`: memory that is reserved and holds nothing."""
    dim: Color = (44, 47, 54)
    """What the colours of those that are not lit are drawn to."""
    dimming: float = 0.8
    """How far: 0 not at all, 1 wholly."""

    def __post_init__(self) -> None:
        k = len(self.palette)
        if self.palette.ndim != 2 or self.palette.shape[1] != 3 or not 1 <= k <= 1 << 15:
            raise ValueError(f"a palette of shape {self.palette.shape}: it must have 1 to 32768 rows of three")
        if len(self.classes) and int(self.classes.max()) >= k:
            raise ValueError(f"class {int(self.classes.max())} has no colour: the palette ends at {k - 1}")
        if self.lit is not None and len(self.lit) != len(self.classes):
            raise ValueError(f"{len(self.lit)} allocations are lit or not, and {len(self.classes)} have a class")
        object.__setattr__(self, "shades", self._shades())

    def _shades(self) -> np.ndarray:
        palette = self.palette.astype(np.float64)
        dimmed = palette + (np.array(self.dim) - palette) * self.dimming
        return np.ascontiguousarray(np.concatenate([palette, dimmed]).round().clip(0, 255))

    def tables(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For the kernels: classes uint16 (A,), lit uint8 (A,) or (0,), and float64 (2 K, 3) colours, dimmed ones last.

        ValueError unless there is a class for each of `count` allocations."""
        if len(self.classes) != count:
            raise ValueError(f"{len(self.classes)} classes for {count} allocations: there must be one for each")
        lit = np.empty(0, np.uint8) if self.lit is None else np.ascontiguousarray(self.lit).view(np.uint8)
        return np.ascontiguousarray(self.classes, np.uint16), lit, self.shades  # type: ignore[attr-defined]

    def grounds(self) -> np.ndarray:
        """float64 (2, 3): background, reserved."""
        return np.array([self.background, self.reserved], np.float64)
