"""Pages, drawings and tables about snapshots are whole, and texts in them stay texts."""

from __future__ import annotations

import base64
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.memory_data import event, frame, rank_table, snapshot
from support.training_memory import training_step

from splatview_viewer.__main__ import main
from splatview_viewer.core.events import Key
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.files import open_file
from splatview_viewer.kinds.ranks.view import RanksData, RanksState, RanksView
from splatview_viewer.shell.files import FoundFile, list_later
from splatview_viewer.snapshot.export import timeline_html as page
from splatview_viewer.snapshot.export.flame_svg import flame_svg
from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.loading.ranks import RankTable, rank_of
from splatview_viewer.snapshot.model import MemorySnapshot, live_bytes, peak_moment

pytestmark = pytest.mark.usefixtures("read_in_process")
HOSTILE = "</script><script>alert(1)</script>\x1b\u202e&\"'<!--"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def training() -> MemorySnapshot:
    return from_pickled(training_step(leaks=True), "after.pickle")


@pytest.fixture(scope="module")
def hostile() -> MemorySnapshot:
    frames = [frame(HOSTILE, 3, HOSTILE)]
    events = [event("alloc", 512, 700, frames=frames), event("alloc", 4096, 300)]
    return from_pickled(snapshot(events), HOSTILE)


def data_of(text: str) -> dict[str, Any]:
    """Return the numbers of a page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert match is not None
    return json.loads(match[1])


def unpacked(text: str, dtype: str) -> np.ndarray:
    """Return the numbers that a page has as base64."""
    return np.frombuffer(base64.b64decode(text), dtype)


def test_page_holds_all_bands_and_asks_for_nothing(training: MemorySnapshot) -> None:
    text = page.timeline_html(training, training.traces[0])
    data = data_of(text)
    allocations = training.traces[0].allocations
    assert unpacked(data["start"], "<i4").tolist() == allocations.start.tolist()
    assert unpacked(data["size"], "<f8").tolist() == allocations.size.tolist()
    assert data["leftOut"] == ""
    assert data["peakBytes"] == live_bytes(training.traces[0]).max()
    last_stack = data["stacks"][unpacked(data["stack"], "<i4")[-1]]
    frame_texts = [data["frames"][i][0] for i in last_stack]
    assert frame_texts == [
        "AdamW.step  optim.py:214",
        "step  train.py:141",
        "main  train.py:203",
    ]
    assert not re.findall(r"https?://|src=|@import|url\(", text)


def test_page_says_which_allocations_are_one_band(
    training: MemorySnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_BANDS", 300)
    monkeypatch.setattr(page, "MAX_SAMPLES", 100)
    data = data_of(page.timeline_html(training, training.traces[0]))
    allocations = training.traces[0].allocations
    assert len(unpacked(data["ids"], "<i4")) == 300
    count = len(allocations) - 300
    assert data["leftOut"].startswith(f"{count} allocations of 12.0 MiB and less")
    small = unpacked(data["small"], "<f8")
    assert len(small) == len(unpacked(data["moments"], "<i4")) == 100
    # What is small at the highest moment, and the bands, are all that is live there.
    left_out = np.setdiff1d(np.arange(len(allocations)), unpacked(data["ids"], "<i4"))
    assert 0 < small.max() <= allocations.size[left_out].sum()


def test_texts_of_a_snapshot_end_no_element_of_a_page(hostile: MemorySnapshot) -> None:
    text = page.timeline_html(hostile, hostile.traces[0])
    assert text.count("<script") == text.count("</script>") == 2
    assert not set("\x1b\u202e") & set(text)
    data = data_of(text)
    assert "<!--:3" in data["frames"][0][0]
    svg = flame_svg(hostile, hostile.traces[0], 2)
    tags = {element.tag for element in ET.fromstring(svg).iter()}
    assert tags == {
        SVG + name for name in ("svg", "title", "style", "text", "g", "rect")
    }


def test_flame_graph_has_a_box_and_a_tip_for_each_frame(
    training: MemorySnapshot,
) -> None:
    trace = training.traces[0]
    svg = ET.fromstring(flame_svg(training, trace, peak_moment(trace)))
    widths = {}
    for group in svg.iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        box = group.find(f"{SVG}rect")
        assert title is not None
        assert title.text is not None
        assert box is not None
        widths[title.text.partition("\n")[0]] = float(box.attrib["width"])
    total = widths["main"]
    shares = {"Model.__init__": 4700, "einsum": 110 * 30, "cache.append": 110 * 7}
    live = live_bytes(trace).max() / (1 << 20)
    for name, size in shares.items():
        assert widths[name] == pytest.approx(total * size / live, abs=2)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.pickle", 0),
        ("Rank_12-step_100.pkl", 12),
        ("memory_step100_3.pickle", 3),
        ("memory.pickle", None),
    ],
)
def test_rank_of_a_file(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


def test_folder_of_ranks_is_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, size in ((10, 300), (2, 900), (0, 100)):
        data = snapshot([event("alloc", 512, size << 20)])
        (tmp_path / f"rank{rank}.pickle").write_bytes(pickle.dumps(data))
    (tmp_path / "rank3.pickle").write_bytes(pickle.dumps(data)[:50])
    (tmp_path / "notes.txt").write_text("not a snapshot")
    assert main(["memory", str(tmp_path), "--summary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["rank", "0", "2", "3", "10"]
    assert lines[2].endswith("rank2.pickle  < highest")
    assert "rank3.pickle: truncated or damaged" in lines[3]
    assert main(["memory", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    peaks = [row.get("peak_bytes") for row in report["ranks"]]
    assert peaks == [100 << 20, 900 << 20, None, 300 << 20]
    assert report["highest"] == 1
    # Opened or dropped, the folder is the same table; a list of files offers it whole.
    table = open_file(tmp_path)
    assert isinstance(table, RankTable)
    assert table.highest == 1
    listed = list_later(tmp_path.parent, print)
    assert listed.wait(10)
    assert (tmp_path.name, True) in [
        (f.path.name, f.is_folder) for f in listed.result()
    ]
    inside = list_later(tmp_path, print)
    assert inside.wait(10)
    assert inside.result()[0] == FoundFile(tmp_path, "all ranks")
    for options, fault in ((["--png", "x.png"], "--png"), (["--sql", "-"], "--sql")):
        assert main(["memory", str(tmp_path), *options]) == 2
        assert f"{tmp_path} is a folder, which {fault}" in capsys.readouterr().err


def test_row_of_a_rank_is_opened_and_two_checked_ones_compared() -> None:
    table = rank_table(5)
    view = RanksView(RanksData(table), RanksState())
    paths: list[tuple[Path, ...]] = []

    def note(*opened: Path) -> None:
        paths.append(opened)

    view.host = Host(open=note, open_pair=note)
    view.open(3)
    for row in (4, 0, 2):
        view.toggle(row)
    assert view.checked_rows == [0, 2]
    view.compare()
    assert paths == [(table.ranks[3].path,), (table.ranks[0].path, table.ranks[2].path)]
    assert "1 cannot be read" in view.info().details
    # The folder is read again without the first file.
    view.take("", replace(table, ranks=table.ranks[1:]))
    assert view.checked_rows == [1]
    view.take("", table)
    view.handle(Key("page_down"), Rect(0, 0, 400, 300))
    assert view.state.top == 4
    view.handle(Key("page_up"), Rect(0, 0, 400, 300))
    assert view.state.top == 0


def test_documents_are_written_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.pickle"
    file.write_bytes(pickle.dumps(snapshot([event("alloc", 512, 700)])))
    html = tmp_path / "a.html"
    svg = tmp_path / "a.svg"
    assert main(["memory", str(file), "--html", str(html)]) == 0
    assert main(["memory", str(file), "--flame", str(svg), "--at", "1"]) == 0
    assert html.read_text().startswith("<!doctype html>")
    assert svg.read_text().endswith("</svg>\n")
    assert capsys.readouterr().out.startswith(f"{html}: ")
    for options, fault in (
        (["--flame", str(svg), "--at", "9"], "expected 0 to 1"),
        (["--html", str(tmp_path / "no" / "a.html")], "there is no folder"),
        (["--html", str(html), "--device", "7"], "it has 0"),
        ([str(file), "--html", str(html)], "--html is of one snapshot"),
        (["--at", "1"], "--flame"),
    ):
        assert main(["memory", str(file), *options]) == 2
        assert fault in capsys.readouterr().err
