"""Additions from outside the packages.

Each is one constant in the table that lists its like.
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
from support.reference import ReferencePicture, ReferenceRenderer
from support.renderer_cases import Chance, random_scene
from support.scene_files import truth, write_splat
from support.view_cases import scene_view, view_pixels
from support.viewer import SIZE, Viewer

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.transports import TRANSPORTS, Transport
from splatview_ipc.transports.memory import MemoryTransport
from splatview_viewer import kinds
from splatview_viewer.__main__ import main
from splatview_viewer.app import loop
from splatview_viewer.app.commands import viewer as viewer_options
from splatview_viewer.app.still import Still, StillOptions
from splatview_viewer.core.events import Close
from splatview_viewer.core.view import Section
from splatview_viewer.formats import Format
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.kinds import files
from splatview_viewer.kinds.gaussians import view as gaussians
from splatview_viewer.kinds.gaussians.state import SHOWS
from splatview_viewer.render import choose
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.paints import PAINTS, PaintFacts
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.feature import Feature


def is_frame(value: object) -> bool:
    return isinstance(value, StreamFrame)


def is_bars(start: Any) -> bool:
    return start.head.startswith(b"bars ")


def read_bars(path: Path, progress: Any) -> StreamFrame:
    _, *levels = path.read_text().split()
    return frame_of(
        "stub", {"levels": torch.tensor([float(level) for level in levels])}
    )


KIND = replace(stub_kind.KIND, holds=is_frame)
BARS = Format("bars", (".bars",), "bars as text", is_bars, read_bars)


def test_added_kind_and_format_are_opened(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, KIND))
    assert kinds.shown_kinds()[-1] == "stub"
    assert kinds.about("stub") is KIND
    monkeypatch.setattr(files, "FORMATS", (*files.FORMATS, BARS))
    (tmp_path / "two.bars").write_text("bars 1 0")
    assert files.recognise(tmp_path / "two.bars") == "bars"
    out = str(tmp_path / "out.png")
    arguments = ["shot", out, str(tmp_path / "two.bars"), "--size", "32x24"]
    assert main(arguments) == 0
    drawn = np.asarray(Image.open(tmp_path / "out.png").convert("RGB"))
    assert (drawn[:, :16] == (102, 178, 255)).all()
    assert (drawn[:, 16:] == 26).all()

    viewer.catalogue.open_file(tmp_path / "two.bars")
    viewer.until(viewer.loaded)
    assert [entry.kind for entry in viewer.state.entries] == ["stub"]
    assert viewer.user.layout.active.describe("data")[1].details == ["2 levels"]


class Slow(ReferenceRenderer):
    name = "slow"


def test_added_renderer_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choose.RENDERERS, "slow", Slow)
    monkeypatch.setenv(choose.VARIABLE, "slow")
    with (
        closing(OffscreenScreen(32, 24)) as screen,
        closing(Still(screen, "gaussians", "shot", "--camera")) as still_image,
    ):
        scene = files.open_file(write_splat(tmp_path / "in.splat", truth(20)))
        size = still_image.prepare(scene, StillOptions((32, 24)))
        assert size is not None
        assert still_image.view is not None
        still_image.draw(size)
        assert "slow renderer" in still_image.view.info.path
        assert screen.pixels()[..., :3].any()


LEVELS = PaintFacts(
    title="Levels",
    tip="The number 5 for each Gaussian.",
    by_density=True,
    has_own_colors=False,
    is_mapped=True,
    legend="Level",
    range_name="levels",
)


class WithLevels(ReferenceRenderer):
    """Draws 5 for each Gaussian where the paint asks for it."""

    def render(self, camera: Camera, options: RenderOptions) -> ReferencePicture:
        picture = super().render(camera, options)
        if PAINTS[options.paint] is LEVELS:
            picture.values.color[:] = 5 * picture.values.alpha[..., None]
        return picture


def test_added_paint_is_shown_by_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: Any = "levels"
    monkeypatch.setitem(PAINTS, levels, LEVELS)
    monkeypatch.setitem(SHOWS, levels, LEVELS)
    monkeypatch.setitem(choose.RENDERERS, "levels", WithLevels)
    monkeypatch.setenv(choose.VARIABLE, "levels")
    with (
        closing(OffscreenScreen(64, 48)) as screen,
        closing(scene_view(screen)) as view,
    ):
        view.update(random_scene(3, Chance(n=100, log_scale=(-2.0, 0.7))))
        view.view.change(show="levels")
        view_pixels(view, screen)
        assert view.view.picture.number_picture.range == pytest.approx((5, 5))
        assert "levels 5 to 5" in view.view.info().details


class Once(OffscreenScreen):
    """Screen that closes when it shows red right of its middle."""

    def present(self, caption: Any = None) -> None:
        super().present(caption)
        width, height = self.size
        color = self.pixels()[height // 2, width * 3 // 4, :3]
        if (color == (255, 0, 0)).all():
            self.push(Close())


def open_once(options: Any, size: tuple[int, int]) -> Once:
    return Once(*size)


def test_added_screen_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewer_options, "SCREENS", (open_once, *viewer_options.SCREENS))
    Image.new("RGB", (400, 300), (255, 0, 0)).save(tmp_path / "in.png")
    out = tmp_path / "out.png"
    arguments = ["serve", str(tmp_path / "in.png"), "--offscreen", "--size", "1000x600"]
    assert main([*arguments, "--out", str(out)]) == 0
    picture = Image.open(out).convert("RGB")
    assert picture.getpixel((750, 300)) == (255, 0, 0)


def draw_nothing() -> bool:
    return False


class Counter(Tool):
    name = "counter"

    def sections(self) -> Sequence[Section]:
        return [Section("Counter", draw_nothing)]

    def details(self) -> Sequence[str]:
        return ["counted"]


class Notes(Feature):
    """Feature with a section of the panel."""

    def __init__(self, *args: Any) -> None:
        """Take nothing of the viewer."""

    def sections(self, viewport: Any) -> Sequence[Section]:
        return [Section("Notes", draw_nothing)]


def test_added_tool_and_section_are_in_the_panel(
    open_viewer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaussians, "TOOLS", (*gaussians.TOOLS, Counter))
    monkeypatch.setattr(loop, "FEATURES", (*loop.FEATURES, Notes))
    viewer = open_viewer(SIZE)
    viewer.catalogue.open_file(write_splat(tmp_path / "in.splat", truth(20)))
    viewer.until(viewer.loaded)
    sections, info = viewer.user.layout.active.describe("look")
    assert {"Counter", "Notes"} <= {section.title for section in sections}
    assert "counted" in info.details


def test_added_transport_carries_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryTransport()

    def connect(*_: Any) -> Any:
        return memory

    transport = Transport(connect, connect, "in this process")
    monkeypatch.setitem(TRANSPORTS, "own", transport)
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
        "PAINTS",
        "SCREENS",
        "TOOLS",
        "FEATURES",
        "TRANSPORTS",
    ):
        assert f"`{table}`" in guide
