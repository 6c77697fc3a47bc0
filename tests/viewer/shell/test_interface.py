"""The whole interface, as a user who tries everything meets it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import widgets
from support.contrast import contrast, luminance
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer
from support.wait import polls

import splatview
from splatview_viewer.core.events import FileDrop, Key
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.memory.view import MemoryView


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """Return a file of a small scene."""
    return write_ply(tmp_path / "scene.ply", ply_columns(truth(200)))


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    """Return a file that looks like a scene and is none."""
    file = tmp_path / "bad.ply"
    file.write_bytes(b"ply\nformat ascii 1.0\nelement vertex 1\nend_header\n")
    return file


def drawn(viewer: Viewer) -> dict[str, Rect]:
    """Return the places of everything that is drawn now."""
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return dict(widgets.drawn)


def drop_refused(viewer: Viewer, file: Path) -> None:
    """Drop a file that cannot be read once the scene is shown, and wait for its card."""
    viewer.until(viewer.loaded)
    viewer.do(FileDrop(paths=(str(file),)))
    viewer.until_refused()


@pytest.mark.parametrize("light", [False, True])
def test_file_that_cannot_be_read_leaves_what_stands_there(
    open_viewer: Callable[..., Viewer], scene: Path, bad_file: Path, light: bool
) -> None:
    viewer = open_viewer((920, 700), files=(scene,))
    viewer.user.set_light(light)
    drop_refused(viewer, bad_file)
    pane = viewer.user.layout.active
    assert pane.key == str(scene)
    viewer.do()
    [card] = pane.cards
    card_pixels = viewer.pixels()[
        card.y : card.y + card.height, card.x : card.x + card.width
    ]
    # The card is dark in both themes, as the picture is.
    assert contrast(card_pixels) > 8
    assert np.median(luminance(card_pixels.reshape(-1, 3))) < 0.05
    viewer.click("close the refusal")
    viewer.do()
    assert not pane.cards


def test_refusal_goes_once_the_file_can_be_read(
    open_viewer: Callable[..., Viewer], scene: Path, bad_file: Path
) -> None:
    viewer = open_viewer((920, 700), files=(scene,))
    drop_refused(viewer, bad_file)
    pane = viewer.user.layout.active
    bad_file.write_bytes(scene.read_bytes())
    viewer.user.open(bad_file)
    viewer.until(viewer.loaded)
    assert pane.key == str(bad_file)
    assert pane.refusal is None


def test_words_over_a_picture_stand_out_in_the_light_theme(
    open_viewer: Callable[..., Viewer], scene: Path, bad_file: Path
) -> None:
    viewer = open_viewer((920, 700), files=(scene,))
    viewer.user.set_light(True)
    drop_refused(viewer, bad_file)
    viewer.user.choose(str(bad_file))
    viewer.do()
    picture = viewer.picture()
    height, width = picture.shape[:2]
    middle = picture[height // 2 - 40 : height // 2 + 40, width // 4 : width * 3 // 4]
    assert contrast(middle) > 8
    assert np.median(luminance(middle.reshape(-1, 3))) < 0.05


def test_long_name_leaves_room_for_facts_in_the_strip(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    file = write_ply(tmp_path / ("n" * 120 + ".ply"), ply_columns(truth(200)))
    viewer = open_viewer((940, 720), files=(file,))
    viewer.until(viewer.loaded)
    strip = viewer.user.layout.active.head
    x = strip.x + strip.width - 250
    facts_pixels = viewer.pixels()[strip.y : strip.y + strip.height, x : x + 160]
    assert np.ptp(facts_pixels) > 100


def test_list_scrolls_to_what_was_chosen_elsewhere(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    files = [tmp_path / f"{index:02}.png" for index in range(40)]
    for file in files:
        Image.new("RGB", (8, 8)).save(file)
    viewer = open_viewer((920, 700), files=tuple(files))
    viewer.until(viewer.loaded)
    for chosen_file in (files[30], files[0], files[39]):
        viewer.user.choose(str(chosen_file))
        viewer.do()
        row = drawn(viewer)[str(chosen_file)]
        streams = viewer.user.interface.zones.streams
        assert streams.y <= row.y
        assert row.y + row.height <= streams.y + streams.height


def test_picture_that_is_saved_says_where_it_is(
    open_viewer: Callable[..., Viewer],
    scene: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    viewer = open_viewer((920, 700), files=(scene,))
    viewer.until(viewer.loaded)
    monkeypatch.chdir(tmp_path)
    viewer.do(Key(name="s", mods=frozenset({"ctrl"})))
    assert (tmp_path / "scene.png").exists()
    message = viewer.user.state.toasts[0].text
    assert message.startswith("Saved ")
    assert message.endswith("scene.png")


def test_time_without_steps_has_one_row_of_labels(
    open_viewer: Callable[..., Viewer],
) -> None:
    splatview.publish_memory()
    viewer = open_viewer((920, 700))
    viewer.until(viewer.loaded)
    view = viewer.shows(MemoryView)
    assert view is not None
    viewer.until(lambda: len(view.data.history.time) > 3)
    picture = viewer.picture()
    # Below the plot there are ages, and no seconds since 1970 below them.
    rows = np.ptp(picture[-60:, 100:-100].sum(axis=2), axis=1) > 60
    starts = np.flatnonzero(np.diff(rows.astype(int)) == 1)
    assert len(starts) <= 1


def test_rows_of_a_menu_end_on_a_small_screen(
    open_viewer: Callable[..., Viewer], scene: Path
) -> None:
    viewer = open_viewer((320, 240), files=(scene,))
    viewer.until(viewer.loaded)
    viewer.click("More")
    row = drawn(viewer)["Let the run take one step"]
    assert row.x >= 0
    assert row.x + row.width <= 320


def test_refusal_can_be_put_away_on_a_phone(
    open_viewer: Callable[..., Viewer], scene: Path, bad_file: Path
) -> None:
    viewer = open_viewer((390, 844), files=(scene,))
    drop_refused(viewer, bad_file)
    pane = viewer.user.layout.active
    viewer.click("close the refusal")
    viewer.do()
    assert pane.refusal is None


def places_around_panes(viewer: Viewer) -> dict[str, tuple[int, int]]:
    """Return where every control around the panes begins."""
    panes = viewer.user.interface.zones.panes
    return {
        name: (rect.x, rect.y)
        for name, rect in drawn(viewer).items()
        if not panes.contains(rect.x, rect.y)
    }


def test_controls_stay_in_place_while_versions_come(
    open_viewer: Callable[..., Viewer],
) -> None:
    viewer = open_viewer((920, 700))
    means = torch.rand(210, 3)

    def publish(version: int) -> None:
        count = 10 + version
        values = {
            "means": means[:count],
            "quats": torch.ones(count, 4),
            "scales": torch.full((count, 3), -3.0),
            "opacities": torch.ones(count),
            "sh0": torch.ones(count, 1, 3),
        }
        splatview.publish(values, "gaussians", meta={"step": version * 1000})
        splatview.log(version * 1000, loss=1 / (1 + version))

    def has_step(version: int) -> bool:
        view = viewer.user.view
        if view is None or view.empty:
            return False
        return f"step {version * 1000:,}" in view.info.details

    # The curves have what they draw from the second version on.
    for version in range(3):
        publish(version)
        viewer.until(partial(has_step, version))
    first = places_around_panes(viewer)
    assert {"Pause", "Look", "Scale"} <= first.keys()
    for version in range(3, 201, 6):
        publish(version)
        for _ in polls(f"version {version} is drawn"):
            viewer.step()
            if has_step(version):
                break
        if version % 4 == 1:
            control_places = places_around_panes(viewer)
            assert {name: control_places.get(name) for name in first} == first
