"""Rules of what is drawn over another stream's picture (`StreamInfo.over`), in its pixels.

(0, 0) is the upper left corner, x goes right, y down, the middle of the first pixel is (0.5, 0.5). All tensors but
"boxes" may be missing; N, M, L, T count boxes, groups of points, lines, notes. Texts are UTF-8, each ended by a zero
byte. Floats are float32; values that are not finite are not drawn.
"boxes" (N, 4) x0 y0 x1 y1; of each box "corners" (N, 4, 2), in order, where boxes are turned and "boxes" are around
them; "classes" (N,) int32, which decide the colour, -1: none; "scores" (N,), NaN:
none; "colors" (N, 4) uint8 RGBA, alpha 0: by class; "labels" uint8, N texts, or, where the classes are on a GPU,
"names" uint8, texts of the classes from 0 on; "masks" (N, h, w) uint8 over the whole picture, not 0: inside.
"points" (M, K, 3) x y confidence, over 0: seen; "skeleton" (E, 2) int32, which of the K are joined; "point_classes"
(M,) int32. "lines" (V, 2), of line l up to "line_ends" (L,) int32; "line_classes" (L,) int32. "notes_at" (T, 2) with
"notes" uint8, T texts.
meta "version": the version of the other stream that it was computed on, "time_ns": when that was published, each 0: not
known; "width", "height": the picture that it was computed on, if it is of another size (1, 1: coordinates go from 0 to
1), else 0.
Optional "by": the program that found it; "rate_hz", "work_ms", "skipped": its rate, the time a result took, the frames
that it left out; "trouble": why there is less than there could be, shown over the picture.
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    INT64_MAX,
    Meta,
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
"""The most of each in one overlay: boxes, points in all, vertices of lines, notes, bytes of texts, bytes of masks,
pixels along one side of a mask."""
_REAL = ("float32",)
_WHOLE = ("int32",)
_BYTES = ("uint8",)
_TENSORS: Rules = {
    "boxes": (_REAL, ("N", 4)),
    "corners": (_REAL, ("N", 4, 2)),
    "classes": (_WHOLE, ("N",)),
    "scores": (_REAL, ("N",)),
    "colors": (_BYTES, ("N", 4)),
    "labels": (_BYTES, ("text of labels",)),
    "masks": (_BYTES, ("N", "h", "w")),
    "points": (_REAL, ("M", "K", 3)),
    "skeleton": (_WHOLE, ("E", 2)),
    "point_classes": (_WHOLE, ("M",)),
    "lines": (_REAL, ("V", 2)),
    "line_ends": (_WHOLE, ("L",)),
    "line_classes": (_WHOLE, ("L",)),
    "notes_at": (_REAL, ("T", 2)),
    "notes": (_BYTES, ("text of notes",)),
    "names": (_BYTES, ("text of names",)),
}


def check(tensors: Tensors, meta: Meta) -> None:
    found = check_tensors("an overlay", tensors, _TENSORS, ("boxes",))
    for one, other in (("lines", "line_ends"), ("notes_at", "notes")):
        if (one in tensors) != (other in tensors):
            raise ValueError(f"an overlay has {one} and {other}, or neither")
    n, m, k, h, w = (found.get(mark, 0) for mark in "NMKhw")
    for what, count, limit in (
        ("boxes", n, "boxes"),
        ("points", max(m, 1) * k, "points"),
        ("groups of points", m, "points"),
        ("joints", found.get("E", 0), "points"),
        ("vertices", found.get("V", 0), "vertices"),
        ("lines", found.get("L", 0), "vertices"),
        ("notes", found.get("T", 0), "notes"),
        ("bytes of labels", found.get("text of labels", 0), "text"),
        ("bytes of notes", found.get("text of notes", 0), "text"),
        ("bytes of names", found.get("text of names", 0), "text"),
        ("bytes of masks", n * h * w, "mask_bytes"),
        ("pixels along a mask", max(h, w), "side"),
    ):
        check_extent(what, count, OVERLAY_LIMITS[limit])
    side = OVERLAY_LIMITS["side"]
    check_meta(
        meta,
        {
            "version": (int, INT64_MAX),
            "time_ns": (int, INT64_MAX),
            "width": (int, side),
            "height": (int, side),
            "by": (str, 0),
            "trouble": (str, 0),
            "rate_hz": (float, INT64_MAX),
            "work_ms": (float, INT64_MAX),
            "skipped": (float, INT64_MAX),
        },
    )
