"""`splatview.publish(..., shard=(rank, world))`: parts of a scene, and which belong together."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.programs import Programs
from support.wait import wait_until

import splatview
from splatview.api.shard import group_of_this_process
from splatview_ipc import kinds
from splatview_ipc.control.frame import RemoteTensor, StreamFrame
from splatview_ipc.control.messages import StreamInfo
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.scene.frames import scene_of
from splatview_viewer.workspace.join_shards import join
from splatview_viewer.workspace.shards import TOGETHER, Shards

_LAUNCHER_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "PMI_JOBID",
    "SPLATVIEW_GROUP",
)


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


# -- announcements ---------------------------------------------------------------------

_SCENE = {
    "means": torch.zeros(3, 3),
    "quats": torch.ones(3, 4),
    "scales": torch.zeros(3, 3),
    "opacities": torch.zeros(3),
    "sh0": torch.zeros(3, 1, 3),
    "shN": torch.zeros(3, 0, 3),
}


def test_viewers_get_the_shard_and_its_changes(subscriber: Subscriber) -> None:
    splatview.publish(_SCENE, "scene", shard=(1, 4), meta={"step": 3})
    splatview.publish(_SCENE, "alone")

    def poll_infos() -> dict[str, StreamInfo]:
        subscriber.poll()
        return {stream.name: stream.info for stream in subscriber.streams}

    wait_until(lambda: len(poll_infos()) == 2)
    infos = poll_infos()
    assert infos["scene"].shard == (1, 4)
    assert infos["scene"].group == group_of_this_process()
    assert infos["alone"].shard is None
    assert infos["alone"].group == ""
    # Fewer ranks go on.
    splatview.publish(_SCENE, "scene", shard=(0, 3))
    wait_until(lambda: poll_infos()["scene"].shard == (0, 3))
    splatview.publish(_SCENE, "scene")
    wait_until(lambda: poll_infos()["scene"].shard is None)
    assert poll_infos()["scene"].group == ""


# -- groups ----------------------------------------------------------------------------

_TORCHRUN = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "0",
}
_SLURM_STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}


def _group_with(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> str:
    """Return the group of a process with these variables."""
    with monkeypatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        return group_of_this_process()


@pytest.mark.parametrize(
    ("environ", "same_group", "other_group"),
    [
        (
            _TORCHRUN,
            {"RANK": "1", "TORCHELASTIC_RESTART_COUNT": "3"},
            {"MASTER_PORT": "29501"},
        ),
        (_TORCHRUN, {}, {"TORCHELASTIC_RUN_ID": "other"}),
        (_SLURM_STEP, {"SLURM_PROCID": "1"}, {"SLURM_STEP_ID": "1"}),
        ({"PMIX_NAMESPACE": "prterun-1@1"}, {}, {"PMIX_NAMESPACE": "prterun-1@2"}),
        (
            {"SPLATVIEW_GROUP": "mine", **_TORCHRUN},
            {"MASTER_PORT": "1"},
            {"SPLATVIEW_GROUP": "m\u00efne \udcff"},
        ),
    ],
)
def test_group_follows_the_variables_that_a_launcher_gives_all_ranks(
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    same_group: dict[str, str],
    other_group: dict[str, str],
) -> None:
    group = _group_with(monkeypatch, environ)
    assert len(group) == 16
    assert _group_with(monkeypatch, environ | same_group) == group
    assert _group_with(monkeypatch, environ | other_group) != group
    assert _group_with(monkeypatch, {}) != group


_PRINT_GROUP = "from splatview.api.shard import group_of_this_process as g; print(g())"
_START_SCRIPTS = f"""
import subprocess, sys
open("a.py", "w").write({_PRINT_GROUP!r})
open("b.py", "w").write({_PRINT_GROUP!r})
for name in ("a.py", "a.py", "b.py"):
    subprocess.run([sys.executable, name], check=True)
"""
"""Starts one script twice, and another one; each prints its group."""


def test_group_follows_the_parent_and_the_script_without_a_launcher(
    programs: Programs,
) -> None:
    first_groups = programs.code(_START_SCRIPTS).end()[0].split()
    second_groups = programs.code(_START_SCRIPTS).end()[0].split()
    first_a, second_a, first_b = first_groups
    assert first_a == second_a
    assert first_a != first_b
    # The same scripts, started by another program.
    assert len({*first_groups, *second_groups}) == 4


# -- joined frames ---------------------------------------------------------------------


def _frame(
    count: int,
    rank: int = 0,
    *,
    rest: int | None = 3,
    rgb: bool = False,
    activated: bool = False,
) -> StreamFrame:
    """Return the frame of a rank, all of whose numbers are its own."""
    random = np.random.default_rng(rank)
    color = "rgb" if rgb else "sh"
    shapes: dict[str, tuple[int, ...]] = {
        "means": (count, 3),
        "quats": (count, 4),
        "scales": (count, 3),
        "opacities": (count,),
        "rgb" if rgb else "sh0": (count, 3),
    }
    if rest is not None:
        shapes["shN"] = (count, rest, 3)
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
    frames = [_frame(4, 0), _frame(0, 1), _frame(3, 2)]
    joined = join(frames, [0, 1, 2], 9)
    assert joined.version == 9
    assert joined.time_ns == 102
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
        ({"rgb": True, "rest": None}, "color 'sh', rank 3 'rgb'"),
        ({"activated": True}, "activated False, rank 3 True"),
        ({"rest": None}, "beyond degree 0"),
    ],
)
def test_parts_that_differ_are_refused_with_the_difference(
    difference: dict[str, Any], message: str
) -> None:
    frames = [_frame(2, 0), _frame(2, 3, **difference)]
    with pytest.raises(ViewerError, match=message):
        join(frames, [0, 3], 1)


# -- versions --------------------------------------------------------------------------


@dataclass(eq=False)
class _RankStream:
    """The stream of one of two ranks, as far as its versions go."""

    rank: int
    version: int = 1
    opened: bool = True
    fault: None = None
    holds: int = 1
    name: str = "scene"
    kind: str = "gaussians"
    fallback: str = ""
    shape: tuple[int, int] = (3, 14)
    gpu: str = ""
    live: bool = False
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


class _Clock:
    """Asks for the version of a sharded stream as time passes."""

    def __init__(self, *ranks: Any) -> None:
        self.now = 100.0
        self._shards = Shards()
        (self._stream,) = self._shards.update(list(ranks), self.now)

    def version_after(self, seconds: float = 0.0) -> int:
        self._stream.version  # noqa: B018  (reading it looks at the ranks)
        self.now += seconds
        self._shards.tick(self.now)
        return self._stream.version


def test_scene_has_a_new_version_once_all_ranks_have_or_time_has_passed() -> None:
    first: Any = _RankStream(0)
    second: Any = _RankStream(1)
    clock = _Clock(first, second)
    assert clock.version_after() == 1
    first.version = 2
    assert clock.version_after() == 1
    second.version = 2
    assert clock.version_after() == 2


def test_scene_does_not_wait_for_a_rank_that_is_late() -> None:
    first: Any = _RankStream(0, version=2)
    second: Any = _RankStream(1, version=2)
    clock = _Clock(first, second)
    assert clock.version_after() == 2
    first.version = 5
    assert clock.version_after() == 2
    assert clock.version_after(TOGETHER) == 5
    for step in (6, 7, 8):
        first.version = step
        assert clock.version_after(TOGETHER) == step
    # The late one is far behind now; its version is a change nevertheless.
    second.version = 3
    assert clock.version_after(TOGETHER) == 9
