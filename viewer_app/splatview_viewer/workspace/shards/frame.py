"""The newest frames of several ranks as one frame: their Gaussians one behind the other, rank by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.scene.frames import JoinedFrame, JoinedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import Frame

_ALIKE = ("color", "activated")
"""Metadata that says what the numbers mean."""


def join(frames: Sequence[Frame], ranks: Sequence[int], version: int, trouble: str = "") -> JoinedFrame:
    """Return one frame of kind gaussians from those of several ranks, at least one; it holds them until it is closed.
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
    if len({"shN" in frame.tensors for frame in frames}) > 1:
        raise ViewerError("shards: some ranks publish spherical harmonics beyond degree 0 and some do not: they cannot "
                          "be shown as one scene")
    tensors: dict[str, Any] = {name: tensor if name == "background" else JoinedTensor.of(
        [frame.tensors[name] for frame in frames]) for name, tensor in first.tensors.items()}
    joined = JoinedFrame(
        kind=first.kind, version=version, time_ns=max(frame.time_ns for frame in frames), meta=meta,
        tensors=tensors, intact=lambda: all([frame.intact() for frame in frames]), parts=frames,
        shards=tuple((rank, frame.tensors["means"].shape[0]) for rank, frame in zip(ranks, frames, strict=True)))

    def release() -> None:
        joined.kept.clear()
        for frame in frames:
            frame.close()

    joined.release = release
    return joined
