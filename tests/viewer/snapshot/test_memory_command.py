"""`splatview memory` writes answers as text and pictures, and refuses other files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.memory_data import block, event, segment, snapshot
from support.programs import Programs

from splatview_viewer.__main__ import main
from splatview_viewer.app.commands.memory import Memory
from splatview_viewer.app.memory_answers import answer
from splatview_viewer.snapshot.model import MemorySnapshot
from splatview_viewer.snapshot.query import Database

PEAK = (
    "SELECT coalesce(own_function, category) AS who, own_line AS line, count(*) AS n, "
    "sum(size)::BIGINT AS bytes FROM at_peak() LEFT JOIN stacks USING (stack_id) "
    "GROUP BY ALL ORDER BY bytes DESC LIMIT 3"
)

pytestmark = pytest.mark.usefixtures("read_in_process")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a snapshot with commands to terminals in a text."""
    events = [
        event("alloc", 0x1000, 700, user_metadata="\x1b]0;mine\x07,\r\u202e|"),
        event("alloc", 0x2000, 300),
    ]
    path = tmp_path / "small.pickle.gz"
    data = snapshot(events, [segment(0x1000, [block(0x1000, 1024, requested=700)])])
    path.write_bytes(gzip.compress(pickle.dumps(data)))
    return path


@pytest.fixture
def recorded(
    data_dir: Path, real: MemorySnapshot, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the file of a real training, which counts as read."""

    def read(path: Path) -> MemorySnapshot:
        return real

    monkeypatch.setattr("splatview_viewer.app.memory_answers.read", read)
    return data_dir / "training_memory_snapshot.pickle"


def test_memory_command_prints_a_table(recorded: Path) -> None:
    out = io.StringIO()
    answer(recorded, PEAK, as_csv=False, out=out)
    assert (
        out.getvalue()
        == """\
who               line    n       bytes
----------------  ----  ---  ----------
before the trace        664  5095567360
forward             39  339  2179563520
softmax              6   24  1610612736
"""
    )


def test_csv_holds_all_rows(
    recorded: Path, real: MemorySnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("SELECT event, size FROM events\n\tORDER BY event;\n")
    )
    answer(recorded, "-", as_csv=True, out=out)
    sizes = real.traces[0].events.size.tolist()
    assert list(csv.reader(out.getvalue().splitlines())) == [
        ["event", "size"],
        *([str(i), str(size)] for i, size in enumerate(sizes)),
    ]


def test_memory_command_answers_as_a_program(
    programs: Programs, small: Path, cache: Path
) -> None:
    sql = "SELECT sum(size)::BIGINT AS s FROM allocations"
    program = programs.splatview(
        "memory", small, "--sql", sql, XDG_CACHE_HOME=str(cache), DISPLAY=""
    )
    assert program.end() == (" " * 3 + "s\n" + "-" * 4 + "\n1000\n", "")
    assert program.returncode == 0


@pytest.mark.parametrize("as_csv", [False, True])
def test_texts_of_a_snapshot_cannot_control_a_terminal(
    small: Path, as_csv: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    answer(small, "SELECT user_metadata FROM events", as_csv=as_csv, out=screen)
    assert "]0;mine" in screen.getvalue()
    assert not set("\x1b\x07\u202e") & set(screen.getvalue())
    if not as_csv:
        # A summary follows the answer.
        assert re.search(r"2 rows, \d+ ms\n$", screen.getvalue())


def test_pictures_need_no_display(
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    png = tmp_path / "m.png"
    assert main(["memory", str(small), "--png", str(png), "--size", "640x400"]) == 0
    assert capsys.readouterr().out == f"{png}: 640 x 400\n"
    pixels = np.asarray(Image.open(png))
    assert pixels.shape[:2] == (400, 640)
    assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 50


def test_pictures_of_several_devices_name_the_device_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "several.pickle"
    traces = [[event("alloc", 512, (i + 1) << 20)] * (2 - i) for i in range(2)]
    host = [[event("alloc", 512, 4 << 20)] * 5]
    path.write_bytes(pickle.dumps(snapshot([], device_traces=traces, host_traces=host)))
    pictures: list[np.ndarray] = []
    for name in ("", "0", "1", "host"):
        png = tmp_path / f"a{name}.png"
        options = ["--device", name] if name else []
        assert main(["memory", str(path), "--png", str(png), *options]) == 0
        errors = capsys.readouterr().err
        lists_devices = "0 (2 events), 1 (1 events), host (5 events)" in errors
        assert lists_devices == (not name)
        assert ("choose with --device" in errors) == (not name)
        pictures.append(np.asarray(Image.open(png)).astype(int))
    default, *named = pictures
    assert np.abs(default - named[0]).max() < 8
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (np.abs(named[a] - named[b]).max(axis=2) > 30).sum() > 1000


@pytest.mark.parametrize("command", ["shot", "memory"])
@pytest.mark.parametrize(
    "broken",
    [
        "splatview_viewer.kinds.snapshot.content.Bands",
        "splatview_viewer.kinds.snapshot.picture.paint_sheet",
    ],
)
def test_snapshot_that_cannot_be_drawn_makes_no_picture(
    small: Path,
    tmp_path: Path,
    command: str,
    broken: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("out of order")

    monkeypatch.setattr(broken, fail)
    png = tmp_path / "m.png"
    if command == "shot":
        status = main(["shot", str(png), str(small)])
    else:
        status = main(["memory", str(small), "--png", str(png)])
    assert status == 2
    assert not png.exists()
    out, err = capsys.readouterr()
    assert out == ""
    assert "the picture cannot be drawn" in err
    assert "out of order" in err


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--sql", "ATTACH 'x.db'"], "ATTACH"),
        (["--sql", "SELECT sise FROM events"], "LINE 1"),
        (["--sql", "SELECT 1", "--png", "x.png"], "--png"),
        (["--csv"], "--sql"),
        (["again.pickle"], "again.pickle"),
        (["--png", "x.png", "--size", "wide"], "wide"),
        (["--png", "x.png", "--device", "3"], "it has 0"),
        (["--device", "0"], "--png"),
        (["--window", "--web"], "--window"),
    ],
)
def test_memory_command_names_impossible_options(
    small: Path, options: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["memory", str(small), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("splatview: ")
    assert fault in err


def test_memory_command_names_files_that_are_no_snapshots(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (data_dir / "biker.compressed.ply", tmp_path / "missing"):
        assert main(["memory", str(path), "--sql", "SELECT 1"]) == 2
        assert str(path) in capsys.readouterr().err


def test_two_snapshots_are_tables_of_two_schemas(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    larger = tmp_path / "larger.pickle"
    events = [event("alloc", 0x1000 * index, 500) for index in range(1, 5)]
    larger.write_bytes(pickle.dumps(snapshot(events)))
    both = ["memory", str(small), str(larger)]
    sql = (
        "SELECT (SELECT sum(size) FROM a.allocations)::BIGINT AS a, "
        "(SELECT count(*) FROM b.live_at(3)) AS b, b.peak() AS peak"
    )
    assert main([*both, "--sql", sql, "--csv"]) == 0
    assert capsys.readouterr().out == "a,b,peak\n1000,3,4\n"
    assert main([*both, "--sql", "SHOW TABLES"]) == 0
    assert "b.allocations" in capsys.readouterr().out
    assert main([*both, "--summary"]) == 0
    assert "from peak to peak, GPU 0: +0.98 KiB" in capsys.readouterr().out
    assert main([*both, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    peaks = [s["devices"][0]["peak_bytes"] for s in report["snapshots"]]
    assert peaks == [1000, 2000]
    assert report["grew"][0]["bytes"] == 1000
    png = tmp_path / "both.png"
    assert main([*both, "--png", str(png), "--size", "800x600"]) == 0
    pixels = np.asarray(Image.open(png))[..., :3].astype(int)
    # The squares of A and of B.
    for color in ((0x6C, 0xB0, 0xFF), (0xF2, 0xA6, 0x5A)):
        assert (np.abs(pixels - color).max(axis=2) < 3).sum() > 50


def test_queries_in_the_help_work(real: MemorySnapshot) -> None:
    paragraphs = (Memory.__doc__ or "").split("\n\n")
    queries = [text for text in paragraphs if text.lstrip().startswith("SELECT")]
    assert len(queries) == 3
    with Database(real) as db:
        for query in queries:
            assert db.run(query).rows, query
