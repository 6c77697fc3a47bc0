"""`annotate`: boxes, labels, points, lines, masks and texts over the picture of a stream."""

from __future__ import annotations

import os
import sys
import threading
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview.api import checks
from splatview.api import session as publishing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypedDict, Unpack

    import torch

    from splatview.adapters import NamedTensors
    from splatview_ipc import Publisher, Stream

    class More(TypedDict, total=False):
        """What `annotate` takes beside its parameters."""

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
        motion: bool | None
        run: str | None
        by: str | None
        rate_hz: float | None
        work_ms: float | None
        skipped: int | None
        trouble: str | None

__all__ = ["annotate"]

_MOST_LAYOUTS = 64
_layouts: dict[tuple[tuple[str, ...], str], NamedTensors] = {}
_lock = threading.Lock()
"""One version of an overlay at a time: results may come from several threads."""


@publishing.public()
def annotate(name: str, *, boxes: Any = None, labels: Any = None, scores: Any = None, points: Any = None,
             masks: Any = None, version: Any = None, **more: Unpack[More]) -> None:
    """Draw boxes, labels, points, lines, masks and texts over the picture of a stream, and go on at once.

    The stream may be this process's own or another's. What is drawn stays until the next call with this name;
    `annotate(name)` takes it away. Coordinates are pixels of the picture: (0, 0) is its upper left corner, x goes
    right, y down, the middle of the first pixel is (0.5, 0.5). Numbers come as tensors on the CPU or a GPU, arrays of
    any library, or lists.

    name: the stream's, as `publish` was given it ("image" by default there).
    boxes: (N, 4), N at most 10,000, as `format` says: "xyxy" (x0, y0, x1, y1, the default), "xywh" (upper left corner,
        width, height, as COCO writes them), "cxcywh" (middle, width, height, as YOLO does). What is not finite is not
        drawn.
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
    motion: whether boxes may be moved between two results as they moved between the last two.
    by, rate_hz, work_ms, skipped: who found this, how often a second it does, how long it took in milliseconds, how
        many frames it passed over; shown beside the picture. trouble: what went wrong, for people.

    The call never waits for a viewer, nor for a GPU: tensors there stay there, and what their values are is not looked
    at. They and masks are kept, not copied, until the next call: do not write into them before. A handful of boxes
    costs some ten microseconds, whether or not a viewer looks. Raises TypeError or ValueError for what cannot be drawn.
    Faults of the surroundings never reach the caller, unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do
    nothing.
    """
    checks.stream_name(name)
    if publishing.disabled():
        return
    from splatview.adapters.overlay import OPTIONS, adapted
    from splatview_ipc.kinds import check_frame
    from splatview_ipc.shm.slot_layout import dtype_name

    if publishing.capturing():
        return
    if more and (unknown := [key for key in more if key not in OPTIONS]):
        raise TypeError(f"annotate has no {', '.join(map(repr, unknown))}; it has boxes, labels, scores, points, "
                        f"masks, version, {', '.join(OPTIONS)}")
    tensors, meta = adapted({"boxes": boxes, "labels": labels, "scores": scores, "points": points, "masks": masks,
                             **more})
    on = _computed_on(name, version, more.get("run"))
    meta["version"], meta["time_ns"] = on.version, on.time_ns
    check_frame("overlay", {k: (dtype_name(t), t.shape) for k, t in tensors.items()}, meta)
    if version is None and not any(v is not None for v in (boxes, labels, scores, points, masks)) and not any(
            v is not None for k, v in more.items() if k != "run"):
        _clear(name, more.get("run"), tensors, meta)
        return
    publisher = publishing.session().run()
    if publisher is not None:
        with _lock:
            _publish(publisher, _overlay(publisher, name, on.run), tensors, meta)


class _On(NamedTuple):
    """What something was computed on; 0: not known."""

    version: int
    time_ns: int
    run: str
    """"" for this process's own run, or any."""


def _computed_on(name: str, version: Any, run: Any) -> _On:
    """What the caller's `version` and `run` say. Raises TypeError, ValueError."""
    if run is not None:
        run = _checked_run(run)
    publisher = publishing.begun()
    own = publisher.streams.get(name) if publisher is not None else None
    own_run = publisher.run_id if publisher is not None else ""
    reading = sys.modules.get("splatview.api.frames")
    seen = reading.newest_seen(name) if reading is not None else None
    number, time_ns = version, 0
    if hasattr(version, "version") and hasattr(version, "time_ns"):  # a frame
        number, time_ns = version.version, int(version.time_ns)
        if run is None:
            run = getattr(version, "run", None) or (seen[2] if seen and seen[:2] == (number, time_ns) else None)
    if run is None:
        run = own_run if own is not None else seen[2] if seen is not None else ""
    if own is not None and run == own_run:
        if own.kind != "image":
            raise ValueError(f"{name!r} shows {own.kind}; only over pictures (streams of kind image) can be drawn")
        run = ""
        if version is None:
            number = own.version
    elif version is None:
        number, time_ns = seen[:2] if seen is not None and seen[2] == run else (0, 0)
    try:
        if isinstance(number, bool):
            raise TypeError
        number = index(number)
    except TypeError:
        raise TypeError(f"version is a {type(version).__name__}, not a number or a frame of splatview.frames") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"version is {number}; legal are 0 (not known) to {2**63 - 1}")
    return _On(number, time_ns, run)


def _checked_run(run: Any) -> str:
    if not isinstance(run, str):
        raise TypeError(f"run is a {type(run).__name__}, not a run's id, a str")
    if not 1 <= len(run) <= 64 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in run):
        raise ValueError(f"run is {run[:70]!r}, not a run's id: up to 64 letters, digits and '._-'; "
                         "`splatview status` lists them")
    return run


def _clear(name: str, run: str | None, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
    """Take away what is drawn over the streams of this name, in one run or in all. Where nothing is, none is made."""
    publisher = publishing.begun()
    if publisher is None:
        return
    meta |= {"version": 0, "time_ns": 0}
    with _lock:
        for stream in list(publisher.streams.values()):
            if stream.kind == "overlay" and stream.over[0] == name and (
                    run is None or (stream.over[1] or publisher.run_id) == run):
                _publish(publisher, stream, tensors, meta)


def _publish(publisher: Publisher, stream: Stream, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
    """The newest version of an overlay. Under the lock."""
    from splatview.adapters import NamedTensors
    from splatview.adapters.overlay import device_of, together

    info = stream.info
    device = device_of(tensors)
    if device is None and info is not None and info.device != "cpu":
        import torch

        device = torch.device(info.device)  # which viewers have open: to change it for one result would cost them
    if device is not None:
        tensors = together(tensors, device)
    key = tuple(tensors), str(device or "cpu")
    layout = _layouts.get(key)
    if layout is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        layout = _layouts[key] = NamedTensors("overlay", key[0], device=key[1])
    try:
        stream.describe(layout, copy=True)
    except Exception as e:
        publishing.fault(e)
        return
    stream.publish((tuple(tensors.values()), meta))


def _overlay(publisher: Publisher, name: str, run: str) -> Stream:
    """The overlay of a run's stream, made if need be; one whose run has ended serves the next. Raises ValueError."""
    over = name, run
    called = _called(name, 1)
    stream = publisher.streams.get(called)
    if stream is not None and stream.over == over:
        return stream
    overlays = [s for s in publisher.streams.values() if s.kind == "overlay"]
    stream = next((s for s in overlays if s.over == over), None)
    if stream is not None:
        return stream
    stream = next((s for s in overlays if s.over[0] == name and not _there(publisher, *s.over)), None)
    if stream is None:
        number = 1
        while called in publisher.streams:
            number += 1
            called = _called(name, number)
        stream = publisher.stream(called, "overlay")
    stream.over = over
    if stream.info is not None:
        publisher.announce()
    return stream


def _called(name: str, number: int) -> str:
    """What an overlay stream is called."""
    from splatview_ipc.control.limits import MAX_NAME

    end = "" if number == 1 else f" {number}"
    return f"{name} overlay"[: MAX_NAME - len(end)] + end


def _there(publisher: Publisher, name: str, run: str) -> bool:
    """Whether the run of this id, "" for any, still has something to draw over."""
    from splatview_ipc.control.run_folder import list_runs, runtime_folder

    if run in ("", publisher.run_id):
        return name in publisher.streams
    return any(folder.description.id == run for folder in list_runs(runtime_folder()))


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
