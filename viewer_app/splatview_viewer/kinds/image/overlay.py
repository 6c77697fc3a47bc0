"""One overlay as the viewer holds it: read from a frame, copied, and made safe to draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.control.frame import StreamFrame


_MOST = 1000
"""Masks in one picture."""
_TEXELS = 1 << 22
"""Most pixels of all masks of one picture together; larger ones are made coarser."""


@dataclass
class Mask:
    """A part of a mask, and its place in the picture."""

    box_index: int
    """Number of its box."""
    bounds: tuple[float, float, float, float]
    """x0 y0 x1 y1, fractions of the picture's width and height."""
    inside: np.ndarray
    """(h, w) bool."""


def _masks_of(masks: np.ndarray) -> list[Mask]:
    """Return the parts of masks (N, h, w) where there is something; those without a
    pixel inside are left out.
    """
    height, width = masks.shape[1:]
    cut = []
    for n, mask in enumerate(masks[:_MOST]):
        ys = mask.any(1).nonzero()[0]
        xs = mask.any(0).nonzero()[0]
        if len(ys) and len(xs):  # it may be overwritten at the same time
            cut.append((n, int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1))
    texels = sum((x1 - x0) * (y1 - y0) for _, x0, y0, x1, y1 in cut)
    step = max(math.ceil(math.sqrt(texels / _TEXELS)), 1)
    return [
        Mask(
            n,
            (x0 / width, y0 / height, x1 / width, y1 / height),
            masks[n, y0:y1:step, x0:x1:step] != 0,
        )
        for n, x0, y0, x1, y1 in cut
    ]


PALETTE = np.array(
    [
        (77, 201, 255),
        (255, 160, 51),
        (122, 229, 92),
        (255, 97, 128),
        (186, 140, 255),
        (255, 226, 77),
        (38, 214, 181),
        (255, 130, 220),
        (40, 152, 255),
        (170, 131, 69),
        (199, 255, 2),
        (255, 91, 49),
        (196, 248, 243),
        (242, 78, 255),
        (0, 255, 169),
        (255, 203, 185),
        (179, 205, 137),
        (179, 109, 134),
        (114, 146, 150),
        (232, 201, 255),
    ],
    np.uint8,
)
"""(20, 3) RGB: bright enough for dark words on them, and far enough from one another.
"""
PLAIN = np.array((235, 238, 242), np.uint8)
"""Colour of boxes without a class."""
_KNOWN = np.concatenate([PALETTE, PLAIN[None]])


def class_colors(classes: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """Return (N, 4) uint8 RGBA for classes (N,), below 0: none; those 20 apart have the
    same colour.

    given: (N, 4) uint8 RGBA that go before, where their alpha is not 0.
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
class OverlayResult:
    """Coordinates are pixels of the picture that it was computed on.

    What cannot be drawn was left out.
    """

    version: int
    """Version of the other stream."""
    time_ns: int
    """When that was published; 0: not known."""
    size: tuple[int, int]
    """Width and height of the picture that it was computed on."""
    publisher: str
    rate_hz: float
    work_ms: float
    trouble: str
    boxes: np.ndarray
    """(N, 4) float32, x0 <= x1, y0 <= y1, finite."""
    drawn: np.ndarray
    """(N,) bool: those that have a place. Of the others the row is zeros."""
    corners: np.ndarray
    """(N, 4, 2) float32: of turned boxes, in order; `boxes` are around them."""
    is_turned: np.ndarray
    """(N,) bool: the box is drawn by its corners."""
    classes: np.ndarray
    """(N,) int32; below 0: none."""
    scores: np.ndarray
    """(N,) float32; NaN: none."""
    colors: np.ndarray
    """(N, 4) uint8 RGBA."""
    labels: list[bytes]
    """Labels as they came, N of them or none."""
    class_names: list[bytes]
    """Names of classes, from 0 on, where there are no labels."""
    masks: list[Mask]
    points: np.ndarray
    """(M, K, 3) x y and whether it was seen (1 or 0)."""
    skeleton: np.ndarray
    """(B, 2) int32: the points that bones join."""
    point_colors: np.ndarray
    """(M, 4) uint8."""
    lines: np.ndarray
    """(S, 4) float32: the pieces of all lines, x y of both ends."""
    line_colors: np.ndarray
    """(S, 4) uint8, of each piece."""
    notes: list[tuple[float, float, str]]

    @property
    def is_empty(self) -> bool:
        return not (
            self.drawn.any()
            or self.masks
            or self.points.size
            or len(self.lines)
            or self.notes
        )

    @property
    def floors(self) -> np.ndarray:
        """(N,) float32: scores, of those that have none one over every threshold."""
        return np.where(np.isnan(self.scores), np.float32(NO_SCORE), self.scores)

    def box_text(self, n: int) -> str:
        """Text of a box: its label and its score."""
        label = _plain(self.labels[n]) if n < len(self.labels) else ""
        if not label and not self.labels and (number := int(self.classes[n])) >= 0:
            label = (
                _plain(self.class_names[number]) if number < len(self.class_names) else ""
            ) or str(number)
        score = float(self.scores[n])
        return " ".join(filter(None, [label, f"{score:.2f}" if score == score else ""]))

    def boxes_at(self, x: float, y: float) -> np.ndarray:
        """Return the numbers of the boxes around a point."""
        boxes = self.boxes
        is_around = self.drawn & (boxes[:, 0] <= x) & (x <= boxes[:, 2])
        is_around &= (boxes[:, 1] <= y) & (y <= boxes[:, 3])
        # The point is inside a turned box if it is on the same side of all its sides.
        sides = np.roll(self.corners, -1, 1) - self.corners
        offsets = np.array((x, y), np.float32) - self.corners
        turns = sides[..., 0] * offsets[..., 1] - sides[..., 1] * offsets[..., 0]
        is_inside = (turns >= 0).all(1) | (turns <= 0).all(1)
        is_around &= is_inside | ~self.is_turned
        return np.flatnonzero(is_around)

    def anchors(self) -> np.ndarray:
        """Return (N, 2): where labels are written, the upper left corner, of turned
        boxes the topmost.
        """
        places = self.boxes[:, :2].copy()
        turned = np.flatnonzero(self.is_turned)
        corners = self.corners[turned]
        places[turned] = corners[np.arange(len(turned)), corners[..., 1].argmin(1)]
        return places

    @property
    def points_have_boxes(self) -> bool:
        """True if each group of points belongs to the box of its number."""
        return len(self.points) == len(self.boxes) > 0


_ABSENT = {
    "points": np.empty((0, 0, 3), np.float32),
    "skeleton": np.empty((0, 2), np.int32),
    "lines": np.empty((0, 2), np.float32),
    "line_ends": np.empty(0, np.int32),
    "masks": np.empty((0, 0, 0), np.uint8),
    "notes_at": np.empty((0, 2), np.float32),
    **dict.fromkeys(("labels", "names", "notes"), np.empty(0, np.uint8)),
}
"""Tensors that a frame may lack."""


def read_result(frame: StreamFrame, default_size: tuple[int, int]) -> OverlayResult | None:
    """Copy a frame of kind overlay to the host; None when its writer overwrote it
    meanwhile.

    shown: width and height of the picture that it lies over, if the frame does not name
    another size.

    Its form has been checked by its reader. Raises ViewerError for another kind, or one
    on a GPU.
    """
    tensors = frame_of("overlay", frame).tensors
    meta = frame.meta
    if frame.on_gpu:
        raise ViewerError(
            "overlay: its tensors lie on a GPU; they are read from host memory"
        )
    arrays = {**_ABSENT, **{name: t.array for name, t in tensors.items()}}  # type: ignore[union-attr]

    def words(name: str) -> list[bytes]:
        return arrays[name].tobytes().split(b"\0")[:-1]

    boxes = np.array(arrays["boxes"], np.float32)
    drawn = _near(boxes)
    n = len(boxes)
    boxes[~drawn] = 0
    corners = np.array(arrays.get("corners", np.zeros((n, 4, 2), np.float32)))
    is_turned = drawn & _near(corners.reshape(n, 8)) & ("corners" in arrays)
    corners[~is_turned] = 0
    classes = np.array(arrays.get("classes", np.full(n, -1, np.int32)))
    colors = class_colors(classes, arrays.get("colors"))

    points = np.array(arrays["points"], np.float32)
    seen = _near(points[..., :2]) & (points[..., 2] > 0)
    points[~seen] = 0
    points[..., 2] = seen
    m, k, _ = points.shape
    pairs = np.array(arrays["skeleton"])
    pairs = pairs[(pairs >= 0).all(1) & (pairs < k).all(1)][: _MOST_JOINTS // max(m, 1)]
    point_classes = arrays.get("point_classes")
    if point_classes is None and m != n:
        point_classes = np.full(m, -1, np.int32)

    vertices = np.array(arrays["lines"], np.float32)
    ends = np.maximum.accumulate(
        np.array(arrays["line_ends"], np.int64).clip(0, len(vertices))
    )
    line_classes = arrays.get("line_classes", np.full(len(ends), -1, np.int32))
    lines = np.searchsorted(
        ends, np.arange(len(vertices)), side="right"
    )  # the line of each vertex
    near = _near(vertices)
    joined = (lines[1:] == lines[:-1]) & (lines[1:] < len(ends)) & near[1:] & near[:-1]

    width = int(meta.get("width", 0))
    height = int(meta.get("height", 0))
    notes = [
        (x, y, "\n".join(map(_plain, text.split(b"\n")[:20])).strip())
        for (x, y), text in zip(
            arrays["notes_at"].tolist(), words("notes"), strict=False
        )
        if abs(x) < _FAR and abs(y) < _FAR
    ]
    result = OverlayResult(
        version=int(meta.get("version", 0)),
        time_ns=int(meta.get("time_ns", 0)),
        size=(width, height) if width and height else default_size,
        publisher=_plain(str(meta.get("by", "")).encode(errors="replace")),
        rate_hz=_number(meta, "rate_hz"),
        work_ms=_number(meta, "work_ms"),
        trouble=str(meta.get("trouble", "")),
        boxes=np.concatenate(
            [
                np.minimum(boxes[:, :2], boxes[:, 2:]),
                np.maximum(boxes[:, :2], boxes[:, 2:]),
            ],
            1,
        ),
        drawn=drawn,
        corners=corners,
        is_turned=is_turned,
        classes=classes,
        scores=np.array(arrays.get("scores", np.full(n, np.nan, np.float32))),
        colors=colors,
        labels=words("labels")[:n],
        class_names=words("names"),
        masks=_masks_of(arrays["masks"]),
        points=points,
        skeleton=pairs,
        point_colors=colors if point_classes is None else class_colors(point_classes),
        lines=np.concatenate([vertices[:-1], vertices[1:]], 1)[joined],
        line_colors=class_colors(line_classes)[lines[:-1][joined]],
        notes=[note for note in notes if note[2]],
    )
    return result if frame.intact() else None


def _near(places: np.ndarray) -> np.ndarray:
    """Return whether all of the last axis lies where something can be drawn; NaN does
    not.
    """
    return np.asarray((np.abs(places) < _FAR).all(-1))


def _number(meta: Mapping[str, Any], name: str) -> float:
    value = float(meta.get(name, 0))
    return value if 0 <= value < 1e9 else 0.0


def _plain(text: bytes) -> str:
    """One line of text."""
    return " ".join(text[: 4 * _LONGEST].decode(errors="replace").split())[:_LONGEST]
