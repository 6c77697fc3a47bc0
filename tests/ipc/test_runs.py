"""Run folders: how viewers find trainers, and what dead ones leave behind, which alone is removed."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

import msgspec
import pytest
import torch
from support.pair import Pair
from support.programs import Programs

from splatview_ipc.control import limits
from splatview_ipc.control import run_folder as runs
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.control.registry import Announcement, list_viewers
from splatview_ipc.control.run_folder import (
    Description,
    create_run,
    list_runs,
    remove_stale,
    runtime_folder,
)

LONG_AGO = 1e9
FAR_AHEAD = 4e9


def left_behind(root: Path, name: str, started: float = 1.0) -> Path:
    """A folder as a run leaves it that was killed."""
    root.mkdir(mode=0o700, exist_ok=True)
    folder = root / name
    folder.mkdir()
    description = Description(limits.PROTOCOL, name, "old", os.getpid(), started)
    (folder / "run.json").write_bytes(msgspec.json.encode(description))
    for file in ("lock", "socket", "in-0123abcd"):
        (folder / file).touch()
    return folder


def test_a_run_is_found_while_its_lock_is_held(runtime_dir: Path) -> None:
    run = create_run("my training", os.getpid(), 12.5)
    (found,) = list_runs(runtime_dir)
    assert found.description == run.description
    assert found.description.name == "my training"
    assert found.description.id.startswith(f"my-training-{os.getpid()}-")
    for path in (runtime_dir, run.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for _ in range(5):  # a look takes it for dead no more than another one does
        assert len(list_runs(runtime_dir)) == 1
        assert remove_stale(runtime_dir) == 0
    run.remove()
    run.remove()
    assert list(runtime_dir.iterdir()) == []


def test_a_machine_that_was_started_anew(runtime_dir: Path) -> None:
    """Folders of runs that died with it, half made ones among them, are removed; what is not ours stays as it is."""
    left_behind(runtime_dir, "train-1234-abcd", LONG_AGO)
    left_behind(runtime_dir, "train-1-0001", FAR_AHEAD)
    (runtime_dir / "empty-99-0a0b").mkdir()
    half = left_behind(runtime_dir, ".half-4321-dcba")
    (half / "run.json").unlink()
    os.utime(half, (LONG_AGO, LONG_AGO))
    (runtime_dir / "link-77-feed").symlink_to(runtime_dir / "elsewhere")
    foreign = [
        runtime_dir / name
        for name in (
            "photos/holiday.jpg",
            "elsewhere/run.json",
            "file-88-face",  # no name of a run's, or no folder
            "thesis-2024-0815/text.tex",
            "train-55-beef/run.json",
            "train-55-beef/lock",
            "train-55-beef/notes.txt",
            "deep-66-cafe/socket/kept",
        )
    ]  # the name of one, and something else in it
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")

    run = create_run("new", os.getpid(), 1.0)
    assert {p.name for p in runtime_dir.iterdir()} == {
        "link-77-feed",
        run.path.name,
        *(file.relative_to(runtime_dir).parts[0] for file in foreign),
    }
    assert all(file.read_text() == "mine" for file in foreign)
    assert list_runs(runtime_dir)[0].description.id == run.description.id
    run.remove()


def test_many_who_begin_and_clear_away_at_once(runtime_dir: Path) -> None:
    """Each clears away what is dead, and never what another is just making."""
    for i in range(20):
        left_behind(runtime_dir, f"dead-{i + 1}-{i:04x}")
    made: list[runs.OwnedRunFolder] = []
    faults: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            for i in range(5):
                run = create_run(f"r{number}", os.getpid(), float(i))
                made.append(run)
        except BaseException as e:
            faults.append(e)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert {r.description.id for r in list_runs(runtime_dir)} == {
        r.description.id for r in made
    }
    assert len(list(runtime_dir.iterdir())) == len(made) == 30
    for run in made:
        run.remove()
    assert list(runtime_dir.iterdir()) == []


def test_folder_in_use_is_touched_once_an_hour(runtime_dir: Path) -> None:
    """Cleaners of temporary files go by age."""
    run = create_run("old", os.getpid(), 0)
    paths = [run.path, *run.path.iterdir()]
    assert run.refresh(100.0) == 3700.0
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert run.refresh(3699.0) == 3700.0
    assert {path.stat().st_mtime for path in paths} == {LONG_AGO}
    assert run.refresh(3700.0) == 7300.0
    assert min(path.stat().st_mtime for path in paths) > LONG_AGO
    run.remove()


def test_folder_that_was_deleted_is_logged_once_and_attached_viewers_stay(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.publish(torch.zeros(4, 4))
    pair.newest()
    shutil.rmtree(pair.publisher.folder.path)
    for _ in range(3):
        pair.now += 3600
        pair.pump()
    assert len(caplog.records) == 1
    assert str(pair.publisher.folder.path) in caplog.text
    pair.publish(torch.ones(4, 4))
    assert pair.newest(after=1)[0] == 2
    assert pair.run.alive


def test_runs_are_in_tmp_unless_a_folder_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPLATVIEW_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    folder = Path(f"/tmp/splatview-{os.getuid()}")
    there = folder.exists()
    assert runtime_folder() == folder
    if not there:
        folder.rmdir()


@pytest.mark.parametrize("mode", [0o755, 0o2755, 0o1777])
def test_runs_are_in_a_folder_of_their_own_in_one_that_others_enter(
    mode: int, runtime_dir: Path
) -> None:
    runtime_dir.mkdir()
    runtime_dir.chmod(mode)
    own = runtime_dir / f"splatview-{os.getuid()}"
    assert runtime_folder() == own == runtime_folder()
    assert stat.S_IMODE(own.stat().st_mode) & 0o777 == 0o700
    assert stat.S_IMODE(runtime_dir.stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o2775, 0o777])
def test_a_folder_that_others_write_in_is_refused_and_stays_as_it_is(
    mode: int, runtime_dir: Path
) -> None:
    runtime_dir.mkdir()
    runtime_dir.chmod(mode)
    with pytest.raises(RuntimeFolderError, match=f"{mode:o}.*chmod go-w") as caught:
        runtime_folder()
    assert str(runtime_dir) in str(caught.value)
    assert stat.S_IMODE(runtime_dir.stat().st_mode) == mode
    assert list(runtime_dir.iterdir()) == []


def test_a_private_folder_keeps_its_mode(runtime_dir: Path) -> None:
    runtime_dir.mkdir()
    runtime_dir.chmod(0o2700)
    assert runtime_folder() == runtime_dir
    assert stat.S_IMODE(runtime_dir.stat().st_mode) == 0o2700


URL = "http://127.0.0.1:7007/"
HOLD = """
import sys
from splatview_ipc.control.registry import Announcement
held = Announcement("http://127.0.0.1:7010/", host="127.0.0.1", port=7010, run="x")
print("announced", flush=True)
sys.stdin.readline()
"""


def test_a_viewer_is_found_while_it_is_announced(runtime_dir: Path) -> None:
    announcement = Announcement(
        URL + "?token=ab-C_1", host="0.0.0.0", port=7007, run="train"
    )
    (found,) = list_viewers()
    assert (found.pid, found.url, found.host, found.port, found.run) == (
        os.getpid(),
        URL + "?token=ab-C_1",
        "0.0.0.0",
        7007,
        "train",
    )
    (file,) = runtime_dir.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    announcement.close()
    announcement.close()
    assert list_viewers() == []
    assert list(runtime_dir.iterdir()) == []


def test_a_killed_viewer_is_gone_and_cleaned_up(
    runtime_dir: Path, programs: Programs
) -> None:
    process = programs.code(HOLD)
    assert process.line() == "announced"
    assert [(v.pid, v.run) for v in list_viewers()] == [(process.pid, "x")]
    process.killed()
    assert len(list(runtime_dir.iterdir())) == 1
    assert list_viewers() == []
    assert list(runtime_dir.iterdir()) == []


def test_a_viewer_that_cannot_be_announced_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(tmp_path / "file"))
    with Announcement(URL, host="127.0.0.1", port=7007):
        assert str(tmp_path / "file") in caplog.text
        assert len(caplog.records) == 1
    with pytest.raises(RuntimeFolderError):
        list_viewers()
