"""`annotate`: boxes, labels, points, lines, masks and texts over the picture of a stream."""

from __future__ import annotations

import difflib
import itertools
import logging
import re
import sys
from typing import TYPE_CHECKING, Any, TypedDict

from splatview.adapters import NamedTensors, checks
from splatview.api.session import begun, capturing, disabled, public, session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream


_log = logging.getLogger("splatview")
_MAX_HINTED = 256
_hinted: set[str] = set()
"""Streams of which the log has that their boxes look like fractions."""
_PARAMETERS = "boxes", "labels", "scores", "points", "masks", "version"


class More(TypedDict, total=False):
    """Keywords of `annotate` beside its parameters."""

    classes: Any
    names: Sequence[str] | Mapping[int, str] | None
    colors: Any
    point_classes: Any
    skeleton: Any
    lines: Any
    line_classes: Any
    notes: str | Sequence[tuple[float, float, str]] | None
    size: tuple[int, int] | None
    format: str | None
    order: str | None
    run: str | None
    by: str | None
    rate_hz: float | None
    work_ms: float | None
    skipped: int | None
    trouble: str | None


@public()
def annotate(
    name: str,
    *,
    boxes: Any = None,
    labels: Any = None,
    scores: Any = None,
    points: Any = None,
    masks: Any = None,
    version: Any = None,
    **more: Unpack[More],
) -> None:
    """Draw boxes, labels, points, lines, masks and texts over the picture of a stream, and go on at once.

    The stream may be this process's own or another's. What is drawn stays until the next call with this name;
    `annotate(name)` takes it away. Coordinates are pixels of the picture: (0, 0) is its upper left corner, x goes
    right, y down, the middle of the first pixel is (0.5, 0.5). Numbers come as tensors on the CPU or a GPU, arrays of
    any library, or lists.

    name: the stream's, as `publish` was given it ("image" by default there).
    boxes: (N, 4), N at most 10,000, as `format` says: "xyxy" (x0, y0, x1, y1, the default), "xywh" (upper left corner,
        width, height, as COCO writes them), "cxcywh" (middle, width, height, as YOLO does). What is not finite is not
        drawn. Turned boxes are (N, 4, 2), their corners in order (as "xyxyxyxy" also (N, 8)), or "xywhr", (N, 5): middle,
        width, height, and an angle in radians, from x to y. Or a whole result of Ultralytics (`model(picture)[0]`) or
        of supervision (`sv.Detections`, `sv.KeyPoints`): its boxes, scores, classes, names, masks, points.
    order: what a detector returns can be given whole as `boxes`, with the names of its parts in their order:
        `annotate("camera", boxes=detect(picture), order="boxes,scores,classes")`.
    labels: of each box, a text of at most 1024 characters, or an integer, its class; one text for all.
    scores: (N,), shown behind the labels; NaN: none.
    classes: (N,) integers, which decide the colours; -1: none. Without them boxes with the same label have the same.
    names: what classes are called, a list or a mapping from numbers. Without them their numbers are shown.
    colors: one for all boxes, (N, 3|4), or a mapping from classes or labels; integers from 0 to 255, floating point
        from 0 to 1, or "#rrggbb".
    points: (K, 2|3) or (M, K, 2|3), M groups of K: x, y, and a confidence or visibility, over 0: seen. In all at most
        100,000. `skeleton`: which are joined, pairs of numbers from 0 to K-1, or "coco" for its 17 points of a person.
        `point_classes`: (M,), as classes; those of the boxes if there are as many.
    lines: polylines, a list of (V, 2), or one (V, 2) or (L, V, 2). `line_classes`: (L,), as classes.
    masks: of each box, (N, h, w), over the whole picture: bool, uint8 (not 0: inside) or floating point (over 0.5:
        inside); or COCO's run lengths, a list of {"size": [h, w], "counts": list, bytes or str}; or lists of runs,
        outside and inside by turns, column by column, with `size`. Without boxes the masks' own are drawn.
    notes: a text for the upper left corner, or a list of (x, y, text).
    size: (width, height) of the picture that all this was computed on, if that is not the size of the stream's. With
        (1, 1) coordinates go from 0 to 1.
    version: the version of the stream that this was computed on: a number, or a frame of `splatview.frames`. By
        default the newest that this process published, or else the newest that it was handed.
    run: the id of the run that publishes the stream, where several have one of this name.
    by, rate_hz, work_ms, skipped: who found this, how often a second it does, how long it took in milliseconds, how
        many frames it passed over; shown beside the picture. trouble: what went wrong, for people.

    The call never waits for a viewer, nor for a GPU (but for the classes of a whole picture in a result there, which
    are texts): tensors there stay there, and their values are not looked at. They
    and masks are kept, not copied, until the next call: do not write into them before. A handful of boxes costs some
    tens of microseconds, whether or not a viewer looks. Raises TypeError or ValueError for what cannot be drawn.
    Faults of the surroundings never reach the caller, unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do
    nothing.
    """
    checks.stream_name(name)
    if disabled():
        return
    from splatview.adapters.overlay import are_fractions, on_one_device, overlay_tensors
    from splatview_ipc.kinds import check_frame
    from splatview_ipc.shm.slot_layout import dtype_name

    if capturing():
        return
    unknown = [key for key in more if key not in More.__annotations__]
    if unknown:
        options = [*_PARAMETERS, *More.__annotations__]
        meant = difflib.get_close_matches(unknown[0], options, n=1)
        question = f" (did you mean {meant[0]!r}?)" if meant else ""
        raise TypeError(
            f"annotate has no {', '.join(map(repr, unknown))}{question}; it has {', '.join(options)}"
        )
    run = more.get("run")
    if run is not None and not (
        isinstance(run, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", run)
    ):
        raise ValueError(
            f"run is {str(run)[:70]!r}, not a run's id: up to 64 letters, digits and '._-'; "
            "`splatview status` lists them"
        )
    given = {
        "boxes": boxes,
        "labels": labels,
        "scores": scores,
        "points": points,
        "masks": masks,
        **more,
    }
    tensors, meta = overlay_tensors(given)
    if name not in _hinted and are_fractions(tensors, meta):
        _hint_fractions(name)
    drawn = version is not None or any(
        value is not None for key, value in given.items() if key != "run"
    )
    meta["version"], meta["time_ns"], over_run = (
        _computed_on(name, version, run) if drawn else (0, 0, "")
    )
    check_frame(
        "overlay",
        {k: (dtype_name(t), tuple(t.shape)) for k, t in tensors.items()},
        meta,
    )
    current = session()
    # Results may come from several threads, and one may close the run.
    with current.lock:
        publisher = current.run() if drawn else begun()
        if publisher is None:
            return
        if drawn:
            overlays = [_overlay(publisher, name, over_run)]
        else:  # take away what is drawn
            overlays = [
                s
                for s in publisher.streams.values()
                if s.kind == "overlay"
                and s.over[0] == name
                and run in (None, s.over[1] or publisher.run_id)
            ]
        for stream in overlays:
            # A GPU that viewers have opened stays: to change it for one result would cost them.
            placed, device = on_one_device(
                tensors, stream.info.device if stream.info is not None else "cpu"
            )
            stream.describe(
                NamedTensors("overlay", tuple(placed), device=device), copy=True
            )
            stream.publish((tuple(placed.values()), meta))


def _hint_fractions(name: str) -> None:
    """Log, once for a stream, that its boxes lie within one pixel."""
    if len(_hinted) >= _MAX_HINTED:
        return
    _hinted.add(name)
    _log.warning(
        "splatview: annotate(%r): all boxes lie within 0 to 1, which is one pixel; if they are "
        "fractions of the picture, give size=(1, 1)",
        name,
    )


def _computed_on(name: str, version: Any, run: str | None) -> tuple[int, int, str]:
    """Return the version, its time in ns (each 0: not known), and the run, "" for this process's own, or any."""
    publisher = begun()
    own = publisher.streams.get(name) if publisher is not None else None
    own_run = publisher.run_id if publisher is not None and own is not None else ""
    reading = sys.modules.get("splatview.api.frames")
    seen = reading.seen.get(name, (0, 0, "")) if reading is not None else (0, 0, "")
    number = version
    time_ns = 0
    if hasattr(version, "version") and hasattr(version, "time_ns"):  # a frame
        number = version.version
        time_ns = int(version.time_ns)
        run = (
            run
            or getattr(version, "run", None)
            or (seen[2] if seen[:2] == (number, time_ns) else None)
        )
    over_run = str(run or own_run or seen[2])
    if own is not None and over_run == own_run:
        if own.kind != "image":
            raise ValueError(
                f"{name!r} shows {own.kind}; only over pictures (streams of kind image) can be drawn"
            )
        over_run = ""
        number = own.version if version is None else number
    elif version is None:
        number, time_ns = seen[:2] if seen[2] == over_run else (0, 0)
    if not hasattr(number, "__index__"):
        raise TypeError(
            f"version is a {type(version).__name__}, not a number or a frame of splatview.frames"
        )
    return checks.integer("version", number, 0, 2**63 - 1), time_ns, over_run


def _overlay(publisher: Publisher, name: str, run: str) -> Stream:
    """Return the overlay of a run's stream, a new one if there is none; one whose run has ended serves the next."""
    from splatview_ipc.control.limits import MAX_NAME
    from splatview_ipc.control.run_folder import list_runs, runtime_folder

    overlays = [
        s
        for s in publisher.streams.values()
        if s.kind == "overlay" and s.over[0] == name
    ]
    stream = next((s for s in overlays if s.over[1] == run), None)
    if stream is not None:
        return stream
    alive = {folder.description.id for folder in list_runs(runtime_folder())}
    alive |= {""} if name in publisher.streams else set()
    stream = next((s for s in overlays if s.over[1] not in alive), None)
    if stream is None:
        ends = itertools.chain(
            [" overlay"], (f" overlay {number}" for number in itertools.count(2))
        )
        names = (name[: MAX_NAME - len(end)] + end for end in ends)
        stream = publisher.stream(
            next(n for n in names if n not in publisher.streams), "overlay"
        )
    stream.over = name, run
    if stream.info is not None:
        publisher.wake()
    return stream
