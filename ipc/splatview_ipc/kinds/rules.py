"""What a frame of each kind holds. Checked by whoever receives one, whatever the sender promised.

image      "image" (H, W), (H, W, C) or (C, H, W), C in 1, 3, 4; meta "layout": "HW" | "HWC" | "CHW", or
           "BGR": (H, W, C) with blue first, as OpenCV has it.
           uint8, or floating point in [0, 1] (values outside are allowed: HDR).
gaussians  "means" (N, 3), "quats" (N, 4) w x y z, "scales" (N, 3), "opacities" (N,), and a colour: "sh0" (N, 3)
           with "shN" (N, K-1, 3), or "rgb" (N, 3). OpenCV axes. Optional "background" (3,).
           meta "color": "sh" | "rgb" | "rgb_logit"; "activated": bool (False: scales are logarithms, opacities
           logits); "sh_degree": 0 to 4, the degree in use; "antialiased": bool; optional "step".
cameras    the cameras that a scene is trained with, world to camera in OpenCV axes, pixel centres at +0.5. Three
           streams, of which two may be missing; these say in `StreamInfo.over` to which one they belong:
           the cameras themselves: "viewmats" (N, 4, 4) and "Ks" (N, 3, 3), float32 or float64; "sizes" (N, 2) int32,
           width and height in pixels; where the photographs lie in files, "paths" uint8, N texts, UTF-8, each ended by
           a zero byte, empty where there is none. meta "photos": counts the sets of photographs that can be asked for
           (`splatview_ipc.control.messages.Photos`), 0: there are none.
           photographs, which come when somebody asks: "photos" (M, H, W, 3) uint8, RGB, those of the cameras from
           meta "camera" on, of the set with the number meta "photos"; meta "side": 0: one as it is; otherwise all are
           brought to that many pixels in width and height, to be seen small. H and W 0: there is none.
           the camera that is trained with at the moment: "current" (1,) int32.
memory     "samples" (N, 13), float64, at most 4096 rows, the oldest first: what the memory of a process was like, of
           what lies long ago several samples in one row; MEMORY_COLUMNS says what stands in each.
           meta "device": "cuda:0", or "cpu" as long as only the host's memory is known; "gpu": its name, "total": its
           bytes; "hz"; "snapshot": what the newest full snapshot is called (`ipc.taken`), "" before there is one;
           "snapshots": how many there were; "trouble": why there is less than there could be.
scalars    numbers over the course of a training. "rows" (R, 7), float64, at most SCALAR_ROWS: of each series its rows,
           the oldest first, SCALAR_COLUMNS says what stands in each; those of series s up to "ends" (S,) int32, at most
           SCALAR_SERIES; "names" uint8, S texts. Texts are UTF-8, each ended by a zero byte.
           meta "step": the newest step; "trouble": why there is less than there could be.
overlay    what is drawn over another stream's picture (`StreamInfo.over`), in its pixels: (0, 0) is its upper left
           corner, x goes right, y down, the middle of the first pixel is (0.5, 0.5). All tensors but "boxes" may be
           missing; N, M, L, T count boxes, groups of points, lines, notes. Texts are UTF-8, each ended by a zero byte.
           Floats are float32; what is not finite is not drawn, and what is may lie anywhere.
           "boxes" (N, 4) x0 y0 x1 y1; of each box "classes" (N,) int32, which decide the colour, -1: none; "scores"
           (N,), NaN: none; "colors" (N, 4) uint8 RGBA, alpha 0: by class; "labels" uint8, N texts, or, where these are
           missing since the classes lie on a GPU, "names" uint8, texts of the classes from 0 on; and where it has a
           mask "masks" (N, h, w) uint8, not 0: inside, or "runs" (R,) int32, the lengths of runs outside and inside by
           turns, the first outside, column by column as in COCO, those of box n up to "run_ends" (N,) int32.
           "points" (M, K, 3) x y confidence, over 0: seen; "skeleton" (E, 2) int32, which of the K are joined;
           "point_classes" (M,) int32. "lines" (V, 2), of line l up to "line_ends" (L,) int32; "line_classes" (L,)
           int32. "notes_at" (T, 2) with "notes" uint8, T texts.
           meta "version": the version of the other stream that it was computed on, "time_ns": when that was published,
           each 0: not known; "width", "height": the picture that it was computed on, if it is of another size (1, 1:
           coordinates go from 0 to 1), else 0; "mask_width", "mask_height": of runs; "motion": whether boxes may be
           moved between two results.
           Optional "by": who found it; "rate_hz", "work_ms", "skipped": how often, how long it took, of how many
           frames none were looked at; "trouble": why there is less than there could be, for people.

Of any kind, meta "trouble" is said over the picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Spec = tuple[str, tuple[int, ...]]  # dtype, shape

IMAGE_LAYOUTS = ("HW", "HWC", "CHW", "BGR")
IMAGE_CHANNELS = (1, 3, 4)
SH_REST = (0, 3, 8, 15, 24)
"""Coefficients beyond degree 0, for degrees 0, 1, 2, 3, 4."""
COLOR_SPACES = ("sh", "rgb", "rgb_logit")
MEMORY_ROWS = 4096
"""The most rows of a frame of kind memory."""
MEMORY_COLUMNS = ("time", "step", "allocated", "low", "peak", "active", "requested", "reserved", "inactive_split",
                  "host", "allocations", "retries", "ooms")
"""time: seconds since the epoch, of the row's last sample. step: the caller's, -1 before the first. Bytes, as PyTorch's
allocator counts them: allocated, at that time, the least since the row before (low) and the most (peak); and the most
since the row before of active, requested, reserved, inactive_split. host: the process's resident bytes, likewise.
Counts since the process began: allocations, retries (of cudaMalloc, after cached memory was given back), ooms."""
SCALAR_SERIES, SCALAR_ROWS, SCALAR_TEXT = 64, 1 << 16, 1 << 15
"""The most series of a frame of kind scalars, rows of all of them, and bytes of their names."""
SCALAR_COLUMNS = ("step", "time", "value", "low", "high", "count", "broken")
"""step, time (seconds since the epoch): of the row's last sample. value: the mean of its finite samples, and if there
are none the last one; low, high: their extremes, NaN if there are none. count: how many samples it stands for, broken:
how many of them are not finite."""
OVERLAY_MOST = {"boxes": 10_000, "points": 100_000, "vertices": 200_000, "notes": 1_000, "text": 1 << 20,
                "runs": 1 << 22, "mask_bytes": 1 << 28, "side": 1 << 15}
"""The most of each in one overlay: boxes, points in all, vertices of lines, notes, bytes of texts, runs, bytes of
masks, pixels along one side of a mask."""
CAMERAS_MOST = {"cameras": 10_000, "text": 1 << 22, "side": 1 << 15, "photo_bytes": 1 << 29}
"""The most of each in a frame of kind cameras: cameras, bytes of paths, pixels along a photograph, bytes of photographs
that come together."""
FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")


def check_frame(kind: str, tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    """Raise ValueError unless these tensors and metadata make a frame of this kind."""
    check = _CHECKS.get(kind)
    if check is None:
        raise ValueError(f"kind {kind!r} cannot be shown; legal are {', '.join(_CHECKS)}")
    check(tensors, meta)


def axes_of(layout: str) -> str:
    """The axes of an image's tensor in one of IMAGE_LAYOUTS."""
    return "HWC" if layout == "BGR" else layout


def _check_image(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if set(tensors) != {"image"}:
        raise ValueError(f"an image frame holds 'image' alone, not {sorted(tensors)}")
    dtype, shape = tensors["image"]
    layout = meta.get("layout")
    if layout not in IMAGE_LAYOUTS:
        raise ValueError(f"layout is {layout!r}, not one of {', '.join(IMAGE_LAYOUTS)}")
    if dtype not in ("uint8", "float16", "bfloat16", "float32"):
        raise ValueError(f"an image of {dtype}; legal are uint8, float16, bfloat16, float32")
    if len(shape) != len(layout) or min(shape) < 1:
        raise ValueError(f"an image of shape {shape} in layout {layout}")
    if layout != "HW" and shape[axes_of(layout).index("C")] not in IMAGE_CHANNELS:
        raise ValueError(f"an image of shape {shape} in layout {layout}: channels must be 1, 3 or 4")


def _check_gaussians(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    known = {"means", "quats", "scales", "opacities", "sh0", "shN", "rgb", "background"}
    if unknown := set(tensors) - known:
        raise ValueError(f"gaussians do not have {sorted(unknown)}")
    color = meta.get("color")
    if color not in COLOR_SPACES:
        raise ValueError(f"color is {color!r}, not one of {', '.join(COLOR_SPACES)}")
    needed = ["means", "quats", "scales", "opacities", "sh0" if color == "sh" else "rgb"]
    if missing := [name for name in needed if name not in tensors]:
        raise ValueError(f"gaussians need {', '.join(missing)}")
    n = tensors["means"][1][0] if tensors["means"][1] else -1
    wanted = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 3), "rgb": (n, 3),
              "background": (3,)}
    for name, (dtype, shape) in tensors.items():
        if dtype not in FLOAT_DTYPES:
            raise ValueError(f"{name} is {dtype}; legal are {', '.join(FLOAT_DTYPES)}")
        if name == "shN":
            if len(shape) != 3 or shape[0] != n or shape[1] not in SH_REST or shape[2] != 3:
                raise ValueError(f"shN has shape {shape}, not ({n}, {' | '.join(map(str, SH_REST))}, 3)")
        elif shape != wanted[name]:
            raise ValueError(f"{name} has shape {shape}, not {wanted[name]}")
    if not isinstance(meta.get("activated"), bool):
        raise ValueError("'activated' must be true or false")
    degree = meta.get("sh_degree", 0)
    if type(degree) is not int or not 0 <= degree < len(SH_REST):
        raise ValueError(f"sh_degree is {degree!r}, not 0, 1, 2, 3 or 4")


def _check_memory(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if set(tensors) != {"samples"}:
        raise ValueError(f"a memory frame holds 'samples' alone, not {sorted(tensors)}")
    dtype, shape = tensors["samples"]
    if dtype != "float64" or len(shape) != 2 or shape[1] != len(MEMORY_COLUMNS) or not 1 <= shape[0] <= MEMORY_ROWS:
        raise ValueError(f"samples are {dtype} of shape {shape}, not float64 of shape "
                         f"(1 to {MEMORY_ROWS}, {len(MEMORY_COLUMNS)})")
    for name, kind in (("device", str), ("gpu", str), ("snapshot", str), ("trouble", str), ("total", int),
                       ("snapshots", int)):
        if type(meta.get(name, kind())) is not kind:
            raise ValueError(f"{name!r} is {meta[name]!r}, not of type {kind.__name__}")


def _check_scalars(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if set(tensors) != {"rows", "ends", "names"}:
        raise ValueError(f"scalars are 'rows', 'ends' and 'names', not {sorted(tensors)}")
    width = len(SCALAR_COLUMNS)
    for name, wanted, most, tail in (("rows", "float64", SCALAR_ROWS, (width,)), ("ends", "int32", SCALAR_SERIES, ()),
                                     ("names", "uint8", SCALAR_TEXT, ())):
        dtype, shape = tensors[name]
        if dtype != wanted or len(shape) != 1 + len(tail) or shape[1:] != tail or not 1 <= shape[0] <= most:
            raise ValueError(f"{name} are {dtype} of shape {shape}, not {wanted} of shape "
                             f"({', '.join([f'1 to {most}', *map(str, tail)])})")
    if not isinstance(meta.get("trouble", ""), str):
        raise ValueError(f"'trouble' is {meta['trouble']!r}, not of type str")


_OVERLAY: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "boxes": ("float32", ("N", 4)), "classes": ("int32", ("N",)), "scores": ("float32", ("N",)),
    "colors": ("uint8", ("N", 4)), "labels": ("uint8", ("text",)), "masks": ("uint8", ("N", "h", "w")),
    "runs": ("int32", ("runs",)), "run_ends": ("int32", ("N",)), "points": ("float32", ("M", "K", 3)),
    "skeleton": ("int32", ("E", 2)), "point_classes": ("int32", ("M",)), "lines": ("float32", ("vertices", 2)),
    "line_ends": ("int32", ("L",)), "line_classes": ("int32", ("L",)), "notes_at": ("float32", ("T", 2)),
    "notes": ("uint8", ("text of notes",)), "names": ("uint8", ("text of names",)),
}
"""dtype and shape of an overlay's tensors; one letter means the same number wherever it stands."""


def _check_overlay(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
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
    for one, other in (("runs", "run_ends"), ("lines", "line_ends"), ("notes_at", "notes")):
        if (one in tensors) != (other in tensors):
            raise ValueError(f"an overlay has {one} and {other}, or neither")
    if "masks" in tensors and "runs" in tensors:
        raise ValueError("an overlay has masks or runs, not both")
    get, most = counts.get, OVERLAY_MOST
    for what, count, limit in (
            ("boxes", counts["N"], "boxes"), ("points", max(get("M", 0), 1) * get("K", 0), "points"),
            ("groups of points", get("M", 0), "points"), ("joints", get("E", 0), "points"),
            ("vertices", get("vertices", 0), "vertices"), ("lines", get("L", 0), "vertices"),
            ("notes", get("T", 0), "notes"), ("bytes of labels", get("text", 0), "text"),
            ("bytes of notes", get("text of notes", 0), "text"), ("bytes of names", get("text of names", 0), "text"),
            ("runs", get("runs", 0), "runs"), ("bytes of masks", counts["N"] * get("h", 0) * get("w", 0), "mask_bytes"),
            ("pixels along a mask", max(get("h", 0), get("w", 0)), "side")):
        if count > most[limit]:
            raise ValueError(f"an overlay of {count} {what}; at most {most[limit]}")
    side = most["side"]
    for name, kind, top in (("version", int, 2**63 - 1), ("time_ns", int, 2**63 - 1), ("width", int, side),
                            ("height", int, side), ("mask_width", int, side), ("mask_height", int, side),
                            ("motion", bool, 1)):
        value = meta.get(name, kind())
        if type(value) is not kind or not 0 <= value <= top:
            raise ValueError(f"{name!r} is {value!r}, not of type {kind.__name__} from 0 to {top}")
    if ("runs" in tensors) > (meta.get("mask_width", 0) > 0 and meta.get("mask_height", 0) > 0):
        raise ValueError("an overlay with runs says their 'mask_width' and 'mask_height'")
    for name in ("by", "trouble"):
        if not isinstance(meta.get(name, ""), str):
            raise ValueError(f"{name!r} is {meta[name]!r}, not of type str")
    for name in ("rate_hz", "work_ms", "skipped"):
        value = meta.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value < 2**63:
            raise ValueError(f"{name!r} is {value!r}, not a number from 0 on")


def _check_cameras(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    names, most = set(tensors), CAMERAS_MOST
    if names == {"photos"}:
        dtype, shape = tensors["photos"]
        if dtype != "uint8" or len(shape) != 4 or shape[3] != 3 or not 1 <= shape[0] <= most["cameras"] or (
                max(shape[1:3]) > most["side"] or shape[0] * shape[1] * shape[2] * 3 > most["photo_bytes"]):
            raise ValueError(f"photos are {dtype} of shape {shape}, not uint8 of shape (M, H, W, 3) with at most "
                             f"{most['photo_bytes']} bytes")
        for name, top in (("camera", most["cameras"] - 1), ("side", most["side"]), ("photos", 2**63 - 1)):
            if type(value := meta.get(name)) is not int or not 0 <= value <= top:
                raise ValueError(f"{name!r} is {value!r}, not a number from 0 to {top}")
        return
    if names == {"current"}:
        if tensors["current"] != ("int32", (1,)):
            raise ValueError(f"current is {tensors['current'][0]} of shape {tensors['current'][1]}, not int32 (1,)")
        return
    if not {"viewmats", "Ks", "sizes"} <= names <= {"viewmats", "Ks", "sizes", "paths"}:
        raise ValueError(f"cameras have viewmats, Ks, sizes and, if they like, paths, not {', '.join(sorted(names))}")
    n = tensors["viewmats"][1][0] if tensors["viewmats"][1] else -1
    if not 0 <= n <= most["cameras"]:
        raise ValueError(f"{n} cameras; at most {most['cameras']}")
    for name, wanted in (("viewmats", (n, 4, 4)), ("Ks", (n, 3, 3)), ("sizes", (n, 2))):
        dtype, shape = tensors[name]
        legal = ("int32",) if name == "sizes" else ("float32", "float64")
        if dtype not in legal or shape != wanted:
            raise ValueError(f"{name} is {dtype} of shape {shape}, not {' or '.join(legal)} of shape {wanted}")
    dtype, shape = tensors.get("paths", ("uint8", (0,)))
    if dtype != "uint8" or len(shape) != 1 or shape[0] > most["text"]:
        raise ValueError(f"paths are {dtype} of shape {shape}, not uint8 with at most {most['text']} bytes")
    if type(number := meta.get("photos", 0)) is not int or number < 0:
        raise ValueError(f"'photos' is {number!r}, not a number from 0 on")


_CHECKS: dict[str, Callable[[Mapping[str, Spec], Mapping[str, Any]], None]] = {
    "image": _check_image,
    "gaussians": _check_gaussians,
    "memory": _check_memory,
    "overlay": _check_overlay,
    "cameras": _check_cameras,
    "scalars": _check_scalars,
}
SHOWABLE = ("image", "gaussians")
"""The kinds of what `splatview.publish` takes so far."""
