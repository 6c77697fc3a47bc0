"""Plots of what a run logs, in the viewer: seen, zoomed, moved, logarithmic; and small ones beside its scene."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease, Wheel
from splatview.viewer_app.interface import theme
from splatview.viewer_app.interface.strips import CurveStrip
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views.scalars import ScalarsView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Programs

SIZE = (820, 640)
LOGGED = """
import math, sys, splatview
for step in range(1000):
    splatview.log(step, loss=math.exp(-step / 200) + 0.01, **{"parts/a": step, "parts/b": 2.0 * step})
splatview.log(1000, loss=0.01, rare=math.nan)
print("logged", flush=True)
sys.stdin.readline()
splatview.log(2000, loss=0.02)
sys.stdin.readline()
"""
GROWS = """
import sys, time, torch, splatview
g = torch.Generator().manual_seed(0)
n, step = 50, 0
while True:
    splats = {"means": torch.randn(n, 3, generator=g), "quats": torch.ones(n, 4), "scales": torch.full((n, 3), -2.0),
              "opacities": torch.full((n,), 3.0), "sh0": torch.rand(n, 1, 3, generator=g), "shN": torch.zeros(n, 0, 3)}
    for _ in range(20):
        splatview.publish(splats, step=step)
        if "log" in sys.argv:
            splatview.log(step, other=1.0, loss=1 / (step + 1))
        step += 1
        time.sleep(0.02)
    n += 10
"""


@pytest.fixture
def viewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    app = Viewer(OffscreenScreen(*SIZE), AppOptions(max_fps=100))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


def view_of(viewer: Viewer) -> ScalarsView:
    view = viewer.seat.view
    assert isinstance(view, ScalarsView)
    return view


def strip_of(viewer: Viewer) -> CurveStrip | None:
    slot = viewer.seat.shown
    strips = viewer.catalogue.companions.strip(slot) if slot is not None else None
    return next((p for p in strips.parts if isinstance(p, CurveStrip)), None) if strips is not None else None


def select(viewer: Viewer, name: str) -> None:
    viewer.seat.select(next(e.key for e in viewer.state.entries if e.name == name))


@pytest.fixture
def plotted(viewer: Viewer, programs: Programs) -> tuple[Viewer, ScalarsView, Any]:
    """A viewer that shows the plots of a program that has logged a thousand steps."""
    program = programs.code(LOGGED)
    viewer.until(lambda: isinstance(viewer.seat.view, ScalarsView) and not view_of(viewer).empty
                 and view_of(viewer).content.curves.step == 1000)
    viewer.do()
    return viewer, view_of(viewer), program


def colored(viewer: Viewer, number: int = 0) -> np.ndarray:
    """Where the picture has the colour of a plot's curve of this number."""
    from splatview.viewer_app.views._scalars_plots import color_of

    color = color_of(number)
    return np.all(abs(viewer.pixels() - 255 * np.array([color.x, color.y, color.z])) < 12, axis=-1)


def go(program: Any) -> None:
    program.stdin.write("\n")
    program.stdin.flush()


def test_the_curves_are_seen(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, _ = plotted
    assert list(view.content.plots)[:3] == ["loss", "parts", "rare"]
    assert {"step 1,000", "4 scalars", "3,002 values"} <= set(view.details)
    blue, orange = colored(viewer), colored(viewer, 1)
    left = viewer.seat.layout()
    assert blue[:, left.x:].sum() > 300
    assert orange[:, left.x:].sum() > 150  # two share a plot
    faults = np.all(abs(viewer.pixels() - 255 * np.array([theme.FAULT.x, theme.FAULT.y, theme.FAULT.z])) < 12, axis=-1)
    assert faults[:, left.x:].sum() > 20  # "1 not finite"


def test_what_comes_is_followed(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, program = plotted
    assert view.window()[1] < 1100
    go(program)
    viewer.until(lambda: view.content.curves.step == 2000)
    assert view.window()[1] >= 2000


def inside(viewer: Viewer) -> tuple[float, float]:
    """A place in the first plot."""
    rect = viewer.seat.layout()
    return rect.x + rect.width / 4, rect.y + 120


def drag(viewer: Viewer, button: Any, begin: tuple[float, float], end: tuple[float, float]) -> None:
    viewer.do(PointerMove(*begin))
    viewer.do(PointerPress(*begin, button))
    for t in (0.3, 0.7, 1.0):
        viewer.do(PointerMove(begin[0] + t * (end[0] - begin[0]), begin[1] + t * (end[1] - begin[1])))
    viewer.do(PointerRelease(*end, button))


def test_the_wheel_zooms_all_plots_along_the_axis(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, program = plotted
    before = view.window()
    x, y = inside(viewer)
    viewer.do(PointerMove(x, y))
    viewer.do(Wheel(x, y, 3.0))
    after = view.window()
    assert after[1] - after[0] < 0.8 * (before[1] - before[0])
    assert view.up == {}  # heights go on following what is seen
    go(program)
    viewer.until(lambda: view.content.curves.step == 2000)
    assert view.window() == after  # who looks closely is not carried away
    viewer.do(Key("f"))
    assert view.across is None
    assert view.window()[1] >= 2000


def test_a_drag_moves_and_a_double_click_shows_all(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, _ = plotted
    before = view.window()
    x, y = inside(viewer)
    drag(viewer, "left", (x, y), (x - 60, y))
    after = view.window()
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], rel=1e-6)
    viewer.do(PointerMove(x, y))

    def all_seen() -> bool:
        if view.across is not None:  # a machine that is busy may take too long over the second click
            viewer.do(PointerPress(x, y), PointerRelease(x, y), PointerPress(x, y, clicks=2), PointerRelease(x, y))
        return view.across is None

    viewer.until(all_seen)


def test_a_box_zooms_both_ways(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, _ = plotted
    before = view.window()
    x, y = inside(viewer)
    drag(viewer, "right", (x - 40, y - 30), (x + 40, y + 30))
    viewer.until(lambda: view.across is not None)
    after = view.window()
    assert after[1] - after[0] < 0.6 * (before[1] - before[0])
    assert set(view.up) == {"loss"}
    viewer.do(Key("f"))
    assert view.up == {}


def test_axes_may_be_logarithmic(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, _ = plotted
    linear = viewer.picture()
    viewer.do(Key("l"), Key("l", pressed=False))
    assert view.settings.log_up
    assert (viewer.picture() != linear).any()
    view.settings.log_across = True
    assert view.window()[0] > 0
    viewer.seat.mark(3)
    viewer.do()
    assert colored(viewer).sum() > 200
    for across in ("time", "clock", "step"):
        view.settings.across = across  # type: ignore[assignment]
        view.fit()
        viewer.seat.mark(3)
        viewer.do()
        assert colored(viewer).sum() > 200


def test_the_pointer_reads_all_plots(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, _ = plotted
    assert view.readout == ""
    x, y = inside(viewer)
    viewer.do(PointerMove(x, y))
    assert view.readout.startswith("step ")
    step = float(view.readout.split()[1].replace(",", ""))
    assert view.pointer is not None
    assert abs(step - view.pointer) <= 1
    viewer.do(PointerMove(20, 20))
    assert view.readout == ""


def test_another_user_looks_for_themselves(plotted: tuple[Viewer, ScalarsView, Any]) -> None:
    viewer, view, _ = plotted
    other = view.beside(type(view.settings)())
    view.across = (10.0, 20.0)
    assert other.window()[1] > 900
    other.like(view)
    assert other.window() == (10, 20)
    other.close()
    viewer.do()
    assert not view.empty


def test_a_run_that_logs_is_seen_beside_its_scene(viewer: Viewer, programs: Programs) -> None:
    programs.code(GROWS, "log")
    viewer.until(lambda: viewer.seat.shown is not None and viewer.seat.shown.entry.kind == "gaussians")
    viewer.until(lambda: (strip := strip_of(viewer)) is not None and len(strip.curves) == 2)
    strip = strip_of(viewer)
    assert strip is not None
    assert [c.name for c in strip.curves] == ["loss", "Gaussians"]  # losses before others
    assert strip.head.startswith("Step ")
    assert strip.curves[1].last % 10 == 0
    scalars = next(s for s in viewer.catalogue.slots.values() if s.entry.kind == "scalars")
    assert strip.key == scalars.entry.key
    viewer.do(Key("h"), Key("h", pressed=False))  # nobody sees it without the panel
    viewer.until(lambda: not viewer.catalogue.companions.slots)
    viewer.do(Key("h"), Key("h", pressed=False))
    viewer.until(lambda: scalars in viewer.catalogue.companions.slots)
    select(viewer, "scalars")
    viewer.until(lambda: isinstance(viewer.seat.view, ScalarsView))
    viewer.until(lambda: "Gaussians" in view_of(viewer).content.plots)

    def counts() -> Any:
        (count,) = view_of(viewer).content.plots["Gaussians"]
        return count

    viewer.until(lambda: counts()["step"][-1] > counts()["step"][0])
    count = counts()
    assert count["step"][0] >= 0  # the script's steps, not the stream's versions
    assert strip_of(viewer) is None


@pytest.mark.exhaustive
def test_gaussians_are_counted_though_nothing_is_logged(viewer: Viewer, programs: Programs) -> None:
    programs.code(GROWS)
    viewer.until(lambda: (strip := strip_of(viewer)) is not None and len(strip.curves[0]) >= 4)
    strip = strip_of(viewer)
    assert strip is not None
    assert (strip.key, [c.name for c in strip.curves]) == ("", ["Gaussians"])
    assert (np.diff(strip.curves[0]["value"]) >= 0).all()


@pytest.mark.exhaustive
def test_a_click_on_the_strip_shows_the_plots(viewer: Viewer, programs: Programs) -> None:
    programs.code(GROWS, "log")
    accent = 255 * np.array([theme.ACCENT.x, theme.ACCENT.y, theme.ACCENT.z])
    places: list[tuple[int, int]] = []

    def line() -> bool:
        """Whether the strip's curve is seen: pixels of its colour in the panel, in a long row."""
        if strip_of(viewer) is None:
            return False
        rows = np.all(abs(viewer.pixels()[:, :280] - accent) < 20, axis=-1)
        found = [y for y in range(len(rows)) if rows[y].sum() > 40]
        places[:] = [(int(np.flatnonzero(rows[y]).mean()), y) for y in found]
        return bool(places)

    viewer.until(line)
    x, y = places[0]
    viewer.do(PointerMove(x, y))
    viewer.do(PointerPress(x, y), PointerRelease(x, y))
    viewer.until(lambda: isinstance(viewer.seat.view, ScalarsView))


def test_a_picture_of_the_plots_without_a_screen(programs: Programs, tmp_path: Any) -> None:
    from PIL import Image

    program = programs.code(LOGGED)
    assert program.stdout is not None and program.stdout.readline()  # all of it is published
    out = tmp_path / "plots.png"
    shot = programs.splatview("shot", "--stream", "scalars", str(out), "--size", "800x500")
    assert shot.wait() == 0, shot.stderr.read() if shot.stderr else ""
    picture = np.asarray(Image.open(out)).astype(int)
    assert picture.shape == (500, 800, 3)
    assert picture.std() > 10
