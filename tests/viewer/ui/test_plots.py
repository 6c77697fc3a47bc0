"""Plots: memory that ImPlot shares, zooming over their axes, and the smallest sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from imgui_bundle import implot

from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Rect
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from splatview_viewer.ui import plot_axes, plots
from splatview_viewer.ui.boards import board

SIZE = 400, 240
X_AXIS = plot_axes.Axis((0.0, 10.0))
Y_AXIS = plot_axes.Axis((0.0, 1.0), locked=True)
STEPS = [(2.0, "step 1"), (7.0, "step 2")]


class Page:
    """Draws one plot with two horizontal axes over all of a screen."""

    def __init__(self, screen: OffscreenScreen, panel: Surface) -> None:
        self.screen = screen
        self.panel = panel

    def draw(
        self, size: tuple[float, float] = SIZE, y_axis: plot_axes.Axis = Y_AXIS
    ) -> plots.Plot:
        """Draw the plot in this size, and return it with what the user did there."""
        drawn: list[plots.Plot] = []

        def draw_over(rect: Rect, scale: float) -> bool:
            with (
                board("page", rect),
                plots.plot("plot", size, X_AXIS, y_axis, second_ticks=STEPS) as plot,
            ):
                assert plot is not None
                drawn.append(plot)
            return False

        with self.screen.ctx:
            self.panel.draw_over(self.screen.framebuffer, draw_over, 1.0)
        return drawn[-1]

    def do(self, *events: ev.Event) -> plots.Plot:
        """Draw the plot after each of the events, and return the last one."""
        plot = self.draw()
        everywhere = Rect(0, 0, *SIZE)
        for event in events:
            self.panel.input.handle(event, everywhere, covered=(everywhere,))
            plot = self.draw()
        return plot


@pytest.fixture
def page() -> Iterator[Page]:
    screen = OffscreenScreen(*SIZE)
    with screen.ctx:
        panel = Surface()
    yield Page(screen, panel)
    with screen.ctx:
        panel.close()
    screen.close()


def draw_low(page: Page) -> None:
    page.draw((SIZE[0], 40.0))


def draw_and_fail(page: Page) -> None:
    invalid_ticks: Any = [(0.5, None)]
    with pytest.raises(TypeError):
        page.draw(y_axis=plot_axes.Axis((0.0, 1.0), ticks=invalid_ticks))


@pytest.mark.parametrize("draw_without_second_axis", [draw_low, draw_and_fail])
def test_plot_without_its_second_axis_writes_to_no_freed_memory(
    page: Page, draw_without_second_axis: Callable[[Page], None]
) -> None:
    page.draw()
    gc.collect()
    # These lie where numbers of the first picture were, if those were freed.
    neighbours = [implot.BoxedValue(-7.0) for _ in range(20_000)]
    draw_without_second_axis(page)
    assert {neighbour.value for neighbour in neighbours} == {-7.0}


@pytest.mark.parametrize("target", ["plot", "first axis", "second axis"])
def test_wheel_zooms_a_plot_also_over_each_of_its_horizontal_axes(
    page: Page, target: str
) -> None:
    rect = page.draw().rect
    y = {
        "plot": rect.y + rect.height / 2,
        "first axis": rect.y + rect.height + 8,
        "second axis": SIZE[1] - 8,
    }[target]
    x = rect.x + rect.width / 2
    plot = page.do(ev.PointerMove(x, y), ev.Wheel(x, y, 2.0))
    assert plot.moved
    assert plot.x[0] > 0.5
    assert plot.x[1] < 9.5


@pytest.mark.parametrize("size", [(0.0, 0.0), (-5.0, -300.0), (0.4, 0.4), (1.0, 1.0)])
def test_plot_of_no_size_is_one_pixel_wide_and_does_not_move(
    page: Page, size: tuple[float, float]
) -> None:
    page.draw()
    for _ in range(3):
        plot = page.draw(size)
        assert plot.rect.width == 1
        assert plot.rect.height == 1
        assert not plot.moved
        assert not plot.raised
