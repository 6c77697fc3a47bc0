"""Run folders: how viewers find trainers, and what dead ones leave behind."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.wait import PATIENCE

from splatview.ipc import RuntimeFolderError, runs
from splatview.ipc.runs import create_run, list_runs, remove_stale, runtime_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

_HOLD = """
import os, sys, time
from splatview.ipc.runs import create_run
run = create_run("held", os.getpid(), time.time())
print(run.path, flush=True)
time.sleep(60)
"""


def test_a_run_is_found_while_its_lock_is_held(runtime_dir: Path) -> None:
    run = create_run("my training", os.getpid(), 12.5)
    (found,) = list_runs(runtime_dir)
    assert found.description == run.description
    assert found.description.name == "my training"
    assert found.description.id.startswith(f"my-training-{os.getpid()}-")
    assert found.alive()
    run.remove()
    assert list_runs(runtime_dir) == []
    assert not run.path.exists()
    run.remove()


def test_only_the_owner_may_enter(runtime_dir: Path) -> None:
    run = create_run("a", os.getpid(), 0)
    assert stat.S_IMODE(runtime_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    run.remove()


def test_two_runs_of_one_name_are_two(runtime_dir: Path) -> None:
    same = [create_run("same", os.getpid(), t) for t in (1.0, 2.0)]
    assert len(list_runs(runtime_dir)) == 2
    for run in same:
        run.remove()


def test_a_killed_run_is_gone_and_cleaned_up(runtime_dir: Path, programs: Programs) -> None:
    process = programs.code(_HOLD)
    assert process.stdout is not None
    process.stdout.readline()
    assert len(list_runs(runtime_dir)) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list_runs(runtime_dir) == []
    assert len(list(runtime_dir.iterdir())) == 1
    assert remove_stale(runtime_dir) == 1
    assert list(runtime_dir.iterdir()) == []


def test_asking_does_not_take_a_run_for_dead(runtime_dir: Path) -> None:
    """Many who ask at once must not take each other's shared lock for anything."""
    run = create_run("asked", os.getpid(), 0)
    assert all(len(list_runs(runtime_dir)) == 1 and remove_stale(runtime_dir) == 0 for _ in range(50))
    run.remove()


def test_a_forked_child_does_not_keep_a_run_alive(
        runtime_dir: Path, programs: Programs, wait_until: Callable[..., Any]) -> None:
    process = programs.code("""
import os, sys, time, torch, splatview
splatview.publish(torch.zeros(4, 4))
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("forked", flush=True)
time.sleep(60)
""")
    assert process.stdout is not None
    assert process.stdout.readline() == "forked\n"
    assert len(list_runs(runtime_dir)) == 1
    process.kill()
    process.wait()
    wait_until(lambda: list_runs(runtime_dir) == [])


def test_a_folder_that_is_being_made_is_left_alone(runtime_dir: Path) -> None:
    runtime_folder()
    hidden = runtime_dir / ".made-1234-abcd"
    hidden.mkdir()
    assert remove_stale(runtime_dir) == 0
    os.utime(hidden, (time.time() - 60, time.time() - 60))
    assert remove_stale(runtime_dir) == 1


@pytest.mark.parametrize("content", [
    b"", b"{}", b"[]", b"\xff", b'{"protocol":1,"id":"../x","name":"","pid":1,"started":0}', b"[" * 100_000])
def test_descriptions_that_make_no_sense_are_left_out(runtime_dir: Path, content: bytes) -> None:
    run = create_run("a", os.getpid(), 0)
    (run.path / "run.json").write_bytes(content)
    assert list_runs(runtime_dir) == []
    run.remove()


def test_an_unusable_runtime_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(file))
    with pytest.raises(RuntimeFolderError, match=r"file.*SPLATVIEW_RUNTIME_DIR"):
        runtime_folder()
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", "/proc/nowhere")
    with pytest.raises(RuntimeFolderError, match="/proc/nowhere"):
        runtime_folder()


def test_folders_of_others_and_open_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", "/proc/1" if os.getuid() == 0 else "/")
    with pytest.raises(RuntimeFolderError):
        create_run("x", os.getpid(), 0)
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(folder))
    assert runtime_folder() == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_missing_xdg_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPLATVIEW_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing" / "file"))
    (tmp_path / "missing").write_text("not a folder")
    assert str(runtime_folder()) == f"/tmp/splatview-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_folder() == tmp_path / "splatview"


def test_a_folder_that_is_locked_after_the_look_is_not_removed(runtime_dir: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look at a lock and the removal its owner may take it."""
    run = create_run("begun", os.getpid(), 0)
    monkeypatch.setattr(runs, "held", lambda lock: False)
    assert remove_stale(runtime_dir) == 0
    assert sorted(p.name for p in run.path.iterdir()) == ["lock", "run.json"]
    run.remove()


def test_a_lock_cannot_be_taken_while_its_folder_is_removed(runtime_dir: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is made meanwhile chooses another name, and whoever looks at the same moment finds it dead."""
    path = runtime_folder() / "left-1234-abcd"
    path.mkdir()
    (path / "lock").touch()
    found: list[bool] = []
    unlink = os.unlink

    def look(name: str, **options: Any) -> None:
        with (path / "lock").open("rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found.append(runs.held(path / "lock"))
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", look)
    assert remove_stale(runtime_dir) == 1
    assert found == [False] and not path.exists()


def test_two_programs_remove_what_is_left_at_once(runtime_dir: Path, programs: Programs) -> None:
    """While others begin and end: none of them loses its folder, and nothing of the dead stays."""
    runtime_folder()
    for number in range(200):
        path = runtime_dir / f"left-{number + 1}-abcd"
        path.mkdir()
        (path / "lock").touch()
        (path / "run.json").write_text("{}")
    source = """
import os, sys, time
from splatview.ipc.runs import create_run, remove_stale, runtime_folder
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    run = create_run(f"run {number}", os.getpid(), time.time())
    remove_stale(runtime_folder())
    assert (run.path / "run.json").exists() and (run.path / "lock").exists(), number
    run.remove()
"""
    started = [programs.code(source) for _ in range(3)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        _, errors = process.communicate("\n", timeout=PATIENCE)
        assert process.returncode == 0, errors
    assert list(runtime_dir.iterdir()) == []


def test_the_name_of_a_run_can_be_any_text_of_the_environment(runtime_dir: Path) -> None:
    run = create_run("a\udcffb\ud800", os.getpid(), 0)
    (found,) = list_runs(runtime_dir)
    assert found.description.name == "a\ufffdb\ufffd"
    run.remove()
