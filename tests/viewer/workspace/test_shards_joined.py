"""Parts of a sharded scene: how they are joined, and when there is a new version."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from splatview_ipc import kinds
from splatview_ipc.control.frame import RemoteTensor, StreamFrame
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.scene.frames import scene_of
from splatview_viewer.workspace.join_shards import join
from splatview_viewer.workspace.shards import RANK_WAIT, Shards

# -- joined frames ---------------------------------------------------------------------


def _frame(
    count: int,
    rank: int = 0,
    *,
    rest_count: int | None = 3,
    rgb: bool = False,
    activated: bool = False,
) -> StreamFrame:
    """Make the frame of one rank, with random numbers that no other rank has.

    Args:
        count: Number of Gaussians.
        rank: Of the process. It decides version (5 + rank) and time (100 + rank).
        rest_count: Harmonics beyond degree 0; None: no tensor of them.
        rgb: Colours instead of harmonics.
        activated: As in the metadata.
    """
    random = np.random.default_rng(rank)
    color = "rgb" if rgb else "sh"
    shapes: dict[str, tuple[int, ...]] = {
        "means": (count, 3),
        "quats": (count, 4),
        "scales": (count, 3),
        "opacities": (count,),
        "rgb" if rgb else "sh0": (count, 3),
    }
    if rest_count is not None:
        shapes["shN"] = (count, rest_count, 3)
    tensors: dict[str, Any] = {}
    for name, shape in shapes.items():
        tensors[name] = RemoteTensor("float32", random.random(shape, np.float32))
    meta = {
        "color": color,
        "activated": activated,
        "sh_degree": 1,
        "antialiased": False,
    }
    specs = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    kinds.check_frame("gaussians", specs, meta)
    return StreamFrame(
        kind="gaussians",
        version=5 + rank,
        time_ns=100 + rank,
        meta=meta,
        tensors=tensors,
        intact=lambda: True,
    )


def test_joined_scene_has_the_parts_in_the_order_of_their_ranks() -> None:
    frames = [_frame(4, rank=0), _frame(0, rank=1), _frame(3, rank=2)]
    joined = join(frames, ranks=[0, 1, 2], version=9)
    assert joined.version == 9
    # The time of the last part.
    assert joined.time_ns == frames[2].time_ns
    assert not joined.on_gpu
    assert joined.shards == ((0, 4), (1, 0), (2, 3))
    scene, _ = scene_of(joined)
    for name in ("means", "quats", "scales", "opacities", "sh0", "shN"):
        arrays = [frame.tensors[name].to_float32() for frame in frames]
        expected = np.concatenate(arrays)
        np.testing.assert_array_equal(getattr(scene, name), expected)
        assert joined.tensors[name].shape == expected.shape


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ({"rgb": True, "rest_count": None}, "color 'sh', rank 3 'rgb'"),
        ({"activated": True}, "activated False, rank 3 True"),
        ({"rest_count": None}, "beyond degree 0"),
    ],
    ids=["color", "activated", "harmonics"],
)
def test_parts_that_differ_are_refused_with_the_difference(
    difference: dict[str, Any], message: str
) -> None:
    frames = [_frame(2, rank=0), _frame(2, rank=3, **difference)]
    with pytest.raises(ViewerError, match=message):
        join(frames, ranks=[0, 3], version=1)


# -- versions --------------------------------------------------------------------------


class _SceneOnCpu:
    """The attributes of a stream that publishes a scene on the CPU."""

    name = "scene"
    kind = "gaussians"
    fallback = ""
    gpu = ""
    live = False


@dataclass(eq=False)
class _RankStream(_SceneOnCpu):
    """A double of the stream of one of two ranks: a test sets its version.

    Its other attributes say that the rank is alive.
    """

    rank: int
    version: int = 1
    opened: bool = True
    fault: None = None
    holds: int = 1
    shape: tuple[int, int] = (3, 14)
    info: Any = field(init=False)
    run: Any = field(init=False)

    def __post_init__(self) -> None:
        self.info = SimpleNamespace(
            shard=(self.rank, 2), group="a" * 16, name=self.name, shape=self.shape
        )
        self.run = SimpleNamespace(
            alive=True,
            name="train",
            id=f"train-{self.rank}",
            pid=self.rank + 1,
            streams={},
        )

    def open(self) -> None:
        pass

    def release(self) -> None:
        pass

    def read(self, after: int) -> StreamFrame | None:
        if self.version <= after or not self.opened:
            return None
        return _frame(3, self.rank)


class _SceneOfRanks:
    """The scene of some ranks, and a clock that tests move on."""

    def __init__(self, *ranks: Any) -> None:
        self.now = 100.0
        self._shards = Shards()
        (self._stream,) = self._shards.update(list(ranks), self.now)

    def version_after(self, seconds: float = 0.0) -> int:
        """Look at the version, let time pass, and return the version after it."""
        # The first look notices the ranks' versions: from then on the time counts.
        _ = self._stream.version
        self.now += seconds
        self._shards.tick(self.now)
        return self._stream.version


def test_scene_has_a_new_version_once_all_ranks_have_it() -> None:
    first: Any = _RankStream(0)
    second: Any = _RankStream(1)
    scene = _SceneOfRanks(first, second)
    assert scene.version_after() == 1
    first.version = 2
    assert scene.version_after() == 1
    second.version = 2
    assert scene.version_after() == 2


def test_scene_does_not_wait_for_a_rank_that_is_late() -> None:
    first: Any = _RankStream(0, version=2)
    second: Any = _RankStream(1, version=2)
    scene = _SceneOfRanks(first, second)
    assert scene.version_after() == 2
    first.version = 5
    assert scene.version_after() == 2
    assert scene.version_after(RANK_WAIT) == 5
    for version in (6, 7, 8):
        first.version = version
        assert scene.version_after(RANK_WAIT) == version
    # What the late rank publishes changes the picture, so the scene's version goes on,
    # though this rank's version is far behind.
    second.version = 3
    assert scene.version_after(RANK_WAIT) == 9
