"""Recording a run in the viewer, and going back as a user does."""

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
from splatview_viewer.recording.recorder import Tape
from splatview_viewer.recording.recording import RecordOptions
from splatview_viewer.workspace.sources import FileSource, entries_of

MEANS = torch.nn.functional.normalize(
    torch.randn(60_000, 3, generator=torch.Generator().manual_seed(0))
)


def publish(i: int, more: int = 100) -> None:
    """Version i of a scene: step 10 i, i + `more` Gaussians, grey by i."""
    n = i + more
    splatview.publish(
        {
            "means": MEANS[:n] * 2,
            "quats": torch.ones(n, 4),
            "scales": torch.full((n, 3), -2.0),
            "opacities": torch.full((n,), 3.0),
            "sh0": torch.full((n, 1, 3), i / 100),
            "shN": torch.zeros(n, 0, 3),
        },
        "splats",
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
    """The steps recorded so far."""
    tapes = [
        getattr(slot.source, "tape", None) for slot in viewer.catalogue.slots.values()
    ]
    return [
        snapshot.step
        for one in tapes
        if one is not None
        for snapshot in one.recording.snapshots
    ]


def record(viewer: Viewer, *numbers: int) -> None:
    """Publish these versions, and wait until each is recorded."""
    for i in numbers:
        publish(i)
        viewer.until(lambda i=i: steps(viewer)[-1:] == [10 * i])


def view(viewer: Viewer) -> Any:
    return viewer.user.view


def seen(viewer: Viewer) -> int:
    """Gaussians of the scene that is shown."""
    facts = view(viewer).content.summary if viewer.user.view is not None else None
    return -1 if facts is None else facts.count


def bar_at(viewer: Viewer, place: float) -> tuple[float, float]:
    """The point of the slider where a snapshot is."""
    track = view(viewer).view.tools["history"].track
    places = len(tape(viewer).player.recording) + 1  # the live one is the last
    return track.x + track.width * (place + 0.5) / places, track.y + track.height / 2


@pytest.mark.parametrize("viewer", [RecordOptions(every=20)], indirect=True)
def test_what_is_shown_is_recorded_every_so_many_steps(viewer: Viewer) -> None:
    for i in range(7):
        publish(i)
        viewer.until(lambda i=i: seen(viewer) == 100 + i)
        viewer.until(lambda i=i: len(steps(viewer)) == i // 2 + 1)
    recording = tape(viewer).recording
    assert steps(viewer) == [0, 20, 40, 60]
    for one in recording.snapshots:
        scene = recording.scene(one)
        assert one.count == len(scene) == 100 + one.step // 10  # the whole version
        np.testing.assert_allclose(scene.sh0, one.step / 1000, atol=1e-3)
    splatview.publish(torch.zeros(8, 8, 3), "render")
    viewer.until(lambda: len(viewer.state.entries) == 2)
    assert source(viewer, "render").tape is None


def test_the_bar_and_keys_go_back_and_return(viewer: Viewer) -> None:
    record(viewer, 0, 1, 2, 3)
    viewer.do()
    player = tape(viewer).player
    view(viewer).view.rig.orbit.target = np.array([0.5, 0, 0])
    view(viewer).view.rig.apply_orbit()
    viewer.do()
    camera = view(viewer).view.rig.camera()
    viewer.do(PointerMove(*bar_at(viewer, 2)))
    viewer.do(PointerPress(*bar_at(viewer, 2)))
    viewer.until(
        lambda: player.position is not None and seen(viewer) == player.position.count
    )
    assert player.position in player.recording.snapshots[1:3]
    assert view(viewer).view.rig.camera().key == camera.key
    viewer.do(PointerMove(*bar_at(viewer, 0)))
    viewer.until(lambda: player.index == 0 and seen(viewer) == 100)
    viewer.do(PointerRelease(*bar_at(viewer, 0)))
    assert any("recorded" in text for text in view(viewer).info.details)
    record(viewer, 4)  # the recording goes on meanwhile
    assert seen(viewer) == 100
    end = bar_at(viewer, len(player.recording))
    viewer.do(PointerPress(*end), PointerRelease(*end))
    viewer.until(lambda: player.position is None and seen(viewer) == 104)
    places = []
    history = view(viewer).view.tools["history"]
    for key in ("comma", "comma", "period", "t", "end"):
        viewer.do(Key(key))
        places.append(player.index)
        assert history.is_shown == (key != "end")  # it is how one returns
    newest = len(player.recording) - 1
    assert places == [newest, newest - 1, newest, newest, None]
    viewer.do(Key("t"))
    assert history.is_shown


def test_a_run_that_ends_and_begins_again_goes_on_in_the_same_recording(
    viewer: Viewer,
) -> None:
    record(viewer, 0, 1)
    recording = tape(viewer).recording
    player = tape(viewer).player
    player.seek(0)
    viewer.until(lambda: seen(viewer) == 100)
    splatview.close()
    viewer.until(lambda: not source(viewer).stream.run.alive)
    assert seen(viewer) == 100
    viewer.do(Key("end"))
    viewer.until(lambda: seen(viewer) == 101)  # its last version
    publish(50)
    viewer.until(lambda: source(viewer).stream.run.alive)
    record(viewer, 51)
    assert tape(viewer).recording is recording
    assert tape(viewer).player.has_live


@pytest.mark.parametrize("viewer", [RecordOptions(memory_mb=1)], indirect=True)
def test_a_scene_that_does_not_fit_is_said_once(
    viewer: Viewer, caplog: pytest.LogCaptureFixture
) -> None:
    for i in (0, 1):
        publish(i, more=50_000)
        viewer.until(
            lambda i=i: seen(viewer) == 50_000 + i and "--record-memory" in caplog.text
        )
    assert caplog.text.count("could not be recorded") == 1
    assert not len(tape(viewer).recording)


def test_a_folder_is_recorded_into_unseen_and_seen_again_later(
    tmp_path: Path, open_viewer: Callable[..., Viewer]
) -> None:
    folder = tmp_path / "kept"
    viewer = open_viewer((300, 200), record=RecordOptions(folder, every=10))
    splatview.publish(torch.zeros(8, 8, 3), "render")
    viewer.until(lambda: viewer.state.entries)
    viewer.user.select(viewer.state.entries[0].key)
    publish(0)
    viewer.until(lambda: len(viewer.state.entries) == 2)
    record(viewer, 1, 2)
    assert viewer.state.selected_entry is not None
    assert viewer.state.selected_entry.name == "render"
    viewer.close()
    later = open_viewer(
        (300, 200), files=tuple(FileSource(p) for p in entries_of([folder]))
    )
    later.until(lambda: seen(later) == 102)
    player = view(later).content.player
    assert not player.has_live
    player.seek(len(player.recording) - 2)
    later.until(lambda: seen(later) == 101)
    later.do(Key("end"))
    later.until(lambda: seen(later) == 102)
    assert later.state.entries[-1].group == "Files"
