"""`frames`: the newest frames of a stream, in any process of the same user."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview.adapters import checks
from splatview.api.session import public, untraced
from splatview_ipc.control.errors import IpcError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.system.terminal import printable
from splatview_ipc.transports import ZERO_COPY

if TYPE_CHECKING:
    import numpy as np
    import torch

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.messages import StreamInfo
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_log = logging.getLogger("splatview")

_POLL_PERIOD_S = 0.05
"""Time between two polls of the runs' messages, while frames come."""
_SILENCE_S = 10.0
"""Time without a frame after which the reason is logged once, if there is no timeout."""
_MAX_REMEMBERED = 256
"""Names in `last_frames`."""
_MAX_NAMES_LISTED = 10


class LastFrame(NamedTuple):
    """The version, time (ns since the epoch) and run's id of a frame."""

    version: int = 0
    time_ns: int = 0
    run: str = ""


last_frames: dict[str, LastFrame] = {}
"""The frame of each stream, by name, that this process was handed last."""


@public(answers=True)
def frames(
    name: str,
    *,
    run: str | None = None,
    timeout: float | None = None,
    in_place: bool | None = None,
) -> Frames:
    """Iterate the newest frames of a stream of this or another process of the same user.

    For example::

        for frame in splatview.frames("camera"):
            boxes = detect(frame.tensor)

    Each frame is the newest at the time; those that came in between are passed over and
    counted. It is copied once in this process, and belongs to the caller. Neither the
    publisher nor other readers notice how fast this one is. When a publisher ends and
    starts again, its new run is read.

    Args:
        name: the stream's name, as `splatview.publish` was given it. It need not exist
            yet.
        run: the run that publishes it: its id, the beginning of one, its name or its
            process's number. None: any run that has a stream of this name, the newest
            where there are several.
        timeout: seconds that a new frame may take, else TimeoutError; None: wait for
            ever.
        in_place: of CUDA tensors that the publisher shares in place. True: the
            publisher's own memory, which may change meanwhile and must only be read;
            ValueError while iterating where the stream is not shared so. False: never.
            None: copies, as of all others.

    Raises:
        TypeError: an argument is of another type.
        ValueError: an argument is out of range.
    """
    return Frames(name, run=run, timeout=timeout, in_place=in_place)


class Frame:
    """One version of a stream: a copy of its own, to keep and to write on.

    With `in_place=True` its CUDA tensors are the publisher's own memory instead: they
    change when the publisher changes them, and must only be read.
    `numpy.asarray(frame)`, `numpy.from_dlpack(frame)`, `torch.from_dlpack(frame)`, CuPy's
    and JAX's take the memory of `tensor` as it is.
    """

    def __init__(
        self,
        shared: StreamFrame,
        copies: dict[str, np.ndarray | torch.Tensor],
        skipped: int,
        run: str,
    ) -> None:
        self.version: int = shared.version
        """Counts the stream's updates."""
        self.time_ns: int = shared.time_ns
        """When it was published, in ns since the epoch."""
        self.skipped: int = skipped
        """Number of versions passed over since the frame before."""
        self.run: str = run
        """The id of the run that published it."""
        self.kind: str = shared.kind
        """"image", "gaussians", "overlay", "cameras", "scalars" or "memory"."""
        self.meta: dict[str, Any] = shared.meta
        """Metadata published beside the tensors, and those of their kind, such as an
        image's "layout"."""
        self.confirmed: bool = shared.confirmed
        """False for a copy made while nothing was published, of tensors that may have
        been amid a write."""
        self._copies = copies
        self._dtypes = {name: t.dtype for name, t in shared.tensors.items()}
        self._tensors: dict[str, torch.Tensor] = {}

    @property
    def time(self) -> float:
        """When it was published, in seconds since the epoch."""
        return self.time_ns / 1e9

    @property
    def age(self) -> float:
        """Seconds since it was published."""
        return time.time() - self.time

    @property
    def on_gpu(self) -> bool:
        """True if its tensors are on a GPU."""
        return any(hasattr(copy, "is_cuda") for copy in self._copies.values())

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Its tensors by name, as `splatview.publish` was given them.

        Of an image "image"; of Gaussians "means" (N, 3), "quats" (N, 4), "scales" (N, 3),
        "opacities" (N,) and colours. CUDA tensors are on this process's device with the
        same UUID.
        """
        if not self._tensors:
            for name, copy in self._copies.items():
                self._tensors[name] = _as_torch(copy, self._dtypes[name])
        return self._tensors

    @property
    def tensor(self) -> torch.Tensor:
        """The image, or the only tensor there is.

        An image has the shape and dtype that it was published with, (H, W), (H, W, C) or
        (C, H, W). Raises ValueError for frames of several tensors.
        """
        return self.tensors[self._only_name()]

    def numpy(self) -> np.ndarray:
        """Return the image, or the only tensor, as an array over the memory of `tensor`.

        Of a CUDA frame it is a copy. Raises TypeError for bfloat16, which NumPy lacks,
        ValueError as `tensor` does.
        """
        name = self._only_name()
        if self._dtypes[name] == "bfloat16":
            raise TypeError(
                f"{name} is bfloat16, which NumPy lacks: use "
                "frame.tensor.float().numpy(), a float32 copy"
            )
        copy: Any = self._copies[name]
        if hasattr(copy, "is_cuda"):
            return copy.cpu().numpy()
        return copy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the array of `numpy.asarray(frame)`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"the frame is {array.dtype}: as {dtype} it is a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's numbers of the device.

        (1, 0) is the CPU, (2, n) the nth CUDA device.
        """
        kind, index = self.tensor.__dlpack_device__()
        return int(kind), index

    def __dlpack__(self, **options: Any) -> Any:
        """Return the capsule of `numpy.from_dlpack(frame)` and others, as torch's."""
        return self.tensor.__dlpack__(**options)

    def intact(self) -> bool:
        """Return True: a frame is whole, and stays as it is."""
        return True

    def close(self) -> None:
        """Let go of its memory. Idempotent."""
        self._copies = {}
        self._tensors = {}

    def __enter__(self) -> Frame:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<splatview frame: {self.kind}, version {self.version}, {self.skipped} "
            "skipped>"
        )

    def _only_name(self) -> str:
        """Return "image", or the name of the only tensor."""
        names = list(self._copies)
        if not names:
            raise ValueError(f"version {self.version} was closed")
        if "image" in names:
            return "image"
        if len(names) == 1:
            return names[0]
        raise ValueError(
            f"a frame of kind {self.kind} has several tensors: use frame.tensors[name], "
            f"name one of {', '.join(names)}"
        )


class Frames:
    """The newest frames of one stream: iterate it, or ask for the `latest`.

    Made by `splatview.frames`. Leave it with `with`, call `close`, or let go of it. To be
    used by one thread at a time.
    """

    def __init__(
        self,
        name: str,
        *,
        run: str | None = None,
        timeout: float | None = None,
        in_place: bool | None = None,
    ) -> None:
        """Check the arguments, which are those of `splatview.frames`."""
        checks.stream_name(name)
        if in_place not in (None, True, False):
            raise ValueError(f"in_place is {in_place!r}, not True, False or None")
        self.name = name
        self.skipped = 0
        """Versions that were passed over, in all."""
        self._run = checks.run(run)
        self._in_place = in_place
        self._timeout = _checked_timeout(timeout)
        self._connect()

    def _connect(self) -> None:
        """Start to follow the runs of this user."""
        self._pid = os.getpid()
        self._subscriber = Subscriber(self._run, client="frames")
        self._stream: RemoteStream | None = None
        self._last_version = 0
        self._polled_at = -math.inf
        self._end = weakref.finalize(self, _close, self._subscriber, self._pid)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> Frame:
        """Return the newest frame that is newer than the last; wait until there is one.

        Raises TimeoutError, which says what is known; ValueError when `in_place=True` is
        impossible; StopIteration after `close`.
        """
        if not self._end.alive:
            raise StopIteration
        return self._wait(self._timeout, takes_last=False)

    def latest(self, timeout: float | None = None) -> Frame:
        """Return the newest frame there is, also one that was handed out before.

        Waits only while there is none.

        Raises as iterating does, ValueError after `close`.

        Args:
            timeout: seconds, by default those of `frames`.
        """
        if not self._end.alive:
            raise ValueError("these frames are closed: ask splatview.frames for others")
        self._polled_at = -math.inf
        if timeout is None:
            return self._wait(self._timeout, takes_last=True)
        return self._wait(_checked_timeout(timeout), takes_last=True)

    def close(self) -> None:
        """Release everything; frames stay the caller's. Idempotent."""
        self._end()

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<splatview frames of {self.name!r}, run {self.run or 'not found yet'}>"

    @property
    def run(self) -> str:
        """The id of the run that is read; "" before there is one."""
        return self._stream.run.id if self._stream is not None else ""

    @property
    def path(self) -> str:
        """The transport of the frames; "" before there is a stream.

        "ring" (shared memory), "device-ring" (a ring in GPU memory), "in-place" or
        "torch-ipc" (the publisher's memory), "host" (GPU to host memory, where this
        process cannot open that GPU's).
        """
        return self._stream.sharing if self._stream is not None else ""

    def _wait(self, timeout: float | None, takes_last: bool) -> Frame:
        """Return the newest frame once it is there.

        Args:
            takes_last: the frame that was handed out last is new enough.
        """
        if self._pid != os.getpid():
            # In a forked child what is open is the parent's, and stays as it is.
            _inherited.append((self._subscriber, self._end.detach()))
            self._connect()
        started_at = time.monotonic()
        must_log = timeout is None
        while True:
            now = time.monotonic()
            frame = self._take(now, takes_last)
            if frame is not None:
                return frame
            waited = now - started_at
            if timeout is not None and waited >= timeout:
                raise TimeoutError(printable(self._explain(waited)))
            if must_log and waited > _SILENCE_S:
                must_log = False
                _log.warning("%s", printable(self._explain(waited)))
            pause = _pause_after(waited)
            if timeout is not None:
                pause = min(pause, timeout - waited)
            time.sleep(pause)

    def _take(self, now: float, takes_last: bool) -> Frame | None:
        """Return a copy of the newest frame; None if there is no new one."""
        stream = self._stream
        is_poll_due = now >= self._polled_at + _POLL_PERIOD_S
        if stream is None or not stream.opened or is_poll_due:
            self._follow(now)
            stream = self._stream
        if stream is None:
            return None
        if stream.version <= self._last_version and not takes_last:
            return None
        shared = stream.read(0 if takes_last else self._last_version)
        if shared is None:
            return None
        with shared:
            try:
                copies = _copied(shared, self._in_place is True)
            except IpcError as error:
                stream.refuse(str(error))
                return None
            if not shared.intact():
                return None
            skipped = 0
            if self._last_version:
                skipped = max(0, shared.version - self._last_version - 1)
            frame = Frame(shared, copies, skipped, stream.run.id)
        self._last_version = max(self._last_version, shared.version)
        self.skipped += skipped
        _remember(self.name, LastFrame(shared.version, shared.time_ns, stream.run.id))
        return frame

    def _follow(self, now: float) -> None:
        """Take in the runs' messages; change over to the newest run with the stream."""
        self._subscriber.poll()
        self._polled_at = now
        newest = _newest_stream(self._subscriber, self.name)
        previous = self._stream
        if newest is None or newest is previous:
            return
        if previous is not None:
            if _has_unread_end(previous, self._last_version):
                return
            previous.release()
        self._stream = newest
        self._last_version = 0
        if self._in_place and not _order(True, newest.info):
            if newest.gpu:
                location = "copied on its GPU at each publish"
            else:
                location = "on the CPU, and always copied"
            reasons = f": {newest.info.reasons}" if newest.info.why else ""
            raise ValueError(
                f"in_place=True: stream {self.name!r} of run {newest.run.id} is "
                f"{location}{reasons}; leave in_place out"
            )
        newest.order = partial(_order, self._in_place)
        newest.open()
        self._subscriber.poll()

    def _explain(self, waited: float) -> str:
        """Return why no frame comes, as far as it is known, as a text for users."""
        start = f"no new frame of {self.name!r} within {waited:.1f} s: "
        if self._subscriber.fault is not None:
            return start + self._subscriber.fault
        if self._stream is not None:
            return start + _explain_stream(self._stream, self._last_version)
        alive = [run for run in self._subscriber.runs if run.alive]
        named = f" that {self._run!r} names" if self._run is not None else ""
        if not alive:
            from splatview_ipc.control.run_folder import runtime_folder

            return start + (
                f"no run{named} is there, in {runtime_folder()}: start the program that "
                "publishes, as the same user"
            )
        names = [
            f"{stream.name!r} ({stream.kind}, run {stream.run.id})"
            for stream in self._subscriber.streams
            if stream.run.alive
        ]
        existing = f"no run{named} has published anything yet"
        if names:
            existing = f"there are {', '.join(names[:_MAX_NAMES_LISTED])}"
            if len(names) > _MAX_NAMES_LISTED:
                existing += f" and {len(names) - _MAX_NAMES_LISTED} more"
        refusals = [f"run {run.id}: {run.refused}" for run in alive if run.refused]
        return start + "; ".join([f"no such stream; {existing}", *refusals])


def _explain_stream(stream: RemoteStream, last_version: int) -> str:
    """Return why no frame comes of a stream that there is."""
    run = f"run {stream.run.id}"
    if not stream.run.alive:
        return f"{run} has ended, and no other publishes it"
    if stream.fault:
        return f"{run} has it, but it cannot be read: {stream.fault}"
    if last_version == 0:
        return f"{run} has it, but no frame has come yet that can be read"
    return f"{run} has published nothing since version {stream.version}"


def _newest_stream(subscriber: Subscriber, name: str) -> RemoteStream | None:
    """Return the stream of a name of the run that started last and is alive."""
    streams: list[RemoteStream] = []
    for run in subscriber.runs:
        if run.alive:
            streams += [s for s in run.streams.values() if s.name == name]
    return max(streams, key=_start_of_run, default=None)


def _has_unread_end(stream: RemoteStream, last_version: int) -> bool:
    """Return whether a run has ended whose last version was not read yet."""
    if stream.run.alive or stream.version <= last_version:
        return False
    return stream.read(last_version) is not None


def _pause_after(waited: float) -> float:
    """Return the seconds until the next look for a frame, after this many seconds."""
    if waited < 0.005:
        return 1e-4
    if waited < 1:
        return 1e-3
    return 1e-2


def _start_of_run(stream: RemoteStream) -> tuple[float, str]:
    """Return the key by which streams are sorted by the start of their runs."""
    return stream.run.folder.description.started, stream.run.id


def _order(in_place: bool | None, info: StreamInfo) -> tuple[str, ...]:
    """Return the transports that a stream offers and that suit, the best first."""
    if in_place is None:
        return tuple(info.transports)
    return tuple(name for name in info.transports if (name in ZERO_COPY) is in_place)


def _copied(
    shared: StreamFrame, in_place: bool
) -> dict[str, np.ndarray | torch.Tensor]:
    """Return copies of a frame's tensors.

    Raises IpcError.

    Args:
        in_place: CUDA tensors are over the publisher's memory instead.
    """
    tensors: dict[str, Any] = {}
    for name, tensor in shared.tensors.items():
        if isinstance(tensor, RemoteTensor):
            tensors[name] = tensor.array.copy()
        else:
            tensors[name] = tensor.torch().detach()
    if not shared.on_gpu:
        return tensors
    import torch

    stream = torch.cuda.current_stream(next(iter(tensors.values())).device)
    shared.wait(stream.cuda_stream)
    if in_place:
        return tensors
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    # Only then is it known whether the copy is whole.
    stream.synchronize()
    return copies


def _as_torch(copy: np.ndarray | torch.Tensor, dtype_name: str) -> torch.Tensor:
    """Return a copy as a tensor over its memory. NumPy holds bfloat16 as bytes."""
    import torch

    if isinstance(copy, torch.Tensor):
        return copy
    dtype = getattr(torch, dtype_name)
    if not copy.size:
        return torch.empty(copy.shape, dtype=dtype)
    return torch.frombuffer(copy, dtype=dtype).view(copy.shape)


def _remember(name: str, frame: LastFrame) -> None:
    """Note the frame of a stream that was handed out last."""
    last_frames.pop(name, None)
    last_frames[name] = frame
    if len(last_frames) > _MAX_REMEMBERED:
        # In one step, since other threads add names meanwhile.
        names = list(last_frames)
        last_frames.pop(names[0], None)


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    return checks.real("timeout", timeout, 0, sys.float_info.max)


def _close(subscriber: Subscriber, pid: int) -> None:
    """End a subscriber, but in a forked child, where it is the parent's."""
    if pid == os.getpid():
        with contextlib.suppress(Exception):
            subscriber.close()


untraced(Frame, Frames)
_inherited: list[Any] = []
"""The parent's objects in a forked child, kept from being torn down."""
