"""Results of an overlay stream: copied out of frames, and made safe to draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.control.frame import StreamFrame

_MAX_MASKS = 1000
"""Masks in one picture."""
_MAX_TEXELS = 1 << 22
"""Pixels of all masks of one picture together; larger masks are made coarser."""


@dataclass
class BoxMask:
    """A box's mask, cut to the pixels inside it."""

    box_index: int
    bounds: tuple[float, float, float, float]
    """x0 y0 x1 y1, fractions of the picture's width and height."""
    inside: np.ndarray
    """(h, w) bool."""


class _Crop(NamedTuple):
    """The smallest rectangle around the pixels inside a mask, ends excluded."""

    box_index: int
    x0: int
    y0: int
    x1: int
    y1: int


def _crop_mask(index: int, mask: np.ndarray) -> _Crop | None:
    """Return the rectangle around what is inside a mask (h, w); None for nothing."""
    rows = np.flatnonzero(mask.any(1))
    columns = np.flatnonzero(mask.any(0))
    # The mask may be overwritten between the two lines above.
    if not len(rows) or not len(columns):
        return None
    return _Crop(
        box_index=index,
        x0=int(columns[0]),
        y0=int(rows[0]),
        x1=int(columns[-1]) + 1,
        y1=int(rows[-1]) + 1,
    )


def _crop_masks(masks: np.ndarray) -> list[BoxMask]:
    """Cut masks (N, h, w) to what is inside; those without a pixel are left out."""
    height, width = masks.shape[1:]
    crops = []
    for index, mask in enumerate(masks[:_MAX_MASKS]):
        crop = _crop_mask(index, mask)
        if crop is not None:
            crops.append(crop)
    texels = sum((crop.x1 - crop.x0) * (crop.y1 - crop.y0) for crop in crops)
    step = max(math.ceil(math.sqrt(texels / _MAX_TEXELS)), 1)
    cut = []
    for index, x0, y0, x1, y1 in crops:
        bounds = (x0 / width, y0 / height, x1 / width, y1 / height)
        inside = masks[index, y0:y1:step, x0:x1:step] != 0
        cut.append(BoxMask(index, bounds, inside))
    return cut


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
"""(20, 3) RGB: bright enough for dark text on them, and far enough from one another.
"""
PLAIN_COLOR = np.array((235, 238, 242), np.uint8)
"""Colour of boxes without a class."""
_CLASS_COLORS = np.concatenate([PALETTE, PLAIN_COLOR[None]])


def class_colors(
    classes: np.ndarray, published_colors: np.ndarray | None = None
) -> np.ndarray:
    """Return the colours of classes, (N, 4) uint8 RGBA.

    Args:
        classes: (N,), below 0 for no class. Those 20 apart have the same colour.
        published_colors: colours (N, 4) uint8 RGBA that go before where their alpha is not 0.
    """
    colors = np.full((len(classes), 4), 255, np.uint8)
    rows = np.where(classes < 0, len(PALETTE), classes % len(PALETTE))
    colors[:, :3] = _CLASS_COLORS[rows]
    if published_colors is not None:
        is_own = published_colors[:, 3] > 0
        colors[is_own] = published_colors[is_own]
    return colors


def is_light(color: np.ndarray) -> bool:
    """Return True if dark text is read better than light text on an RGB colour."""
    return float(0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]) > 120


_MAX_COORDINATE = 1e7
"""Pixels from the origin beyond which nothing is drawn."""
_MAX_BONES = 200_000
_MAX_TEXT_LENGTH = 120
"""Characters of a label or of one line of a note."""
_MAX_NOTE_LINES = 20
NO_SCORE = 1e9
"""In place of a missing score: over every threshold."""


@dataclass
class OverlayResult:
    """The results that a stream lays over a picture, in pixels of that picture.

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
    """(N, 4, 2) float32: of rotated boxes, in order; `boxes` are around them."""
    is_rotated: np.ndarray
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
    masks: list[BoxMask]
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
        has_shapes = self.drawn.any() or self.points.size or len(self.lines)
        return not (has_shapes or self.masks or self.notes)

    @property
    def floors(self) -> np.ndarray:
        """(N,) float32: scores, of those that have none one over every threshold."""
        return np.where(np.isnan(self.scores), np.float32(NO_SCORE), self.scores)

    def box_text(self, index: int) -> str:
        """Return the text of a box: its label and its score."""
        phrases = [self._label(index)]
        score = float(self.scores[index])
        if not math.isnan(score):
            phrases.append(f"{score:.2f}")
        return " ".join(phrase for phrase in phrases if phrase)

    def _label(self, index: int) -> str:
        """Return the label of a box, or the name of its class."""
        if index < len(self.labels):
            return _one_line(self.labels[index])
        if self.labels:
            return ""
        class_id = int(self.classes[index])
        if class_id < 0:
            return ""
        name = ""
        if class_id < len(self.class_names):
            name = _one_line(self.class_names[class_id])
        return name or str(class_id)

    def boxes_at(self, x: float, y: float) -> np.ndarray:
        """Return the indices of the boxes around a point."""
        boxes = self.boxes
        is_around = self.drawn & (boxes[:, 0] <= x) & (x <= boxes[:, 2])
        is_around &= (boxes[:, 1] <= y) & (y <= boxes[:, 3])
        # The point is inside a rotated box if it is on the same side of all its sides.
        sides = np.roll(self.corners, -1, 1) - self.corners
        offsets = np.array((x, y), np.float32) - self.corners
        crosses = sides[..., 0] * offsets[..., 1] - sides[..., 1] * offsets[..., 0]
        is_inside = (crosses >= 0).all(1) | (crosses <= 0).all(1)
        is_around &= is_inside | ~self.is_rotated
        return np.flatnonzero(is_around)

    def anchors(self) -> np.ndarray:
        """Return the points (N, 2) at which labels are written.

        They are the upper left corners of boxes, of rotated boxes the topmost ones.
        """
        points = self.boxes[:, :2].copy()
        rotated = np.flatnonzero(self.is_rotated)
        corners = self.corners[rotated]
        topmost = corners[..., 1].argmin(1)
        points[rotated] = corners[np.arange(len(rotated)), topmost]
        return points

    @property
    def points_have_boxes(self) -> bool:
        """True if each group of points belongs to the box of the same index."""
        return len(self.points) == len(self.boxes) > 0


_DEFAULTS = {
    "points": np.empty((0, 0, 3), np.float32),
    "skeleton": np.empty((0, 2), np.int32),
    "lines": np.empty((0, 2), np.float32),
    "line_ends": np.empty(0, np.int32),
    "masks": np.empty((0, 0, 0), np.uint8),
    "notes_at": np.empty((0, 2), np.float32),
    **dict.fromkeys(("labels", "names", "notes"), np.empty(0, np.uint8)),
}
"""Tensors that a frame may lack."""


class _Boxes(NamedTuple):
    boxes: np.ndarray
    drawn: np.ndarray
    corners: np.ndarray
    is_rotated: np.ndarray


class _Lines(NamedTuple):
    lines: np.ndarray
    line_colors: np.ndarray


def read_result(
    frame: StreamFrame, default_size: tuple[int, int]
) -> OverlayResult | None:
    """Copy a frame of kind overlay to the host.

    Args:
        frame: its reader has checked its form.
        default_size: width and height of the picture that it lies over, if the frame
            does not name another size.

    Returns:
        The copy; None when the writer overwrote the frame meanwhile.

    Raises:
        ViewerError: the frame is of another kind, or on a GPU.
    """
    tensors = frame_of("overlay", frame).tensors
    meta = frame.meta
    if frame.on_gpu:
        raise ViewerError(
            "overlay: its tensors lie on a GPU; they are read from host memory"
        )
    arrays = dict(_DEFAULTS)
    for name, tensor in tensors.items():
        arrays[name] = tensor.array  # type: ignore[union-attr]
    boxes, drawn, corners, is_rotated = _read_boxes(arrays)
    count = len(boxes)
    classes = np.array(arrays.get("classes", np.full(count, -1, np.int32)))
    colors = class_colors(classes, arrays.get("colors"))
    points = _read_points(arrays["points"])
    point_classes = arrays.get("point_classes")
    if point_classes is not None:
        point_colors = class_colors(point_classes)
    elif len(points) == count:
        point_colors = colors
    else:
        point_colors = class_colors(np.full(len(points), -1, np.int32))
    lines, line_colors = _read_lines(arrays)
    width = int(meta.get("width", 0))
    height = int(meta.get("height", 0))
    result = OverlayResult(
        version=int(meta.get("version", 0)),
        time_ns=int(meta.get("time_ns", 0)),
        size=(width, height) if width and height else default_size,
        publisher=_one_line(str(meta.get("by", "")).encode(errors="replace")),
        rate_hz=_read_number(meta, "rate_hz"),
        work_ms=_read_number(meta, "work_ms"),
        trouble=str(meta.get("trouble", "")),
        boxes=boxes,
        drawn=drawn,
        corners=corners,
        is_rotated=is_rotated,
        classes=classes,
        scores=np.array(arrays.get("scores", np.full(count, np.nan, np.float32))),
        colors=colors,
        labels=_split_texts(arrays["labels"])[:count],
        class_names=_split_texts(arrays["names"]),
        masks=_crop_masks(arrays["masks"]),
        points=points,
        skeleton=_read_skeleton(arrays["skeleton"], points),
        point_colors=point_colors,
        lines=lines,
        line_colors=line_colors,
        notes=_read_notes(arrays),
    )
    if not frame.intact():
        return None
    return result


def _read_boxes(arrays: Mapping[str, np.ndarray]) -> _Boxes:
    """Copy the boxes and their corners, as `OverlayResult` has them."""
    boxes = np.array(arrays["boxes"], np.float32)
    count = len(boxes)
    drawn = _is_drawable(boxes)
    boxes[~drawn] = 0
    no_corners = np.zeros((count, 4, 2), np.float32)
    corners = np.array(arrays.get("corners", no_corners))
    is_rotated = drawn & _is_drawable(corners.reshape(count, 8))
    is_rotated &= "corners" in arrays
    corners[~is_rotated] = 0
    low = np.minimum(boxes[:, :2], boxes[:, 2:])
    high = np.maximum(boxes[:, :2], boxes[:, 2:])
    boxes = np.concatenate([low, high], axis=1)
    return _Boxes(boxes, drawn, corners, is_rotated)


def _read_points(points: np.ndarray) -> np.ndarray:
    """Copy points (M, K, 3); those that are not visible, or too far, become zeros."""
    points = np.array(points, np.float32)
    is_visible = _is_drawable(points[..., :2]) & (points[..., 2] > 0)
    points[~is_visible] = 0
    points[..., 2] = is_visible
    return points


def _read_skeleton(pairs: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Copy the pairs (B, 2) that join points of a group (M, K, 3), but not too many."""
    group_count, point_count, _ = points.shape
    pairs = np.array(pairs)
    is_valid = (pairs >= 0).all(1) & (pairs < point_count).all(1)
    return pairs[is_valid][: _MAX_BONES // max(group_count, 1)]


def _read_lines(arrays: Mapping[str, np.ndarray]) -> _Lines:
    """Cut lines into their pieces; those that cannot be drawn are left out."""
    vertices = np.array(arrays["lines"], np.float32)
    ends = np.array(arrays["line_ends"], np.int64).clip(0, len(vertices))
    ends = np.maximum.accumulate(ends)
    classes = arrays.get("line_classes", np.full(len(ends), -1, np.int32))
    line_of_vertex = np.searchsorted(ends, np.arange(len(vertices)), side="right")
    line_before = line_of_vertex[:-1]
    line_after = line_of_vertex[1:]
    is_near = _is_drawable(vertices)
    is_piece = (line_after == line_before) & (line_after < len(ends))
    is_piece &= is_near[1:] & is_near[:-1]
    pieces = np.concatenate([vertices[:-1], vertices[1:]], axis=1)[is_piece]
    return _Lines(pieces, class_colors(classes)[line_before[is_piece]])


def _read_notes(arrays: Mapping[str, np.ndarray]) -> list[tuple[float, float, str]]:
    """Return (x, y, text) of each note that has a text and can be drawn."""
    notes = []
    points = arrays["notes_at"].tolist()
    for (x, y), note in zip(points, _split_texts(arrays["notes"]), strict=False):
        if not (abs(x) < _MAX_COORDINATE and abs(y) < _MAX_COORDINATE):
            continue
        lines = note.split(b"\n")[:_MAX_NOTE_LINES]
        text = "\n".join(_one_line(line) for line in lines).strip()
        if text:
            notes.append((x, y, text))
    return notes


def _split_texts(joined: np.ndarray) -> list[bytes]:
    """Return the texts of a tensor of bytes, each of which ends with a zero byte."""
    return joined.tobytes().split(b"\0")[:-1]


def _is_drawable(coordinates: np.ndarray) -> np.ndarray:
    """Return a mask over all axes but the last, False where a coordinate is too far.

    NaN is too far.
    """
    return np.asarray((np.abs(coordinates) < _MAX_COORDINATE).all(-1))


def _read_number(meta: Mapping[str, Any], name: str) -> float:
    """Return a number of the metadata; 0 where it is absent or out of range."""
    value = float(meta.get(name, 0))
    if 0 <= value < 1e9:
        return value
    return 0.0


def _one_line(text: bytes) -> str:
    """Decode a text as one line of bounded length."""
    decoded = text[: 4 * _MAX_TEXT_LENGTH].decode(errors="replace")
    return " ".join(decoded.split())[:_MAX_TEXT_LENGTH]
