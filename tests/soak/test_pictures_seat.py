"""What is around scenes and pictures: panes, comparisons, themes, sizes, words; held to reference pictures.
`picture_cases` says how to make those anew. And the list of all pictures, which leaves nothing out."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import test_pictures
import test_pictures_panel
import test_pictures_runs
from PIL import Image
from support import picture_cases
from support.picture_cases import FOLDER, MADE_WITH, Cases, Stage, play, scene, stage_fixture, stages  # noqa: F401
from support.repetitions import with_exhaustive

from splatview import viewer_app
from splatview.viewer_app import color_maps
from splatview.viewer_app.cameras import MODELS
from splatview.viewer_app.events import Key, Resize
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.state import PairSettings, Show
from splatview.viewer_app.views import KINDS
from splatview.viewer_app.views._gaussians.frustums_through import HOWS
from splatview.viewer_app.views._gaussians.tool import Tool
from splatview.viewer_app.views.gaussians import GaussianView

CASES = Cases()


def seat(name: str, *shows: str, width: int = 520, height: int = 480, scale: float = 1.0):
    """A picture with the panel."""
    return CASES(name, *shows, size=(width, height), scale=scale)


def two(stage: Stage) -> str:
    """Two scenes, of which the second is shown; the first one's key."""
    other = stage.scene("other", 1)
    stage.scene()
    return other


# -- comparisons and panes -------------------------------------------------------------------------------------------


def _pair(stage: Stage, how: str) -> None:
    other = two(stage)
    stage.app.catalogue.comparisons.pair(stage.pane, other)
    stage.until(lambda: len(stage.view.views) == 2)
    stage.from_afar()
    stage.settings.how = how
    for view in stage.view.views:
        view.settings.coarse_ms, view.settings.reproject = float("inf"), False
    stage.seat.mark()
    stage.until(lambda: stage.view.psnr is not None)


for each in get_args(get_type_hints(PairSettings)["how"]):
    seat(f"compare-{each}", "view pair", f"compare {each}")(lambda stage, how=each: _pair(stage, how))


@seat("compare-images", "view pair", "compare split")
def _pair_of_images(stage: Stage) -> None:
    y, x = np.mgrid[0:90, 0:120]
    for name, value in (("before", x + y), ("after", x - y + 90)):
        Image.fromarray(np.stack([value, x, y], -1).astype(np.uint8)).save(stage.folder / f"{name}.png")
    first = stage.open(stage.folder / "before.png")
    stage.open(stage.folder / "after.png")
    stage.app.catalogue.comparisons.pair(stage.pane, first)
    stage.until(lambda: len(stage.view.views) == 2 and stage.view.psnr is not None)


def _panes(stage: Stage) -> None:
    other = two(stage)
    Image.new("RGB", (60, 40), (180, 90, 60)).save(stage.folder / "picture.png")
    third = stage.folder / "picture.png"
    stage.app.catalogue.open_file(third)
    stage.parts()
    for key, name in ((other, "other.ply"), (str(third), "picture.png")):
        stage.seat.panes.add(key)
        stage.shown(name)
        if name != "picture.png":
            stage.from_afar()


@seat("panes-grid", "panes grid", width=760, height=420)
def _grid(stage: Stage) -> None:
    _panes(stage)


@seat("panes-tabs", "panes tabs", width=640, height=360)
def _tabs(stage: Stage) -> None:
    _panes(stage)
    stage.seat.panes.arrange("tabs")
    stage.seat.panes.step(-1)


@seat("panes-maximised", "panes maximised", width=640, height=360)
def _maximised(stage: Stage) -> None:
    _panes(stage)
    stage.seat.panes.maximise(stage.seat.panes.all[1])


# -- themes and sizes -----------------------------------------------------------------------------------------------


@seat("light", "theme light", "part View", "part Camera", height=520)
def _light(stage: Stage) -> None:
    stage.scene()
    stage.app.state.light = True


@seat("light-parts", "theme light", "part Filter", "part Path", height=700, width=700)
def _light_parts(stage: Stage) -> None:
    stage.scene()
    stage.app.state.light = True
    stage.parts("Filter", "Path")
    stage.do(Key("k"), Key("k", pressed=False))
    tool = stage.tool("filter")
    stage.until(lambda: tool.statistics is not None)


@seat("scale-2", "theme dark", "part View", width=1000, height=620, scale=2.0)
def _twice(stage: Stage) -> None:
    stage.scene()


@seat("phone", width=390, height=700)
def _phone(stage: Stage) -> None:
    stage.scene()
    assert not stage.app.state.panel_open


@seat("phone-panel", "part View", width=390, height=700)
def _phone_panel(stage: Stage) -> None:
    stage.scene()
    stage.do(Key("h"), Key("h", pressed=False))
    assert stage.app.state.panel_open


@seat("without-panel")
def _without(stage: Stage) -> None:
    stage.scene()
    stage.do(Key("h"), Key("h", pressed=False))


@seat("resized", "part View", width=640, height=400)
def _resized(stage: Stage) -> None:
    stage.scene()
    stage.do(Resize(640, 560))
    stage.do(Resize(600, 420))


# -- words ------------------------------------------------------------------------------------------------------------


@seat("empty")
def _empty(stage: Stage) -> None:
    assert stage.app.state.entries == []


@seat("fault")
def _fault(stage: Stage) -> None:
    stage.app.catalogue.open_file(Path("/nowhere/point_cloud.ply"), stage.pane)
    stage.until(lambda: stage.app.state.shown and stage.app.state.shown.fault_of_source)


@seat("notice")
def _notice(stage: Stage) -> None:
    stage.scene()
    stage.parts()
    stage.seat.notice("A fault of the surroundings, in words that take more than one line of the panel")


@seat("toasts")
def _toasts(stage: Stage) -> str:
    stage.scene()
    stage.parts()
    stage.seat.say("Saved as scene-2.png")
    stage.seat.say("What takes more words than there is room for in one line over the picture is told in two of them")
    return "toasts"


@pytest.mark.parametrize(("name", "case"), with_exhaustive({name: (name, case) for name, case in CASES.items()},
    "compare-difference", "compare-blend", "compare-images", "panes-tabs", "panes-maximised", "light-parts",
    "phone-panel", "without-panel", "resized"))
def test_it_looks_as_it_did(stage: Stage, name: str, case: object) -> None:
    play(stage, name)


# -- what holds them to it --------------------------------------------------------------------------------------------


def test_one_step_is_let_pass_and_two_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    references, folder = tmp_path / "references", tmp_path / "found"
    folder.mkdir()
    monkeypatch.setattr(picture_cases, "FOLDER", references)
    monkeypatch.delenv(picture_cases.VARIABLE, raising=False)
    picture = np.random.default_rng(0).integers(2, 250, (9, 12, 3), np.uint8)
    with pytest.raises(AssertionError, match="there is no reference"):
        picture_cases.check("one", picture, folder)
    picture_cases.keep(picture, references / "one.png")
    picture_cases.check("one", picture, folder)
    picture_cases.check("one", picture + np.uint8(1), folder)
    other = picture.copy()
    other[3, 5, 1] += 2
    with pytest.raises(AssertionError, match=r"1 pixels are up to 2 of 255 apart, in x 5 to 5, y 3 to 3"):
        picture_cases.check("one", other, folder)
    with Image.open(folder / "one-actual.png") as actual, Image.open(folder / "one-difference.png") as apart:
        assert np.array_equal(np.asarray(actual), other)
        assert np.argwhere(np.asarray(apart)).tolist() == [[3, 5]]
    with pytest.raises(AssertionError, match="it has 12 x 8 pixels, and not 12 x 9"):
        picture_cases.check("one", picture[:8], folder)
    monkeypatch.setenv(picture_cases.VARIABLE, "1")
    picture_cases.check("one", other, folder)
    monkeypatch.delenv(picture_cases.VARIABLE)
    picture_cases.check("one", other, folder)


def test_a_palette_loses_nothing(tmp_path: Path) -> None:
    few = np.random.default_rng(0).integers(0, 6, (40, 30, 3), np.uint8) * 50
    picture_cases.keep(few, tmp_path / "few.png")
    with Image.open(tmp_path / "few.png") as found:
        assert found.mode == "P"
        assert np.array_equal(np.asarray(found.convert("RGB")), few)


def test_it_is_said_why_pictures_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(picture_cases.VARIABLE, raising=False)
    then = json.loads(MADE_WITH.read_text())
    assert picture_cases.reason(then) == ""
    assert picture_cases.reason(then | {"renderer": "llvmpipe (LLVM 99)"}) == ""
    assert "Mesa 99" in picture_cases.reason(then | {"version": "Mesa 99"})
    assert "imgui-bundle" in picture_cases.reason(then | {"imgui": "0.1"})
    assert "aarch64" in picture_cases.reason(then | {"processor": "aarch64"})
    assert "NVIDIA" in picture_cases.reason(then | {"renderer": "NVIDIA H100"})


# -- the list ---------------------------------------------------------------------------------------------------------

MODULES = test_pictures.CASES, test_pictures_panel.CASES, test_pictures_runs.CASES, CASES


def titles() -> set[str]:
    """Of all parts of the panel, as the source names them."""
    found = set()
    for path in Path(viewer_app.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "Section(" in text or "_fold(" in text else ():
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("Section", "_fold"):
                title = node.args[0]
                if isinstance(title, ast.Constant):
                    found.add(str(title.value))
    return found


def test_every_picture_has_a_name_of_its_own_and_a_reference() -> None:
    names = [name for cases in MODULES for name in cases]
    assert len(set(names)) == len(names)
    assert {path.stem for path in FOLDER.glob("*.png")} == set(names)
    assert {path.suffix for path in FOLDER.iterdir()} == {".png", ".json"}
    assert MADE_WITH.is_file()
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3 << 20


def test_nothing_is_left_out() -> None:
    """Each picture's words are checked when it is drawn (`Stage.seen`)."""
    shown = {words for cases in MODULES for case in cases.values() for words in case.shows}
    assert {"View", "Camera", "Filter", "Numbers", "Details"} <= titles()
    wanted = {f"show {show}" for show in get_args(Show)} | {f"colours {name}" for name in color_maps.NAMES}
    wanted |= {f"projection {model}" for model in MODELS} | {f"view {kind}" for kind in (*KINDS, "pair")}
    wanted |= {f"part {title}" for title in titles()} | {f"through {how}" for how in HOWS}
    wanted |= {f"compare {how}" for how in get_args(get_type_hints(PairSettings)["how"])}
    wanted |= {"panes grid", "panes tabs", "panes maximised", "theme light", "theme dark", "strip Strip",
               "strip CurveStrip"}
    screen = OffscreenScreen(8, 8)
    view = GaussianView(screen.ctx)
    wanted |= {f"bar {name}" for name, tool in view.tools.items() if type(tool).bar_height is not Tool.bar_height}
    view.close()
    screen.close()
    assert len(wanted) > 40
    assert sorted(wanted - shown) == [], "without a picture"
