"""When the viewer looks, and when it draws."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.viewer import SIZE, Viewer
from support.wait import PATIENCE

from splatview.viewer_app.app import App, AppOptions
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.events import Key, PointerMove
from splatview.viewer_app.governor import after
from splatview.viewer_app.interface.phrases import status_phrases
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("viewer", [AppOptions(max_fps=20)], indirect=True)
def test_max_fps_is_kept(viewer: Viewer) -> None:
    draws, begin = viewer.draws, time.monotonic()
    while time.monotonic() < begin + 0.5:
        viewer.screen.push(PointerMove(90, 40 + viewer.draws))
        viewer.turn()
    assert viewer.draws - draws <= (time.monotonic() - begin) * 20 + 2
    assert viewer.draws > draws


@pytest.mark.parametrize("late", [0.0, 0.1, 0.4, 0.9, 3.0])
def test_pictures_that_begin_late_keep_the_pace(late: float) -> None:
    due, begun = 5.0, []
    for _ in range(100):
        begun.append(due + late)
        due = after(due, begun[-1], 1.0)
    gaps = [b - a for a, b in itertools.pairwise(begun)]
    assert min(gaps) >= 1.0 - 1e-9
    assert sum(gaps) / len(gaps) == pytest.approx(max(1.0, 0.5 + late))
    assert after(5.0, 100.0, 1.0) == 100.5  # nothing is made up for after a rest


def test_its_share_of_the_gpu_holds_while_a_run_needs_it(viewer: Viewer, picture_file: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Every work costs 10 ms here, so that two of them, panel and image, may be drawn five times a second."""
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    assert not any("GPU share" in p for p in status_phrases(viewer.state, Shown()))
    monkeypatch.setattr(viewer.work, "software", False)
    monkeypatch.setattr(viewer.governor, "cost", lambda work: 10.0)
    monkeypatch.setattr(viewer.catalogue, "gpu_is_needed", lambda now: True)

    def seconds_for(pictures: int) -> float:
        begin, draws = time.monotonic(), viewer.draws
        while viewer.draws < draws + pictures:
            assert time.monotonic() < begin + PATIENCE
            viewer.screen.push(PointerMove(90, 40 + viewer.draws % 7))
            viewer.turn()
            time.sleep(0.003)
        return time.monotonic() - begin

    def is_held_back() -> bool:
        seconds_for(1)
        return viewer.governor.next_picture() > 0

    seconds_for(3)  # what was saved up at rest is spent
    assert seconds_for(6) > 6 * 0.2 * 0.9
    assert any(p.startswith("GPU share") and p.endswith("of 10%") for p in status_phrases(viewer.state, Shown()))
    monkeypatch.setattr(viewer.work, "software", True)  # the processor draws: no GPU's time is taken
    viewer.until(lambda: viewer.governor.next_picture() == 0)
    assert not any(is_held_back() for _ in range(3))
    monkeypatch.setattr(viewer.work, "software", False)
    monkeypatch.setattr(viewer.catalogue, "gpu_is_needed", lambda now: False)
    assert not any(is_held_back() for _ in range(3))


def test_an_impossible_share_of_the_gpu_is_told() -> None:
    screen = OffscreenScreen(*SIZE)
    with pytest.raises(ViewerError, match="--gpu-budget is 2, not a number over 0 up to 1"):
        App(screen, AppOptions(gpu_budget=2.0))
    screen.close()


def test_it_looks_at_the_streams_often_while_versions_come(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer.catalogue.open_file(Path("nothing.png"))
    now = time.monotonic()
    viewer.seat.dirty, viewer._active_until = 0, now + 2
    assert viewer._patience(now) == pytest.approx(1 / 60)
    viewer._news_until = now + 1
    assert viewer._patience(now) == pytest.approx(0.004)
    assert viewer._patience(now + 1.5) == pytest.approx(1 / 60)
    assert viewer._patience(now + 3) == pytest.approx(1 / 15)
    monkeypatch.setattr(OffscreenScreen, "visible", False)
    assert viewer._patience(now) == pytest.approx(1 / 60)


def test_a_turn_begins_when_a_version_has_come(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    glances: list[float] = []
    come = [False, False, False, True]
    monkeypatch.setattr(viewer.catalogue, "has_news", lambda now: glances.append(now) or come[len(glances) - 1])
    monkeypatch.setattr(viewer, "_patience", lambda now: PATIENCE)
    viewer.screen.poll(0)
    viewer._news_until = time.monotonic() + PATIENCE
    begin = time.monotonic()
    assert viewer._wait() == []
    assert time.monotonic() - begin < PATIENCE / 2, "not when its patience ends"
    assert len(glances) == 4
    assert min(b - a for a, b in itertools.pairwise(glances)) > 1e-4, "never busily"
    glances.clear()
    viewer.screen.push(PointerMove(1, 2))
    assert [type(e) for e in viewer._wait()] == [PointerMove]
    monkeypatch.setattr(viewer, "_patience", lambda now: 0.02)
    come[:] = [False] * 1000
    begin = time.monotonic()
    assert viewer._wait() == []
    assert time.monotonic() - begin >= 0.02
    viewer._news_until = 0.0
    glances.clear()
    viewer._wait()
    assert not glances, "where nothing comes, it sleeps"


def test_who_is_up_to_date_asks_for_the_next_version(viewer: Viewer, picture_file: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)
    slot = viewer.seat.shown
    assert slot is not None
    asked: list[float] = []
    monkeypatch.setattr(slot.source, "ask", lambda: asked.append(0.0))
    viewer.turn()
    assert len(asked) == 1
    slot.next_feed = time.monotonic() + 60
    viewer.turn()
    assert len(asked) == 1, "not while it would not take one"
    assert not viewer.catalogue.has_news(time.monotonic())
    monkeypatch.setattr(slot.source, "has_news", lambda: True)
    assert not viewer.catalogue.has_news(time.monotonic())
    slot.next_feed = 0.0
    assert viewer.catalogue.has_news(time.monotonic())


def test_a_rate_that_changes_is_shown_with_other_pictures(viewer: Viewer) -> None:
    def drawn(enough: Callable[[int, float], bool]) -> tuple[int, float]:
        """Pictures, and the seconds in which they were drawn."""
        begin, now = viewer.draws, time.monotonic()
        while not enough(viewer.draws - begin, time.monotonic() - now):
            viewer.catalogue.rate_changes += 1
            viewer.turn()
            time.sleep(0.005)
        return viewer.draws - begin, time.monotonic() - now

    viewer.do()
    time.sleep(1.1)
    viewer.turn()
    pictures, seconds = drawn(lambda pictures, seconds: (pictures >= 2 and seconds > 1.6) or seconds > PATIENCE)
    assert 2 <= pictures <= 2 + seconds / 0.5
    viewer.state.panel_open = False
    viewer.do()
    time.sleep(1.1)
    viewer.turn()
    assert drawn(lambda pictures, seconds: seconds > 0.8)[0] == 0


def test_a_hidden_panel_gives_opengl_nothing(viewer: Viewer, picture_file: Path) -> None:
    viewer.catalogue.open_file(picture_file)
    viewer.until(viewer.loaded)

    def works() -> set[object]:
        viewer.seat.mark()
        viewer.do()
        return viewer.governor.words

    viewer.work.software = False
    assert works() == {"image", "panel"}
    viewer.do(Key("h"))
    assert works() == {"image"}
    assert viewer.seat.shown is not None
    viewer.seat.shown.entry.fault = "something to say"
    assert works() == {"panel"}
    viewer.seat.shown.entry.fault = ""
    viewer.do(Key("h"))
    assert works() == {"image", "panel"}
