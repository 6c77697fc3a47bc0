"""The newest frames of several ranks as one frame: their Gaussians one behind the other, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.frame import DeviceTensor, Frame, RemoteTensor
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    Tensor = RemoteTensor | DeviceTensor

_ALIKE = ("color", "activated")
"""Metadata that says what the numbers mean."""


@dataclass
class JoinedFrame(Frame):
    """Reads as the frame of a stream does, and is whole as long as all its parts are."""

    shards: tuple[tuple[int, int], ...] = ()
    """Of each part, in order: its rank, and how many Gaussians it has."""


class JoinedTensor:
    """Tensors one behind the other, in host memory once somebody asks for them."""

    def __init__(self, parts: Sequence[Tensor], shape: tuple[int, ...]) -> None:
        self.parts = parts
        self.shape = shape
        self.dtype = _widest(parts)

    @property
    def array(self) -> np.ndarray:
        return self.to_floats()

    def to_float32(self) -> np.ndarray:
        """As `RemoteTensor.to_float32`."""
        return self.to_floats().astype(np.float32, copy=False)

    def to_floats(self) -> np.ndarray:
        """As `RemoteTensor.to_floats`: each number is copied once. Takes some milliseconds for each million Gaussians,
        as that of one stream does."""
        alike = all(part.shape[1:] == self.shape[1:] for part in self.parts)
        out, begin = (np.empty if alike else np.zeros)(self.shape, self.dtype), 0
        for part in self.parts:
            direct = isinstance(part, RemoteTensor) and part.dtype != "bfloat16"
            _place(out, begin, part.shape)[...] = part.array if direct else part.to_floats()  # type: ignore[union-attr]
            begin += part.shape[0]
        return out


class Gathering:
    """Brings the parts of one frame onto one GPU, behind what each of them waits for."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames
        self._made: dict[str, tuple[torch.Tensor, Sequence[DeviceTensor]]] = {}
        self._copied: set[str] = set()
        self._kept: list[Any] = []
        """What copies between two GPUs still read."""
        self._done: Any = None
        """The event behind all copies."""

    def tensor(self, name: str, shape: tuple[int, ...], parts: Sequence[DeviceTensor]) -> torch.Tensor:
        """Where this tensor will lie, float32 or float64, on the GPU of the first part; `wait` fills it."""
        import torch

        if name not in self._made:
            device = parts[0].torch().device
            self._made[name] = torch.empty(shape, dtype=getattr(torch, _widest(parts)), device=device), parts
        return self._made[name][0]

    def wait(self, stream: int) -> None:
        """As `Frame.wait`. Whoever asks first has that stream copy; later ones wait for it."""
        import torch

        pending = [name for name in self._made if name not in self._copied]
        if not pending:
            if self._done is not None:
                device = next(iter(self._made.values()))[0].device
                torch.cuda.ExternalStream(stream, device).wait_event(self._done)
            return
        device = self._made[pending[0]][0].device
        here = torch.cuda.ExternalStream(stream, device)
        with torch.no_grad(), torch.cuda.stream(here):
            for name in pending:
                self._made[name][0].zero_()  # a part may hold fewer coefficients
            begins = dict.fromkeys(pending, 0)
            for i, frame in enumerate(self._frames):
                source = self._made[pending[0]][1][i].torch().device
                there = here if source == device else _stream(source)
                frame.wait(there.cuda_stream)
                for name in pending:
                    out, parts = self._made[name]
                    self._copy(_place(out, begins[name], parts[i].shape), parts[i].torch(), there)
                    begins[name] += parts[i].shape[0]
            self._done = here.record_event()
        self._copied.update(pending)

    def _copy(self, out: torch.Tensor, part: torch.Tensor, there: torch.cuda.Stream) -> None:
        import torch

        part = part.detach()
        if part.device != out.device:  # packed where it lies, so that one plain copy goes from GPU to GPU
            here = torch.cuda.current_stream(out.device)
            with torch.cuda.stream(there):
                part = part.to(out.dtype).contiguous()
                with torch.cuda.stream(here):
                    out.copy_(part, non_blocking=True)  # torch orders it behind both
            self._kept.append(part)
            return
        out.copy_(part)

    def drop(self) -> None:
        """The frame is closed: no GPU reads it any more."""
        self._made.clear()
        self._kept.clear()
        self._done = None


@dataclass(frozen=True)
class GatheredTensor(DeviceTensor):
    """Tensors of several ranks, on one GPU once somebody asks for them."""

    parts: tuple[DeviceTensor, ...] = ()
    name: str = ""
    gathering: Gathering | None = field(default=None, repr=False, compare=False)

    def torch(self) -> torch.Tensor:
        """As `DeviceTensor.torch`, but a tensor of this process's own: `Frame.wait` has it filled."""
        assert self.gathering is not None
        return self.gathering.tensor(self.name, self.shape, self.parts)

    def to_floats(self) -> np.ndarray:
        return JoinedTensor(self.parts, self.shape).to_floats()


def _widest(parts: Sequence[Tensor]) -> str:
    """Return "float64" if one of them is that, else "float32"."""
    return "float64" if any(part.dtype == "float64" for part in parts) else "float32"


def join(frames: Sequence[Frame], ranks: Sequence[int], version: int, trouble: str = "") -> JoinedFrame:
    """One frame of kind gaussians from those of several ranks, at least one; it holds them until it is closed.
    `trouble`: what to say over the picture beside what the ranks say.

    Raises ViewerError where they do not fit together. On a GPU if all of them are; which one, the first part decides.
    """
    first, meta = frames[0], dict(frames[0].meta)
    for frame, rank in zip(frames, ranks, strict=True):
        for name in _ALIKE:
            if frame.meta.get(name) != meta.get(name):
                raise ViewerError(f"shards: rank {ranks[0]} publishes {name} {meta.get(name)!r}, rank {rank} "
                                  f"{frame.meta.get(name)!r}: they cannot be shown as one scene")
    meta["sh_degree"] = max(int(frame.meta.get("sh_degree", 0)) for frame in frames)
    troubles = [trouble, *(f"rank {rank}: {text}" for frame, rank in zip(frames, ranks, strict=True)
                           if isinstance(text := frame.meta.get("trouble"), str) and text)]
    meta.pop("trouble", None)
    if any(troubles):
        meta["trouble"] = "; ".join(filter(None, troubles))
    gathering = Gathering(frames) if all(frame.on_gpu for frame in frames) else None
    tensors: dict[str, Any] = {}
    for name in first.tensors:
        if name == "background":
            tensors[name] = first.tensors[name]
            continue
        parts = tuple(frame.tensors[name] for frame in frames if name in frame.tensors)
        if name == "shN" and len(parts) < len(frames):
            continue
        tensors[name] = _joined(name, parts, gathering)
    if "shN" not in tensors and any("shN" in frame.tensors for frame in frames):
        raise ViewerError("shards: some ranks publish spherical harmonics beyond degree 0 and some do not: they cannot "
                          "be shown as one scene")

    def release() -> None:
        if gathering is not None:
            gathering.drop()
        for frame in frames:
            frame.close()

    joined = JoinedFrame(
        kind=first.kind, version=version, time_ns=max(frame.time_ns for frame in frames), meta=meta, tensors=tensors,
        intact=lambda: all([frame.intact() for frame in frames]), release=release,
        shards=tuple((rank, frame.tensors["means"].shape[0]) for rank, frame in zip(ranks, frames, strict=True)))
    if gathering is not None:
        joined.wait = gathering.wait
        joined.arrived = lambda: all(frame.complete for frame in frames)
    return joined


def _joined(name: str, parts: tuple[Any, ...], gathering: Gathering | None) -> Any:
    rest = parts[0].shape[1:]
    if name == "shN":
        rest = max(part.shape[1] for part in parts), 3
    shape = sum(part.shape[0] for part in parts), *rest
    if gathering is None:
        return JoinedTensor(parts, shape)
    return GatheredTensor(_widest(parts), shape, (), parts[0].memory, 0, gathering.wait, parts, name, gathering)


def _place(out: Any, begin: int, shape: tuple[int, ...]) -> Any:
    """The part of `out` that a tensor of this shape fills, from this row on."""
    return out[(slice(begin, begin + shape[0]), *(slice(0, extent) for extent in shape[1:]))]


def _stream(device: Any) -> Any:
    """The stream on which another GPU packs what it sends."""
    import torch

    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]


_streams: dict[Any, Any] = {}
