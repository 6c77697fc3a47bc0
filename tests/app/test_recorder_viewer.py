"""Recording beside real trainers, and going back in the viewer as a user does."""

from __future__ import annotations

import re
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.viewer import Viewer
from support.wait import PATIENCE

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.recorder.files import read_index, streams_in
from splatview.viewer_app.recorder.options import RecordOptions
from splatview.viewer_app.recorder.source import entries_of, file_source
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.sources import StreamSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs

    from splatview.viewer_app.recorder.recorder import Tape
    from splatview.viewer_app.views._gaussians.history import History
    from splatview.viewer_app.views.gaussians import GaussianView

GROWING = """
import sys, time, torch, splatview
begin, end, period = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
g = torch.Generator().manual_seed(0)
means = torch.nn.functional.normalize(torch.randn(5000, 3, generator=g))
for i in range(begin, end):
    n = 100 + i
    grey = torch.full((n, 1, 3), (i % 100) / 100)
    splatview.publish({"means": means[:n] * 2, "quats": torch.ones(n, 4), "scales": torch.full((n, 3), -2.0),
                       "opacities": torch.full((n,), 3.0), "sh0": grey, "shN": torch.zeros(n, 0, 3)}, "splats",
                      step=10 * i)
    splatview.publish(torch.zeros(8, 8, 3), "render")
    time.sleep(period)
print("done", flush=True)
sys.stdin.readline()
"""
"""Arguments: the first version's number, one after the last, seconds between two. Version i has 100 + i Gaussians."""


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(600, 360), AppOptions(max_fps=100, record=RecordOptions(every=20)))
    yield app
    app.close()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("splatview recorder")]


def source(viewer: Viewer, name: str = "splats") -> StreamSource:
    found = next(s.source for s in viewer.catalogue.slots.values() if s.entry.name == name)
    assert isinstance(found, StreamSource)
    return found


def tape(viewer: Viewer) -> Tape:
    found = source(viewer).tape
    assert found is not None
    return found


def recorded(viewer: Viewer, count: int) -> Callable[[], bool]:
    return lambda: bool(viewer.catalogue.slots) and any(
        isinstance(s.source, StreamSource) and s.source.tape is not None and len(s.source.tape.recording) >= count
        for s in viewer.catalogue.slots.values())


def view(viewer: Viewer) -> GaussianView:
    shown = viewer.seat.view
    assert shown is not None
    return shown  # type: ignore[return-value]


def seen(viewer: Viewer) -> int:
    """Gaussians of the scene that is shown."""
    facts = view(viewer).content.facts
    assert facts is not None
    return facts.count


def bar_at(viewer: Viewer, place: float) -> tuple[float, float]:
    """Where in the bar the snapshot at a place lies, or what is live: the track of a wide bar (`history_bar`)."""
    history: History = view(viewer).tools["history"]  # type: ignore[assignment]
    assert history.shown
    rect, player = view(viewer).rect, tape(viewer).player
    left, right = rect.x + 10 + 26 + 6, rect.x + rect.width - 10 - 50 - 92 - 10 - 6
    return left + (right - left) * place / len(player.recording), rect.y + rect.height - 15


def test_what_is_shown_is_recorded_every_so_many_steps(viewer: Viewer, programs: Programs) -> None:
    programs.code(GROWING, "0", "4000", "0.005")
    viewer.until(recorded(viewer, 6))
    snapshots = tape(viewer).recording.snapshots
    for one in snapshots:
        assert one.count == 100 + one.step // 10  # the whole version, and its own step
        assert len(one.scene()) == one.count
        np.testing.assert_allclose(one.scene().sh0, (one.step // 10 % 100) / 100, atol=1e-3)
    assert np.diff([s.step for s in snapshots]).min() >= 20
    assert source(viewer, "render").tape is None


def test_one_goes_back_with_the_bar_and_returns(viewer: Viewer, programs: Programs) -> None:
    programs.code(GROWING, "0", "4000", "0.01")
    viewer.until(recorded(viewer, 8))
    viewer.do()
    camera = view(viewer).camera()
    assert camera is not None
    player = tape(viewer).player
    view(viewer).orbit.target = np.array([0.5, 0, 0])
    view(viewer).moved()
    viewer.do()
    camera = view(viewer).camera()
    viewer.do(PointerMove(*bar_at(viewer, 2)))
    viewer.do(PointerPress(*bar_at(viewer, 2)))
    viewer.until(lambda: player.position is not None and seen(viewer) == player.position.count)
    assert player.position in player.recording.snapshots[1:4]
    after = view(viewer).camera()
    assert camera is not None and after is not None and camera.key == after.key
    viewer.do(PointerMove(*bar_at(viewer, 0)))
    viewer.until(lambda: player.at == 0 and seen(viewer) == player.recording.snapshots[0].count)
    viewer.do(PointerRelease(*bar_at(viewer, 0)))
    assert any("recorded" in text for text in view(viewer).details)
    before = len(player.recording)
    viewer.until(recorded(viewer, before + 2))  # and what comes is recorded meanwhile
    assert seen(viewer) == player.recording.snapshots[0].count
    viewer.do(PointerPress(*bar_at(viewer, len(player.recording))), PointerRelease(*bar_at(viewer, len(
        player.recording))))
    viewer.until(lambda: player.position is None and seen(viewer) > player.recording.snapshots[-1].count)


def test_a_snapshot_looks_as_the_scene_did(viewer: Viewer, programs: Programs) -> None:
    program = programs.code(GROWING, "0", "60", "0.01")
    viewer.until(recorded(viewer, 2))
    viewer.until(lambda: seen(viewer) == 159)
    viewer.until(lambda: tape(viewer).recording.snapshots[-1].count == 159 or program.poll() is not None)
    viewer.do()
    live = viewer.picture().astype(int)
    player = tape(viewer).player
    player.seek(len(player.recording) - 1)
    viewer.until(lambda: player._fed == player.recording.snapshots[-1].number)
    back = viewer.picture().astype(int)
    lower = live.shape[0] - 40  # above the bar
    assert live.max() > 100
    assert np.abs(live[:lower] - back[:lower]).max() <= 2
    player.seek(0)
    viewer.until(lambda: seen(viewer) == player.recording.snapshots[0].count)
    assert np.abs(viewer.picture().astype(int)[:lower] - back[:lower]).max() > 20


def test_keys_go_back_and_hide_the_bar(viewer: Viewer, programs: Programs) -> None:
    programs.code(GROWING, "0", "4000", "0.01")
    viewer.until(recorded(viewer, 4))
    history: History = view(viewer).tools["history"]  # type: ignore[assignment]
    player = tape(viewer).player
    viewer.do(Key("comma"))
    assert player.at is not None
    viewer.do(Key("comma"))
    place = player.at
    viewer.do(Key("period"))
    assert player.at in (place + 1, place + 2)  # one may have been recorded in between
    viewer.do(Key("t"))
    assert history.shown  # it is how one returns
    viewer.do(Key("end"))
    assert player.at is None
    assert not history.shown
    assert history.bar_height() == 0
    viewer.do(Key("t"))
    assert history.shown


@pytest.mark.exhaustive
def test_after_the_run_has_ended_its_last_version_is_there(viewer: Viewer, programs: Programs) -> None:
    program = programs.code(GROWING, "0", "300", "0.005")
    viewer.until(recorded(viewer, 3))
    player = tape(viewer).player
    player.seek(0)
    viewer.until(lambda: seen(viewer) == player.recording.snapshots[0].count)
    assert program.stdout is not None
    assert program.stdout.readline() == "done\n"
    program.kill()
    program.wait()
    viewer.until(lambda: not source(viewer).stream.run.alive)
    assert seen(viewer) == player.recording.snapshots[0].count
    viewer.do(Key("end"))
    viewer.until(lambda: seen(viewer) == 399)


@pytest.mark.exhaustive
def test_a_run_that_is_started_again_goes_on_in_the_same_recording(viewer: Viewer, programs: Programs) -> None:
    program = programs.code(GROWING, "0", "4000", "0.01")
    viewer.until(recorded(viewer, 3))
    program.kill()
    program.wait()
    viewer.until(lambda: not source(viewer).stream.run.alive)
    viewer.do()
    recording, before = tape(viewer).recording, len(tape(viewer).recording)
    programs.code(GROWING, "1000", "4000", "0.01")
    viewer.until(lambda: source(viewer).stream.run.alive)
    viewer.until(recorded(viewer, before + 3))
    assert tape(viewer).recording is recording
    assert recording.snapshots[-1].count > 1100
    assert tape(viewer).player.has_live


@pytest.mark.exhaustive
def test_a_scene_that_does_not_fit_is_said_once(programs: Programs, caplog: pytest.LogCaptureFixture) -> None:
    viewer = Viewer(OffscreenScreen(300, 200), AppOptions(max_fps=100, record=RecordOptions(memory_mb=1)))
    try:
        programs.code(GROWING.replace("5000", "60000").replace("100 + i", "50000 + i"), "0", "4000", "0.02")
        viewer.until(lambda: "--record-memory" in caplog.text)
        assert "splats is not recorded: a snapshot takes 2 MB, and 1 MB are allowed" in caplog.text
        viewer.until(lambda: source(viewer).stream.version > 30)
        assert caplog.text.count("is not recorded") == 1
        assert not len(tape(viewer).recording)
    finally:
        viewer.close()


def test_nothing_is_recorded_that_was_not_asked_for(programs: Programs) -> None:
    viewer = Viewer(OffscreenScreen(300, 200), AppOptions(max_fps=100))
    try:
        programs.code(GROWING, "0", "4000", "0.01")
        viewer.until(lambda: bool(viewer.catalogue.slots) and source(viewer).stream.version > 30)
        assert viewer.catalogue.recorder is None
        assert source(viewer).tape is None
    finally:
        viewer.close()


def test_what_goes_to_a_folder_is_recorded_unseen_and_seen_again_later(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    viewer = Viewer(OffscreenScreen(300, 200), AppOptions(max_fps=100, record=RecordOptions(folder, every=30)))
    try:
        program = programs.code(GROWING, "0", "4000", "0.01")
        viewer.until(lambda: bool(viewer.catalogue.slots) and source(viewer, "render") is not None)
        viewer.seat.select(next(s.entry.key for s in viewer.catalogue.slots.values() if s.entry.name == "render"))
        viewer.until(recorded(viewer, 5))
        assert viewer.state.shown is not None
        assert viewer.state.shown.name == "render"
    finally:
        viewer.close()
    program.kill()
    program.wait()
    (stream,) = streams_in(folder)
    index = read_index(stream)
    assert index.name == "splats"
    assert len(index.snapshots) >= 5
    later = Viewer(OffscreenScreen(300, 200), AppOptions(files=tuple(file_source(p) for p in entries_of([folder]))))
    try:
        later.until(lambda: later.seat.view is not None)
        player = view(later).content.player
        assert player is not None
        later.until(lambda: seen(later) == index.snapshots[-1].count)
        assert not player.has_live
        for place in (0, 3, 1):
            player.seek(place)
            later.until(lambda at=place: seen(later) == index.snapshots[at].count)
        later.do(Key("end"))
        later.until(lambda: seen(later) == index.snapshots[-1].count)
        later.do(Key("comma"))
        later.until(lambda: seen(later) == index.snapshots[-2].count)
        assert [e.group for e in later.state.entries] == ["Files"]
    finally:
        later.close()


@pytest.mark.exhaustive  # quick: what goes to a folder
def test_the_command_records_into_a_folder(programs: Programs, tmp_path: Path,
                                           wait_until: Callable[..., Any]) -> None:
    folder = tmp_path / "kept"
    programs.code(GROWING, "0", "4000", "0.01")
    serve = programs.splatview("serve", "--offscreen", "--out", str(tmp_path / "out.png"), "--record", str(folder),
                                "--record-every", "50")
    wait_until(lambda: any(len(read_index(p).snapshots) >= 4 for p in streams_in(folder)) or serve.poll() is not None)
    assert serve.poll() is None
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(timeout=PATIENCE) == 0
    assert serve.stderr is not None
    assert re.search(rf"recording splats into {re.escape(str(folder))}/\S+splats", serve.stderr.read())
    (stream,) = streams_in(folder)
    assert {p.suffix for p in stream.iterdir()} == {".gaussians", ".json"}
    shown = programs.splatview("serve", str(folder), "--offscreen", "--out", str(tmp_path / "later.png"))
    wait_until(lambda: (tmp_path / "later.png").exists() or shown.poll() is not None)
    assert shown.poll() is None


@pytest.mark.parametrize(("options", "words"), [
    (("--record-every", "0"), "--record-every is 0"), (("--record-memory", "-5"), "--record-memory is -5"),
    (("--record", "{file}"), "is a file"),
])
def test_the_command_says_what_cannot_work(programs: Programs, tmp_path: Path, options: tuple[str, ...],
                                           words: str) -> None:
    (tmp_path / "file").write_text("")
    given = [o.format(file=tmp_path / "file") for o in options]
    serve = programs.splatview("serve", "--offscreen", *given)
    _, said = serve.communicate(timeout=PATIENCE)
    assert serve.returncode == 2
    assert words in said
    assert "Traceback" not in said
