"""A run is itself and nobody else: two of one name, a process id that was used before, a machine that was started anew
and left folders behind, a clock that was set. What dead runs left is removed, and nothing else ever is."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.meters import footprint, settled

from splatview.ipc import Publisher, RuntimeFolderError, Subscriber, limits, runs
from splatview.ipc.runs import Description, create_run, list_runs, remove_stale, runtime_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

LONG_AGO, FAR_AHEAD = 1e9, 4e9


def left_behind(root: Path, name: str, started: float = 1.0, pid: int | None = None) -> Path:
    """A folder as a run leaves it that was killed."""
    root.mkdir(mode=0o700, exist_ok=True)
    folder = root / name
    folder.mkdir()
    description = Description(limits.PROTOCOL, name, "old", pid or os.getpid(), started)
    (folder / "run.json").write_bytes(msgspec.json.encode(description))
    for file in ("lock", "socket", "descriptors"):
        (folder / file).touch()
    return folder


def test_two_programs_of_one_name_are_two_runs(runtime_dir: Path, programs: Programs,
                                               wait_until: Callable[..., Any]) -> None:
    program = """
import sys, torch, splatview
splatview.publish(torch.full((4, 4), int(sys.argv[1]), dtype=torch.uint8), step=int(sys.argv[1]))
print("published", flush=True)
sys.stdin.readline()
"""
    started = [programs.code(program, str(value), SPLATVIEW_NAME="same") for value in (7, 8)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "published\n"
    with Subscriber("same") as subscriber:
        wait_until(lambda: (subscriber.poll(), len(subscriber.streams) == 2)[-1])
        assert {run.pid for run in subscriber.runs} == {p.pid for p in started}
        assert len({run.id for run in subscriber.runs}) == 2

        def values() -> dict[int, int]:
            subscriber.poll()
            found = {}
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read()
                if frame is not None:
                    with frame:
                        found[stream.run.pid] = int(frame.tensors["image"].array[0, 0])  # type: ignore[union-attr]
            return found

        wait_until(lambda: values() == {started[0].pid: 7, started[1].pid: 8}, what="each shows its own")
        started[0].kill()
        wait_until(lambda: (subscriber.poll(), [r.pid for r in subscriber.runs if r.alive] == [started[1].pid])[-1])


def test_a_process_id_that_was_used_before_is_nobody(runtime_dir: Path) -> None:
    """The kernel gave the dead run's number to this very process."""
    old = left_behind(runtime_dir, f"old-{os.getpid()}-0000")
    assert list_runs(runtime_dir) == []
    run = create_run("old", os.getpid(), time.time())
    assert not old.exists()
    assert [r.description.id for r in list_runs(runtime_dir)] == [run.description.id]
    run.remove()


def test_a_name_that_is_taken_is_not_taken_over(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two containers that share a runtime folder may have one process id, and draw the same lot."""
    lots = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(runs.secrets, "token_hex", lambda _: next(lots))
    first = create_run("same", 77, 1.0)
    second = create_run("same", 77, 2.0)
    assert (first.description.id, second.description.id) == ("same-77-aaaa", "same-77-bbbb")
    assert first.alive()
    monkeypatch.setattr(runs.secrets, "token_hex", lambda _: "aaaa")
    with pytest.raises(RuntimeFolderError):
        create_run("same", 77, 3.0)
    assert first.in_place is False, "it has no sockets here"
    assert len(list_runs(runtime_dir)) == 2
    for run in (first, second):
        run.remove()
    assert list(runtime_dir.iterdir()) == []


def test_one_that_is_being_made_is_not_taken_over(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime_folder()
    making = runtime_dir / ".same-77-aaaa"
    making.mkdir()
    (making / "lock").touch()
    lots = iter(["aaaa", "bbbb"])
    monkeypatch.setattr(runs.secrets, "token_hex", lambda _: next(lots))
    run = create_run("same", 77, 1.0)
    assert run.description.id == "same-77-bbbb"
    assert (making / "lock").exists()
    run.remove()


def test_a_machine_that_was_started_anew(runtime_dir: Path) -> None:
    """Folders of runs that died with it, half made ones among them, are removed; what is not ours stays as it is."""
    left_behind(runtime_dir, "train-1234-abcd", LONG_AGO)
    left_behind(runtime_dir, "train-1-0001", FAR_AHEAD)
    (runtime_dir / "empty-99-0a0b").mkdir()
    half = left_behind(runtime_dir, ".half-4321-dcba")
    (half / "run.json").unlink()
    empty = runtime_dir / ".none-5-ffff"
    empty.mkdir()
    for path in (half, empty):
        os.utime(path, (LONG_AGO, LONG_AGO))
    foreign = {
        "photos": ("holiday.jpg",),            # no name of a run's
        "thesis-2024-0815": ("text.tex",),     # the name of one, and something else in it
        "train-55-beef": ("run.json", "lock", "notes.txt"),
    }
    for name, files in foreign.items():
        (runtime_dir / name).mkdir()
        for file in files:
            (runtime_dir / name / file).write_text("mine")
    nested = runtime_dir / "deep-66-cafe" / "socket"
    nested.mkdir(parents=True)
    (nested / "kept").write_text("mine")
    outside = runtime_dir / "elsewhere"
    outside.mkdir()
    (outside / "run.json").write_text("mine")
    (runtime_dir / "link-77-feed").symlink_to(outside)
    (runtime_dir / "file-88-face").write_text("mine")

    run = create_run("new", os.getpid(), time.time())
    there = {p.name for p in runtime_dir.iterdir()}
    assert there == {*foreign, "deep-66-cafe", "elsewhere", "link-77-feed", "file-88-face", run.path.name}
    for name, files in foreign.items():
        assert sorted(f.name for f in (runtime_dir / name).iterdir()) == sorted(files)
    assert (nested / "kept").read_text() == (outside / "run.json").read_text() == "mine"
    assert list_runs(runtime_dir)[0].description.id == run.description.id
    run.remove()


def test_a_runtime_folder_with_other_things_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPLATVIEW_RUNTIME_DIR may name any folder, one's own work even."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (home / "work" / "model.py").write_text("x")
    (home / ".hidden").mkdir()
    os.utime(home / ".hidden", (LONG_AGO, LONG_AGO))
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(home))
    Publisher("tidy").close()
    with Subscriber() as subscriber:
        subscriber.poll()
    assert remove_stale(home) == 0
    assert sorted(p.name for p in home.iterdir()) == [".hidden", "work"]
    assert (home / "work" / "model.py").read_text() == "x"


@pytest.mark.parametrize("moment", [LONG_AGO, FAR_AHEAD, 0.0], ids=["back", "forward", "to the beginning"])
def test_a_clock_that_is_set(runtime_dir: Path, moment: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times say in what order runs are named, and nothing else: who lives, lives."""
    before = Publisher("before")
    left_behind(runtime_dir, "dead-12-abcd", FAR_AHEAD)
    monkeypatch.setattr(time, "time", lambda: moment)
    for path in (runtime_dir, before.folder.path, before.folder.path / "lock"):
        os.utime(path, (FAR_AHEAD, FAR_AHEAD))
    after = Publisher("after")
    assert {r.description.name for r in list_runs(runtime_dir)} == {"before", "after"}
    assert not (runtime_dir / "dead-12-abcd").exists()
    assert remove_stale(runtime_dir) == 0
    with Subscriber() as subscriber:
        subscriber.wait_for_runs(30)
        assert {r.name for r in subscriber.runs if r.alive} == {"before", "after"}
    for run in (before, after):
        run.close()
    assert list(runtime_dir.iterdir()) == []


def test_many_who_begin_and_clear_away_at_once(runtime_dir: Path) -> None:
    """Whoever comes clears away what is dead: never what another is just making."""
    runtime_folder()
    for i in range(40):
        left_behind(runtime_dir, f"dead-{i + 1}-{i:04x}")
    made: list[runs.OwnedRunFolder] = []
    faults: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            for i in range(20):
                run = create_run(f"r{number}", os.getpid(), float(i))
                assert run.alive()
                made.append(run)
        except BaseException as e:
            faults.append(e)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert {r.description.id for r in list_runs(runtime_dir)} == {r.description.id for r in made}
    assert len(list(runtime_dir.iterdir())) == len(made) == 120
    for run in made:
        run.remove()
    assert list(runtime_dir.iterdir()) == []


def test_who_may_open_no_file_takes_nobody_for_dead(runtime_dir: Path, programs: Programs) -> None:
    """A viewer at its limit of open files clears away no run that it cannot look at."""
    run = Publisher("alive")
    said = programs.code("""
import os, resource, sys
from pathlib import Path
from splatview.ipc.runs import held, remove_stale, runtime_folder
root = Path(os.environ["SPLATVIEW_RUNTIME_DIR"])
(folder,) = root.iterdir()
for spare in range(6):
    fds = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            fds.append(os.open("/", os.O_PATH))
    except OSError:
        pass
    for fd in fds[:spare]:
        os.close(fd)
    print(held(folder / "lock"), remove_stale(root), (folder / "lock").exists())
    for fd in fds[spare:]:
        os.close(fd)
""").communicate()
    assert said[0].splitlines() == ["True 0 True"] * 6, said[1]
    assert run.folder.in_place
    run.close()


def test_what_could_not_be_begun_leaves_nothing(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch,
                                                wait_until: Callable[..., Any]) -> None:
    """However far it came: no folder, no open file, no thread, no memory."""
    Publisher("first").close()
    base = footprint()

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    for target, name in ((runs.fcntl, "flock"), (runs, "_write"), (runs.msgspec.json, "encode"),
                         (os, "memfd_create"), (os, "posix_fallocate"), (os, "eventfd"), (threading.Thread, "start")):
        with monkeypatch.context() as broken:
            broken.setattr(target, name, refuse)
            for _ in range(5):
                with pytest.raises(Exception, match="No space left"):
                    Publisher("never")
        assert list(runtime_dir.iterdir()) == [], name
    settled(base, wait_until)
    again = Publisher("again")
    fd = os.open(again.folder.path / "lock", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(fd)
    again.close()
