"""Additions from outside the packages: one constant each, in the table that lists its
like.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import stub_kind
from support.frames import frame_of
from support.programs import ROOT
from support.reference import ReferenceRenderer
from support.scene_files import truth, write_splat
from support.viewer import Viewer

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.transports import TRANSPORTS, Transport
from splatview_ipc.transports.memory import MemoryTransport
from splatview_viewer import kinds
from splatview_viewer.__main__ import main
from splatview_viewer.app import commands, loop
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.core.events import Close
from splatview_viewer.core.view import Section
from splatview_viewer.formats import Format
from splatview_viewer.kinds import files
from splatview_viewer.kinds.gaussians import view as gaussians
from splatview_viewer.render import choose
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.screens.offscreen import OffscreenScreen

KIND = replace(stub_kind.KIND, holds=lambda value: isinstance(value, StreamFrame))
BARS = Format(
    "bars",
    (".bars",),
    "bars as text",
    lambda start: start.head.startswith(b"bars "),
    lambda path, progress: frame_of(
        "stub",
        {
            "levels": torch.tensor(
                [float(word) for word in path.read_text().split()[1:]]
            )
        },
    ),
)


def test_a_kind_and_a_format(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, KIND))
    assert kinds.shown_kinds()[-1] == "stub"
    assert kinds.about("stub") is KIND
    monkeypatch.setattr(files, "FORMATS", (*files.FORMATS, BARS))
    (tmp_path / "two.bars").write_text("bars 1 0")
    assert files.recognise(tmp_path / "two.bars") == "bars"
    assert (
        main(
            [
                "shot",
                str(tmp_path / "out.png"),
                str(tmp_path / "two.bars"),
                "--size",
                "32x24",
            ]
        )
        == 0
    )
    drawn = np.asarray(Image.open(tmp_path / "out.png").convert("RGB"))
    assert (drawn[:, :16] == (102, 178, 255)).all()
    assert (drawn[:, 16:] == 26).all()

    viewer.catalogue.open_file(tmp_path / "two.bars")
    viewer.until(viewer.loaded)
    assert [entry.kind for entry in viewer.state.entries] == ["stub"]
    assert viewer.user.layout.active.describe()[1].details == ["2 levels"]


class Slow(ReferenceRenderer):
    name = "slow"


def test_a_renderer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choose.RENDERERS, "slow", Slow)
    monkeypatch.setenv(choose.VARIABLE, "slow")
    with (
        closing(OffscreenScreen(32, 24)) as screen,
        closing(Still(screen, "gaussians", "shot", "--camera")) as still,
    ):
        size = still.prepare(
            files.open_file(write_splat(tmp_path / "in.splat", truth(20))),
            StillOptions((32, 24)),
        )
        assert size is not None
        assert still.view is not None
        still.draw(size)
        assert "slow renderer" in still.view.info.path
        assert screen.pixels()[..., :3].any()


class Once(OffscreenScreen):
    """Closes when it shows what is all red in its middle."""

    def present(self, caption: Any = None) -> None:
        super().present(caption)
        if (
            self.pixels()[self.size[1] // 2, self.size[0] * 3 // 4, :3] == (255, 0, 0)
        ).all():
            self.push(Close())


def test_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        commands, "SCREENS", (lambda options, size: Once(*size), *commands.SCREENS)
    )
    Image.new("RGB", (400, 300), (255, 0, 0)).save(tmp_path / "in.png")
    assert (
        main(
            [
                "serve",
                str(tmp_path / "in.png"),
                "--offscreen",
                "--out",
                str(tmp_path / "out.png"),
                "--size",
                "640x400",
            ]
        )
        == 0
    )
    assert Image.open(tmp_path / "out.png").convert("RGB").getpixel((480, 200)) == (
        255,
        0,
        0,
    )


class Counter(Tool):
    name = "counter"

    def sections(self) -> Sequence[Section]:
        return [Section("Counter", lambda: False)]

    def details(self) -> Sequence[str]:
        return ["counted"]


class Notes:
    """A feature with a part of the panel."""

    def __init__(self, *args: Any) -> None:
        """Needs nothing of the viewer."""

    def pull(self, user: Any) -> None:
        """Prepares nothing."""

    def sections(self, viewport: Any) -> Sequence[Section]:
        return [Section("Notes", lambda: False)]

    def compare(self, how: str, viewport: Any, key: str) -> None:
        """Compares nothing."""


def test_a_tool_and_a_section_of_the_panel(
    open_viewer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaussians, "TOOLS", (*gaussians.TOOLS, Counter))
    monkeypatch.setattr(loop, "FEATURES", (*loop.FEATURES, Notes))
    viewer = open_viewer((900, 520))
    viewer.catalogue.open_file(write_splat(tmp_path / "in.splat", truth(20)))
    viewer.until(viewer.loaded)
    sections, info = viewer.user.layout.active.describe()
    assert {"Counter", "Notes"} <= {section.title for section in sections}
    assert "counted" in info.details


def test_a_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MemoryTransport()
    monkeypatch.setitem(
        TRANSPORTS,
        "own",
        Transport(lambda *_: made, lambda *_: made, "in this process"),
    )
    writer = TRANSPORTS["own"].writer({"image": torch.zeros(2, 2)}, False)
    assert writer.write("image", {"image": torch.ones(2, 2)}, {}, 1)
    frame = TRANSPORTS["own"].reader(writer.ref, {}).read()
    assert frame is not None
    assert frame.tensors["image"].to_float32().sum() == 4


def test_guide_names_each_table() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    for table in (
        "KINDS",
        "FORMATS",
        "RENDERERS",
        "SCREENS",
        "TOOLS",
        "FEATURES",
        "TRANSPORTS",
    ):
        assert f"`{table}`" in guide
