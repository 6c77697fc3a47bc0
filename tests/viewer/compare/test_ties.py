"""Panes that are tied: what they begin with, and what they follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.scene_files import ply_columns, truth, write_ply
from support.view_cases import change_state
from support.viewer import Viewer

import splatview
from splatview_viewer.compare.pair import PairView
from splatview_viewer.core.events import Key, Wheel
from splatview_viewer.core.selection import Box, Mask, Selection
from splatview_viewer.recording.options import RecordOptions

pytestmark = pytest.mark.usefixtures("sharp")
SIZE = 1000, 800


def write_scene(folder: Path, name: str, scale: float = 1.0) -> Path:
    """Write a scene of random Gaussians, larger by a factor."""
    columns = ply_columns(truth(200, seed=ord(name)))
    for axis in "xyz":
        columns[axis] = (columns[axis] * scale).astype(np.float32)
    return write_ply(folder / f"{name}.ply", columns)


class Panes:
    """A viewer with its interface, and scenes as files."""

    def __init__(self, viewer: Viewer, files: list[Path]) -> None:
        self.viewer = viewer
        self.keys = [str(file.absolute()) for file in files]
        viewer.until(viewer.loaded)
        viewer.user.select(self.keys[0])
        viewer.until(viewer.loaded)

    @property
    def views(self) -> list[Any]:
        return [viewport.view for viewport in self.viewer.user.layout]

    @property
    def cameras(self) -> list[bytes]:
        self.viewer.do()
        return [v.view.rig.camera().viewmat.tobytes() for v in self.views]

    def beside(self, key: str) -> None:
        """Show an entry beside the active one, and wait for it."""
        self.viewer.user.show_beside(key)

        def have_values() -> bool:
            return not any(view is None or view.empty for view in self.views)

        self.viewer.until(have_values)
        self.viewer.do()

    def until_pair(self) -> Any:
        """Take turns until the first pane shows a pair with both views; return it."""

        def has_both_views() -> bool:
            pair = self.views[0].view
            return isinstance(pair, PairView) and len(pair.views) == 2

        self.viewer.until(has_both_views)
        return self.views[0].view

    def zoom(self, index: int, notches: float = 2.0) -> None:
        """Turn the wheel over a pane."""
        rect = self.viewer.user.layout.all[index].rect
        self.viewer.do(Wheel(rect.x + 60, rect.y + 60, notches))


@pytest.fixture
def open_scenes(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> Callable[..., Panes]:
    """Return `open_scenes(*scales)`: scenes a, b ... that are larger by factors."""

    def open_panes(*scales: float) -> Panes:
        files = [
            write_scene(tmp_path, "abc"[index], scale)
            for index, scale in enumerate(scales)
        ]
        return Panes(open_viewer(SIZE, files=tuple(files)), files)

    return open_panes


def test_pane_beside_begins_where_the_active_one_looks(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 1)
    panes.zoom(0, 3.0)
    change_state(panes.views[0], show="depth")
    cameras_before = panes.cameras
    panes.beside(panes.keys[1])
    assert panes.cameras == cameras_before * 2
    assert [view.view.state.show for view in panes.views] == ["depth", "depth"]


def test_chain_unties_a_pane_and_ties_it_again(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 1)
    panes.beside(panes.keys[1])
    viewer = panes.viewer
    panes.zoom(0)
    assert len(set(panes.cameras)) == 1
    viewer.click("tie 1")
    panes.zoom(0)
    change_state(panes.views[0], show="depth")
    assert len(set(panes.cameras)) == 2
    assert panes.views[1].view.state.show == "color"
    viewer.user.layout.activate(viewer.user.layout.all[0])
    first_camera = panes.cameras[0]
    viewer.click("tie 1")
    assert panes.cameras == [first_camera, first_camera]
    assert panes.views[1].view.state.show == "depth"


def test_look_is_followed_only_while_it_is_tied(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 1)
    panes.beside(panes.keys[1])
    viewer = panes.viewer
    viewer.user.choose_tab("compare")
    viewer.do()
    change_state(panes.views[1], show="depth")
    viewer.user.mark()
    viewer.do()
    assert panes.views[0].view.state.show == "depth"
    viewer.click("Look")
    change_state(panes.views[1], show="alpha")
    viewer.user.mark()
    viewer.do()
    shows = [view.view.state.show for view in panes.views]
    assert shows == ["depth", "alpha"]


def test_scenes_of_another_scale_move_in_frames_of_their_own(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 20)
    panes.beside(panes.keys[1])
    panes.zoom(0, 3.0)
    panes.viewer.do()
    distances = [view.view.state.place.orbit.distance for view in panes.views]
    assert distances[1] / distances[0] == pytest.approx(20, rel=0.2)
    user = panes.viewer.user
    notes = [user.catalogue.features[0].note(v) for v in user.layout]
    assert [note.label for note in notes] == ["own frame", "own frame"]
    # The other way round it is the same way back.
    panes.zoom(1, -3.0)
    panes.viewer.do()
    distances = [view.view.state.place.orbit.distance for view in panes.views]
    assert distances[1] / distances[0] == pytest.approx(20, rel=0.2)


def test_split_over_and_difference_keep_the_camera(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 1)
    panes.zoom(0, 3.0)
    viewer = panes.viewer
    camera_before = panes.cameras[0]
    empty_mask = Mask(bytes(25), total=200, count=0)
    crop = Selection(box=Box(), hidden=empty_mask)
    change_state(panes.views[0], chosen=empty_mask, selection=crop)
    viewer.user.choose_tab("compare")
    viewer.click("Split")
    pair = panes.until_pair()
    viewer.do()
    assert [v.view.rig.camera().viewmat.tobytes() for v in pair.views] == [
        camera_before
    ] * 2
    viewer.click("Over")
    assert pair.mode == "blend"
    viewer.click("in a pane of its own")
    assert [v.view.mode for v in panes.views] == ["blend", "difference"]
    difference = panes.views[1].view

    def is_compared() -> bool:
        return difference.psnr is not None

    viewer.until(is_compared)
    viewer.click("Beside")
    viewer.until(lambda: len(panes.views) == 3)
    viewer.do()
    cameras = {v.view.rig.camera().viewmat.tobytes() for v in difference.views}
    assert cameras == {camera_before}
    assert all(view.view.host.is_subtracted for view in difference.views)
    assert not any(view.view.host.is_subtracted for view in panes.views)
    viewer.click("in a pane of its own")
    assert len(panes.views) == 2
    # Indices into one scene mean nothing in the other, unlike a place.
    first, second = (view.view.state for view in panes.views)
    assert (first.chosen, first.selection) == (empty_mask, crop)
    assert (second.chosen, second.selection) == (None, Selection(box=Box()))
    # Another pane of the same scene has them.
    panes.beside(panes.keys[0])
    assert panes.views[1].view.state.chosen is empty_mask


def test_keys_and_lanes_of_a_split_pane_are_those_of_its_side(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 1)
    viewer = panes.viewer
    lanes = [lane.name for lane in viewer.user.layout.active.lanes()]
    viewer.user.compare("pair", panes.keys[1])
    pair = panes.until_pair()
    assert [lane.name for lane in viewer.user.layout.active.lanes()] == lanes
    # The next way to see.
    viewer.do(Key("v"), Key("v", pressed=False))
    shows = [view.view.state.show for view in pair.views]
    assert shows == ["depth", "depth"]


def test_psnr_is_told_beside_and_is_that_of_the_difference(
    open_scenes: Callable[..., Panes],
) -> None:
    panes = open_scenes(1, 1)
    panes.beside(panes.keys[1])
    viewer = panes.viewer
    viewer.user.choose_tab("compare")
    feature: Any = viewer.catalogue.features[0]

    def psnr() -> float | None:
        pairing = feature.pairing(viewer.user.layout.active)
        return feature.psnr(viewer.user, pairing)

    def until_psnr(expected: float | None) -> None:
        def is_expected() -> bool:
            return psnr() == expected

        viewer.until(is_expected)

    def is_known() -> bool:
        return psnr() is not None

    viewer.until(is_known)
    psnr_beside = psnr()
    viewer.user.choose_tab("look")
    until_psnr(None)
    viewer.user.choose_tab("compare")
    until_psnr(psnr_beside)


def test_a_and_b_are_swapped(open_scenes: Callable[..., Panes]) -> None:
    panes = open_scenes(1, 1)
    panes.beside(panes.keys[1])
    viewer = panes.viewer
    viewer.user.choose_tab("compare")
    feature = viewer.catalogue.features[0]

    def badges() -> list[tuple[str, str | None]]:
        return [(feature.note(v).badge, v.key) for v in viewer.user.layout]

    first, second = panes.keys
    assert badges() == [("A", first), ("B", second)]
    viewer.click("swap")
    assert badges() == [("A", second), ("B", first)]


def publish(i: int) -> None:
    """Publish version i of two scenes: step 10 i."""
    for name in ("one", "two"):
        n = 100 + i
        splatview.publish(
            {
                "means": torch.randn(n, 3, generator=torch.Generator().manual_seed(0)),
                "quats": torch.ones(n, 4),
                "scales": torch.full((n, 3), -2.0),
                "opacities": torch.full((n,), 3.0),
                "sh0": torch.full((n, 1, 3), i / 100),
                "shN": torch.zeros(n, 0, 3),
            },
            name,
            meta={"step": 10 * i},
        )


def test_steps_of_tied_panes_are_one_and_live_brings_all_back(
    open_viewer: Callable[..., Viewer],
) -> None:
    viewer = open_viewer(SIZE, record=RecordOptions(every=10))
    publish(0)
    viewer.until_listed("one", "two")
    keys = {entry.name: entry.key for entry in viewer.state.entries}
    viewer.user.select(keys["one"])
    viewer.until(viewer.loaded)
    viewer.user.show_beside(keys["two"])
    viewer.until(viewer.loaded)

    def playbacks() -> list[Any]:
        views: list[Any] = [viewport.view for viewport in viewer.user.layout]
        return [view.view.playback for view in views]

    def recorded(step: int) -> bool:
        all_playbacks = playbacks()
        if any(playback is None for playback in all_playbacks):
            return False
        return all(p.recording.snapshots[-1].step == step for p in all_playbacks)

    def until_step(playback: Any, step: int | None) -> None:
        def is_there() -> bool:
            return playback.step == step

        viewer.until(is_there)

    for i in (1, 2):
        publish(i)
        viewer.until(partial(recorded, 10 * i))
    first, second = playbacks()
    first.seek_step(10)
    until_step(second, 10)
    second.live()
    until_step(first, None)
    viewer.user.switch_tie(viewer.user.layout.all[1])
    first.seek_step(10)
    viewer.user.mark()
    viewer.do()
    assert second.step is None
    viewer.user.layout.activate(viewer.user.layout.all[0])
    viewer.user.switch_tie(viewer.user.layout.all[1])
    until_step(second, 10)
