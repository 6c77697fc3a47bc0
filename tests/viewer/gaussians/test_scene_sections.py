"""The sections of a scene in the tabs of the panel, as a user sees and presses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import scene_files as w
from support import widgets
from support.viewer import Viewer

from splatview_viewer.core.command import parse_shortcut
from splatview_viewer.core.events import Key, Mods
from splatview_viewer.kinds.gaussians.state import SHOWS
from splatview_viewer.scene import Sphere, shapes

SHIFT: Mods = frozenset({"shift"})


@pytest.fixture
def viewer(
    open_viewer: Callable[..., Viewer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Viewer:
    """Return a viewer of a scene with harmonics, high enough for all sections."""
    monkeypatch.chdir(tmp_path)
    new_viewer = open_viewer((920, 1400))
    columns = w.ply_columns(w.truth(60, 2))
    new_viewer.catalogue.open_file(w.write_ply(tmp_path / "a.ply", columns))
    new_viewer.until(new_viewer.loaded)
    return new_viewer


def view_of(viewer: Viewer) -> Any:
    assert viewer.user.view is not None
    return viewer.user.view.view


def choose_tab(viewer: Viewer, tab: Any) -> None:
    viewer.user.choose_tab(tab)
    viewer.do()


# -- look ------------------------------------------------------------------------------


def test_each_way_to_see_it_is_one_press(viewer: Viewer) -> None:
    view = view_of(viewer)
    for show, lines in SHOWS.items():
        viewer.click(lines.title)
        assert view.state.show == show
    viewer.do(Key("v"), Key("v", False))
    assert view.state.show == "color"
    viewer.do(Key("v", mods=SHIFT), Key("v", False))
    assert view.state.show == "overdraw"


def test_right_click_on_a_head_sets_its_controls_back(viewer: Viewer) -> None:
    view = view_of(viewer)
    view.change(show="normals", scale=0.5, color_map="magma")
    camera_place = view.state.place
    viewer.click("Show", button="right")
    assert (view.state.show, view.state.scale) == ("color", 1.0)
    assert view.state.color_map == "turbo"
    assert view.state.place == camera_place


def test_degree_as_trained_follows_the_training(viewer: Viewer) -> None:
    view = view_of(viewer)
    viewer.click("1")
    assert view.state.sh_degree == 1
    viewer.click("2")
    assert view.state.sh_degree is None


def test_bookmarks_are_kept_visited_replaced_and_deleted(viewer: Viewer) -> None:
    view = view_of(viewer)
    bookmarks = view.tools["navigate"].bookmarks
    viewer.click("keep")
    first = bookmarks.by_digit[1]
    view.rig.set_lens("pinhole", 70.0)
    viewer.do()
    view.tools["navigate"].bookmarks.add(5)
    viewer.click("5", button="right")
    viewer.click("Delete")
    assert list(bookmarks.by_digit) == [1]
    view.rig.motion.fly_along(np.array([1.0, 0.0, 0.0]))
    viewer.until(lambda: not view.rig.motion.is_under_way)
    for _ in range(8):
        view.tools["navigate"].bookmarks.add()
    viewer.do()
    assert bookmarks.reason_full is not None
    assert bookmarks.by_digit[1] == first


def test_up_tells_its_source_and_is_turned_by_one_choice(viewer: Viewer) -> None:
    up_axis = view_of(viewer).rig.up_axis
    assert up_axis.words == "\u2212y, usual in such files"
    viewer.click("Up")
    viewer.click("+z")
    assert up_axis.words == "+z, set by hand"
    viewer.click("Up")
    viewer.click("Detect")
    assert up_axis.words == "\u2212y, usual in such files"


# -- data ------------------------------------------------------------------------------


def test_fit_takes_all_that_is_seen_and_far_ones_only_if_wanted(
    viewer: Viewer,
) -> None:
    view = view_of(viewer)
    choose_tab(viewer, "data")
    viewer.click("Crop")
    viewer.click("Box")
    box = view.tools["crop"].shape
    points = view.seen_points()
    assert len(points)
    assert (np.abs(points - box.center) <= np.array(box.half) + 1e-6).all()
    viewer.click("Sphere")
    sphere = view.tools["crop"].shape
    distances = np.linalg.norm(points - sphere.center, axis=1)
    assert distances.max() <= sphere.radius
    assert not view.tools["crop"].without_far
    viewer.click("without the farthest 1 %")
    viewer.click("Fit to scene")
    assert view.tools["crop"].without_far
    far = np.concatenate([np.random.default_rng(0).normal(size=(999, 3)), [[50, 0, 0]]])
    up = np.array([0.0, -1.0, 0.0])
    full_sphere: Any = shapes.fit(Sphere, far, up=up, without_far=False)
    nearly: Any = shapes.fit(Sphere, far, up=up)
    assert full_sphere.radius > 20 > 6 > nearly.radius


def test_filter_and_save_are_sections_that_tell_their_state(viewer: Viewer) -> None:
    view = view_of(viewer)
    choose_tab(viewer, "data")
    tool = view.tools["filter"]
    viewer.until(lambda: tool.known_statistics is not None)
    states = {section.title: section.state for section in view.panel()}
    assert states["Filter"].endswith(f" of {tool.statistics.total:,}")
    assert states["Crop"] == "none"
    viewer.click("Save the scene")
    viewer.click("All")
    viewer.until(lambda: list(Path.cwd().glob("a*.ply"))[1:])
    tool.save_suffix = ".spz"
    viewer.click("All")
    viewer.until(lambda: list(Path.cwd().glob("a*.spz")))


def test_a_saved_page_begins_as_the_view_and_plays_its_path(viewer: Viewer) -> None:
    view = view_of(viewer)
    view.path.add_key()
    view.rig.set_lens("pinhole", 60.0)
    view.path.add_key()
    viewer.do()
    view.tools["filter"].save_suffix = ".html"
    view.tools["filter"].save(only_shown=False)
    viewer.until(lambda: list(Path.cwd().glob("a*.html")))
    page = Path("a.html").read_text()
    assert '<img id="poster"' in page
    values = page.partition('id="scene">')[2].partition("</script>")[0]
    scene = json.loads(values)
    assert scene["place"]["fov"] == pytest.approx(60)
    assert scene["path"]["seconds"] == view.path.path.duration
    assert scene["version"]["count"] == 60


# -- film ------------------------------------------------------------------------------


def test_path_is_set_saved_and_loaded_again(viewer: Viewer) -> None:
    view = view_of(viewer)
    choose_tab(viewer, "film")
    viewer.click("Keyframe here")
    view.rig.set_lens("pinhole", 60.0)
    viewer.click("Keyframe here")
    keys = len(view.path.path.keys)
    assert keys == 2
    assert {"Path", "Keyframe 2", "Video"} <= {s.title for s in view.panel()}
    widgets.drawn.clear()
    choose_tab(viewer, "film")
    viewer.find("Set to this camera")
    saves = [name for name in widgets.drawn if name == "Save"]
    assert saves
    view.path.storage.save()
    (file,) = Path.cwd().glob("*.json")
    viewer.click("Remove")
    assert len(view.path.path.keys) == 1
    viewer.click("Load")
    viewer.click(file.name)
    assert len(view.path.path.keys) == 2


# -- commands --------------------------------------------------------------------------


def test_commands_have_names_of_their_own_and_keys_that_exist(viewer: Viewer) -> None:
    view = view_of(viewer)
    commands = view.commands()
    names = [command.name for command in commands]
    assert len(set(names)) == len(names)
    titles = [command.title for command in commands]
    assert len(set(titles)) == len(titles)
    keys = [parse_shortcut(keys) for command in commands for keys in command.keys]
    assert len(set(keys)) == len(keys)
    for command in commands:
        reason = command.reason(view)
        assert reason is None or reason
