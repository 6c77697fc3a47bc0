"""`splatview.publish(..., shard=(rank, world))`: what is said of a part, and which parts belong together."""

from __future__ import annotations

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

LAUNCHERS = (
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
PRINTS = "from splatview.api.shard import group_of_this_process as g; print(g())"
STARTS = f"""
import subprocess, sys
open("a.py", "w").write({PRINTS!r})
open("b.py", "w").write({PRINTS!r})
for name in ("a.py", "a.py", "b.py"):
    subprocess.run([sys.executable, name], check=True)
"""
SCENE = {
    "means": torch.zeros(3, 3),
    "quats": torch.ones(3, 4),
    "scales": torch.zeros(3, 3),
    "opacities": torch.zeros(3),
    "sh0": torch.zeros(3, 1, 3),
    "shN": torch.zeros(3, 0, 3),
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def test_viewers_are_told(subscriber: Subscriber) -> None:
    splatview.publish(SCENE, "scene", shard=(1, 4), meta={"step": 3})
    splatview.publish(SCENE, "alone")

    def told() -> dict[str, StreamInfo]:
        subscriber.poll()
        return {s.name: s.info for s in subscriber.streams}

    infos = wait_until(lambda: len(told()) == 2 and told())
    assert infos["scene"].shard == (1, 4)
    assert infos["scene"].group == group_of_this_process()
    assert (infos["alone"].shard, infos["alone"].group) == (None, "")
    splatview.publish(SCENE, "scene", shard=(0, 3))  # fewer go on
    wait_until(lambda: told()["scene"].shard == (0, 3))
    splatview.publish(SCENE, "scene")
    wait_until(lambda: told()["scene"].shard is None and told()["scene"].group == "")


TORCHRUN = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "0",
}
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}


def group(monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    """The group of a process with these variables."""
    with monkeypatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        return group_of_this_process()


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (
            TORCHRUN,
            {"RANK": "1", "TORCHELASTIC_RESTART_COUNT": "3"},
            {"MASTER_PORT": "29501"},
        ),
        (TORCHRUN, {}, {"TORCHELASTIC_RUN_ID": "other"}),
        (STEP, {"SLURM_PROCID": "1"}, {"SLURM_STEP_ID": "1"}),
        ({"PMIX_NAMESPACE": "prterun-1@1"}, {}, {"PMIX_NAMESPACE": "prterun-1@2"}),
        (
            {"SPLATVIEW_GROUP": "mine", **TORCHRUN},
            {"MASTER_PORT": "1"},
            {"SPLATVIEW_GROUP": "m\u00efne \udcff"},
        ),
    ],
)
def test_what_the_launcher_tells_all_ranks_decides(
    monkeypatch: pytest.MonkeyPatch,
    one: dict[str, str],
    same: dict[str, str],
    other: dict[str, str],
) -> None:
    first = group(monkeypatch, **one)
    assert len(first) == 16
    assert (
        group(monkeypatch, **one | same) == first != group(monkeypatch, **one | other)
    )
    assert first != group(monkeypatch)


def test_otherwise_the_parent_and_the_script_decide(programs: Programs) -> None:
    """Two trainings of one script from two programs are two, the processes that one program starts are one."""
    one, two = (
        [*text.split()]
        for text in (programs.code(STARTS).end()[0], programs.code(STARTS).end()[0])
    )
    assert one[0] == one[1] != one[2]
    assert len({*one, *two}) == 4


def frame(
    n: int, rank: int = 0, *, rest: int | None = 3, rgb: bool = False, **meta: Any
) -> StreamFrame:
    """A rank's, all of whose numbers are its own."""
    random = np.random.default_rng(rank)
    shapes: dict[str, tuple[int, ...]] = {
        "means": (n, 3),
        "quats": (n, 4),
        "scales": (n, 3),
        "opacities": (n,),
        "rgb" if rgb else "sh0": (n, 3),
    }
    if rest is not None:
        shapes["shN"] = n, rest, 3
    tensors: dict[str, Any] = {
        name: RemoteTensor("float32", random.random(shape, np.float32))
        for name, shape in shapes.items()
    }
    said = {
        "color": "rgb" if rgb else "sh",
        "activated": False,
        "sh_degree": 1,
        "antialiased": False,
        **meta,
    }
    kinds.check_frame(
        "gaussians", {name: (t.dtype, t.shape) for name, t in tensors.items()}, said
    )
    return StreamFrame(
        "gaussians", 5 + rank, 100 + rank, said, tensors, lambda: True, lambda: None
    )


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


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"rgb": True, "rest": None}, "color 'sh', rank 3 'rgb'"),
        ({"activated": True}, "activated False, rank 3 True"),
        ({"rest": None}, "beyond degree 0"),
    ],
)
def test_what_does_not_fit_together_is_said(other: dict[str, Any], words: str) -> None:
    for parts in ([frame(2, 0), frame(2, 3, **other)],):
        with pytest.raises(ViewerError, match=words):
            join(parts, [0, 3], 1)


def source(rank: int) -> Any:
    """What there is of the stream of one of two ranks as far as versions go."""
    info = SimpleNamespace(shard=(rank, 2), group="a" * 16, name="scene", shape=(3, 14))
    run = SimpleNamespace(
        alive=True, name="train", id=f"train-{rank}", pid=rank + 1, streams={}
    )
    made = SimpleNamespace(
        run=run,
        info=info,
        version=1,
        opened=True,
        fault=None,
        holds=1,
        name="scene",
        kind="gaussians",
        fallback="",
        shape=info.shape,
        gpu="",
        live=False,
    )
    made.open = made.release = lambda: None
    made.read = lambda after: (
        frame(3, rank) if made.version > after and made.opened else None
    )
    return made


def test_a_step_of_all_is_one_version() -> None:
    shards = Shards()
    ranks = [source(0), source(1)]
    now = 100.0
    (whole,) = shards.update(ranks, now)

    def version_after(seconds: float = 0.0) -> int:
        nonlocal now
        whole.version  # noqa: B018  (it looks)
        now += seconds
        shards.turn(now)
        return whole.version

    assert version_after() == 1
    ranks[0].version = 2
    assert version_after() == 1  # the other comes in a moment
    ranks[1].version = 2
    assert version_after() == 2
    ranks[0].version = 5
    assert version_after() == 2
    assert version_after(TOGETHER) == 5  # it does not come
    for step in (6, 7, 8):
        ranks[0].version = step
        assert version_after(TOGETHER) == step
    ranks[1].version = 3  # it is far behind
    assert version_after(TOGETHER) == 9
