"""`annotate`: boxes, labels, points, lines, masks and texts over a stream's picture."""

from __future__ import annotations

import difflib
import logging
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from splatview.adapters import NamedTensors, checks
from splatview.api.session import (
    capturing,
    disabled,
    public,
    session,
    started_publisher,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream


_log = logging.getLogger("splatview")
_MAX_HINTED = 256
"""Number of streams after which no more hints are logged."""
_hinted: set[str] = set()
"""Names of streams of which it was logged that their boxes seem to be fractions."""
_PARAMETERS = "boxes", "labels", "scores", "points", "masks", "version"
"""Parameters of `annotate` that are not in `OverlayOptions`."""
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""The id of a run."""


class OverlayOptions(TypedDict, total=False):
    """The rarer keywords of `annotate`, described there."""

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


class AnnotatedVersion(NamedTuple):
    """The version of a picture that an overlay was computed on; 0 if it is not known."""

    version: int = 0
    time_ns: int = 0
    """Time of its publication, in ns since the epoch; 0 if it is not known."""
    run: str = ""
    """Id of the run that publishes it; "" for this process's own run, or any run."""


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
    **more: Unpack[OverlayOptions],
) -> None:
    """Draw boxes, labels, points, lines, masks and texts over the picture of a stream.

    The stream may be this process's own or another's. What is drawn stays until the next
    call with this name; `annotate(name)` removes it. Coordinates are pixels of the
    picture: (0, 0) is its upper left corner, x goes right, y down, the middle of the
    first pixel is (0.5, 0.5). Numbers come as tensors on the CPU or a GPU, arrays of any
    library, or lists.

    The call never waits for a viewer. Tensors on a GPU stay there and are not waited
    for; only the class names of a whole classified picture are read. Do not write into
    tensors on a GPU, nor into masks, before the next call: they are kept and not copied.
    A handful of boxes costs some tens of microseconds, whether or not a viewer is
    attached. SPLATVIEW_DISABLE=1 makes the call do nothing.

    Args:
        name: the stream's, as `publish` was given it ("image" by default there).
        boxes: (N, 4), N at most 10,000, as `format` says: "xyxy" (x0, y0, x1, y1, the
            default), "xywh" (upper left corner, width, height, as COCO writes them),
            "cxcywh" (middle, width, height, as YOLO does). Numbers that are not finite
            are not drawn. Rotated boxes are (N, 4, 2), their corners in order (as
            "xyxyxyxy" also (N, 8)), or "xywhr", (N, 5): middle, width, height, and an
            angle in radians, from x to y. Or a whole result of Ultralytics
            (`model(picture)[0]`) or of supervision (`sv.Detections`, `sv.KeyPoints`):
            its boxes, scores, classes, names, masks, points.
        labels: of each box, a text of at most 1024 characters, or an integer, its class;
            one text for all.
        scores: (N,), shown after the labels; NaN shows none.
        points: (K, 2|3) or (M, K, 2|3), M groups of K: x, y, and a confidence or
            visibility. Points at which that is over 0 are drawn. At most 100,000 in all.
        masks: of each box, (N, h, w), over the whole picture: bool, uint8 (not 0:
            inside) or floating point (over 0.5: inside); or COCO's run lengths, a list
            of {"size": [h, w], "counts": list, bytes or str}; or lists of runs, outside
            and inside by turns, column by column, with `size`. Without boxes the masks'
            own are drawn.
        version: the version of the stream that this was computed on: a number, or a
            frame of `splatview.frames`. By default the newest that this process
            published, or else the newest that it was handed.
        classes: (N,) integers that decide the colours, -1 for no class. Without them
            boxes with the same label have the same colour.
        names: names of the classes, a list or a mapping from numbers. Without them the
            numbers of classes are shown.
        colors: one for all boxes, (N, 3|4), or a mapping from classes or labels;
            integers from 0 to 255, floating point from 0 to 1, or "#rrggbb".
        skeleton: pairs of numbers of points, from 0 to K-1, that are joined by a line;
            "coco" for the 17 points of a person.
        point_classes: (M,), as `classes`; by default the boxes' if there are M boxes.
        lines: polylines, a list of (V, 2), or one (V, 2) or (L, V, 2).
        line_classes: (L,), as `classes`.
        notes: a text for the upper left corner, or a list of (x, y, text).
        size: (width, height) of the picture that all this was computed on, if that is
            not the size of the stream's. With (1, 1) coordinates go from 0 to 1.
        format: the format of the boxes; see `boxes`.
        order: a detector's result can be given whole as `boxes`, with the names of its
            parts in their order:
            `annotate("camera", boxes=detect(picture), order="boxes,scores,classes")`.
        run: the id of the run that publishes the stream, where several have one of this
            name.
        by: name of the program that computed the overlay, shown beside the picture.
        rate_hz: overlays that it computes in a second.
        work_ms: milliseconds that it took for this one.
        skipped: number of frames that it has left out.
        trouble: text of an error, shown to users.

    Raises:
        TypeError: an argument has another type, or a keyword is unknown.
        ValueError: an argument cannot be drawn.

    Faults of the surroundings never reach the caller, unless SPLATVIEW_STRICT=1.
    """
    checks.stream_name(name)
    if disabled():
        return
    from splatview.adapters.overlay import are_fractions, overlay_tensors
    from splatview_ipc.control.dtypes import dtype_name
    from splatview_ipc.kinds import check_frame

    if capturing():
        return
    _check_keywords(more)
    run = _checked_run(more.get("run"))
    arguments = {
        "boxes": boxes,
        "labels": labels,
        "scores": scores,
        "points": points,
        "masks": masks,
        **more,
    }
    tensors, meta = overlay_tensors(arguments)
    if name not in _hinted and are_fractions(tensors, meta):
        _hint_fractions(name)
    used = {key for key, value in arguments.items() if value is not None}
    # `annotate(name)` and `annotate(name, run=...)` remove what was drawn.
    is_drawn = version is not None or bool(used - {"run"})
    annotated = AnnotatedVersion()
    if is_drawn:
        annotated = _resolve_version(name, version, run)
    meta["version"] = annotated.version
    meta["time_ns"] = annotated.time_ns
    shapes = {key: (dtype_name(t), tuple(t.shape)) for key, t in tensors.items()}
    check_frame("overlay", shapes, meta)
    current = session()
    # Several threads may call, and one of them may close the run.
    with current.lock:
        # Removing an overlay is no reason to start a run.
        publisher = current.run() if is_drawn else started_publisher()
        if publisher is None:
            return
        if is_drawn:
            overlays = [_find_or_make_overlay(publisher, name, annotated.run)]
        else:
            overlays = _existing_overlays(publisher, name, run)
        for stream in overlays:
            _publish_overlay(stream, tensors, meta)


def _publish_overlay(stream: Stream, tensors: dict[str, Any], meta: Any) -> None:
    """Publish tensors as the newest version of an overlay."""
    from splatview.adapters.overlay import on_one_device

    # Overlays stay on the GPU whose memory viewers have opened already: a change of the
    # GPU makes them open other memory.
    previous_device = "cpu" if stream.info is None else stream.info.device
    moved_tensors, device = on_one_device(tensors, previous_device)
    layout = NamedTensors("overlay", tuple(moved_tensors), device=device)
    stream.describe(layout, copy=True)
    stream.publish((tuple(moved_tensors.values()), meta))


def _check_keywords(more: Mapping[str, Any]) -> None:
    """Raise TypeError for keywords that `annotate` does not have."""
    unknown = [key for key in more if key not in OverlayOptions.__annotations__]
    if not unknown:
        return
    options = [*_PARAMETERS, *OverlayOptions.__annotations__]
    similar = difflib.get_close_matches(unknown[0], options, n=1)
    question = f" (did you mean {similar[0]!r}?)" if similar else ""
    raise TypeError(
        f"annotate has no {', '.join(map(repr, unknown))}{question}; it has "
        f"{', '.join(options)}"
    )


def _checked_run(run: Any) -> str | None:
    """Return the id of a run, or None. Raises ValueError for what cannot be one."""
    if run is None:
        return None
    if not isinstance(run, str) or not _RUN_ID.fullmatch(run):
        raise ValueError(
            f"run is {str(run)[:70]!r}, not a run's id: up to 64 letters, digits and "
            "'._-'; `splatview status` lists them"
        )
    return run


def _hint_fractions(name: str) -> None:
    """Log, once for each stream, that its boxes all lie within one pixel."""
    if len(_hinted) >= _MAX_HINTED:
        return
    _hinted.add(name)
    _log.warning(
        "splatview: annotate(%r): all boxes lie within 0 to 1, which is one pixel; if "
        "they are fractions of the picture, give size=(1, 1)",
        name,
    )


def _resolve_version(name: str, version: Any, run: str | None) -> AnnotatedVersion:
    """Return the version of the picture that the arguments of `annotate` mean.

    Args:
        name: name of the stream.
        version: a number, a frame of `splatview.frames`, or None for the newest version
            that this process knows.
        run: id of the stream's run; None for the frame's, this process's, or the run
            of the frame that this process was handed last.
    """
    publisher = started_publisher()
    own_stream = None
    own_run = ""
    if publisher is not None and name in publisher.streams:
        own_stream = publisher.streams[name]
        own_run = publisher.run_id
    last = _last_frame(name)
    number = version
    time_ns = 0
    is_frame = hasattr(version, "version") and hasattr(version, "time_ns")
    if is_frame:
        number = version.version
        time_ns = int(version.time_ns)
        run = run or getattr(version, "run", None)
        if not run and (last.version, last.time_ns) == (number, time_ns):
            run = last.run
    picture_run = str(run or own_run or last.run)
    newest = AnnotatedVersion()
    if own_stream is not None and picture_run == own_run:
        _check_is_image(own_stream)
        newest = AnnotatedVersion(own_stream.version)
        picture_run = ""
    elif last.run == picture_run:
        newest = last
    if version is None:
        number = newest.version
        time_ns = newest.time_ns
    if not hasattr(number, "__index__"):
        raise TypeError(
            f"version is {checks.type_text(version)}, not a number or a frame of "
            "splatview.frames"
        )
    return AnnotatedVersion(
        version=checks.integer("version", number, 0, 2**63 - 1),
        time_ns=time_ns,
        run=picture_run,
    )


def _check_is_image(stream: Stream) -> None:
    """Raise ValueError for a stream that is no picture."""
    if stream.kind != "image":
        raise ValueError(
            f"{stream.name!r} shows {stream.kind}; only over pictures (streams of kind "
            "image) can be drawn"
        )


def _last_frame(name: str) -> AnnotatedVersion:
    """Return the version of a stream that this process was handed last."""
    # A process that reads no frames need not load what reads them.
    frames_module = sys.modules.get("splatview.api.frames")
    if frames_module is None:
        return AnnotatedVersion()
    return AnnotatedVersion(*frames_module.last_frames.get(name, ()))


def _existing_overlays(
    publisher: Publisher, name: str, run: str | None
) -> list[Stream]:
    """Return the overlays over the streams of a name, of one run unless it is None."""
    return [
        stream
        for stream in _overlays_over(publisher, name)
        if run in (None, stream.over.run or publisher.run_id)
    ]


def _overlays_over(publisher: Publisher, name: str) -> list[Stream]:
    """Return the overlays over the streams of a name, of any run."""
    streams = publisher.streams.values()
    return [s for s in streams if s.kind == "overlay" and s.over.name == name]


def _find_or_make_overlay(publisher: Publisher, name: str, run: str) -> Stream:
    """Return the overlay over a run's stream; make one if there is none.

    An overlay over a run that has ended is used again for the next run.
    """
    from splatview_ipc.control.run_folder import list_runs, runtime_folder
    from splatview_ipc.publisher.stream_channels import OverlaidStream

    overlays = _overlays_over(publisher, name)
    for stream in overlays:
        if stream.over.run == run:
            return stream
    alive = {folder.description.id for folder in list_runs(runtime_folder())}
    if name in publisher.streams:
        alive.add("")
    stream = next((s for s in overlays if s.over.run not in alive), None)
    if stream is None:
        stream = publisher.stream(_overlay_name(publisher, name), "overlay")
    stream.over = OverlaidStream(name, run)
    if stream.info is not None:
        publisher.wake()
    return stream


def _overlay_name(publisher: Publisher, name: str) -> str:
    """Return a name for a new overlay over a stream, which no other stream has."""
    from splatview_ipc.control.limits import MAX_NAME

    suffix = " overlay"
    overlay_name = name[: MAX_NAME - len(suffix)] + suffix
    count = 1
    while overlay_name in publisher.streams:
        count += 1
        suffix = f" overlay {count}"
        overlay_name = name[: MAX_NAME - len(suffix)] + suffix
    return overlay_name
