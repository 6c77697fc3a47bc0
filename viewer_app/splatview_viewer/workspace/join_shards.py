"""One frame of Gaussians from the frames of several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.scene.frames import JoinedFrame, JoinedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.control.frame import StreamFrame

_SAME_META = ("color", "activated")
"""Metadata by which the numbers are to be understood: all ranks must have the same."""
_ALL_OR_NONE = {
    "shN": "spherical harmonics beyond degree 0",
    "filter_3D": "a filter_3D",
}
"""Tensors that all ranks or none must publish, in words."""


def join(
    frames: Sequence[StreamFrame], ranks: Sequence[int], version: int, trouble: str = ""
) -> JoinedFrame:
    """Return one frame of kind gaussians from those of several ranks, at least one.

    It holds them until it is closed, and is on a GPU if all of them are; which one, the
    first part decides.

    Args:
        frames: the frames of the ranks.
        ranks: the ranks of the frames.
        version: the version of the joined frame.
        trouble: what to show over the picture beside what the ranks report.

    Raises:
        ViewerError: the frames do not fit together.
    """
    _check_alike(frames, ranks)
    meta = dict(frames[0].meta)
    meta["sh_degree"] = max(int(frame.meta.get("sh_degree", 0)) for frame in frames)
    meta.pop("trouble", None)
    troubles = [trouble, *_troubles_of(frames, ranks)]
    if any(troubles):
        meta["trouble"] = "; ".join(filter(None, troubles))
    counts = [frame.tensors["means"].shape[0] for frame in frames]
    joined = JoinedFrame(
        kind=frames[0].kind,
        version=version,
        time_ns=max(frame.time_ns for frame in frames),
        meta=meta,
        tensors=_join_tensors(frames),
        intact=lambda: all(frame.intact() for frame in frames),
        frames=frames,
        shards=tuple(zip(ranks, counts, strict=True)),
    )

    def release() -> None:
        joined.pinned.clear()
        for frame in frames:
            frame.close()

    joined.release = release
    return joined


def _check_alike(frames: Sequence[StreamFrame], ranks: Sequence[int]) -> None:
    """Raise ViewerError unless the frames can be shown as one scene."""
    first_meta = frames[0].meta
    for frame, rank in zip(frames, ranks, strict=True):
        for name in _SAME_META:
            if frame.meta.get(name) != first_meta.get(name):
                raise ViewerError(
                    f"shards: rank {ranks[0]} publishes {name} "
                    f"{first_meta.get(name)!r}, "
                    f"rank {rank} {frame.meta.get(name)!r}: they cannot be shown as "
                    "one "
                    "scene"
                )
    for name, title in _ALL_OR_NONE.items():
        has_tensor = {name in frame.tensors for frame in frames}
        if len(has_tensor) > 1:
            raise ViewerError(
                f"shards: some ranks publish {title} and some do not: they cannot be "
                "shown as one scene"
            )


def _troubles_of(frames: Sequence[StreamFrame], ranks: Sequence[int]) -> list[str]:
    """Return what ranks report to be wrong, in words."""
    troubles = []
    for frame, rank in zip(frames, ranks, strict=True):
        text = frame.meta.get("trouble")
        if isinstance(text, str) and text:
            troubles.append(f"rank {rank}: {text}")
    return troubles


def _join_tensors(frames: Sequence[StreamFrame]) -> dict[str, Any]:
    """Return each tensor of all ranks, one after the other; the first's background."""
    tensors: dict[str, Any] = {}
    for name, tensor in frames[0].tensors.items():
        if name == "background":
            tensors[name] = tensor
        else:
            tensors[name] = JoinedTensor.of([frame.tensors[name] for frame in frames])
    return tensors
