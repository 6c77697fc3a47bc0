"""`splatview.publish(..., shard=(rank, world))`: what is said of a part, and which parts belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.wait import wait_until

import splatview
from splatview.api.shard import group_of_this_process

if TYPE_CHECKING:

    from support.programs import Programs

    from splatview_ipc.control.messages import StreamInfo
    from splatview_ipc.subscriber.subscriber import Subscriber

LAUNCHERS = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID",
             "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SPLATVIEW_GROUP")
PRINTS = "from splatview.api.shard import group_of_this_process as g; print(g())"
STARTS = f"""
import subprocess, sys
open("a.py", "w").write({PRINTS!r})
open("b.py", "w").write({PRINTS!r})
for name in ("a.py", "a.py", "b.py"):
    subprocess.run([sys.executable, name], check=True)
"""
SCENE = {"means": torch.zeros(3, 3), "quats": torch.ones(3, 4), "scales": torch.zeros(3, 3),
         "opacities": torch.zeros(3), "sh0": torch.zeros(3, 1, 3), "shN": torch.zeros(3, 0, 3)}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def test_viewers_are_told(subscriber: Subscriber) -> None:
    splatview.publish(SCENE, "scene", shard=(1, 4), step=3)
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


# -- which processes belong together -----------------------------------------------------------------------------------

TORCHRUN = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "RANK": "0"}
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}


def group(monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    """The group of a process with these variables."""
    with monkeypatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        return group_of_this_process()


@pytest.mark.parametrize(("one", "same", "other"), [
    (TORCHRUN, {"RANK": "1", "TORCHELASTIC_RESTART_COUNT": "3"}, {"MASTER_PORT": "29501"}),
    (TORCHRUN, {}, {"TORCHELASTIC_RUN_ID": "other"}),
    (STEP, {"SLURM_PROCID": "1"}, {"SLURM_STEP_ID": "1"}),
    ({"PMIX_NAMESPACE": "prterun-1@1"}, {}, {"PMIX_NAMESPACE": "prterun-1@2"}),
    ({"SPLATVIEW_GROUP": "mine", **TORCHRUN}, {"MASTER_PORT": "1"}, {"SPLATVIEW_GROUP": "m\u00efne \udcff"}),
])
def test_what_the_launcher_tells_all_ranks_decides(monkeypatch: pytest.MonkeyPatch, one: dict[str, str],
                                                   same: dict[str, str], other: dict[str, str]) -> None:
    first = group(monkeypatch, **one)
    assert len(first) == 16
    assert group(monkeypatch, **one | same) == first != group(monkeypatch, **one | other)
    assert first != group(monkeypatch)


def test_otherwise_the_parent_and_the_script_decide(programs: Programs) -> None:
    """Two trainings of one script from two programs are two, the processes that one program starts are one."""
    one, two = ([*text.split()] for text in (programs.code(STARTS).end()[0], programs.code(STARTS).end()[0]))
    assert one[0] == one[1] != one[2]
    assert len({*one, *two}) == 4
