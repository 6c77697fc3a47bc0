"""What `splatview.frames` hands out: one frame of a stream, its tensors seen where they lie."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.frame import DeviceTensor, RemoteTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.frame import Frame as Shared

_CPU, _CUDA = 1, 2
"""DLPack's numbers of devices."""
_LEGACY_STREAM = 1
"""DLPack's number, and CUDA's, of the legacy default stream."""


class Held:
    """A frame that is in use here, and on which CUDA streams."""

    def __init__(self, shared: Shared, skipped: int, run: str):
        self.shared = shared
        self.skipped = skipped
        self.run = run
        self.streams: set[int] = set()
        self.device: torch.device | None = None
        """Of its tensors, once they were asked for."""
        self.closed = False
        self.was_intact = True
        self._pid = os.getpid()

    def order(self, stream: int) -> None:
        """Have a CUDA stream wait for the data."""
        if stream not in self.streams:
            self.shared.wait(stream)
            self.streams.add(stream)

    def end(self) -> tuple[Shared | None, list[torch.cuda.Event]]:
        """It is not valid any more. What is to be closed when these events have come; None: there is nothing to
        close."""
        if self.closed:
            return None, []
        self.closed = True
        if self._pid != os.getpid():  # the slot is the parent's
            return None, []
        self.was_intact = self.shared.intact()
        return self.shared, self._marks() if self.streams else []

    def _marks(self) -> list[torch.cuda.Event]:
        """Events behind all that may use the frame's memory."""
        import torch

        device = self.device
        current = torch.cuda.current_stream(device)
        streams = [current]
        for handle in self.streams - {current.cuda_stream}:
            streams.append(torch.cuda.default_stream(device) if handle in (0, _LEGACY_STREAM)
                           else torch.cuda.ExternalStream(handle, device))
        events = []
        for stream in streams:
            event = torch.cuda.Event()
            event.record(stream)
            events.append(event)
        return events


class Frame:
    """One version of a stream, in the publisher's memory or a ring of slots: nothing is copied.

    It is valid until the next one is asked for, or until `close`: clone what you want to keep. Until then its slot is
    not written, unless more readers hold frames than a ring has slots (16): `intact()` says so afterwards. Tensors
    that are shared in place (`Frames.path` is "in-place") change when the publisher changes them.

    **Tensors of a CPU stream may be written to**, through torch, NumPy, OpenCV or DLPack. A write copies the page of
    memory that it touches (4 KiB as a rule): only this process sees it, in this frame alone. The publisher, other
    readers, viewers and later frames show what was published.

    **Only read tensors on a GPU** (`on_gpu`), and write into a copy: `frame.tensor.clone()`. GPU memory has no
    copy-on-write pages. A write is a CUDA error, which as a rule ends this process's use of the GPU, or, where the
    memory cannot be mapped for reading only, changes what the publisher and all readers have: by the path "in-place"
    the very tensors that it trains.
    """

    def __init__(self, held: Held, give_back: Callable[[Held], None]):
        shared = held.shared
        self.version: int = shared.version
        """Counts the stream's updates."""
        self.time_ns: int = shared.time_ns
        """When it was published, in ns since the epoch."""
        self.skipped: int = held.skipped
        """How many versions were passed over since the frame that was handed out before it."""
        self.run: str = held.run
        """The id of the run that published it."""
        self.kind: str = shared.kind
        """"image", "gaussians", "overlay" or "memory"."""
        self.meta: dict[str, Any] = shared.meta
        """What was published beside the tensors, and what their kind needs, such as an image's "layout"."""
        self._held = held
        self._give_back = give_back
        self._tensors: dict[str, torch.Tensor] = {}

    @property
    def time(self) -> float:
        """When it was published, in seconds since the epoch."""
        return self.time_ns / 1e9

    @property
    def age(self) -> float:
        """Seconds since it was published."""
        from time import time

        return time() - self.time

    @property
    def on_gpu(self) -> bool:
        """Whether its tensors lie on a GPU."""
        return self._open().on_gpu

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Its tensors by name, as `splatview.publish` was given them: of an image "image"; of Gaussians "means" (N, 3),
        "quats" (N, 4), "scales" (N, 3), "opacities" (N,) and colours. CUDA tensors lie on this process's device with
        the same UUID; torch's current stream there is made to wait for their data.

        Raises ValueError when the frame is not valid any more.
        """
        shared, held = self._open(), self._held
        if not self._tensors:
            # Of CUDA tensors it may be one object for many frames: the caller gets another over the same bytes.
            self._tensors = {name: _on_cpu(t) if isinstance(t, RemoteTensor) else t.torch().detach()
                             for name, t in shared.tensors.items()}
        if held.device is None and shared.on_gpu:
            held.device = next(iter(self._tensors.values())).device
        if held.device is not None:
            from torch._C import _cuda_getCurrentRawStream as current_stream

            held.order(current_stream(held.device.index))
        return self._tensors

    @property
    def tensor(self) -> torch.Tensor:
        """The image, or the only tensor there is: `tensors` says how it is to be used.

        An image has the shape and dtype that it was published with, (H, W), (H, W, C) or (C, H, W).
        Raises ValueError for frames of several tensors.
        """
        return self.tensors[self._only()]

    def numpy(self) -> np.ndarray:
        """The image, or the only tensor there is, as an array: of a CPU stream a view of the memory of `tensor`, which
        may be written to and is valid as long as the frame; of a CUDA stream a copy, which waits for the GPU.

        Raises TypeError for bfloat16, which NumPy lacks, ValueError as `tensor` does.
        """
        name = self._only()
        shared = self._open().tensors[name]
        if shared.dtype == "bfloat16":
            raise TypeError(f"{name} is bfloat16, which NumPy lacks: use frame.tensor.float().numpy(), a float32 copy")
        if isinstance(shared, RemoteTensor):
            return shared.array
        return self.tensors[name].cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """For `numpy.asarray(frame)`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"the frame is {array.dtype}: as {np.dtype(dtype)} it is a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's numbers of the device: (1, 0) is the CPU, (2, n) the nth CUDA device."""
        shared = self._open().tensors[self._only()]
        if isinstance(shared, RemoteTensor):
            return _CPU, 0
        from splatview_ipc.cuda import driver

        return _CUDA, driver.here(shared.memory.gpu)

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """For `numpy.from_dlpack(frame)`, `torch.from_dlpack(frame)`, CuPy's and JAX's: the memory of `tensor`.

        stream: the consumer's CUDA stream, which is made to wait for the data; None and 1: the legacy default stream,
            2: the thread's own, -1: the consumer sees to it. CPU: None.
        max_version: the newest DLPack that the consumer knows.
        dl_device: where the consumer wants it: where it lies, or, of a CUDA frame, (1, 0), a copy on the host.
        copy: True: always a copy, writable; False: never; None: only where there is no other way.
        Raises BufferError where that cannot be.
        """
        here = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) not in (here, (_CPU, 0)):
            raise BufferError(f"the frame lies on DLPack device {here}, not {tuple(dl_device)}; copy frame.tensor with "
                              ".to(device) first")
        to_host = dl_device is not None and tuple(dl_device) != here
        if copy is False and to_host:
            raise BufferError("a CUDA frame on the CPU is a copy: copy=False cannot be")
        if here[0] == _CUDA and not to_host:
            return self._cuda_capsule(stream, max_version, copy)
        if stream not in (None, -1):
            raise BufferError(f"stream is {stream!r}; there are none on the CPU: leave it out")
        if to_host or copy:
            return _capsule(self.tensor.cpu() if to_host else self.tensor.clone(), max_version)
        return _capsule(self.tensor, max_version)

    def _cuda_capsule(self, stream: int | None, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
        if stream == 0:
            raise BufferError("stream 0 may mean two things: 1 is the legacy default stream, 2 the thread's own")
        if copy:
            return _capsule(self.tensor.clone(), max_version, stream)
        tensor = self.tensor
        if stream != -1:
            self._held.order(_LEGACY_STREAM if stream is None else stream)
        return _capsule(tensor, max_version, -1)

    def intact(self) -> bool:
        """Whether what was read until now is this version, whole. After `close`: whether it was until then."""
        return self._held.was_intact if self._held.closed else self._held.shared.intact()

    def close(self) -> None:
        """Give its slot back to the publisher, as soon as the GPU is through with what was queued on it here: on the
        current stream, and on those that it was given to by DLPack. Idempotent; asking for the next frame does it."""
        self._give_back(self._held)
        self._tensors = {}

    def __enter__(self) -> Frame:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._held.closed else ""
        return f"<splatview frame: {self.kind}, version {self.version}, {self.skipped} skipped{closed}>"

    def _open(self) -> Shared:
        if self._held.closed:
            self._tensors = {}
            raise ValueError(f"version {self.version} was given back when the next frame was asked for, or by close(): "
                             "clone what you want to keep")
        return self._held.shared

    def _only(self) -> str:
        names = list(self._open().tensors)
        if len(names) == 1 or "image" in names:
            return "image" if "image" in names else names[0]
        raise ValueError(f"a frame of kind {self.kind} has several tensors: use frame.tensors[name], name one of "
                         f"{', '.join(names)}")


def open_memory(shared: Shared) -> None:
    """Map what a frame on a GPU lies in. Raises SharingError where this process cannot."""
    for tensor in shared.tensors.values():
        if isinstance(tensor, DeviceTensor):
            tensor.memory.pointer()


def _on_cpu(shared: RemoteTensor) -> torch.Tensor:
    """Return a tensor over the memory of an array."""
    import torch

    array, dtype = shared.array, getattr(torch, shared.dtype)
    if not array.size:
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(array, dtype=dtype).view(array.shape)


def _capsule(tensor: torch.Tensor, max_version: tuple[int, int] | None, stream: int | None = None) -> Any:
    """A tensor's own, as versioned as this torch and the consumer know it."""
    options: dict[str, Any] = {} if stream is None else {"stream": stream}
    if max_version is not None:
        try:
            return tensor.__dlpack__(max_version=max_version, **options)
        except TypeError:  # torch before 2.9
            pass
    return tensor.__dlpack__(**options)
