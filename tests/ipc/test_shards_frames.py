"""Frames of several ranks as one, and when there is a new one, without programs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from splatview_ipc import kinds
from splatview_ipc.control.frame import Frame, RemoteTensor
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.gaussians.cache import Facts
from splatview_viewer.scene.frames import scene_of
from splatview_viewer.workspace.shards import GATHER, TOGETHER, Shards, join


def frame(n: int, rank: int = 0, *, rest: int | None = 3, rgb: bool = False,
          **meta: Any) -> Frame:
    """A rank's, all of whose numbers are its own."""
    random = np.random.default_rng(rank)
    shapes: dict[str, tuple[int, ...]] = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,),
                                          "rgb" if rgb else "sh0": (n, 3)}
    if rest is not None:
        shapes["shN"] = n, rest, 3
    tensors: dict[str, Any] = {name: RemoteTensor("float32", random.random(shape, np.float32))
                               for name, shape in shapes.items()}
    said = {"color": "rgb" if rgb else "sh", "activated": False, "sh_degree": 1, "antialiased": False, **meta}
    kinds.check_frame("gaussians", {name: (t.dtype, t.shape) for name, t in tensors.items()}, said)
    return Frame("gaussians", 5 + rank, 100 + rank, said, tensors, lambda: True, lambda: None)


def test_rank_by_rank_one_behind_the_other() -> None:
    parts = [frame(4, 0), frame(0, 1), frame(3, 2)]
    joined = join(parts, [0, 1, 2], 9)
    assert (joined.version, joined.time_ns, joined.on_gpu) == (9, 102, False)
    assert joined.shards == ((0, 4), (1, 0), (2, 3))
    scene, _ = scene_of(joined)
    for name in ("means", "quats", "scales", "opacities", "sh0", "shN"):
        wanted = np.concatenate([p.tensors[name].to_float32() for p in parts])
        np.testing.assert_array_equal(getattr(scene, name), wanted)
        assert joined.tensors[name].shape == wanted.shape
    facts = Facts.of(scene)
    assert [facts.shard_of(i) for i in (0, 3, 4, 6, 7)] == [(0, 0), (0, 3), (2, 0), (2, 2), None]


@pytest.mark.parametrize(("other", "words"), [
    ({"rgb": True, "rest": None}, "color 'sh', rank 3 'rgb'"), ({"activated": True}, "activated False, rank 3 True"),
    ({"rest": None}, "beyond degree 0"),
])
def test_what_does_not_fit_together_is_said(other: dict[str, Any], words: str) -> None:
    for parts in ([frame(2, 0), frame(2, 3, **other)],):
        with pytest.raises(ViewerError, match=words):
            join(parts, [0, 3], 1)


# -- when there is a new one -------------------------------------------------------------------------------------------


def source(rank: int, world: int = 2, group: str = "a" * 16, name: str = "scene", run: str = "train") -> Any:
    """What there is of a rank's stream as far as versions go."""
    info = SimpleNamespace(shard=(rank, world), group=group, name=name, shape=(3, 14))
    one = SimpleNamespace(alive=True, name=run, id=f"{run}-{rank}-{group}", pid=rank + 1, streams={})
    made = SimpleNamespace(run=one, info=info, version=1, opened=True, fault=None, holds=1, name=name, kind="gaussians",
                           fallback="", shape=info.shape, gpu="", live=False)
    made.open = made.release = lambda: None
    made.read = lambda after: frame(3, rank) if made.version > after and made.opened else None
    return made


class Viewer:
    """Puts the streams of ranks together, in turns at times of its own."""

    def __init__(self, *ranks: Any) -> None:
        self.shards, self.ranks, self.now = Shards(), list(ranks), 100.0
        (self.whole,) = self.shards.update(self.ranks, self.now)

    def version_after(self, seconds: float = 0.0) -> int:
        self.whole.version  # noqa: B018  (it looks)
        self.now += seconds
        self.shards.turn(self.now)
        return self.whole.version

    def found(self, *ranks: Any) -> None:
        self.ranks += ranks
        self.shards.update(self.ranks, self.now)


def test_a_step_of_all_is_one_version() -> None:
    ranks = [source(0), source(1)]
    viewer = Viewer(*ranks)
    assert viewer.version_after() == 1
    ranks[0].version = 2
    assert viewer.version_after() == 1  # the other comes in a moment
    ranks[1].version = 2
    assert viewer.version_after() == 2
    ranks[0].version = 5
    assert viewer.version_after() == 2
    assert viewer.version_after(TOGETHER) == 5  # it does not come
    for step in (6, 7, 8):
        ranks[0].version = step
        assert viewer.version_after(TOGETHER) == step
    ranks[1].version = 3  # it is far behind
    assert viewer.version_after(TOGETHER) == 9


def test_the_first_picture_waits_for_all_but_not_for_long() -> None:
    viewer = Viewer(source(0, 3))
    assert viewer.version_after() == 0
    assert viewer.version_after(GATHER / 2) == 0
    viewer.found(source(1, 3))
    assert viewer.version_after() == 0
    assert viewer.version_after(GATHER) == 1
    assert viewer.whole.read(0).meta["trouble"] == "2 of 3 shards; rank 2 not found"
    viewer.found(source(2, 3))
    assert viewer.version_after() == 2  # at once
    assert viewer.whole.read(1).meta.get("trouble") is None
