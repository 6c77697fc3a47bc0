"""One overlay as the viewer holds it: read from a frame, copied, and made safe to draw."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds import check_frame
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.control.frame import Frame


_MOST = 1000
"""Masks in one picture."""
_TEXELS = 1 << 22
"""Most pixels of all masks of one picture together; larger ones are made coarser."""


@dataclass
class Mask:
    """A part of a mask, and its place in the picture."""

    box: int
    """Number of its box."""
    place: tuple[float, float, float, float]
    """x0 y0 x1 y1, fractions of the picture's width and height."""
    inside: np.ndarray
    """(h, w) bool."""


def _masks_of(masks: np.ndarray) -> list[Mask]:
    """Return the parts of masks (N, h, w) where there is something; those without a pixel inside are left out."""
    height, width = masks.shape[1:]
    cut = []
    for n, mask in enumerate(masks[:_MOST]):
        ys, xs = mask.any(1).nonzero()[0], mask.any(0).nonzero()[0]
        if len(ys) and len(xs):  # it may be overwritten at the same time
            cut.append((n, int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1))
    texels = sum((x1 - x0) * (y1 - y0) for _, x0, y0, x1, y1 in cut)
    step = max(math.ceil(math.sqrt(texels / _TEXELS)), 1)
    return [Mask(n, (x0 / width, y0 / height, x1 / width, y1 / height), masks[n, y0:y1:step, x0:x1:step] != 0)
            for n, x0, y0, x1, y1 in cut]


PALETTE = np.array([
    (77, 201, 255), (255, 160, 51), (122, 229, 92), (255, 97, 128), (186, 140, 255), (255, 226, 77), (38, 214, 181),
    (255, 130, 220), (40, 152, 255), (170, 131, 69), (199, 255, 2), (255, 91, 49), (196, 248, 243), (242, 78, 255),
    (0, 255, 169), (255, 203, 185), (179, 205, 137), (179, 109, 134), (114, 146, 150), (232, 201, 255),
], np.uint8)
"""(20, 3) RGB: bright enough for dark words on them, and far enough from one another."""
PLAIN = np.array((235, 238, 242), np.uint8)
"""Colour of boxes without a class."""
_KNOWN = np.concatenate([PALETTE, PLAIN[None]])


def class_colors(classes: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """RGBA of each.

    Args:
        classes: (N,) integers; below 0: no class. Classes 20 apart have the same colour.
        given: (N, 4) uint8 RGBA that go before, where their alpha is not 0.

    Returns (N, 4) uint8.
    """
    out = np.full((len(classes), 4), 255, np.uint8)
    out[:, :3] = _KNOWN[np.where(classes < 0, len(PALETTE), classes % len(PALETTE))]
    if given is not None:
        chosen = given[:, 3] > 0
        out[chosen] = given[chosen]
    return out


def is_light(color: np.ndarray) -> bool:
    """Return whether dark words are read better on this RGB colour than light ones."""
    return float(0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]) > 120


_FAR = 1e7
"""Pixels from the origin beyond which nothing is drawn."""
_MOST_JOINTS = 200_000
_LONGEST = 120
"""Characters of a label or of one line of a note."""
NO_SCORE = 1e9
"""In place of a missing score: over every threshold."""


@dataclass
class Result:
    """Coordinates are pixels of the picture that it was computed on. What cannot be drawn was left out."""

    version: int
    """Version of the other stream."""
    time_ns: int
    """When that was published; 0: not known."""
    size: tuple[int, int] = (1, 1)
    """Width and height of the picture that it was computed on."""
    motion: bool = False
    by: str = ""
    rate_hz: float = 0.0
    work_ms: float = 0.0
    trouble: str = ""
    boxes: np.ndarray = field(default_factory=lambda: np.empty((0, 4), np.float32))
    """(N, 4) float32, x0 <= x1, y0 <= y1, finite."""
    drawn: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    """(N,) bool: those that have a place. Of the others the row is zeros."""
    classes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    scores: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    """(N,) float32; NaN: none."""
    colors: np.ndarray = field(default_factory=lambda: np.empty((0, 4), np.uint8))
    """(N, 4) uint8 RGBA."""
    texts: list[bytes] = field(default_factory=list)
    """Labels as they came, N of them or none."""
    masks: list[Mask] = field(default_factory=list)
    points: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 3), np.float32))
    """(M, K, 3) x y and whether it was seen (1 or 0)."""
    skeleton: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.int32))
    point_colors: np.ndarray = field(default_factory=lambda: np.empty((0, 4), np.uint8))
    lines: np.ndarray = field(default_factory=lambda: np.empty((0, 4), np.float32))
    """(S, 4) float32: the pieces of all lines, x y of both ends."""
    line_colors: np.ndarray = field(default_factory=lambda: np.empty((0, 4), np.uint8))
    """(S, 4) uint8, of each piece."""
    notes: list[tuple[float, float, str]] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    """Names of classes, from 0 on, where there are no labels."""

    @property
    def empty(self) -> bool:
        return not (self.drawn.any() or self.masks or self.points.size or len(self.lines) or self.notes)

    @property
    def floors(self) -> np.ndarray:
        """(N,) float32: scores, of those that have none one over every threshold."""
        return np.where(np.isnan(self.scores), np.float32(NO_SCORE), self.scores)

    def words(self, n: int) -> str:
        """Text of a box: its label and its score."""
        label = _plain(self.texts[n]) if n < len(self.texts) else ""
        if not label and not self.texts and (number := int(self.classes[n])) >= 0:
            label = (_plain(self.names[number]) if number < len(self.names) else "") or str(number)
        score = float(self.scores[n])
        return " ".join(filter(None, [label, f"{score:.2f}" if score == score else ""]))

    @property
    def owned_points(self) -> bool:
        """True if each group of points belongs to the box of its number."""
        return len(self.points) == len(self.boxes) > 0


def read_result(frame: Frame, shown: tuple[int, int]) -> Result | None:
    """Copy a frame of kind overlay to the host; None when its writer overwrote it meanwhile.

    shown: width and height of the picture that it lies over, if the frame does not name another size.

    Raises ViewerError for what is no overlay, or lies on a GPU.
    """
    tensors, meta = frame.tensors, frame.meta
    try:
        check_frame("overlay", {name: (t.dtype, tuple(t.shape)) for name, t in tensors.items()}, meta)
    except ValueError as e:
        raise ViewerError(f"overlay: {e}") from None
    if frame.on_gpu:
        raise ViewerError("overlay: its tensors lie on a GPU; they are read from host memory")
    result = _result({name: t.array for name, t in tensors.items()}, meta, shown)  # type: ignore[union-attr]
    return result if frame.intact() else None


def _result(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], shown: tuple[int, int]) -> Result:
    width, height = int(meta.get("width", 0)), int(meta.get("height", 0))
    out = Result(int(meta.get("version", 0)), int(meta.get("time_ns", 0)),
                 (width, height) if width and height else shown, bool(meta.get("motion", False)),
                 _plain(str(meta.get("by", "")).encode(errors="replace")), _number(meta, "rate_hz"),
                 _number(meta, "work_ms"), str(meta.get("trouble", "")))
    boxes = np.array(arrays["boxes"], np.float32)
    n = len(boxes)
    out.drawn = _near(boxes)
    boxes[~out.drawn] = 0
    out.boxes = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)
    out.classes = np.array(arrays["classes"]) if "classes" in arrays else np.full(n, -1, np.int32)
    out.scores = np.array(arrays["scores"]) if "scores" in arrays else np.full(n, np.nan, np.float32)
    out.colors = class_colors(out.classes, arrays.get("colors"))
    if "labels" in arrays:
        out.texts = arrays["labels"].tobytes().split(b"\0")[:n]
    elif "names" in arrays:
        out.names = arrays["names"].tobytes().split(b"\0")[:-1]
    if "masks" in arrays:
        out.masks = _masks_of(arrays["masks"])
    _points(out, arrays)
    _lines(out, arrays)
    if "notes_at" in arrays:
        places = arrays["notes_at"].tolist()
        texts = arrays["notes"].tobytes().split(b"\0")[: len(places)]
        out.notes = [(x, y, said) for (x, y), text in zip(places, texts, strict=False)
                     if abs(x) < _FAR and abs(y) < _FAR
                     and (said := "\n".join(map(_plain, text.split(b"\n")[:20])).strip())]
    return out


def _points(out: Result, arrays: Mapping[str, np.ndarray]) -> None:
    if "points" not in arrays:
        return
    points = np.array(arrays["points"], np.float32)
    seen = _near(points[..., :2]) & (points[..., 2] > 0)
    points[..., 2] = seen
    points[~seen] = 0
    out.points = points
    m, k, _ = points.shape
    if "skeleton" in arrays:
        pairs = np.array(arrays["skeleton"])
        fits = (pairs >= 0).all(1) & (pairs < k).all(1)
        out.skeleton = pairs[fits][: _MOST_JOINTS // max(m, 1)]
    if "point_classes" in arrays:
        out.point_colors = class_colors(arrays["point_classes"])
    elif out.owned_points:
        out.point_colors = out.colors
    else:
        out.point_colors = class_colors(np.full(m, -1, np.int32))


def _lines(out: Result, arrays: Mapping[str, np.ndarray]) -> None:
    if "lines" not in arrays:
        return
    vertices = np.array(arrays["lines"], np.float32)
    ends = np.array(arrays["line_ends"], np.int64).clip(0, len(vertices))
    ends = np.maximum.accumulate(ends) if len(ends) else ends
    if len(vertices) < 2 or not len(ends):
        return
    lines = np.searchsorted(ends, np.arange(len(vertices)), side="right")  # the line of each vertex
    near = _near(vertices)
    joined = (lines[1:] == lines[:-1]) & (lines[1:] < len(ends)) & near[1:] & near[:-1]
    out.lines = np.concatenate([vertices[:-1], vertices[1:]], 1)[joined]
    classes = arrays.get("line_classes")
    colors = class_colors(np.full(len(ends), -1, np.int32) if classes is None else classes)
    out.line_colors = colors[lines[:-1][joined]]


def _near(places: np.ndarray) -> np.ndarray:
    """Return whether all of the last axis lies where something can be drawn; NaN does not."""
    return np.asarray((np.abs(places) < _FAR).all(-1))


def _number(meta: Mapping[str, Any], name: str) -> float:
    value = float(meta.get(name, 0))
    return value if 0 <= value < 1e9 else 0.0


def _plain(text: bytes) -> str:
    """One line of text."""
    return " ".join(text[: 4 * _LONGEST].decode(errors="replace").split())[:_LONGEST]
