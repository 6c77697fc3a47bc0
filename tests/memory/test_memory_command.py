"""`splatview memory`: the real program, on real snapshots and on files that are none."""

from __future__ import annotations

import csv
import gzip
import io
import os
import pickle
import pty
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.memory_data import block as a_block
from support.memory_data import event, segment, snapshot
from support.programs import environment
from support.repetitions import exhaustive
from support.wait import PATIENCE

from splatview.viewer_app.__main__ import main
from splatview.viewer_app.commands import Memory
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.memory import load_snapshot
from splatview.viewer_app.memory.query import Database, Result
from splatview.viewer_app.memory_command import table

if TYPE_CHECKING:
    from pathlib import Path

PEAK = ("SELECT coalesce(own_function, category) AS who, own_line AS line, count(*) AS n, "
        "sum(size)::BIGINT AS bytes FROM at_peak() LEFT JOIN stacks USING (stack_id) "
        "GROUP BY ALL ORDER BY bytes DESC LIMIT 3")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def memory(cache: Path, programs: Any) -> Any:
    """`memory(FILE, ...)`: run the program, forked; `stdin` is what it reads."""
    def run(*args: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        process = programs.splatview("memory", *map(str, args), XDG_CACHE_HOME=str(cache), DISPLAY="",
                                    WAYLAND_DISPLAY="")
        out, err = process.communicate(stdin, timeout=PATIENCE)
        return subprocess.CompletedProcess([str(arg) for arg in args], process.returncode, out, err)

    return run


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A snapshot that somebody wrote who wants to command the terminals of others."""
    events = [event("alloc", 0x1000, 700, user_metadata="\x1b]0;mine\x07,\r\u202e|"), event("alloc", 0x2000, 300)]
    path = tmp_path / "small.pickle"
    path.write_bytes(pickle.dumps(snapshot(events, [segment(0x1000, [a_block(0x1000, 1024, requested=700)])])))
    return path


@pytest.fixture
def real(data_dir: Path) -> Path:
    return data_dir / "training_memory_snapshot.pickle"


def test_a_table_of_the_answer(memory: Any, real: Path) -> None:
    done = memory(real, "--sql", PEAK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == """\
who               line    n       bytes
----------------  ----  ---  ----------
before the trace        664  5095567360
forward             39  339  2179563520
softmax              6   24  1610612736
"""


def test_csv_of_all_rows(memory: Any, real: Path) -> None:
    done = memory(real, "--csv", "--sql", "-", stdin="SELECT event, action, size FROM events\n\tORDER BY event;\n")
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.reader(io.StringIO(done.stdout)))
    events = load_snapshot(real, cache=False).traces[0].events
    assert rows[0] == ["event", "action", "size"]
    assert [int(r[2]) for r in rows[1:]] == events.size.tolist()
    assert [int(r[0]) for r in rows[1:]] == list(range(len(events)))


def test_packed_snapshots_are_asked_as_well(memory: Any, small: Path) -> None:
    packed = small.with_suffix(".pickle.gz")
    packed.write_bytes(gzip.compress(small.read_bytes()))
    assert memory(packed, "--sql", "SELECT sum(size) AS s FROM allocations", "--csv").stdout == "s\n1000\n"


def test_a_picture_without_a_display(memory: Any, programs: Any, real: Path, cache: Path, tmp_path: Path) -> None:
    done = memory(real, "--png", tmp_path / "m.png", "--size", "640x400")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'm.png'}: 640 x 400\n"
    assert _colors(tmp_path / "m.png", (400, 640)) > 50
    shot = programs.splatview("shot", str(tmp_path / "s.png"), str(real), "--size", "640x400",
                             XDG_CACHE_HOME=str(cache))
    _, said = shot.communicate(timeout=PATIENCE)
    assert shot.returncode == 0, said
    ours, theirs = (np.asarray(Image.open(tmp_path / name)).astype(int) for name in ("m.png", "s.png"))
    np.testing.assert_allclose(ours, theirs, atol=1)  # one may be painted by numpy, if kernels take long to load


def test_a_picture_of_the_memory_of_a_run(programs: Any, tmp_path: Path) -> None:
    run = programs.code("import splatview, time\nwhile True: splatview.publish_memory(hz=50); time.sleep(0.01)",
                         XDG_CACHE_HOME=str(tmp_path))
    for _ in range(100):  # a picture can be taken once something was measured
        shot = programs.splatview("shot", "live.png", "--size", "500x300", "--stream", "memory")
        _, said = shot.communicate(timeout=PATIENCE)
        if shot.returncode == 0 or run.poll() is not None:
            break
    else:
        raise AssertionError("no picture in 100 attempts")
    assert (shot.returncode, said) == (0, "")
    assert _colors(tmp_path / "live.png", (300, 500)) > 20


@pytest.mark.exhaustive  # quick: a picture of one
def test_the_viewer_shows_a_snapshot_and_says_where(programs: Any, small: Path, tmp_path: Path,
                                                    wait_until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    viewer = programs.splatview("memory", str(small), "--offscreen", "--out", str(tmp_path / "v.png"), "--size",
                               "900x600")
    wait_until((tmp_path / "v.png").exists, what="a picture")
    wait_until(lambda: _colors(tmp_path / "v.png", (600, 900)) > 50, what="a picture of something")
    viewer.terminate()
    _, said = viewer.communicate(timeout=PATIENCE)
    assert viewer.returncode == 0, said


def _colors(path: Path, shape: tuple[int, int]) -> int:
    """How many different colours a picture of this shape has."""
    pixels = np.asarray(Image.open(path))
    assert pixels.shape[:2] == shape
    return len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0))


@pytest.mark.parametrize(("args", "begun"), [
    (["serve", "--offscreen", "FILE"], ["kernels"]),
    (["memory", "FILE", "--offscreen"], ["kernels"]),
    (["memory", "FILE", "--sql", "SELECT 1"], []), (["shot", "FILE"], []), (["serve", "absent"], []),
    (["serve", __file__], []),
])
def test_what_timelines_need_is_loaded_while_the_viewer_opens(args: list[str], begun: list[str], small: Path,
                                                              monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []
    monkeypatch.setattr("splatview.viewer_app.memory.timeline.warm_up",
                        lambda: done.append(threading.current_thread().name))

    def parse(args: list[str]) -> Any:
        for thread in threading.enumerate():
            if thread.name == "kernels":
                thread.join(PATIENCE)
        raise ViewerError("before the options are read")

    monkeypatch.setattr("splatview.viewer_app.commands.parse", parse)
    assert main([str(small) if arg == "FILE" else arg for arg in args]) == 2
    assert "before the options are read" in capsys.readouterr().err
    assert done == begun


@pytest.mark.parametrize("options, words", [
    (("--sql", "ATTACH 'x.db'"), ["ATTACH is refused", "SELECT"]),
    exhaustive(("--sql", "SELECT sise FROM events"), ["LINE 1", "^", "size"]),
    (("--sql", "SELECT 1", "--png", "x.png"), ["--sql and --png"]),
    exhaustive(("--sql", "SELECT 1", "--web"), ["--sql and --web"]),
    exhaustive(("--csv",), ["--csv", "--sql"]),
    exhaustive(("again.pickle", "--sql", "SELECT 1"), ["one snapshot", "again.pickle"]),
    (("again.pickle",), ["again.pickle", "no such file"]),
    exhaustive(("--png", "missing/x.png"), ["missing", "no folder"]),
    exhaustive(("--window", "--web"), ["memory: --window and --web"]),
    (("--png", "x.png", "--size", "wide"), ["wide"]),
])
def test_what_cannot_be_done_is_said(memory: Any, small: Path, options: tuple[str, ...], words: list[str]) -> None:
    done = memory(small, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert not [w for w in ("splatview: ", *words) if w not in done.stderr], done.stderr
    assert "Traceback" not in done.stderr


def test_files_that_are_no_snapshots(memory: Any, data_dir: Path, tmp_path: Path) -> None:
    for path, words in ((data_dir / "biker.compressed.ply", "ply, not a snapshot of memory"),
                        (tmp_path / "missing", "no such file"), (tmp_path, "SnapViewer")):
        done = memory(path, "--sql", "SELECT 1")
        assert done.returncode == 2
        assert str(path) in done.stderr and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = memory()
    assert done.returncode == 2 and "splatview memory FILE.pickle" in done.stderr


def test_help_teaches_queries_that_work(memory: Any, real: Path, small: Path) -> None:
    done = memory("--help")
    assert done.returncode == 0
    for word in ("_dump_snapshot", "--sql", "--csv", "--png", "SHOW TABLES", "Compare"):
        assert word in done.stdout
    queries = [q.split(":   ")[1] for q in re.split(r"\n\n", Memory.__doc__ or "") if ":   SELECT" in q]
    assert len(queries) == 3
    with Database(load_snapshot(real, cache=False)) as db:
        for query in queries:
            assert db.run(query).rows, query


# -- what a terminal is given --------------------------------------------------------------------------------


def in_terminal(*args: object, cache: Path) -> str:
    """What the program writes to a terminal, stdout and stderr together."""
    here, there = pty.openpty()
    process = forked_popen.Popen([sys.executable, "-m", "splatview.viewer_app", "memory", *map(str, args)],
                                 stdout=there, stderr=there, stdin=subprocess.DEVNULL,
                                 env=environment(XDG_CACHE_HOME=str(cache)))
    os.close(there)
    parts = []
    try:
        while part := os.read(here, 65536):
            parts.append(part)
    except OSError:  # the other end is closed
        pass
    os.close(here)
    assert process.wait(PATIENCE) == 0
    return b"".join(parts).decode()


@pytest.mark.parametrize("options", [(), exhaustive(("--csv",))])
def test_a_snapshot_commands_no_terminal(small: Path, cache: Path, options: tuple[str, ...]) -> None:
    said = in_terminal(small, "--sql", "SELECT user_metadata FROM events", *options, cache=cache)
    assert "]0;mine" in said
    assert not set("\x1b\x07\u202e") & set(said.replace("\x1b[K", ""))


def test_a_terminal_is_told_how_many_rows_there_are(small: Path, cache: Path) -> None:
    assert re.search(r"2 rows, \d+ ms\r\n$", in_terminal(small, "--sql", "FROM events", cache=cache))
    said = in_terminal(small, "--sql", "FROM range(12345)", cache=cache)
    assert said.endswith("the first 10,000 rows of 12,345; --csv prints all\r\n")


def test_who_has_seen_enough_may_close_the_pipe(small: Path, cache: Path) -> None:
    for extra in ([], ["--csv"]):
        process = forked_popen.Popen([sys.executable, "-m", "splatview.viewer_app", "memory", str(small), "--sql",
                                      "FROM range(3000000)" if extra else "FROM range(9000)", *extra],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, env=environment(XDG_CACHE_HOME=str(cache)))
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("range")
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert (process.wait(PATIENCE), said) == (0, "")


@pytest.mark.exhaustive
def test_a_full_disk_below_the_standard_output_is_told(memory: Any, small: Path, cache: Path, tmp_path: Path) -> None:
    """The kernel's limit on the size of files refuses a write as a full disk does."""
    assert memory(small, "--sql", "SELECT 1").returncode == 0  # the snapshot's columns are cached now
    program = ("import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4)); "
               "from splatview.viewer_app.__main__ import main; sys.exit(main())")
    with (tmp_path / "out.csv").open("wb") as out:
        done = subprocess.run([sys.executable, "-c", program, "memory", str(small), "--sql",
                               "SELECT 'something longer' AS name", "--csv"], stdout=out, stderr=subprocess.PIPE,
                              text=True, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, timeout=PATIENCE)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "splatview: standard output cannot be written: File too large\n"


def test_cells() -> None:
    rows: list[tuple[Any, ...]] = [(1, "a\nb", None), (-20, "x" * 300, 2.5)]
    lines = table(Result(("n", "text", "f"), ("INTEGER", "VARCHAR", "DOUBLE"), rows)).splitlines()
    assert lines[0].split() == ["n", "text", "f"]
    assert lines[2] == "  1  a \u2190 b"
    assert lines[3] == "-20  " + "x" * 79 + "\u2026  2.5"
    assert table(Result(("n",), ("INTEGER",), [])) == "n\n-\n"
