"""Rules of what is drawn over another stream's picture (`StreamInfo.over`), in its pixels.

(0, 0) is the upper left corner, x goes right, y down, the middle of the first pixel is (0.5, 0.5). All tensors but
"boxes" may be missing; N, M, L, T count boxes, groups of points, lines, notes. Texts are UTF-8, each ended by a zero
byte. Floats are float32; values that are not finite are not drawn.
"boxes" (N, 4) x0 y0 x1 y1; of each box "classes" (N,) int32, which decide the colour, -1: none; "scores" (N,), NaN:
none; "colors" (N, 4) uint8 RGBA, alpha 0: by class; "labels" uint8, N texts, or, where the classes are on a GPU,
"names" uint8, texts of the classes from 0 on; "masks" (N, h, w) uint8 over the whole picture, not 0: inside.
"points" (M, K, 3) x y confidence, over 0: seen; "skeleton" (E, 2) int32, which of the K are joined; "point_classes"
(M,) int32. "lines" (V, 2), of line l up to "line_ends" (L,) int32; "line_classes" (L,) int32. "notes_at" (T, 2) with
"notes" uint8, T texts.
meta "version": the version of the other stream that it was computed on, "time_ns": when that was published, each 0: not
known; "width", "height": the picture that it was computed on, if it is of another size (1, 1: coordinates go from 0 to
1), else 0; "motion": boxes may be moved between two results.
Optional "by": the program that found it; "rate_hz", "work_ms", "skipped": its rate, the time a result took, the frames
that it left out; "trouble": why there is less than there could be, shown over the picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.kinds import Spec

OVERLAY_MOST = {"boxes": 10_000, "points": 100_000, "vertices": 200_000, "notes": 1_000, "text": 1 << 20,
                "mask_bytes": 1 << 28, "side": 1 << 15}
"""The most of each in one overlay: boxes, points in all, vertices of lines, notes, bytes of texts, bytes of masks,
pixels along one side of a mask."""

_OVERLAY: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "boxes": ("float32", ("N", 4)), "classes": ("int32", ("N",)), "scores": ("float32", ("N",)),
    "colors": ("uint8", ("N", 4)), "labels": ("uint8", ("text",)), "masks": ("uint8", ("N", "h", "w")),
    "points": ("float32", ("M", "K", 3)),
    "skeleton": ("int32", ("E", 2)), "point_classes": ("int32", ("M",)), "lines": ("float32", ("vertices", 2)),
    "line_ends": ("int32", ("L",)), "line_classes": ("int32", ("L",)), "notes_at": ("float32", ("T", 2)),
    "notes": ("uint8", ("text of notes",)), "names": ("uint8", ("text of names",)),
}
"""dtype and shape of an overlay's tensors; one letter means the same number wherever it stands."""


def check(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if unknown := set(tensors) - set(_OVERLAY):
        raise ValueError(f"an overlay does not have {sorted(unknown)}")
    if "boxes" not in tensors:
        raise ValueError("an overlay needs 'boxes', (0, 4) if there are none")
    counts: dict[str, int] = {}
    for name, (dtype, shape) in tensors.items():
        wanted, pattern = _OVERLAY[name]
        fits = dtype == wanted and len(shape) == len(pattern) and all(
            counts.setdefault(mark, extent) == extent if isinstance(mark, str) else mark == extent
            for mark, extent in zip(pattern, shape, strict=True))
        if not fits:
            raise ValueError(f"{name} is {dtype} of shape {shape}, not {wanted} of shape "
                             f"({', '.join(str(counts.get(str(m), m)) for m in pattern)})")
    for one, other in (("lines", "line_ends"), ("notes_at", "notes")):
        if (one in tensors) != (other in tensors):
            raise ValueError(f"an overlay has {one} and {other}, or neither")
    get, most = counts.get, OVERLAY_MOST
    for what, count, limit in (
            ("boxes", counts["N"], "boxes"), ("points", max(get("M", 0), 1) * get("K", 0), "points"),
            ("groups of points", get("M", 0), "points"), ("joints", get("E", 0), "points"),
            ("vertices", get("vertices", 0), "vertices"), ("lines", get("L", 0), "vertices"),
            ("notes", get("T", 0), "notes"), ("bytes of labels", get("text", 0), "text"),
            ("bytes of notes", get("text of notes", 0), "text"), ("bytes of names", get("text of names", 0), "text"),
            ("bytes of masks", counts["N"] * get("h", 0) * get("w", 0), "mask_bytes"),
            ("pixels along a mask", max(get("h", 0), get("w", 0)), "side")):
        if count > most[limit]:
            raise ValueError(f"an overlay of {count} {what}; at most {most[limit]}")
    side = most["side"]
    for name, kind, top in (("version", int, 2**63 - 1), ("time_ns", int, 2**63 - 1), ("width", int, side),
                            ("height", int, side), ("motion", bool, 1)):
        value = meta.get(name, kind())
        if type(value) is not kind or not 0 <= value <= top:
            raise ValueError(f"{name!r} is {value!r}, not of type {kind.__name__} from 0 to {top}")
    for name in ("by", "trouble"):
        if not isinstance(meta.get(name, ""), str):
            raise ValueError(f"{name!r} is {meta[name]!r}, not of type str")
    for name in ("rate_hz", "work_ms", "skipped"):
        value = meta.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value < 2**63:
            raise ValueError(f"{name!r} is {value!r}, not a number from 0 on")
