"""Rules for the frames of overlays, drawn over another stream's picture.

`StreamInfo.over` names that stream. Coordinates are pixels of its picture: (0, 0) is
the upper left corner, x goes right, y down, and the middle of the first pixel is (0.5,
0.5). All tensors but "boxes" may be missing. Texts are UTF-8, each ended by a zero byte.
Floats are float32; values that are not finite are not drawn.

Tensors of N boxes:

boxes          (N, 4) x0 y0 x1 y1
corners        (N, 4, 2), in order around the box, for rotated boxes; "boxes" then are
               the upright boxes around them
classes        (N,) int32; the class decides the colour; -1: none
scores         (N,); NaN: none
colors         (N, 4) uint8, RGBA; alpha 0: the colour of the class
labels         uint8, N texts
names          uint8, instead of "labels" if the classes are on a GPU: texts of the
               classes, from 0 on
masks          (N, h, w) uint8 over the whole picture; not 0: inside

Tensors of M groups of points, L lines and T notes:

points         (M, K, 3) x y confidence; visible if the confidence is over 0
skeleton       (E, 2) int32, which of the K points of a group are joined
point_classes  (M,) int32
lines          (V, 2), the vertices of all lines
line_ends      (L,) int32, for each line the index after its last vertex
line_classes   (L,) int32
notes_at       (T, 2)
notes          uint8, T texts

Metadata:

version        the version of the other stream that it was computed on; 0: not known
time_ns        the time at which that version was published; 0: not known
width, height  the size of the picture that it was computed on, if that was another one
               (1, 1: coordinates go from 0 to 1), else 0
by             optional: the program that computed it
rate_hz        optional: that program's rate
work_ms        optional: the time that a result took
skipped        optional: the number of frames that the program left out
trouble        optional: why it finds less than it could, written over the picture
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    INT64_MAX,
    Meta,
    MetaRules,
    Rules,
    Tensors,
    check_extent,
    check_meta,
    check_tensors,
)

OVERLAY_LIMITS = {
    "boxes": 10_000,
    "points": 100_000,
    "vertices": 200_000,
    "notes": 1_000,
    "text": 1 << 20,
    "mask_bytes": 1 << 28,
    "side": 1 << 15,
}
"""Limits of one overlay: boxes, points in all, vertices of lines, notes, bytes of
texts, bytes of masks, pixels along one side of a mask."""
_FLOATS = ("float32",)
_INTEGERS = ("int32",)
_BYTES = ("uint8",)
_TENSOR_RULES: Rules = {
    "boxes": (_FLOATS, ("N", 4)),
    "corners": (_FLOATS, ("N", 4, 2)),
    "classes": (_INTEGERS, ("N",)),
    "scores": (_FLOATS, ("N",)),
    "colors": (_BYTES, ("N", 4)),
    "labels": (_BYTES, ("text of labels",)),
    "masks": (_BYTES, ("N", "h", "w")),
    "points": (_FLOATS, ("M", "K", 3)),
    "skeleton": (_INTEGERS, ("E", 2)),
    "point_classes": (_INTEGERS, ("M",)),
    "lines": (_FLOATS, ("V", 2)),
    "line_ends": (_INTEGERS, ("L",)),
    "line_classes": (_INTEGERS, ("L",)),
    "notes_at": (_FLOATS, ("T", 2)),
    "notes": (_BYTES, ("text of notes",)),
    "names": (_BYTES, ("text of names",)),
}
_META_RULES: MetaRules = {
    "version": (int, INT64_MAX),
    "time_ns": (int, INT64_MAX),
    "width": (int, OVERLAY_LIMITS["side"]),
    "height": (int, OVERLAY_LIMITS["side"]),
    "by": (str, 0),
    "trouble": (str, 0),
    "rate_hz": (float, INT64_MAX),
    "work_ms": (float, INT64_MAX),
    "skipped": (float, INT64_MAX),
}
_PAIRS = (("lines", "line_ends"), ("notes_at", "notes"))
"""Tensors of which one needs the other."""


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make an overlay."""
    extents = check_tensors("an overlay", tensors, _TENSOR_RULES, ("boxes",))
    for first, second in _PAIRS:
        if (first in tensors) != (second in tensors):
            raise ValueError(f"an overlay has {first} and {second}, or neither")
    _check_extents(extents)
    check_meta(meta, _META_RULES)


def _check_extents(extents: dict[str, int]) -> None:
    """Raise ValueError for an overlay with more of anything than its limit."""
    boxes, groups, points, mask_height, mask_width = (
        extents.get(symbol, 0) for symbol in "NMKhw"
    )
    checks = (
        ("boxes", boxes, "boxes"),
        ("points", max(groups, 1) * points, "points"),
        ("groups of points", groups, "points"),
        ("joints", extents.get("E", 0), "points"),
        ("vertices", extents.get("V", 0), "vertices"),
        ("lines", extents.get("L", 0), "vertices"),
        ("notes", extents.get("T", 0), "notes"),
        ("bytes of labels", extents.get("text of labels", 0), "text"),
        ("bytes of notes", extents.get("text of notes", 0), "text"),
        ("bytes of names", extents.get("text of names", 0), "text"),
        ("bytes of masks", boxes * mask_height * mask_width, "mask_bytes"),
        ("pixels along a mask", max(mask_height, mask_width), "side"),
    )
    for name, count, limit in checks:
        check_extent(name, count, OVERLAY_LIMITS[limit])
