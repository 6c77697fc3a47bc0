"""Run folders and the registry: how programs are found, and how dead ones are cleared."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from pathlib import Path

import msgspec
import pytest
import torch
from support.pair import Pair
from support.programs import Programs

from splatview_ipc.control import limits, machine, missing_runs
from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.control.missing_runs import other_places
from splatview_ipc.control.registry import Announcement, list_viewers
from splatview_ipc.control.run_folder import (
    Description,
    OwnedRunFolder,
    create_run,
    list_runs,
    remove_stale,
    runtime_folder,
)
from splatview_ipc.subscriber.subscriber import Subscriber

_LONG_AGO = 1e9
_FAR_AHEAD = 4e9


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _make_dead_run(root: Path, name: str, started: float = 1.0) -> Path:
    """Make a folder as a run leaves it that was killed."""
    root.mkdir(mode=0o700, exist_ok=True)
    folder = root / name
    folder.mkdir()
    description = Description(limits.PROTOCOL, name, "old", os.getpid(), started)
    (folder / "run.json").write_bytes(msgspec.json.encode(description))
    for file in ("lock", "socket", "in-0123abcd"):
        (folder / file).touch()
    return folder


# -- folders of runs -------------------------------------------------------------------


def test_run_is_found_while_its_lock_is_held(runtime_dir: Path) -> None:
    run = create_run("my training", os.getpid(), 12.5)
    (listed,) = list_runs(runtime_dir)
    assert listed.description == run.description
    assert listed.description.name == "my training"
    assert listed.description.id.startswith(f"my-training-{os.getpid()}-")
    assert _mode(runtime_dir) == 0o700
    assert _mode(run.path) == 0o700
    # To try the lock takes it for a moment, which must not look like a dead run.
    for _ in range(5):
        assert len(list_runs(runtime_dir)) == 1
        assert remove_stale(runtime_dir) == 0
    run.remove()
    run.remove()
    assert list(runtime_dir.iterdir()) == []


def test_new_run_removes_dead_runs_and_nothing_else(runtime_dir: Path) -> None:
    """As after a restart of the machine: half made runs are among the dead ones."""
    _make_dead_run(runtime_dir, "train-1234-abcd", _LONG_AGO)
    _make_dead_run(runtime_dir, "train-1-0001", _FAR_AHEAD)
    (runtime_dir / "empty-99-0a0b").mkdir()
    half_made = _make_dead_run(runtime_dir, ".half-4321-dcba")
    (half_made / "run.json").unlink()
    os.utime(half_made, (_LONG_AGO, _LONG_AGO))
    (runtime_dir / "link-77-feed").symlink_to(runtime_dir / "elsewhere")
    foreign_names = [
        # These have no name of a run's, or are no folder.
        "photos/holiday.jpg",
        "elsewhere/run.json",
        "file-88-face",
        # These have the name of one, and something else in it.
        "thesis-2024-0815/text.tex",
        "train-55-beef/run.json",
        "train-55-beef/lock",
        "train-55-beef/notes.txt",
        "deep-66-cafe/socket/kept",
    ]
    for name in foreign_names:
        path = runtime_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")

    run = create_run("new", os.getpid(), 1.0)
    expected = {name.partition("/")[0] for name in foreign_names}
    expected |= {"link-77-feed", run.path.name}
    assert {path.name for path in runtime_dir.iterdir()} == expected
    for name in foreign_names:
        assert (runtime_dir / name).read_text() == "mine"
    assert list_runs(runtime_dir)[0].description.id == run.description.id
    run.remove()


@pytest.mark.parametrize(
    ("boot", "host", "age_s", "is_removed"),
    [
        ("other", "node2", 60, False),
        ("other", "node2", 2 * 24 * 3600, True),
        # This machine was restarted, or the run was in a container of it.
        ("other", machine.host_name(), 60, True),
        (machine.boot_id(), "container", 60, True),
    ],
)
def test_run_of_another_machine_is_removed_once_it_is_not_touched(
    boot: str, host: str, age_s: float, is_removed: bool, runtime_dir: Path
) -> None:
    """Network file systems may not show the locks of other machines."""
    folder = _make_dead_run(runtime_dir, "train-1234-abcd")
    description = Description(
        limits.PROTOCOL, folder.name, "old", 1234, 1.0, boot=boot, host=host
    )
    (folder / "run.json").write_bytes(msgspec.json.encode(description))
    touched_at = time.time() - age_s
    os.utime(folder, (touched_at, touched_at))
    assert remove_stale(runtime_dir) == int(is_removed)


def test_a_run_on_another_machine_names_that_machine(runtime_dir: Path) -> None:
    """Its lock is seen over a network file system, but nothing answers its socket."""
    run = create_run("train", 1234, 1.0)
    elsewhere = msgspec.structs.replace(run.description, boot="other", host="node2")
    (run.path / "run.json").write_bytes(msgspec.json.encode(elsewhere))
    with Subscriber(client="a test") as viewer:
        viewer.poll()
        viewer.poll()
        assert "runs on node2" in str(viewer.runs[0].refused)
    run.remove()


@pytest.mark.parametrize(
    ("own_folder", "other_folder", "expected"),
    [
        ("splatview-77", "splatview-88", "folders of other users (user id 88)"),
        ("splatview-77", "something", ""),
        ("runs", "splatview-88", ""),
    ],
)
def test_users_without_a_run_are_told_of_other_users_folders(
    own_folder: str, other_folder: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / own_folder).mkdir()
    (tmp_path / other_folder).mkdir()
    advice = other_places(tmp_path / own_folder)
    assert expected in advice
    assert bool(advice) == bool(expected)


def test_users_are_told_of_runs_in_the_default_folder(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = create_run("train", os.getpid(), 1.0)
    monkeypatch.setattr(missing_runs, "default_folder", lambda: runtime_dir)
    assert "set SPLATVIEW_RUNTIME_DIR alike" in other_places(tmp_path)
    run.remove()
    assert other_places(tmp_path) == ""


def test_runs_that_start_at_once_remove_no_run_that_another_is_making(
    runtime_dir: Path,
) -> None:
    for index in range(20):
        _make_dead_run(runtime_dir, f"dead-{index + 1}-{index:04x}")
    runs: list[OwnedRunFolder] = []
    errors: list[BaseException] = []

    def create_five(thread_index: int) -> None:
        try:
            for started in range(5):
                run = create_run(f"r{thread_index}", os.getpid(), float(started))
                runs.append(run)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=create_five, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(runs) == 30
    listed_ids = {run.description.id for run in list_runs(runtime_dir)}
    assert listed_ids == {run.description.id for run in runs}
    assert len(list(runtime_dir.iterdir())) == 30
    for run in runs:
        run.remove()
    assert list(runtime_dir.iterdir()) == []


def test_folder_in_use_is_touched_once_an_hour(runtime_dir: Path) -> None:
    """Cleaners of temporary files go by age."""
    run = create_run("old", os.getpid(), 0)
    paths = [run.path, *run.path.iterdir()]
    assert run.refresh(100.0) == 3700.0
    for path in paths:
        os.utime(path, (_LONG_AGO, _LONG_AGO))
    assert run.refresh(3699.0) == 3700.0
    assert {path.stat().st_mtime for path in paths} == {_LONG_AGO}
    assert run.refresh(3700.0) == 7300.0
    assert min(path.stat().st_mtime for path in paths) > _LONG_AGO
    run.remove()


def test_deleted_folder_is_logged_once_and_attached_viewers_stay(
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


# -- the runtime folder ----------------------------------------------------------------


def test_runs_are_in_tmp_unless_a_folder_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPLATVIEW_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    folder = Path(f"/tmp/splatview-{os.getuid()}")
    existed = folder.exists()
    assert runtime_folder() == folder
    if not existed:
        folder.rmdir()


def test_named_folder_may_begin_with_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, runtime_dir: Path
) -> None:
    monkeypatch.setenv("HOME", str(runtime_dir.parent))
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", f"~/{runtime_dir.name}")
    assert runtime_folder() == runtime_dir


@pytest.mark.parametrize("mode", [0o755, 0o2755, 0o1777])
def test_runs_have_a_folder_of_their_own_in_a_folder_that_others_enter(
    mode: int, runtime_dir: Path
) -> None:
    runtime_dir.mkdir()
    runtime_dir.chmod(mode)
    own_folder = runtime_dir / f"splatview-{os.getuid()}"
    assert runtime_folder() == own_folder
    assert runtime_folder() == own_folder
    assert _mode(own_folder) & 0o777 == 0o700
    assert _mode(runtime_dir) == mode


@pytest.mark.parametrize("mode", [0o2775, 0o777])
def test_a_folder_that_others_write_in_is_refused_and_stays_as_it_is(
    mode: int, runtime_dir: Path
) -> None:
    runtime_dir.mkdir()
    runtime_dir.chmod(mode)
    with pytest.raises(RuntimeFolderError, match=f"{mode:o}.*chmod go-w") as caught:
        runtime_folder()
    assert str(runtime_dir) in str(caught.value)
    assert _mode(runtime_dir) == mode
    assert list(runtime_dir.iterdir()) == []


def test_private_folder_keeps_its_mode(runtime_dir: Path) -> None:
    runtime_dir.mkdir()
    runtime_dir.chmod(0o2700)
    assert runtime_folder() == runtime_dir
    assert _mode(runtime_dir) == 0o2700


# -- the registry of viewers -----------------------------------------------------------

_URL = "http://127.0.0.1:7007/"
_ANNOUNCE = """
import sys
from splatview_ipc.control.missing_runs import other_places
from splatview_ipc.control.registry import Announcement
announcement = Announcement("http://127.0.0.1:7010/", host="127.0.0.1", port=7010, run="x")
print("announced", flush=True)
sys.stdin.readline()
"""


def test_viewer_is_found_while_it_is_announced(runtime_dir: Path) -> None:
    url = _URL + "?token=ab-C_1"
    announcement = Announcement(url, host="0.0.0.0", port=7007, run="train")
    (viewer,) = list_viewers()
    assert viewer.pid == os.getpid()
    assert viewer.url == url
    assert viewer.host == "0.0.0.0"
    assert viewer.port == 7007
    assert viewer.run == "train"
    (file,) = runtime_dir.iterdir()
    assert _mode(file) == 0o600
    announcement.close()
    announcement.close()
    assert list_viewers() == []
    assert list(runtime_dir.iterdir()) == []


def test_killed_viewer_is_not_listed_and_its_file_is_removed(
    runtime_dir: Path, programs: Programs
) -> None:
    process = programs.code(_ANNOUNCE)
    assert process.line() == "announced"
    (viewer,) = list_viewers()
    assert viewer.pid == process.pid
    assert viewer.run == "x"
    process.killed()
    assert len(list(runtime_dir.iterdir())) == 1
    assert list_viewers() == []
    assert list(runtime_dir.iterdir()) == []


def test_viewer_that_cannot_be_announced_goes_on_and_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(file))
    with Announcement(_URL, host="127.0.0.1", port=7007):
        assert str(file) in caplog.text
        assert len(caplog.records) == 1
    with pytest.raises(RuntimeFolderError):
        list_viewers()
