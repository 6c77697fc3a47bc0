"""`publish` and its companions: the whole of what a training script calls."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from splatview.adapters.metadata import checked
from splatview_ipc.control.errors import IpcError
from splatview_ipc.system.terminal import printable_lines

if TYPE_CHECKING:
    import torch

    from splatview.adapters.foreign import Foreign
    from splatview_ipc import Publisher, Stream
    from splatview_ipc.publisher.outlet import Form

__all__ = ["close", "publish"]

_log = logging.getLogger("splatview")
RETRY = 10.0
"""Seconds after which it is tried again to begin a run: a full disk is emptied, a folder comes back. A try takes less
than a millisecond."""


class _Entry:
    """A stream and the form of the values it has been given so far."""

    __slots__ = ("foreign", "form", "stream", "tally", "type", "wishes")

    def __init__(self, stream: Stream, form: Form, wishes: tuple[Any, ...], kind: type):
        self.stream = stream
        self.foreign: Foreign | None = getattr(form, "foreign", None)
        self.tally = stream.tally
        self.form = form
        self.wishes = wishes
        self.type = kind


_entries: dict[str, _Entry] = {}
_publisher: Publisher | None = None
_lock = threading.RLock()
_off = False
_again_at = 0.0
"""When (time.monotonic) to try once more to begin a run, after the surroundings allowed none."""
_said: set[str] = set()
_default_names: dict[type, str] = {}
_MANY_TYPES = 1000
"""Types whose default names are remembered. A type that is made anew at every step must not stay for ever."""


def publish(value: Any, name: str | None = None, *, kind: str | None = None, copy: bool | None = None,
            live: bool | None = None, shard: tuple[int, int] | None = None, **meta: Any) -> None:
    """Show a value in every viewer that looks at this process, and go on at once.

    value: an image, (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 in 0..255 or float16, bfloat16, float32 in [0, 1];
        or a Gaussian scene in any form that `splatview.adapters.gaussians` lists: a gsplat `ParameterDict` or mapping
        with its names, an inria `GaussianModel`, a nerfstudio model, async_torchwindow's tuple. OpenCV axes,
        quaternions w x y z. Tensors may be slices, non-contiguous, require gradients, lie on the CPU or a GPU;
        arrays of other libraries do as well, alone or within a scene: NumPy, JAX, CuPy, Numba, PIL, whatever has
        `__dlpack__`, `__cuda_array_interface__` or `__array_interface__`. Work on what has DLPack alone, on another
        CUDA stream than torch's current one, is the caller's to order. Of a DTensor: its `.to_local()`, with `shard`.
    name: the stream's name, "image" or "gaussians" by default. The next call with this name is its next version.
        Up to 200 printable characters without "/".
    kind: "image" or "gaussians", where the value alone leaves a doubt.
    copy: of CUDA tensors. True: copy them on the GPU at this call. False: share them where they lie, which costs
        nothing, and shows changes that are made in place after this call, even half done. None: whichever suits how
        the tensors come: Gaussians and tensors that stay where they are are shared, those that are new at every call
        are copied. Parameters that an optimizer steps in place can therefore tear: some Gaussians of one step, some
        of the next. CPU tensors are always copied.
    live: True: viewers follow changes made in place between two calls (they may see one half done).
    shard: (rank, world) of a scene whose Gaussians are spread over the processes of a training, each of which calls
        this with its own part and the same name: viewers show one scene. 0 <= rank < world <= 64. No rank asks or
        awaits another: they are known to belong together by what their launcher (torchrun, SLURM, mpirun) told them,
        or else by the process that started them, or by the variable SPLATVIEW_GROUP where it is set.
    meta: shown beside the picture: bool, int, float, str, or up to 16 floats. For Gaussians `activated` (True: scales
        and opacities went through exp and sigmoid; False: they did not; left out: told by the names),
        `sh_degree` (the degree in use) and `antialiased` steer the drawing; for images `layout`: "HWC" or "CHW", or
        "BGR" for (H, W, 3|4) with blue first, as OpenCV has pictures.

    The call never waits for a viewer, nor for the GPU: copies are queued on torch's current stream. The tensors are
    kept until the next version or `close` (those shared in place some seconds longer, until viewers change over),
    and copied or converted only while a viewer shows them: one that comes later is shown what they hold by then. Of
    tensors in place that stay where they are, as an optimizer's do, a version is only counted unless a viewer asks for
    one at the moment, which costs a microsecond; what is wrong with such a value is found when one asks, or every few
    versions. While a CUDA graph is captured nothing is queued. Within torch.compile all functions of this module break
    the graph, once a call; within torch.vmap and the transforms of torch.func tensors raise TypeError.
    Raises TypeError or ValueError for values that cannot be shown. Faults of the surroundings (no shared memory, an
    unwritable runtime folder) are logged once and counted, and raised only when SPLATVIEW_STRICT=1 is set.
    SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    if name is None:
        name = kind or _default_names.get(type(value)) or _default_name(value)
        if name is None:
            return
    entry = _entries.get(name)
    if entry is not None:
        tally = entry.tally
        if tally.steady is not None and type(value) is entry.type:
            if meta and str in map(type, meta.values()):
                meta = checked(meta)
            if tally.pass_over(value, meta):
                return
    wishes = ((kind, copy, live, shard, meta.get("activated"), meta.get("layout")) if meta
              else (kind, copy, live, shard, None, None))
    if entry is not None and entry.wishes == wishes:
        if meta:
            meta = checked(meta)
        fits = True
        if entry.foreign is not None and entry.foreign.copied:
            # Before anything is copied: whether it is of this form, and whether anybody looks.
            fits = entry.form.fits(value)  # type: ignore[attr-defined]
            if fits and entry.stream.keep(value, meta):
                entry.form.forget()
                return
        try:
            tensors = entry.form.collect(value) if fits else None
        except IpcError as e:
            fault(e)
            return
        if tensors is not None:
            entry.stream.publish((tensors, meta))
            if entry.foreign is not None:
                _published(entry.foreign, tensors)
            return
    if not _rests():
        try:
            _publish_new(value, name, wishes, meta)
        except OSError as e:  # modules are loaded there, which takes open files
            _later(e)


def close() -> None:
    """End this process's run: viewers keep the last picture, all memory is given back. Idempotent.

    The next `publish` begins a new run.
    """
    global _publisher, _off
    for name in ("memory", "cameras", "grab", "log"):
        if (used := sys.modules.get(f"splatview.api.{name}")) is not None:
            used.end()
    with _lock:
        _entries.clear()
        if _publisher is not None:
            _publisher.close()
        _publisher = None
        _off = False


class _Untraced(set[CodeType]):
    """The mark of functions at which dynamo breaks the graph, as `torch.compiler.disable` has it, and their code. What
    they call is not traced either: that is settled when torch is loaded, or else when dynamo evaluates the mark."""

    def __bool__(self) -> bool:
        with contextlib.suppress(ImportError, AttributeError):  # PyTorch before 2.7
            from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

            while len(self):
                set_code_exec_strategy(self.pop(), _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
        return True


_untraced = _Untraced()


def leave_untraced(module: ModuleType) -> None:
    """Have torch.compile trace neither the public functions of a module nor the methods of its public classes."""
    for value in (getattr(module, name) for name in module.__all__):
        for one in vars(value).values() if isinstance(value, type) else (value,):
            if isinstance(function := getattr(one, "fget", one), FunctionType):
                function._torchdynamo_disable = _untraced  # type: ignore[attr-defined]
                _untraced.add(function.__code__)
    if "torch" in sys.modules:
        bool(_untraced)


def disabled() -> bool:
    """Whether SPLATVIEW_DISABLE asks for nothing to be done."""
    return os.environ.get("SPLATVIEW_DISABLE", "") not in ("", "0")


def running() -> Publisher | None:
    """This process's run, begun if need be. None where the surroundings allow none, or SPLATVIEW_DISABLE is set."""
    if _rests() or disabled():
        return None
    with _lock:
        return _publisher or _start()


def capturing() -> bool:
    """Whether a CUDA graph is being captured on torch's current stream: what we queue would run at each replay, so it
    is passed over, and counted."""
    import torch

    if not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
        return False
    if _publisher is not None:
        _publisher.board.count_skipped()
    return True


def begun() -> Publisher | None:
    """This process's run; None before there is one."""
    return _publisher


def forget(name: str) -> None:
    """Let go of what a stream of this process shows; it keeps its place and its viewers, until it shows something
    else. Not while another thread publishes it."""
    with _lock:
        _entries.pop(name, None)
        stream = None if _publisher is None else _publisher.streams.get(name)
    if stream is not None:
        stream.close()


def _publish_new(value: Any, name: str, wishes: tuple[Any, ...], meta: dict[str, Any]) -> None:
    """A stream's first value, or one that looks different from the last."""
    if disabled() or sys.is_finalizing():  # an object that is torn down with the program publishes
        return
    from splatview.adapters import collected, recognised

    kind, copy, live, shard, *_ = wishes
    check_name(name)
    part, group = (None, "") if shard is None else _shard(shard)
    meta = checked(meta)
    form = recognised(value, kind, meta)
    if part is not None and form.kind != "gaussians":
        raise TypeError(f"shard={part}: {form.kind} {name!r} cannot be put together from parts, only Gaussians can; "
                        f"leave shard out: each rank's {form.kind} is a stream of its own")
    foreign: Foreign | None = getattr(form, "foreign", None)
    tensors = None if foreign is not None and foreign.copied else collected(form, value, repr(name))
    if copy is False and form.device == "cpu":
        raise ValueError("copy=False: a CPU tensor cannot be shared where it lies; leave copy out, or publish "
                         "a CUDA tensor")
    with _lock:
        publisher = _publisher or _start()
        if publisher is None:
            return
        stream = publisher.stream(name, form.kind)
        if stream.shard != (part, group):
            stream.shard = part, group
            publisher.announce()
        try:
            stream.describe(form, copy, bool(live))
        except Exception as e:
            fault(e)
            return
        entry = _entries[name] = _Entry(stream, form, wishes, type(value))
        if tensors is None:
            if stream.keep(value, meta):
                return
            try:
                tensors = collected(form, value, repr(name))
            except IpcError as e:
                fault(e)
                return
        stream.publish((tensors, meta))
        if entry.foreign is not None:
            _published(entry.foreign, tensors)


def _shard(shard: Any) -> tuple[tuple[int, int], str]:
    """What a caller said of this process's part of a scene, and which other processes' parts it belongs to."""
    from splatview.api.shard import checked_shard, group_of_this_process

    return checked_shard(shard), group_of_this_process()


def renewed(name: str) -> None:
    """See to what a stream of this thread has shared once more (`splatview_ipc.publisher.republish`)."""
    entry = _entries.get(name)
    newest = None if entry is None else entry.tally.newest
    if entry is not None and entry.foreign is not None and newest is not None and newest[0] is not None:
        _published(entry.foreign, newest[1][0], again=True)


def _published(foreign: Foreign, tensors: tuple[torch.Tensor, ...], again: bool = False) -> None:
    """See to the arrays of other libraries that have just been published."""
    try:
        foreign.published(tensors, again)
    except Exception as e:
        fault(e)


def _default_name(value: Any) -> str | None:
    """"image" for arrays, "gaussians" for everything else; remembered by type. None: it cannot be told now."""
    if _rests():
        return None
    try:
        from splatview.adapters.tensors import is_array
    except OSError as e:
        _later(e)
        return None
    if len(_default_names) >= _MANY_TYPES:
        _default_names.clear()
    name = _default_names[type(value)] = "image" if is_array(value) else "gaussians"
    return name


def _start() -> Publisher | None:
    """Make this process's run; None when the surroundings do not allow one."""
    global _publisher, _off
    try:
        from splatview_ipc import Publisher

        _publisher = Publisher(os.environ.get("SPLATVIEW_NAME"), on_fault=fault)
        _off = False
    except (IpcError, OSError) as e:
        _later(e)
    return _publisher


def _later(error: BaseException) -> None:
    """Something is short that a value needs which is published first: not at every step is it tried again."""
    global _off, _again_at
    if _publisher is None:
        _off, _again_at = True, time.monotonic() + RETRY  # close() allows a try at once
    fault(error)


def _rests() -> bool:
    """Whether the surroundings have allowed no run, a short time ago."""
    return _off and time.monotonic() < _again_at


def fault(error: BaseException) -> None:
    """A fault of the surroundings: said once, raised only on request."""
    if os.environ.get("SPLATVIEW_STRICT", "") not in ("", "0"):
        raise error
    text = printable_lines(f"{type(error).__name__}: {error}")
    if text not in _said and len(_said) < 100:
        _said.add(text)
        _log.warning("splatview met a fault, training goes on: %s", text)


def check_name(name: Any) -> None:
    from splatview_ipc.control.limits import MAX_NAME

    if not isinstance(name, str):
        raise TypeError(f"name is a {type(name).__name__}, not a str")
    if not 1 <= len(name) <= MAX_NAME:
        shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
        raise ValueError(f"name {shown} has {len(name)} characters; legal are 1 to {MAX_NAME}")
    if "/" in name or not name.isprintable():
        raise ValueError(f"name {name!r} contains '/' or an unprintable character; "
                         "use letters, digits, '.', '-' and spaces")


def _after_fork_in_child() -> None:
    """The run is the parent's. A child that publishes starts its own."""
    global _publisher, _off, _lock
    _entries.clear()
    _publisher = None
    _off = False
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
