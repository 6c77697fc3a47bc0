"""`splatview.publish(..., shard=(rank, world))`: what is said of a part, and which parts belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

import splatview
from splatview.ipc import Subscriber, messages
from splatview.ipc.messages import StreamInfo
from splatview.sharding import checked_shard, group_of_this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

LAUNCHERS = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID",
             "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SPLATVIEW_GROUP")
PRINTS = "from splatview.sharding import group_of_this_process as g; print(g())"
SCENE = {"means": torch.zeros(3, 3), "quats": torch.ones(3, 4), "scales": torch.zeros(3, 3),
         "opacities": torch.zeros(3), "sh0": torch.zeros(3, 1, 3), "shN": torch.zeros(3, 0, 3)}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as made:
        yield made


@pytest.mark.parametrize(("shard", "error"), [
    (2, TypeError), ("02", TypeError), ((1,), TypeError), ((0, 2, 3), TypeError), ((0.0, 2), TypeError),
    ((True, 2), TypeError), (("0", "2"), TypeError), ({0, 2}, TypeError), ((0, None), TypeError),
    ((-1, 2), ValueError), ((2, 2), ValueError), ((0, 0), ValueError), ((0, 65), ValueError), ((0, -1), ValueError),
])
def test_what_is_no_shard_raises(shard: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="shard"):
        splatview.publish(SCENE, shard=shard)
    from splatview.publishing import begun

    assert begun() is None  # nothing was begun for it


def test_what_is_one() -> None:
    assert checked_shard((0, 1)) == (0, 1)
    assert checked_shard([63, 64]) == (63, 64)
    number: Any = torch.tensor(3).numpy()
    assert checked_shard((number, 4)) == (3, 4)


def test_an_image_is_no_part_of_a_scene() -> None:
    with pytest.raises(TypeError, match=r"only Gaussians can; leave shard out"):
        splatview.publish(torch.zeros(4, 4, 3), shard=(0, 2))


def test_viewers_are_told(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
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


@pytest.mark.parametrize("change", [{"shard": [3, 2]}, {"shard": [2, 2]}, {"shard": [-1, 2]}, {"shard": [0, 65]},
                                    {"shard": [0]}, {"shard": [0, 1, 2]}, {"shard": 2**70}, {"group": "a" * 17},
                                    {"group": "../../../etc/pwd"}, {"group": "A" * 16}])
def test_a_viewer_refuses_what_is_no_shard(change: dict[str, Any]) -> None:
    info = msgspec.to_builtins(StreamInfo(0, "scene", "gaussians", (3, 14), "float32", "cpu", ("host",)))
    good = {"type": "Manifest", "streams": [{**info, "shard": [1, 2], "group": "0" * 16}], "viewers": []}
    manifest = messages.decode_to_viewer(msgspec.msgpack.encode(good))
    assert isinstance(manifest, messages.Manifest)
    assert manifest.streams[0].shard == (1, 2)
    try:
        raw = msgspec.msgpack.encode({**good, "streams": [{**info, "group": "0" * 16, **change}]})
    except OverflowError:  # it cannot even be said
        return
    with pytest.raises(messages.DecodeError):
        messages.decode_to_viewer(raw)


# -- which processes belong together -----------------------------------------------------------------------------------


def groups(programs: Programs, *envs: dict[str, str], code: str = PRINTS) -> list[str]:
    """The groups of processes that this one started, each with such variables."""
    started = [programs.python("-c", code, **env) for env in envs]
    out = []
    for process in started:
        text, error = process.communicate()
        assert process.returncode == 0, error
        out.append(text.strip())
    return out


def test_what_torchrun_tells_decides(programs: Programs) -> None:
    a = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}
    same, too, port, run = groups(programs, {**a, "RANK": "0"}, {**a, "RANK": "1", "TORCHELASTIC_RESTART_COUNT": "3"},
                                  {**a, "MASTER_PORT": "29501"}, {**a, "TORCHELASTIC_RUN_ID": "other"})
    assert same == too
    assert len({same, port, run}) == 3


def test_what_slurm_and_mpirun_tell_decides_whoever_the_parent_is(programs: Programs) -> None:
    shell = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {PRINTS!r}], check=True)"
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    for a, b in (({**step, "SLURM_PROCID": "0"}, {**step, "SLURM_PROCID": "1"}),
                 ({"PMIX_NAMESPACE": "prterun-1@1"}, {"PMIX_NAMESPACE": "prterun-1@1"})):
        first, second = *groups(programs, a, code=shell), *groups(programs, b)
        assert first == second
    other, job = groups(programs, {**step, "SLURM_STEP_ID": "1", "SLURM_PROCID": "0"},
                        {"SLURM_JOB_ID": "7"})  # several trainings in one allocation: the job alone does not tell
    assert other != first
    assert job == groups(programs, {})[0]


def test_otherwise_who_started_them_decides(programs: Programs) -> None:
    """Two trainings of one script from two programs are two, the processes that one program starts are one."""
    program = f"""
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", {PRINTS!r}], check=True)
"""
    one, two = groups(programs, {}, {}, code=program)
    assert len(set(one.split())) == len(set(two.split())) == 1
    assert one.split()[0] != two.split()[0]


def test_scripts_of_one_parent_are_told_apart(programs: Programs, tmp_path: Any) -> None:
    found = []
    for name in ("a.py", "b.py", "a.py"):
        (tmp_path / name).write_text(PRINTS)
        found.append(programs.python(str(tmp_path / name)).communicate()[0].strip())
    assert found[0] == found[2] != found[1]
    assert all(len(group) == 16 for group in found)


def test_who_started_them_is_known_when_that_has_ended(programs: Programs, tmp_path: Any) -> None:
    """A scene that changes in size is looked at anew, hours later."""
    asked, rank = tmp_path / "asked", """
import os, pathlib, sys, time
from splatview.sharding import group_of_this_process as g
parent = os.getppid()
print(g(), flush=True)
pathlib.Path(sys.argv[1]).touch()
while os.getppid() == parent:
    time.sleep(0.01)
print(g())
"""
    launcher = f"""
import pathlib, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {rank!r}, {str(asked)!r}])
while not pathlib.Path({str(asked)!r}).exists():
    time.sleep(0.01)
"""
    before, after = groups(programs, {}, code=launcher)[0].split()
    assert before == after


def test_a_name_given_by_hand_goes_before_all(programs: Programs) -> None:
    a, b, c = groups(programs, {"SPLATVIEW_GROUP": "mine", "MASTER_PORT": "1"}, {"SPLATVIEW_GROUP": "mine"},
                     {"SPLATVIEW_GROUP": "m\u00efne \udcff"})
    assert a == b != c


def test_ranks_that_were_forked_or_spawned_are_together(programs: Programs, tmp_path: Any) -> None:
    """As torch.multiprocessing starts them."""
    file = tmp_path / "train.py"
    file.write_text("""
import multiprocessing, sys
from splatview.sharding import group_of_this_process as g

def rank(number, queue):
    queue.put(g())

if __name__ == "__main__":
    for how in ("spawn", "fork"):
        context = multiprocessing.get_context(how)
        queue = context.Queue()
        for number in range(2):
            context.Process(target=rank, args=(number, queue)).start()
        print(queue.get(), queue.get())
""")
    said, error = programs.python(str(file)).communicate()
    assert not error
    assert len(set(said.split())) == 1
    assert len(said.split()) == 4
