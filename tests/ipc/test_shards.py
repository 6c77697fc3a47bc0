"""Parts of a scene that ranks publish with `shard=`, and the group that joins them."""

from __future__ import annotations

import pytest
import torch
from support.programs import Programs
from support.wait import wait_until

import splatview
from splatview.api.shard import group_of_this_process
from splatview_ipc.control.messages import StreamInfo
from splatview_ipc.subscriber.subscriber import Subscriber

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
"""Variables that decide the group; the tests must not depend on how they are started."""


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


def test_subscribers_get_the_shard_and_group_and_their_changes(
    subscriber: Subscriber,
) -> None:
    splatview.publish(_SCENE, "scene", shard=(1, 4), meta={"step": 3})
    splatview.publish(_SCENE, "alone")

    def poll_infos() -> dict[str, StreamInfo]:
        subscriber.poll()
        return {stream.name: stream.info for stream in subscriber.streams}

    def wait_for_shard(shard: tuple[int, int] | None) -> None:
        wait_until(lambda: poll_infos()["scene"].shard == shard)

    wait_until(lambda: len(poll_infos()) == 2)
    infos = poll_infos()
    assert infos["scene"].shard == (1, 4)
    assert infos["scene"].group == group_of_this_process()
    assert infos["alone"].shard is None
    assert infos["alone"].group == ""
    # A training may continue with fewer ranks.
    splatview.publish(_SCENE, "scene", shard=(0, 3))
    wait_for_shard((0, 3))
    splatview.publish(_SCENE, "scene")
    wait_for_shard(None)
    assert poll_infos()["scene"].group == ""


# -- groups ----------------------------------------------------------------------------

_GROUP_LETTERS = 16
_TORCHRUN = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "0",
}
_SLURM_STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}


def _group_with(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> str:
    """Return the group of a process with these environment variables."""
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return group_of_this_process()


@pytest.mark.parametrize(
    ("variables", "same_group", "other_group"),
    [
        pytest.param(
            _TORCHRUN,
            {"RANK": "1", "TORCHELASTIC_RESTART_COUNT": "3"},
            {"MASTER_PORT": "29501"},
            id="torchrun-by-port",
        ),
        pytest.param(
            _TORCHRUN, {}, {"TORCHELASTIC_RUN_ID": "other"}, id="torchrun-by-run"
        ),
        pytest.param(
            _SLURM_STEP, {"SLURM_PROCID": "1"}, {"SLURM_STEP_ID": "1"}, id="slurm"
        ),
        pytest.param(
            {"PMIX_NAMESPACE": "prterun-1@1"},
            {},
            {"PMIX_NAMESPACE": "prterun-1@2"},
            id="mpi",
        ),
        # The last value is of bytes that are not UTF-8.
        pytest.param(
            {"SPLATVIEW_GROUP": "mine", **_TORCHRUN},
            {"MASTER_PORT": "1"},
            {"SPLATVIEW_GROUP": "m\u00efne \udcff"},
            id="named-by-the-user",
        ),
    ],
)
def test_group_follows_the_variables_that_a_launcher_gives_all_ranks(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    same_group: dict[str, str],
    other_group: dict[str, str],
) -> None:
    group = _group_with(monkeypatch, variables)
    assert len(group) == _GROUP_LETTERS
    assert _group_with(monkeypatch, variables | same_group) == group
    assert _group_with(monkeypatch, variables | other_group) != group
    assert _group_with(monkeypatch, {}) != group


_PRINT_GROUP = """
from splatview.api.shard import group_of_this_process
print(group_of_this_process())
"""
_START_SCRIPTS = f"""
import subprocess, sys
open("a.py", "w").write({_PRINT_GROUP!r})
open("b.py", "w").write({_PRINT_GROUP!r})
for name in ("a.py", "a.py", "b.py"):
    subprocess.run([sys.executable, name], check=True)
"""
"""Starts one script twice, and another one; each prints its group."""


def _groups_of_scripts(programs: Programs) -> tuple[str, str, str]:
    """Return the groups of a.py, a.py again and b.py, which one program started."""
    output, _ = programs.code(_START_SCRIPTS).end()
    first_a, second_a, b = output.split()
    return first_a, second_a, b


def test_group_follows_the_parent_and_the_script_without_a_launcher(
    programs: Programs,
) -> None:
    first_a, second_a, b = _groups_of_scripts(programs)
    assert first_a == second_a
    assert first_a != b
    a_of_other_parent, _, b_of_other_parent = _groups_of_scripts(programs)
    all_groups = {first_a, b, a_of_other_parent, b_of_other_parent}
    assert len(all_groups) == 4
