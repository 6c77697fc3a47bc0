"""Figures and folders in tables that are written by hand are those of the code."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
from support.programs import ROOT

import splatview
from splatview.api import memory_recording
from splatview_ipc.control import limits, memory_snapshots, run_folder, sockets
from splatview_ipc.kinds.scalars import SCALAR_SERIES
from splatview_ipc.publisher import channel, stream_turns
from splatview_ipc.system.files import cache_folder
from splatview_ipc.transports import pinned_host
from splatview_viewer.app.commands.serve import Serve
from splatview_viewer.blocks.layout import BLOCK, BlockPart, part_bytes
from splatview_viewer.blocks.versions import MOST_GAUSSIANS
from splatview_viewer.core import host
from splatview_viewer.snapshot.loading.store import MAX_CACHE_BYTES
from splatview_viewer.web import files, scene_plan
from splatview_viewer.web.address import PORTS_TRIED

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def test_folders_of_the_configuration_are_those_of_the_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "SPLATVIEW_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    page = (ROOT / "docs" / "configuration.md").read_text()
    folders = [
        cache_folder() / "kernels",
        cache_folder() / "snapshots",
        memory_snapshots.snapshot_folder(),
        host.memo_file(),
    ]
    for path in folders:
        assert f"`~/{path.relative_to(tmp_path)}" in page
    runs = str(run_folder.default_folder())
    assert f"`{runs.replace(str(os.getuid()), 'UID')}`" in page


def test_limits_of_the_configuration_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    phrases = [
        f"light or dark; at most {host.MOST_BYTES / MIB:g} MiB",
        f"once all are over {MAX_CACHE_BYTES / GIB:g} GiB",
        f"dropped on a page, at most {files.MAX_KEPT / GIB:g} GiB",
        f"all but the newest {memory_snapshots.MAX_KEPT}",
    ]
    for phrase in phrases:
        assert phrase in page


def bytes_of(part: BlockPart, coefficients: int) -> float:
    """Return the bytes of a Gaussian in a part of a packed scene."""
    return part_bytes(part, coefficients) / BLOCK


def test_figures_of_the_guides_are_those_of_the_code() -> None:
    sampling = inspect.signature(splatview.publish_memory).parameters
    options = Serve()
    copies = round(1 / channel.PERIOD_S["ring"])
    headers = round(1 / channel.DEFAULT_PERIOD_S)
    figures = {
        "README.md": ["at most a tenth of the GPU's time"],
        "docs/guides/curves.md": [f"at most {SCALAR_SERIES} names"],
        "docs/guides/draw_here.md": [
            f"| quick | {bytes_of('quick', 0):.1f} |",
            f"| exact | {bytes_of('exact', 0):.1f} |",
            " / ".join(f"{bytes_of('harmonics', k):.0f}" for k in (3, 8, 15)),
            f"the line carries in {scene_plan.FIRST_S:g} s",
            f"the line carries in {scene_plan.PASS_S:g} s, at least a sixteenth",
            f"at most {MOST_GAUSSIANS / 1e6:g}M",
        ],
        "docs/guides/gaussians.md": [f"At most {limits.MAX_SHARDS} processes"],
        "docs/guides/memory.md": [
            "ten times a second (`hz=`)",
            f"{sampling['max_entries'].default:,} allocations and frees",
            f"newest {memory_snapshots.MAX_KEPT} are kept",
            "at most four in a run and ten seconds apart",
        ],
        "docs/guides/remote.md": [
            f"port {options.port}, or the next free one of twenty"
        ],
        "docs/how_it_works.md": [
            f"Copies are made at most {copies} times a second",
            f"writes a header, at most {headers} times a second",
            "an asynchronous copy to pinned memory, at most a tenth of the time",
        ],
        "docs/viewer.md": [f"{options.record_memory} MB hold (`--record-memory`)"],
    }
    assert options.gpu_budget == 0.1
    assert sampling["hz"].default == 10
    assert memory_recording.MAX_OOM_SNAPSHOTS == 4
    assert memory_recording.OOM_PERIOD_S == 10
    assert PORTS_TRIED == 20
    assert scene_plan.LEAST_SHARE == 1 / 16
    assert pinned_host.SHARE == 0.1
    for name, phrases in figures.items():
        text = " ".join((ROOT / name).read_text().split())
        for phrase in phrases:
            assert phrase in text, f"{name}: {phrase}"


def test_limits_of_the_architecture_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rates = {round(1 / period) for period in channel.PERIOD_S.values()}
    assert len(rates) == 1
    zero_copy_rate = round(1 / channel.DEFAULT_PERIOD_S)
    counts = (limits.MAX_VIEWERS, sockets.MAX_CONNECTIONS, limits.MAX_STREAMS)
    text_limit = f"{limits.MAX_META_TEXT:,} characters each"
    phrases = [
        f"| {rates.pop()} a second; zero-copy: {zero_copy_rate} versions;",
        f"takes, at least one in {1 / channel.LOWEST_PACE:g} s; the last",
        f"what a publish left | {stream_turns.GRACE_S:g} s |",
        f"where a run publishes steadily and no viewer asks for its last version | {stream_turns.BUSY_GRACE_S:g} s |",
        f"{stream_turns.GRACE_S:g} s\nafter the last publish the helper",
        f"with those {stream_turns.SETTLE_S:g} s after it",
        f"between publishes | {round(1 / stream_turns.LIVE_PERIOD_S)} a second",
        f"| messages | {limits.MAX_MESSAGE / KIB:g} KiB each",
        f"texts of {text_limit}, {limits.MAX_META_BYTES / KIB:g} KiB together",
        f"streams of a run | {', '.join(map(str, counts))} |",
    ]
    for phrase in phrases:
        assert phrase in page
    assert pinned_host.SHARE == 0.1
    assert "| copies through pinned host memory | a tenth of the time |" in page
