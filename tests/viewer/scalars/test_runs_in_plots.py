"""Curves of several runs in one plot, chosen in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from support.pair import OtherRun
from support.viewer import Viewer

import splatview
from splatview.api.log import Logger
from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.kinds.scalars.view import ScalarsView


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer]) -> Iterator[Viewer]:
    """Return a viewer that shows the plots of this run; another run logs as well."""
    viewer = open_viewer((1000, 760))
    with closing(OtherRun("other")) as run:
        logger = Logger(run)
        logger.introduce("loss", 1.0)
        for step in range(200):
            splatview.log(step, loss=1.0 / (step + 1), psnr=20 + 0.05 * step)
            logger.append(2 * step, {"loss": 2.0 / (step + 1)})
        logger.close()

        def are_listed() -> bool:
            kinds = [entry.kind for entry in viewer.state.entries]
            return kinds.count("scalars") == 2

        viewer.until(are_listed)
        own_entry = next(e for e in viewer.state.entries if e.run_name != "other")
        viewer.user.select(own_entry.key)
        viewer.until_shows(ScalarsView)
        viewer.user.choose_tab("compare")
        yield viewer


def plots(viewer: Viewer) -> ScalarsView:
    view = viewer.shows(ScalarsView)
    assert view is not None
    return view


def until_several_runs(viewer: Viewer, view: ScalarsView, expected: bool) -> None:
    viewer.until(lambda: view.has_several_runs is expected)


def test_checked_runs_are_drawn_together_and_remembered(
    viewer: Viewer, open_viewer: Callable[..., Viewer]
) -> None:
    view = plots(viewer)
    assert not view.has_several_runs
    viewer.click("other")
    until_several_runs(viewer, view, True)
    labels = [curve.label for curve in view.drawn()["loss"]]
    assert len(labels) == 2
    assert "other" in labels
    colors = [tuple(curve.color) for curve in view.drawn()["loss"]]
    assert colors[0] != colors[1]
    # The longer run decides how far the axis goes.
    assert view.window()[1] >= 398
    assert view.info().subtitle == "2 runs"
    next_viewer = open_viewer((1000, 760))
    next_viewer.user.interface.state.recall(viewer.catalogue.memo)
    next_viewer.user.choose_tab("look")
    next_viewer.user.select(viewer.user.layout.active.key)
    next_viewer.until_shows(ScalarsView)
    until_several_runs(next_viewer, plots(next_viewer), True)
    viewer.click("other")
    until_several_runs(viewer, view, False)


def test_one_curve_fills_the_pane(viewer: Viewer) -> None:
    view = plots(viewer)
    assert {"loss", "psnr"} <= set(view.titles)
    view.state = type(view.state)(curve="psnr")
    viewer.do()
    assert list(view.drawn()) == ["psnr"]
    assert view.info().title == "Psnr"


def test_click_in_a_plot_asks_for_its_step(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[float] = []
    monkeypatch.setattr(type(viewer.user), "go_to_step", lambda _, s: steps.append(s))
    view = plots(viewer)
    view.state = type(view.state)(curve="loss")
    viewer.user.mark(3)
    viewer.do()
    rect = viewer.user.layout.active.rect
    x = rect.x + rect.width // 2
    y = rect.y + rect.height // 2
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y))
    viewer.do(PointerRelease(x, y))
    assert steps == [pytest.approx(100, abs=20)]
    # A drag zooms along the axis instead.
    window_before = view.window()
    viewer.do(PointerPress(x, y))
    viewer.do(PointerMove(x + 30, y + 4))
    viewer.do(PointerMove(x + 120, y + 6))
    viewer.do(PointerRelease(x + 120, y + 6))
    assert len(steps) == 1
    window_after = view.window()
    assert window_before[0] < window_after[0] < window_after[1] < window_before[1]
    assert view.state.heights == {}
