"""`frames`: the newest frame of a stream, again and again, in any process. Each is the caller's own copy."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

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

    from splatview_ipc.control.frame import StreamFrame as Shared
    from splatview_ipc.control.messages import StreamInfo
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_log = logging.getLogger("splatview")

_POLL_S = 0.05
"""Time between two looks at what runs say, while frames come."""
_SILENCE_S = 10.0
"""Time after which a caller without a timeout is told why nothing comes, once."""
_REMEMBERED = 256
"""Names in `seen`."""

seen: dict[str, tuple[int, int, str]] = {}
"""By the stream's name: version, time and run of the frame that was handed out last in this process."""


@public(answers=True)
def frames(
    name: str,
    *,
    run: str | None = None,
    timeout: float | None = None,
    in_place: bool | None = None,
) -> Frames:
    """Iterate the newest frames of a stream that this or another process of the same user publishes.

        for frame in splatview.frames("camera"):
            boxes = detect(frame.tensor)

    name: the stream's name, as `splatview.publish` was given it. It need not be there yet.
    run: of which run: its id, the beginning of one, its name or its process's number. None: of whichever has a stream
        of this name, the newest where there are several.
    timeout: seconds that a new frame may take, else TimeoutError; None: wait for ever.
    in_place: of CUDA tensors that the publisher shares in place. True: the publisher's own memory, which may change
        meanwhile and must only be read; ValueError while iterating where the stream is not shared so. False: never.
        None: copies, as of all others.

    Each frame is the newest at the time; those that came in between are passed over and counted. It is copied once in
    this process, and belongs to the caller. Neither the publisher nor other readers notice how fast this one is. When
    a publisher ends and starts again, its new run is read. Raises TypeError, ValueError for bad arguments.
    """
    return Frames(name, run=run, timeout=timeout, in_place=in_place)


class Frame:
    """One version of a stream: a copy of its own, to keep and to write on.

    With `in_place=True` its CUDA tensors are the publisher's own memory instead: they change when the publisher changes
    them, and must only be read.
    `numpy.asarray(frame)`, `numpy.from_dlpack(frame)`, `torch.from_dlpack(frame)`, CuPy's and JAX's take the memory of
    `tensor` as it is.
    """

    def __init__(
        self,
        shared: Shared,
        tensors: dict[str, np.ndarray | torch.Tensor],
        skipped: int,
        run: str,
    ):
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
        """Metadata published beside the tensors, and those of their kind, such as an image's "layout"."""
        self.confirmed: bool = shared.confirmed
        """False for a copy made while nothing was published, of tensors that may have been amid a write."""
        self._copies = tensors
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
        return any(hasattr(t, "is_cuda") for t in self._copies.values())

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Its tensors by name, as `splatview.publish` was given them: of an image "image"; of Gaussians "means" (N, 3),
        "quats" (N, 4), "scales" (N, 3), "opacities" (N,) and colours. CUDA tensors are on this process's device with
        the same UUID.
        """
        if not self._tensors:
            import torch

            for name, copy in self._copies.items():
                dtype = getattr(torch, self._dtypes[name])
                self._tensors[name] = (
                    copy
                    if isinstance(copy, torch.Tensor)
                    else torch.frombuffer(copy, dtype=dtype).view(copy.shape)
                    if copy.size
                    else torch.empty(copy.shape, dtype=dtype)
                )
        return self._tensors

    @property
    def tensor(self) -> torch.Tensor:
        """The image, or the only tensor there is.

        An image has the shape and dtype that it was published with, (H, W), (H, W, C) or (C, H, W).
        Raises ValueError for frames of several tensors.
        """
        return self.tensors[self._only()]

    def numpy(self) -> np.ndarray:
        """Return the image, or the only tensor, as an array over the memory of `tensor`; of a CUDA frame a copy.

        Raises TypeError for bfloat16, which NumPy lacks, ValueError as `tensor` does.
        """
        name = self._only()
        if self._dtypes[name] == "bfloat16":
            raise TypeError(
                f"{name} is bfloat16, which NumPy lacks: use frame.tensor.float().numpy(), a float32 copy"
            )
        copy: Any = self._copies[name]
        return copy.cpu().numpy() if hasattr(copy, "is_cuda") else copy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """For `numpy.asarray(frame)`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"the frame is {array.dtype}: as {dtype} it is a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's numbers of the device: (1, 0) is the CPU, (2, n) the nth CUDA device."""
        kind, number = self.tensor.__dlpack_device__()
        return int(kind), number

    def __dlpack__(self, **options: Any) -> Any:
        """For `numpy.from_dlpack(frame)` and others: as torch's, of `tensor`."""
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
        return f"<splatview frame: {self.kind}, version {self.version}, {self.skipped} skipped>"

    def _only(self) -> str:
        names = list(self._copies)
        if not names:
            raise ValueError(f"version {self.version} was closed")
        if len(names) == 1 or "image" in names:
            return "image" if "image" in names else names[0]
        raise ValueError(
            f"a frame of kind {self.kind} has several tensors: use frame.tensors[name], name one of "
            f"{', '.join(names)}"
        )


class Frames:
    """The newest frames of one stream: iterate it, or ask for the `latest`. Made by `splatview.frames`.

    Leave it with `with`, call `close`, or let go of it. To be used by one thread at a time.
    """

    def __init__(
        self,
        name: str,
        *,
        run: str | None = None,
        timeout: float | None = None,
        in_place: bool | None = None,
    ):
        """As `splatview.frames`."""
        checks.stream_name(name)
        if in_place not in (None, True, False):
            raise ValueError(f"in_place is {in_place!r}, not True, False or None")
        self.name = name
        self.skipped = 0
        """Versions that were passed over, in all."""
        self._run, self._in_place, self._timeout = (
            checks.run(run),
            in_place,
            _checked(timeout),
        )
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._subscriber = Subscriber(self._run, client="frames")
        self._stream: RemoteStream | None = None
        self._last = 0
        self._polled = -math.inf
        self._end = weakref.finalize(self, _close, self._subscriber, self._pid)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> Frame:
        """Return the newest frame that is newer than the last; wait until there is one.

        Raises TimeoutError, which says what is known; ValueError when `in_place=True` is impossible; StopIteration
        after `close`.
        """
        if not self._end.alive:
            raise StopIteration
        return self._wait(self._timeout, again=False)

    def latest(self, timeout: float | None = None) -> Frame:
        """Return the newest frame there is, also one that was handed out before; wait only while there is none.

        timeout: seconds, by default those of `frames`. Raises as iterating does, ValueError after `close`.
        """
        if not self._end.alive:
            raise ValueError("these frames are closed: ask splatview.frames for others")
        self._polled = -math.inf
        return self._wait(
            self._timeout if timeout is None else _checked(timeout), again=True
        )

    def close(self) -> None:
        """Give everything back; frames stay the caller's. Idempotent."""
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
        """The transport of the frames: "ring" (shared memory), "device-ring" (a ring in GPU memory), "in-place" or
        "torch-ipc" (the publisher's memory), "host" (GPU to host memory, where this process cannot open that GPU's);
        "" before there is a stream.
        """
        return self._stream.sharing if self._stream is not None else ""

    def _wait(self, timeout: float | None, again: bool) -> Frame:
        if (
            self._pid != os.getpid()
        ):  # forked: what is open is the parent's, and stays as it is
            _inherited.append((self._subscriber, self._end.detach()))
            self._begin()
        begun = time.monotonic()
        told = timeout is not None
        while True:
            now = time.monotonic()
            frame = self._take(now, again)
            if frame is not None:
                return frame
            waited = now - begun
            if timeout is not None and waited >= timeout:
                raise TimeoutError(printable(self._why(waited)))
            if not told and waited > _SILENCE_S:
                told = True
                _log.warning("%s", printable(self._why(waited)))
            if waited < 0.005:
                pause = 1e-4
            elif waited < 1:
                pause = 1e-3
            else:
                pause = 1e-2
            time.sleep(pause if timeout is None else min(pause, timeout - waited))

    def _take(self, now: float, again: bool) -> Frame | None:
        """Return a copy of the newest frame if it is newer than the last, or, `again`, also if it is the last."""
        stream = self._stream
        if stream is None or not stream.opened or now >= self._polled + _POLL_S:
            self._follow(now)
            stream = self._stream
        if stream is None or (stream.version <= self._last and not again):
            return None
        shared = stream.read(0 if again else self._last)
        if shared is None:
            return None
        with shared:
            try:
                copies = _copied(shared, self._in_place is True)
            except IpcError as e:
                stream.refuse(str(e))
                return None
            if not shared.intact():
                return None
            skipped = max(0, shared.version - self._last - 1) if self._last else 0
            frame = Frame(shared, copies, skipped, stream.run.id)
        self._last = max(self._last, shared.version)
        self.skipped += skipped
        seen.pop(self.name, None)
        seen[self.name] = shared.version, shared.time_ns, stream.run.id
        if len(seen) > _REMEMBERED:
            names = list(seen)  # at once: other threads add to it meanwhile
            seen.pop(names[0], None)
        return frame

    def _follow(self, now: float) -> None:
        """Take in what runs say, and change over to the newest run that has the stream."""
        self._subscriber.poll()
        self._polled = now
        found = [
            s
            for run in self._subscriber.runs
            if run.alive
            for s in run.streams.values()
            if s.name == self.name
        ]
        newest = max(
            found,
            key=lambda s: (s.run.folder.description.started, s.run.id),
            default=None,
        )
        before = self._stream
        if newest is None or newest is before:
            return
        if before is not None:
            if (
                not before.run.alive
                and before.version > self._last
                and before.read(self._last) is not None
            ):
                return  # the last version of the run that has ended comes first
            before.release()
        self._stream = newest
        self._last = 0
        if self._in_place and not _order(True, newest.info):
            if newest.gpu:
                where = "copied on its GPU at each publish"
            else:
                where = "on the CPU, and always copied"
            raise ValueError(
                f"in_place=True: stream {self.name!r} of run {newest.run.id} is {where}"
                f"{': ' + newest.info.reasons if newest.info.why else ''}; leave in_place out"
            )
        newest.order = partial(_order, self._in_place)
        newest.open()
        self._subscriber.poll()

    def _why(self, waited: float) -> str:
        """Return what is known of why no frame comes, for people."""
        begin = f"no new frame of {self.name!r} within {waited:.1f} s: "
        subscriber = self._subscriber
        stream = self._stream
        if subscriber.fault is not None:
            return begin + subscriber.fault
        if stream is not None:
            run = f"run {stream.run.id}"
            if not stream.run.alive:
                return begin + f"{run} has ended, and no other publishes it"
            if stream.fault:
                return begin + f"{run} has it, but it cannot be read: {stream.fault}"
            if self._last == 0:
                return (
                    begin + f"{run} has it, but no frame has come yet that can be read"
                )
            return begin + f"{run} has published nothing since version {stream.version}"
        alive = [run for run in subscriber.runs if run.alive]
        which = f" that {self._run!r} names" if self._run is not None else ""
        if not alive:
            from splatview_ipc.control.run_folder import runtime_folder

            return begin + (
                f"no run{which} is there, in {runtime_folder()}: start the program that publishes, as the "
                "same user"
            )
        refused = [f"run {run.id}: {run.refused}" for run in alive if run.refused]
        names = [
            f"{s.name!r} ({s.kind}, run {s.run.id})"
            for s in subscriber.streams
            if s.run.alive
        ]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        if names:
            there = f"there are {', '.join(names[:10])}{more}"
        else:
            there = f"no run{which} has published anything yet"
        return begin + "; ".join([f"no such stream; {there}", *refused])


def _order(in_place: bool | None, info: StreamInfo) -> tuple[str, ...]:
    """Return the transports that a stream is offered by and that suit, the best first."""
    return tuple(
        t for t in info.transports if in_place is None or (t in ZERO_COPY) is in_place
    )


def _copied(shared: Shared, in_place: bool) -> dict[str, np.ndarray | torch.Tensor]:
    """Return copies of a frame's tensors, or, `in_place`, CUDA tensors over the publisher's memory. Raises IpcError."""
    found: dict[str, Any] = {}
    for name, tensor in shared.tensors.items():
        found[name] = (
            tensor.array.copy()
            if isinstance(tensor, RemoteTensor)
            else tensor.torch().detach()
        )
    if shared.on_gpu:
        import torch

        stream = torch.cuda.current_stream(next(iter(found.values())).device)
        shared.wait(stream.cuda_stream)
        if not in_place:
            found = {name: tensor.clone() for name, tensor in found.items()}
            stream.synchronize()  # only then it can be told whether the copy is whole
    return found


def _checked(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    return checks.real("timeout", timeout, 0, sys.float_info.max)


def _close(subscriber: Subscriber, pid: int) -> None:
    if pid == os.getpid():
        with contextlib.suppress(Exception):
            subscriber.close()


untraced(Frame, Frames)
_inherited: list[Any] = []
"""The parent's objects in a forked child, kept from being torn down."""
