"""The whole viewer in twelve states, held to reference pictures. `picture_cases` says how to make those anew."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import picture_cases
from support.frames import scalar_rows
from support.memory_data import pickled
from support.picture_cases import FOLDER, MADE_WITH, VARIABLE, Stage, stage

import splatview
from splatview.adapters.series import SCALARS
from splatview.api import session as publishing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("timeline_kernels")
CASES: dict[str, tuple[Callable[[Stage], object], tuple[int, int]]] = {}


def case(name: str, width: int = 520, height: int = 480) -> Callable[[Callable[[Stage], object]], Any]:
    """A decorator: this function has the viewer show the picture of this name, on a screen of this size."""
    def taken(draw: Callable[[Stage], object]) -> Callable[[Stage], object]:
        CASES[name] = draw, (width, height)
        return draw

    return taken


def way(name: str, model: str = "pinhole", **settings: Any) -> None:
    """A scene without the panel, with these of `GaussianSettings`."""
    @case(name, 320, 264)
    def draw(stage: Stage) -> None:
        stage.scene()
        stage.view.orbit.model = model
        for key, value in settings.items():
            setattr(stage.settings, key, value)


way("show-color", show="color")
way("show-depth", show="depth")
way("show-normals", show="normals")
way("projection-fisheye", model="fisheye")


# -- the panel ---------------------------------------------------------------------------------------------------------


@case("panel", 600, 640)
def _at_first(stage: Stage) -> None:
    stage.scene()


@case("panel-crop-box", 520, 520)
def _box(stage: Stage) -> None:
    stage.scene()
    stage.parts("Crop")
    box, _ = stage.tool("crop").fitted()
    stage.tool("crop").set(replace(box, half=tuple(0.6 * h for h in box.half)))


# -- kinds of streams --------------------------------------------------------------------------------------------------


def picture() -> np.ndarray:
    """(96, 144, 3) uint8: soft colours, and a bright disc."""
    y, x = np.mgrid[0:96, 0:144]
    disc = (x - 96) ** 2 + (y - 40) ** 2 < 20**2
    smooth = np.stack([60 + x, 40 + y, 160 - x // 2], -1)
    return np.where(disc[..., None], (235, 220, 150), smooth).astype(np.uint8)


def publish_as(name: str, form: Any, tensors: tuple[torch.Tensor, ...], meta: dict[str, Any]) -> None:
    """What `splatview.log` and `splatview.publish_memory` publish, with times of its own."""
    publisher = publishing.session().run()
    assert publisher is not None
    stream = publisher.stream(name, form.kind)
    stream.describe(form)
    stream.publish((tensors, meta))


@case("kind-image")
def _image(stage: Stage) -> None:
    splatview.publish(picture(), "render", step=700)
    stage.select("render")
    stage.parts("View")


@case("kind-scalars", 760, 520)
def _scalars(stage: Stage) -> None:
    rows = scalar_rows()
    names = torch.tensor([*"".join(f"{name}\0" for name in rows).encode()], dtype=torch.uint8)
    ends = torch.tensor([len(r) for r in rows.values()]).cumsum(0).to(torch.int32)
    publish_as("scalars", SCALARS, (torch.cat([*rows.values()]), ends, names), {"step": 399.0})
    stage.select("scalars")
    stage.parts("View")


@case("kind-snapshot", 760, 520)
def _snapshot(stage: Stage) -> None:
    path = stage.folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(pickled()))
    stage.open(path)
    stage.parts("View")
    stage.until(lambda: stage.view.complete)


# -- around scenes and pictures ----------------------------------------------------------------------------------------


@case("compare-split")
def _pair(stage: Stage) -> None:
    other = stage.scene("other", 1)
    stage.scene()
    stage.app.catalogue.features[0].compare("pair", stage.pane, other)
    stage.until(lambda: len(stage.view.views) == 2)
    stage.from_afar()
    stage.settings.how = "split"
    for view in stage.view.views:
        picture_cases.exactly(view.settings)
    stage.seat.mark()
    stage.until(lambda: stage.view.psnr is not None)


@case("panes-grid", 760, 420)
def _grid(stage: Stage) -> None:
    other = stage.scene("other", 1)
    stage.scene()
    Image.new("RGB", (60, 40), (180, 90, 60)).save(stage.folder / "picture.png")
    third = stage.folder / "picture.png"
    stage.app.catalogue.open_file(third)
    stage.parts()
    for key, name in ((other, "other.ply"), (str(third), "picture.png")):
        stage.seat.panes.add(key)
        stage.shown(name)
        if name != "picture.png":
            stage.from_afar()


@case("light", 520, 520)
def _light(stage: Stage) -> None:
    stage.scene()
    stage.app.state.light = True


@pytest.mark.parametrize("name", CASES)
def test_it_looks_as_it_did(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, size = CASES[name]
    with stage(size, tmp_path, monkeypatch) as made:
        draw(made)
        picture_cases.check(name, made.picture(), tmp_path)


# -- what holds them to it ---------------------------------------------------------------------------------------------


def test_one_step_is_let_pass_and_two_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cases, "FOLDER", tmp_path / "references")
    monkeypatch.delenv(VARIABLE, raising=False)
    drawn = np.random.default_rng(0).integers(2, 250, (9, 12, 3), np.uint8)
    with pytest.raises(AssertionError, match="there is no reference"):
        picture_cases.check("one", drawn, tmp_path)
    picture_cases.keep(drawn, tmp_path / "references" / "one.png")
    picture_cases.check("one", drawn + np.uint8(1), tmp_path)
    other = drawn.copy()
    other[3, 5, 1] += 2
    with pytest.raises(AssertionError, match=r"1 pixels are up to 2 of 255 apart, in x 5 to 5, y 3 to 3"):
        picture_cases.check("one", other, tmp_path)


def test_references_are_those_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {path.stem for path in FOLDER.glob("*.png")} == {*CASES}
    monkeypatch.delenv(VARIABLE, raising=False)
    then = json.loads(MADE_WITH.read_text())
    assert picture_cases.reason(then) == ""
    assert "Mesa 99" in picture_cases.reason(then | {"version": "Mesa 99"})
