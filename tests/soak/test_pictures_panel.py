"""Each part of the panel for a scene, opened, held to a reference picture. `picture_cases` says how to make those anew.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.picture_cases import Cases, Stage, play, scene, stage_fixture, stages  # noqa: F401
from support.repetitions import with_exhaustive
from support.scene_files import ply_columns, write_ply

from splatview.viewer_app.events import Key, Text
from splatview.viewer_app.files import load_scene
from splatview.viewer_app.recorder.files import StreamFolder, write_packed
from splatview.viewer_app.recorder.packed import pack
from splatview.viewer_app.recorder.recording import Recording, Snapshot
from splatview.viewer_app.renderers.gl import GlRenderer

CASES = Cases()
SECOND_SCENE = 286.0
"""Where the second of two scenes lies in the part "Scenes"."""
SHIFT, ALT = frozenset({"shift"}), frozenset({"alt"})


def part(name: str, *shows: str, height: int = 480, width: int = 520):
    """A picture with the panel, which lies under it where that is narrow and high."""
    width = max(width, 600) if height > width else width
    return CASES(name, "view gaussians", *shows, size=(width, height))


@part("panel", height=640)
def _at_first(stage: Stage) -> None:
    stage.scene()
    assert {"part View", "part Camera"} <= stage.seen()


@part("panel-view-depth", "part View", "show depth", height=520)
def _view_depth(stage: Stage) -> None:
    stage.scene()
    stage.parts("View")
    stage.settings.show, stage.settings.depth_range = "depth", (20.0, 25.0)


@part("panel-view-points", "part View", "show points")
def _view_points(stage: Stage) -> None:
    stage.scene()
    stage.parts("View")
    stage.settings.show = "points"


@part("panel-camera", "part Camera", "part Numbers", height=680)
def _camera(stage: Stage) -> None:
    stage.scene()
    stage.parts("Camera")
    for number in "123":
        stage.do(Key(number, mods=SHIFT), Key(number, pressed=False))
    stage.tool("navigate").numbers = True


@part("panel-camera-fisheye", "part Camera", "projection fisheye")
def _fisheye(stage: Stage) -> None:
    stage.scene()
    stage.parts("Camera")
    stage.view.orbit.model, stage.view.orbit.fov = "fisheye", 120.0


def _filtered(stage: Stage) -> None:
    """Wait until everything is counted."""
    tool = stage.tool("filter")
    stage.until(lambda: tool.chosen_by == replace(stage.settings.selection, marked=()))


@part("panel-filter", "part Filter", height=700)
def _filter(stage: Stage) -> None:
    stage.scene()
    stage.parts("Filter")
    stage.do()
    _filtered(stage)


@part("panel-filter-limited", "part Filter", height=700)
def _limited(stage: Stage) -> None:
    stage.scene()
    stage.parts("Filter")
    stage.settings.selection = replace(stage.settings.selection, opacity=(0.5, 0.95), scale=(0.0, 0.1))
    stage.do()
    _filtered(stage)


@part("panel-crop-box", "part Crop", height=520)
def _box(stage: Stage) -> None:
    stage.scene()
    stage.parts("Crop")
    box, _ = stage.tool("crop").fitted()
    stage.tool("crop").set(replace(box, half=tuple(0.6 * h for h in box.half)))


@part("panel-crop-sphere", "part Crop")
def _sphere(stage: Stage) -> None:
    stage.scene()
    stage.parts("Crop")
    _, sphere = stage.tool("crop").fitted()
    stage.tool("crop").set(replace(sphere, radius=0.6 * sphere.radius))


def _click(stage: Stage, **more: frozenset[str]) -> None:
    tool = stage.tool("inspect")
    stage.do()
    stage.press(*stage.middle(), **more)
    stage.until(lambda: tool.values is not None)


@part("panel-inspect", "part Inspect", height=600)
def _inspect(stage: Stage) -> None:
    stage.scene()
    stage.parts("Inspect")
    _click(stage)


@part("panel-inspect-none", "part Inspect")
def _inspect_none(stage: Stage) -> None:
    stage.scene()
    stage.parts("Inspect")


@part("inspect-card", width=700)
def _card(stage: Stage) -> None:
    stage.scene()
    stage.parts()
    _click(stage, mods=ALT)


@part("panel-compare", "part Compare")
def _compare(stage: Stage) -> None:
    stage.scene("other", 1)
    stage.scene()
    stage.parts("Compare")


@part("panel-scenes", "part Scenes", height=640)
def _scenes(stage: Stage) -> None:
    other = stage.scene("other", 1)
    stage.scene()
    stage.app.catalogue.comparisons.together(stage.pane, other)
    stage.shown("scene.ply + other.ply")
    source = stage.pane.slot.source
    stage.parts("Scenes")
    moved = source.parts[1]
    moved.placement = replace(moved.placement, move=(1.5, 0.0, 0.5))
    stage.do()
    stage.until(lambda: source._thread is None and not source.has_news())
    stage.view.frame()
    stage.from_afar()
    before = stage.picture()
    stage.press(60, SECOND_SCENE)  # opens its fold
    changed = (stage.picture() != before).any(-1)[:, :250].any(-1)
    assert changed.sum() > 60, "the press has opened nothing"


@part("panel-path", "part Path", "bar path", height=640, width=640)
def _path(stage: Stage) -> None:
    stage.scene()
    stage.parts("Path")
    for _ in range(4):
        stage.do(Key("k"), Key("k", pressed=False))
        stage.view.orbit.orbit(0.5, 0.1)
        stage.view.moved()
    stage.tool("path").choose(1)
    stage.view.frame()
    stage.from_afar()


@part("panel-path-none", "part Path")
def _path_none(stage: Stage) -> None:
    stage.scene()
    stage.parts("Path")


@part("panel-motion", "part Motion", height=440)
def _motion(stage: Stage) -> None:
    stage.scene()
    stage.monkeypatch.setattr(stage.app.work, "software", False)  # where it is told of a GPU
    stage.parts("Motion")
    stage.settings.reproject = True


@part("panel-details", "part Details", height=620)
def _details(stage: Stage) -> None:
    stage.monkeypatch.setattr(GlRenderer, "timings", {"sort": 0.4, "project": 1.2, "draw": 2.5})
    stage.scene()
    stage.parts("Details")


@part("panel-picture", "part Picture", height=440)
def _picture(stage: Stage) -> None:
    stage.scene()
    stage.parts("Picture")


@part("history", "bar history", width=640, height=320)
def _history(stage: Stage) -> None:
    folder = StreamFolder(stage.folder / "kept", "train", "splats")
    recording = Recording(100.0, limit=10**9, folder=folder)
    for i in range(12):
        made = load_scene(write_ply(stage.folder / "step.ply", ply_columns(scene(n=40 + 20 * i))))
        file = folder.file(recording.next_number)
        size = write_packed(file, pack(made, (0.0, 0.0, 0.0)))
        recording.add(Snapshot(recording.next_number, 100 * i, i, 1, len(made), size, file=file))
    folder.write_index(recording.every, recording.lines())
    folder.close()
    stage.open(folder.path)
    stage.parts()
    stage.from_afar()
    player = stage.pane.slot.source.player
    player.seek(4)
    stage.until(lambda: player._fed == player.recording.snapshots[4].number)


@part("keys", width=860, height=520)
def _keys(stage: Stage) -> None:
    stage.scene()
    stage.parts()
    stage.do(Text("?"))
    assert stage.app.state.help


@pytest.mark.parametrize(("name", "case"), with_exhaustive({name: (name, case) for name, case in CASES.items()},
    "panel-view-points", "panel-camera-fisheye", "panel-filter", "panel-crop-sphere", "panel-inspect",
    "panel-inspect-none", "panel-path-none", "panel-picture", "panel-details"))
def test_it_looks_as_it_did(stage: Stage, name: str, case: object) -> None:
    play(stage, name)
