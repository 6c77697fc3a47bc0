"""The viewer records a run, and users go back in the recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.recording.recorder import Tape
from splatview_viewer.recording.recording import RecordOptions
from splatview_viewer.workspace.sources import FileSource, entries_of

COUNT = 100
"""Gaussians of version 0; each later version has one more."""
LARGE_COUNT = 50_000
"""Gaussians of a version 0 that does not fit into a recording of 1 MB."""
MEANS = torch.nn.functional.normalize(
    torch.randn(60_000, 3, generator=torch.Generator().manual_seed(0))
)
STEPS_PER_VERSION = 10
RECORDED_EACH_VERSION = RecordOptions(every=STEPS_PER_VERSION)


def publish(version: int, base_count: int = COUNT) -> None:
    """Publish a version of a scene; count, step and brightness tell which one it is."""
    count = base_count + version
    splatview.publish(
        {
            "means": MEANS[:count] * 2,
            "quats": torch.ones(count, 4),
            "scales": torch.full((count, 3), -2.0),
            "opacities": torch.full((count,), 3.0),
            "sh0": torch.full((count, 1, 3), brightness(version)),
            "shN": torch.zeros(count, 0, 3),
        },
        "splats",
        meta={"step": STEPS_PER_VERSION * version},
    )


def brightness(version: int) -> float:
    return version / 100


def publish_picture() -> None:
    splatview.publish(torch.zeros(8, 8, 3), "render")


@pytest.fixture
def viewer(
    request: pytest.FixtureRequest, open_viewer: Callable[..., Viewer]
) -> Viewer:
    """A viewer that records each version, or with the options of the test's parameter."""
    options = getattr(request, "param", RECORDED_EACH_VERSION)
    return open_viewer((600, 360), record=options)


def source_of(viewer: Viewer, name: str = "splats") -> Any:
    """Return the source of the entry with this name."""
    for slot in viewer.catalogue.slots.values():
        if slot.entry.name == name:
            return slot.source
    raise AssertionError(f"there is no entry {name}")


def tape_of(viewer: Viewer) -> Tape:
    return source_of(viewer).tape


def recorded_steps(viewer: Viewer) -> list[int]:
    """Return the steps recorded so far, of all entries."""
    recorded = []
    for slot in viewer.catalogue.slots.values():
        tape = getattr(slot.source, "tape", None)
        if tape is not None:
            recorded += [snapshot.step for snapshot in tape.recording.snapshots]
    return recorded


def record(viewer: Viewer, *versions: int) -> None:
    """Publish these versions, and wait until each is recorded."""
    for version in versions:
        publish(version)
        wait_until_recorded(viewer, version)


def wait_until_recorded(viewer: Viewer, version: int) -> None:
    """Wait until this version is the last one in the recording."""

    def is_recorded() -> bool:
        return recorded_steps(viewer)[-1:] == [STEPS_PER_VERSION * version]

    viewer.until(is_recorded)


def gaussian_view(viewer: Viewer) -> GaussianView:
    view = viewer.shows(GaussianView)
    assert view is not None
    return view


def history(viewer: Viewer) -> Any:
    """Return the tool that draws the bar of the history."""
    return gaussian_view(viewer).tools["history"]


def shown_count(viewer: Viewer) -> int:
    """Return the number of Gaussians in the shown scene; -1 where none is shown."""
    view = viewer.user.view
    if view is None or view.content.summary is None:
        return -1
    return view.content.summary.count


def wait_for_count(viewer: Viewer, count: int) -> None:
    """Wait until a scene of this many Gaussians is shown."""

    def is_shown() -> bool:
        return shown_count(viewer) == count

    viewer.until(is_shown)


def wait_for_version(viewer: Viewer, version: int) -> None:
    """Wait until this version is shown."""
    wait_for_count(viewer, COUNT + version)


def wait_for_entries(viewer: Viewer, count: int) -> None:
    """Wait until the list has this many entries."""

    def are_listed() -> bool:
        return len(viewer.state.entries) == count

    viewer.until(are_listed)


def wait_until_alive(viewer: Viewer, alive: bool) -> None:
    """Wait until the run of the stream is, or is no longer, alive."""

    def has_state() -> bool:
        return source_of(viewer).stream.run.alive == alive

    viewer.until(has_state)


def point_on_bar(viewer: Viewer, index: int) -> tuple[float, float]:
    """Return the point of the history's slider where a snapshot is."""
    track = history(viewer).track
    # The live value is the last one.
    count = len(tape_of(viewer).player.recording) + 1
    return track.x + track.width * (index + 0.5) / count, track.y + track.height / 2


@pytest.mark.parametrize("viewer", [RecordOptions(every=20)], indirect=True)
def test_shown_scene_is_recorded_at_its_interval_of_steps(viewer: Viewer) -> None:
    for version in range(7):
        publish(version)
        wait_for_version(viewer, version)
        # Every second version is due.
        wait_until_recorded(viewer, version - version % 2)
    assert recorded_steps(viewer) == [0, 20, 40, 60]


def test_recorded_snapshot_is_a_whole_version(viewer: Viewer) -> None:
    record(viewer, 0, 1, 2)
    recording = tape_of(viewer).recording
    for version, snapshot in enumerate(recording.snapshots):
        scene = recording.scene(snapshot)
        assert snapshot.count == COUNT + version
        assert len(scene) == COUNT + version
        np.testing.assert_allclose(scene.sh0, brightness(version), atol=1e-3)


def test_picture_is_not_recorded(viewer: Viewer) -> None:
    publish_picture()
    wait_for_entries(viewer, 1)
    assert source_of(viewer, "render").tape is None


def test_dragging_along_the_bar_goes_back_and_to_live_again(viewer: Viewer) -> None:
    record(viewer, 0, 1, 2, 3)
    viewer.do()
    player = tape_of(viewer).player
    rig = gaussian_view(viewer).rig
    rig.orbit.target = np.array([0.5, 0, 0])
    rig.apply_orbit()
    viewer.do()
    camera_key = rig.camera().key  # type: ignore[union-attr]

    def shows_position() -> bool:
        position = player.position
        return position is not None and shown_count(viewer) == position.count

    viewer.do(PointerMove(*point_on_bar(viewer, 2)))
    viewer.do(PointerPress(*point_on_bar(viewer, 2)))
    viewer.until(shows_position)
    assert player.position in player.recording.snapshots[1:3]
    assert rig.camera().key == camera_key  # type: ignore[union-attr]
    viewer.do(PointerMove(*point_on_bar(viewer, 0)))
    wait_for_version(viewer, 0)
    assert player.index == 0
    viewer.do(PointerRelease(*point_on_bar(viewer, 0)))
    assert viewer.user.view is not None
    assert any("recorded" in text for text in viewer.user.view.info.details)
    # The recording continues meanwhile.
    record(viewer, 4)
    assert shown_count(viewer) == COUNT
    live_end = point_on_bar(viewer, len(player.recording))
    viewer.do(PointerPress(*live_end), PointerRelease(*live_end))
    wait_for_version(viewer, 4)
    assert player.position is None


def test_keys_go_back_and_forth_and_to_live_again(viewer: Viewer) -> None:
    record(viewer, 0, 1, 2, 3)
    viewer.do()
    player = tape_of(viewer).player
    newest = len(player.recording) - 1
    indices = []
    for key in ("comma", "comma", "period", "end"):
        viewer.do(Key(key))
        indices.append(player.index)
    assert indices == [newest, newest - 1, newest, None]


def test_bar_can_be_hidden_only_while_the_live_scene_is_shown(viewer: Viewer) -> None:
    record(viewer, 0, 1)
    viewer.do()
    bar = history(viewer)
    viewer.do(Key("comma"))
    viewer.do(Key("t"))
    assert bar.is_shown
    # The key hid the bar, which shows once the live scene is back.
    viewer.do(Key("end"))
    assert not bar.is_shown
    viewer.do(Key("t"))
    assert bar.is_shown


def test_restarted_run_continues_the_same_recording(viewer: Viewer) -> None:
    record(viewer, 0, 1)
    recording = tape_of(viewer).recording
    player = tape_of(viewer).player
    player.seek(0)
    wait_for_version(viewer, 0)
    splatview.close()
    wait_until_alive(viewer, False)
    assert shown_count(viewer) == COUNT
    # "End" shows the last version of the run that has ended.
    viewer.do(Key("end"))
    wait_for_version(viewer, 1)
    publish(50)
    wait_until_alive(viewer, True)
    record(viewer, 51)
    assert tape_of(viewer).recording is recording
    assert tape_of(viewer).player.has_live


@pytest.mark.parametrize("viewer", [RecordOptions(memory_mb=1)], indirect=True)
def test_scene_too_large_for_the_recording_is_reported_once(
    viewer: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    def has_warned() -> bool:
        return "--record-memory" in caplog.text

    for version in (0, 1):
        publish(version, base_count=LARGE_COUNT)
        wait_for_count(viewer, LARGE_COUNT + version)
        viewer.until(has_warned)
    assert caplog.text.count("could not be recorded") == 1
    assert not len(tape_of(viewer).recording)


def open_folder_recorder(open_viewer: Callable[..., Viewer], folder: Path) -> Viewer:
    """Open a viewer that records each version into a folder."""
    options = RecordOptions(folder, every=STEPS_PER_VERSION)
    return open_viewer((300, 200), record=options)


def test_hidden_stream_is_recorded_into_a_folder(
    tmp_path: Path, open_viewer: Callable[..., Viewer]
) -> None:
    viewer = open_folder_recorder(open_viewer, tmp_path / "recordings")
    publish_picture()
    wait_for_entries(viewer, 1)
    viewer.user.select(viewer.state.entries[0].key)
    publish(0)
    wait_for_entries(viewer, 2)
    record(viewer, 1, 2)
    selected = viewer.state.selected_entry
    assert selected is not None
    assert selected.name == "render"


def test_recording_in_a_folder_is_opened_later(
    tmp_path: Path, open_viewer: Callable[..., Viewer]
) -> None:
    folder = tmp_path / "recordings"
    viewer = open_folder_recorder(open_viewer, folder)
    record(viewer, 1, 2)
    viewer.close()
    files = tuple(FileSource(path) for path in entries_of([folder]))
    later = open_viewer((300, 200), files=files)
    wait_for_version(later, 2)
    assert later.user.view is not None
    player = later.user.view.content.player
    assert not player.has_live
    player.seek(len(player.recording) - 2)
    wait_for_version(later, 1)
    later.do(Key("end"))
    wait_for_version(later, 2)
    assert later.state.entries[-1].group == "Files"
