"""The performance page: it agrees with the kept results, and says what was missed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.page_blocks import anchors_of

from benchmarks.machines import Machine
from benchmarks.page import PAGE, page_text
from benchmarks.records import Record, load_records

ROOT = Path(__file__).resolve().parents[1]
EPYC = Machine("AMD EPYC", 2)
H200 = Machine("Xeon", 16, gpu="NVIDIA H200")


def imports(milliseconds: str, date: str = "2026-11-29") -> Record:
    """Return a record of the benchmark of imports."""
    rows = [{"program": "import splatview", "more than bare, ms": milliseconds}]
    return record("imports", EPYC, rows, date)


def record(
    benchmark: str,
    machine: Machine,
    rows: list[dict[str, str]],
    date: str = "2026-11-29",
) -> Record:
    return Record(
        benchmark=benchmark,
        measures="Measure.",
        date=date,
        command=f"python -m benchmarks {benchmark}",
        machine=machine,
        versions={"python": "3.12.3"},
        rows=rows,
    )


def test_page_agrees_with_the_results() -> None:
    is_current = PAGE.read_text(encoding="utf-8") == page_text(load_records())
    assert is_current, "run `python -m benchmarks --page` after a change of results"


def test_results_keep_the_newest_record_of_each_machine(tmp_path: Path) -> None:
    imports("0.4", "2026-11-28").save(tmp_path)
    path = imports("0.3").save(tmp_path)
    record("imports", H200, [{"program": "import splatview"}]).save(tmp_path)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["imports.amd-epyc-2-cores.json", "imports.nvidia-h200.json"]
    content = json.loads(path.read_text())
    assert content["columns"][1] == {"name": "more than bare, ms", "unit": "ms"}
    first, _ = load_records(tmp_path)
    assert first.rows == imports("0.3").rows
    assert first.machine == EPYC


def test_figure_over_its_target_is_named_as_missed() -> None:
    page_within_target = page_text([imports("0.4")])
    line = "| 0.4 ms | - | at most 15 ms | 0.027 | EPYC, run 1 |"
    assert line in page_within_target
    run = "1. EPYC, 2 cores, 29 Nov 2026: `python -m benchmarks imports`"
    assert run in page_within_target
    assert "Missed:" not in page_within_target
    page_over_target = page_text([imports("20.0")])
    assert "| 1.33, **missed** |" in page_over_target
    assert "(EPYC): at most 15 ms was the target." in page_over_target


def test_peer_of_the_same_run_gives_the_ratio() -> None:
    viewer_row = {"what": "published at every step, camera still"}
    viewer_row |= {
        "training speed": "0.990 (170 steps/s)",
        "images/s": "10.0 (0.0 moved)",
    }
    peer_row = {"what": "nerfview: still", "training speed": "0.495", "images/s": "7.8"}
    titles = (
        "none, published at every step",
        "scene refreshed 10 times/s",
        "camera moving all the time, default budget",
        "camera moving, --gpu-budget 1",
        "1 s of dragging, 1 s of rest",
    )
    remaining_rows = [{"what": title, "training speed": "1.0"} for title in titles]
    with_peer = page_text(
        [record("gpu_training", H200, [viewer_row, *remaining_rows, peer_row])]
    )
    assert "| 0.990, 10.0 pictures/s | 0.495, 7.8 pictures/s, nerfview |" in with_peer
    assert "| at least 0.99 | 2.00 | H200, run 1 |" in with_peer
    without = page_text([record("gpu_training", H200, [viewer_row, *remaining_rows])])
    assert (
        "| 0.990, 10.0 pictures/s | - | at least 0.99 | 1.00 | H200, run 1 |" in without
    )


def test_figure_without_its_row_raises_an_error() -> None:
    renamed = record("imports", EPYC, [{"program": "import another"}])
    with pytest.raises(ValueError, match=r"no row of 'imports' matches .* page\.toml"):
        page_text([renamed])


def row_of(file: str, column: str, start: str) -> dict[str, str]:
    """Return the first row of a kept result whose column begins with a text."""
    rows = json.loads((ROOT / "benchmarks/results" / file).read_text())["rows"]
    return next(row for row in rows if row[column].startswith(start))


def training_row(start: str) -> dict[str, str]:
    return row_of("gpu_training.nvidia-h200.json", "what", start)


def first_number(cell: str) -> float:
    """Return the number that a cell begins with."""
    return float(cell.split()[0])


def test_costs_in_the_readme_are_those_of_the_results() -> None:
    """Take a rounded figure where the table has one; a speed is not rounded up to 1."""
    readme = (ROOT / "README.md").read_text()
    call = row_of("publish.amd-epyc-2-cores.json", "publish of", "a Gaussian scene")
    assert f"| {first_number(call['median us']):.0f} µs |\n" in readme
    memory = row_of("gpu_publish.nvidia-h200.json", "what", "GPU memory added by")
    assert memory["median"] == "+0.0 MiB in torch, +0 MiB by the driver"
    assert "six million Gaussians adds" in readme
    shown = (training_row("published at every step"), training_row("scene refreshed"))
    lowest = min(first_number(row["training speed"]) for row in shown)
    assert f"| {int(100 * lowest)} % |\n" in readme
    moving = training_row("camera moving all the time")
    speed = first_number(moving["training speed"])
    pictures = first_number(moving["images/s"])
    assert f"at {pictures:.0f} pictures/s | {100 * speed:.0f} % |\n" in readme


def test_links_to_the_page_name_its_headings() -> None:
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    pages = "".join(path.read_text() for path in paths)
    linked = set(re.findall(r"performance\.md#([\w-]+)", pages))
    assert linked
    assert linked <= anchors_of(PAGE)
