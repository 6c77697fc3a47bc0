"""The viewer records a run, and users go back in the recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import widgets
from support.full_disk import full_disk
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import Key, PointerMove, PointerPress, PointerRelease
from splatview_viewer.kinds.scalars.view import ScalarsView
from splatview_viewer.recording import recorder
from splatview_viewer.recording.options import RecordOptions
from splatview_viewer.recording.recorder import Tape
from splatview_viewer.recording.recording import INDEX
from splatview_viewer.shell.time_area import chosen_lane
from splatview_viewer.ui import controls
from splatview_viewer.ui.tracks import Track
from splatview_viewer.workspace.file_source import FileSource, entries_of

MEANS = torch.nn.functional.normalize(
    torch.randn(60_000, 3, generator=torch.Generator().manual_seed(0))
)


def publish(i: int, base_count: int = 100, unused_coefficients: int = 0) -> None:
    """Publish version i of a scene: step 10 i, i + `base_count` Gaussians, grey by i."""
    n = i + base_count
    splatview.publish(
        {
            "means": MEANS[:n] * 2,
            "quats": torch.ones(n, 4),
            "scales": torch.full((n, 3), -2.0),
            "opacities": torch.full((n,), 3.0),
            "sh0": torch.full((n, 1, 3), i / 100),
            "shN": torch.zeros(n, unused_coefficients, 3),
        },
        "splats",
        sh_degree=0,
        meta={"step": 10 * i},
    )


@pytest.fixture
def viewer(
    request: pytest.FixtureRequest, open_viewer: Callable[..., Viewer]
) -> Viewer:
    return open_viewer(
        (600, 360), record=getattr(request, "param", RecordOptions(every=10))
    )


def source(viewer: Viewer, name: str = "splats") -> Any:
    return next(
        s.source for s in viewer.catalogue.slots.values() if s.entry.name == name
    )


def tape(viewer: Viewer) -> Tape:
    return source(viewer).tape


def steps(viewer: Viewer) -> list[int]:
    """Return the steps recorded so far."""
    recorded = []
    for slot in viewer.catalogue.slots.values():
        slot_tape = getattr(slot.source, "tape", None)
        if slot_tape is not None:
            recorded += [snapshot.step for snapshot in slot_tape.recording.snapshots]
    return recorded


def record(viewer: Viewer, *versions: int) -> None:
    """Publish these versions, and wait until each is recorded."""

    def is_recorded() -> bool:
        return steps(viewer)[-1:] == [10 * i]

    for i in versions:
        publish(i)
        viewer.until(is_recorded)


def view(viewer: Viewer) -> Any:
    return viewer.user.view


def shown_count(viewer: Viewer) -> int:
    """Return the number of Gaussians in the shown scene; -1 where none is shown."""
    if viewer.user.view is None:
        return -1
    summary = view(viewer).content.summary
    return -1 if summary is None else summary.count


def wait_for_count(viewer: Viewer, count: int) -> None:
    """Wait until a scene of so many Gaussians is shown."""

    def is_shown() -> bool:
        return shown_count(viewer) == count

    viewer.until(is_shown)


def wait_for_entries(viewer: Viewer, count: int) -> None:
    def are_listed() -> bool:
        return len(viewer.state.entries) == count

    viewer.until(are_listed)


def wait_until_alive(viewer: Viewer, alive: bool) -> None:
    """Wait until the run of the stream is, or is no longer, alive."""

    def has_state() -> bool:
        return source(viewer).stream.run.alive == alive

    viewer.until(has_state)


def track_at(viewer: Viewer, index: int | None) -> tuple[float, float]:
    """Return the point of the lane where a snapshot is; None: what comes live."""
    viewer.find("Training track")
    rect = widgets.drawn["Training track"]
    lane = view(viewer).view.tools["history"].lane()
    x = Track(rect, viewer.screen.state.scale).to_x(lane.place(index))
    return x + (2 if index is None else 0), rect.y + rect.height / 2


@pytest.mark.parametrize("viewer", [RecordOptions(every=20)], indirect=True)
def test_shown_scene_is_recorded_at_its_interval_of_steps(viewer: Viewer) -> None:
    def has_all_steps() -> bool:
        return len(steps(viewer)) == i // 2 + 1

    for i in range(7):
        publish(i)
        wait_for_count(viewer, 100 + i)
        viewer.until(has_all_steps)
    recording = tape(viewer).recording
    assert steps(viewer) == [0, 20, 40, 60]
    for snapshot in recording.snapshots:
        scene = recording.scene(snapshot)
        # Each snapshot is a whole version.
        assert snapshot.count == len(scene) == 100 + snapshot.step // 10
        np.testing.assert_allclose(scene.sh0, snapshot.step / 1000, atol=1e-3)
    splatview.publish(torch.zeros(8, 8, 3), "render")
    wait_for_entries(viewer, 2)
    assert source(viewer, "render").tape is None


def test_lane_and_keys_go_back_and_return_to_live(viewer: Viewer) -> None:
    record(viewer, 0, 1, 2, 3)
    wait_for_count(viewer, 103)
    viewer.do()
    player = tape(viewer).player
    view(viewer).view.rig.orbit.target = np.array([0.5, 0, 0])
    view(viewer).view.rig.apply_orbit()
    viewer.do()
    camera = view(viewer).view.rig.camera()
    viewer.do(PointerMove(*track_at(viewer, 2)))
    viewer.do(PointerPress(*track_at(viewer, 2)))

    def shows_position() -> bool:
        position = player.position
        return position is not None and shown_count(viewer) == position.count

    def shows_first() -> bool:
        return player.index == 0 and shown_count(viewer) == 100

    def shows_live() -> bool:
        return player.position is None and shown_count(viewer) == 104

    viewer.until(shows_position)
    assert player.position in player.recording.snapshots[1:3]
    assert view(viewer).view.rig.camera().key == camera.key
    viewer.do(PointerMove(*track_at(viewer, 0)))
    viewer.until(shows_first)
    viewer.do(PointerRelease(*track_at(viewer, 0)))
    assert any("recorded" in text for text in view(viewer).info.details)
    # The recording continues meanwhile.
    record(viewer, 4)
    assert shown_count(viewer) == 100
    end = track_at(viewer, None)
    viewer.do(PointerPress(*end), PointerRelease(*end))
    viewer.until(shows_live)
    indices = []
    for key in ("comma", "comma", "period", "t", "end"):
        viewer.do(Key(key))
        indices.append(player.index)
    newest = len(player.recording) - 1
    # The newest snapshot is what is shown live.
    assert indices == [newest - 1, newest - 2, newest - 1, newest - 1, None]
    assert viewer.user.interface.state.time_folded


def test_key_p_plays_the_chosen_lane_and_no_other(viewer: Viewer) -> None:
    record(viewer, 0, 1, 2, 3)
    wait_for_count(viewer, 103)
    player = tape(viewer).player
    path = view(viewer).view.path
    path.circle_scene()
    viewer.do(Key("p"))
    assert player.playing
    assert not path.is_playing
    viewer.do(Key("p"))
    assert not player.playing
    viewer.click("lane Path")
    viewer.do(Key("p"))
    assert path.is_playing
    assert not player.playing
    viewer.click("time play")
    assert not path.is_playing
    viewer.click("Live")
    assert player.position is None
    # A plot in its place has the lane of its run's record, and both agree.
    splatview.log(20, loss=1.0)
    viewer.until_listed("scalars")
    scalars = next(e for e in viewer.state.entries if e.kind == "scalars")
    viewer.user.select(scalars.key)
    viewer.until_shows(ScalarsView)
    viewer.user.go_to_step(10)
    viewer.do()
    assert player.step == 10
    assert chosen_lane(viewer.user).caption == "step 10"
    viewer.do(Key("period"))
    assert player.step == 20
    viewer.click("Live")
    assert player.step is None


def test_lane_tells_where_the_scene_was_not_shown(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tips: list[str] = []

    def keep_text(text: str, _x: float) -> None:
        tips.append(text)

    monkeypatch.setattr(controls, "tell", keep_text)
    record(viewer, 0, 1, 2, 3)
    wait_for_count(viewer, 103)
    splatview.publish(torch.zeros(8, 8, 3), "render")
    wait_for_entries(viewer, 2)
    scene_key = viewer.state.selected
    viewer.user.select(next(e.key for e in viewer.state.entries if e.kind == "image"))
    viewer.until(viewer.loaded)
    publish(8)

    def has_missed() -> bool:
        return tape(viewer).has_missed

    viewer.until(has_missed)
    viewer.user.select(scene_key)
    record(viewer, 9)
    viewer.do()
    assert tape(viewer).recording.gaps == [(30, 90)]
    x, y = track_at(viewer, 3)
    end = track_at(viewer, 4)[0]
    viewer.do(PointerMove((x + end) / 2, y))
    assert any("Steps 30 to 90 are not recorded" in tip for tip in tips)


def test_restarted_run_continues_the_same_recording(
    viewer: Viewer,
) -> None:
    record(viewer, 0, 1)
    recording = tape(viewer).recording
    player = tape(viewer).player
    player.seek(0)
    wait_for_count(viewer, 100)
    splatview.close()
    wait_until_alive(viewer, False)
    assert shown_count(viewer) == 100
    viewer.do(Key("end"))
    # The last version of the run is shown.
    wait_for_count(viewer, 101)
    publish(50)
    wait_until_alive(viewer, True)
    record(viewer, 51)
    assert tape(viewer).recording is recording
    assert tape(viewer).player.has_live


@pytest.mark.parametrize("viewer", [RecordOptions(memory_mb=1)], indirect=True)
def test_scene_too_large_for_the_recording_is_reported_once(
    viewer: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    def shows_and_warns() -> bool:
        is_shown = shown_count(viewer) == 50_000 + i
        return is_shown and "--record-memory" in caplog.text

    for i in (0, 1):
        publish(i, base_count=50_000)
        viewer.until(shows_and_warns)
    assert caplog.text.count("could not be recorded") == 1
    assert not len(tape(viewer).recording)


@pytest.mark.parametrize("viewer", [RecordOptions(memory_mb=1)], indirect=True)
def test_scene_fits_without_the_harmonics_that_it_does_not_use(viewer: Viewer) -> None:
    def is_recorded() -> bool:
        return bool(len(tape(viewer).recording))

    publish(0, base_count=20_000, unused_coefficients=15)
    wait_for_count(viewer, 20_000)
    viewer.until(is_recorded)
    assert 600_000 < tape(viewer).recording.nbytes < 700_000


def test_full_disk_is_told_once_and_recording_goes_on_when_there_is_space(
    tmp_path: Path,
    open_viewer: Callable[..., Viewer],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "_ERROR_GAP", 0.0)
    viewer = open_viewer((300, 200), record=RecordOptions(tmp_path, every=10))
    record(viewer, 0)
    tape_folder = tape(viewer).recording.folder
    assert tape_folder is not None

    def is_listed() -> bool:
        return (tape_folder.path / INDEX).exists()

    viewer.until(is_listed)
    with full_disk() as attempts:

        def has_failed() -> bool:
            return attempts.count(tape_folder.path) == i and not tape(viewer).at_work

        for i in (1, 2, 3):
            publish(i)
            viewer.until(has_failed)
    (notice,) = viewer.state.notices
    assert "a snapshot could not be recorded: cannot write to" in notice
    assert "free some there" in notice
    assert caplog.text.count("could not be recorded") == 1
    record(viewer, 4)


def test_hidden_stream_is_recorded_into_a_folder_and_opened_later(
    tmp_path: Path, open_viewer: Callable[..., Viewer]
) -> None:
    folder = tmp_path / "kept"
    viewer = open_viewer((300, 200), record=RecordOptions(folder, every=10))
    splatview.publish(torch.zeros(8, 8, 3), "render")
    wait_for_entries(viewer, 1)
    viewer.user.select(viewer.state.entries[0].key)
    publish(0)
    wait_for_entries(viewer, 2)
    record(viewer, 1, 2)
    assert viewer.state.selected_entry is not None
    assert viewer.state.selected_entry.name == "render"
    viewer.close()
    later = open_viewer(
        (300, 200), files=tuple(FileSource(p) for p in entries_of([folder]))
    )
    wait_for_count(later, 102)
    player = view(later).content.player
    assert not player.has_live
    player.seek(len(player.recording) - 2)
    wait_for_count(later, 101)
    later.do(Key("end"))
    wait_for_count(later, 102)
    assert later.state.entries[-1].group == "Files"
