"""Curves of scalars and their plots in the viewer.

Frames, smoothing, columns of pixels, limits and rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from support.frames import cloud, frame_of, host_array, scalars_frame
from support.viewer import Viewer

import splatview
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, PointerMove, Wheel
from splatview_viewer.kinds.scalars.columns import (
    HorizontalAxis,
    pixel_columns,
    smoothed,
)
from splatview_viewer.kinds.scalars.curves import Curve, read_frame
from splatview_viewer.kinds.scalars.runs import color_of
from splatview_viewer.kinds.scalars.view import ScalarsView
from splatview_viewer.shell.sparklines import Spark, sparks_of
from splatview_viewer.ui import theme


def curve_of(value: Any, step: Any = None, count: Any = 1.0) -> Curve:
    value = np.asarray(value, np.float64)
    n = len(value)
    rows = np.zeros((n, 7))
    rows[:, 0] = step if step is not None else np.arange(n)
    rows[:, 1] = 1.7e9 + np.arange(n)
    rows[:, 2] = value
    rows[:, 3] = rows[:, 4] = np.where(np.isfinite(value), value, np.nan)
    rows[:, 5] = count
    rows[:, 6] = ~np.isfinite(value)
    return Curve.from_rows("it", rows)


def test_frame_is_read_and_copied() -> None:
    frame = scalars_frame(step=399, trouble="2 values are missing", note="a")
    curves = read_frame(frame.tensors, frame.meta)
    assert [curve.name for curve in curves.all] == ["loss", "parts/count", "parts/rare"]
    assert list(curves.groups) == ["loss", "parts"]
    assert [curve.name for curve in curves.groups["loss"]] == ["loss"]
    curve_names = [curve.name for curve in curves.groups["parts"]]
    assert curve_names == ["parts/count", "parts/rare"]
    assert curves.step == 399
    assert curves.trouble == "2 values are missing"
    assert curves.metadata == {"note": "a"}
    assert curves.clock.name == "loss"
    assert curves["parts/rare"]["value"].tolist() == [20 + 0.5 * i for i in range(8)]
    host_array(frame.tensors["rows"])[...] = 0
    assert curves["loss"].newest_value != 0
    with pytest.raises(ValueError, match="read-only"):
        curves["loss"].rows[0, 0] = 1


Tensors: TypeAlias = dict[str, torch.Tensor]


def _series_that_end_early(tensors: Tensors) -> None:
    tensors["ends"][0] = 0


def _missing_names(tensors: Tensors) -> None:
    tensors["names"] = tensors["names"][:3]


def _equal_names(tensors: Tensors) -> None:
    tensors["names"] = torch.tensor([*b"a\0a\0b\0"], dtype=torch.uint8)


def _step_beyond_integers(tensors: Tensors) -> None:
    tensors["rows"][5, 0] = 1e300


def _infinite_time(tensors: Tensors) -> None:
    tensors["rows"][5, 1] = math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_series_that_end_early, "series that end at"),
        (_missing_names, "0 names for 3"),
        (_equal_names, "two series of one name"),
        (_step_beyond_integers, "a step that is none"),
        (_infinite_time, "a time that is none"),
    ],
)
def test_invalid_frames_are_refused_with_a_reason(
    change: Callable[[Tensors], None], message: str
) -> None:
    tensors = {}
    for name, tensor in scalars_frame().tensors.items():
        tensors[name] = torch.from_numpy(np.array(host_array(tensor)))
    change(tensors)
    frame = frame_of("scalars", tensors)
    with pytest.raises(ViewerError, match=message):
        read_frame(frame.tensors, frame.meta)


@pytest.mark.parametrize("weight", [0.5, 0.999])
def test_smoothing_is_a_debiased_average(weight: float) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=500)
    values[[0, 70, 71]] = np.nan, np.inf, -np.inf
    is_finite = np.isfinite(values)
    count = np.cumsum(is_finite)
    # Newer values count more.
    shares = np.tril(weight ** (count[:, None] - count)) * is_finite
    total = np.where(count, shares.sum(1), np.nan)
    expected = shares @ np.where(is_finite, values, 0) / total
    np.testing.assert_allclose(smoothed(curve_of(values), weight), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("start", "end", "width"),
    [(-500, 2000, 300), (400.2, 400.7, 64), (500, 500.0001, 1)],
)
def test_pixel_columns_span_the_values_in_them(
    start: float, end: float, width: int
) -> None:
    curve = curve_of(np.random.default_rng(1).normal(size=1000))
    steps = curve["step"]
    values = curve["value"]
    axis = HorizontalAxis(start, end, width)
    (columns,) = pixel_columns(curve, axis, 0.0, "step")
    visible = values[(steps >= start) & (steps <= end)]
    assert columns.high.max() >= max(visible, default=-9)
    assert columns.low.min() <= min(visible, default=9)
    assert set(columns.high) <= set(values)
    assert len(columns.x) <= 2 * width + 2


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer]) -> Viewer:
    return open_viewer((1160, 640), max_fps=15)


def curves_beside_scene(viewer: Viewer) -> list[Spark]:
    """Return the small curves beside the shown scene, none where nothing is shown."""
    slot = viewer.user.shown
    if slot is None:
        return []
    return sparks_of(viewer.catalogue, slot)


def until_step(viewer: Viewer, step: int) -> ScalarsView:
    """Take turns until the plots have a step, and return their view."""
    views: list[ScalarsView] = []

    def has_step() -> bool:
        view = viewer.shows(ScalarsView)
        if view is None or view.data.curves.step != step:
            return False
        views.append(view)
        return True

    viewer.until(has_step)
    return views[-1]


@pytest.fixture
def plotted(viewer: Viewer) -> tuple[Viewer, ScalarsView]:
    """Return a viewer that shows the plots of a thousand steps, and its view."""
    for step in range(1000):
        splatview.log(
            step,
            loss=math.exp(-step / 200) + 0.01,
            **{"parts/a": step, "parts/b": 2.0 * step},
        )
    splatview.log(1000, loss=0.01, rare=math.nan)
    view = until_step(viewer, 1000)
    viewer.do()
    return viewer, view


def has_color(viewer: Viewer, color: Any) -> np.ndarray:
    """Return which pixels of the picture (H, W) have a colour of imgui."""
    difference = viewer.pixels() - 255 * np.array([color.x, color.y, color.z])
    return np.all(abs(difference) < 12, axis=-1)


def has_curve(viewer: Viewer, index: int = 0) -> np.ndarray:
    """Return which pixels of the picture (H, W) have the colour of a plot's curve."""
    return has_color(viewer, color_of(index))


def test_curves_are_drawn_in_their_colors(plotted: tuple[Viewer, ScalarsView]) -> None:
    viewer, view = plotted
    assert list(view.data.plots)[:3] == ["loss", "parts", "rare"]
    assert {"step 1,000", "4 scalars", "3,002 values"} <= set(view.info().details)
    blue = has_curve(viewer)
    orange = has_curve(viewer, 1)
    left = viewer.user.layout.active.rect.x
    assert blue[:, left:].sum() > 300
    # Two curves share a plot.
    assert orange[:, left:].sum() > 150
    # The plot says "1 not finite" in the colour of faults.
    faults = has_color(viewer, theme.FAULT)
    assert faults[:, left:].sum() > 20


def test_wheel_zooms_all_plots_along_the_axis(
    plotted: tuple[Viewer, ScalarsView],
) -> None:
    viewer, view = plotted
    initial = view.window()
    rect = viewer.user.layout.active.rect
    x = rect.x + rect.width / 4
    y = rect.y + 120
    viewer.do(PointerMove(x, y))
    viewer.do(Wheel(x, y, 3.0))
    zoomed = view.window()
    assert zoomed[1] - zoomed[0] < 0.8 * (initial[1] - initial[0])
    # Heights still follow the visible values.
    assert view.state.heights == {}
    splatview.log(2000, loss=0.02)
    until_step(viewer, 2000)
    assert view.window() == zoomed
    viewer.do(Key("f"))
    assert view.state.window is None
    assert view.window()[1] >= 2000


def test_plots_stay_apart_whatever_their_names(viewer: Viewer) -> None:
    """Check names that imgui confuses, which it would report over the picture."""
    for step in range(50):
        splatview.log(step, **{"a###b": step, "c###b": 2.0 * step})
    view = until_step(viewer, 49)
    rect = viewer.user.layout.active.rect
    x = rect.x + rect.width / 2
    y = rect.y + 120
    viewer.do(PointerMove(x, y))
    viewer.do(PointerMove(x, y))
    pixels = viewer.pixels()
    is_red = (pixels[..., 0] > 60) & (pixels[..., 1:].max(axis=2) < 40)
    assert not is_red.any()
    viewer.do(Wheel(x, y, 3.0, mods=frozenset({"ctrl"})))
    assert set(view.state.heights) <= {"a###b"}


def test_legend_has_an_entry_for_each_curve_whatever_its_name(viewer: Viewer) -> None:
    for step in range(50):
        splatview.log(step, **{"g/p###z": step, "g/q###z": 2.0 * step})
    until_step(viewer, 49)
    # Squares of the curves' colours, much wider than their lines.
    for index in range(2):
        rows = has_curve(viewer, index)[:, viewer.user.layout.active.rect.x :]
        assert (rows.sum(axis=1) >= 9).sum() >= 6


def test_axes_are_logarithmic_or_of_time(
    plotted: tuple[Viewer, ScalarsView],
) -> None:
    viewer, view = plotted
    for change in ({"log_up": True}, {"across": "time"}, {"across": "clock"}):
        view.state = replace(view.state.fitted(), **change)
        viewer.user.mark(3)
        viewer.do()
        assert has_curve(viewer).sum() > 200


def test_scalars_are_shown_beside_the_scene_of_their_run(viewer: Viewer) -> None:
    step = -1

    def has_both_curves() -> bool:
        """Train a step of a scene that grows; return whether the strip has both."""
        nonlocal step
        step += 1
        splatview.publish(cloud(50 + step), meta={"step": step})
        splatview.log(step, other=1.0, loss=1 / (step + 1))
        return len(curves_beside_scene(viewer)) == 3

    viewer.until(has_both_curves)
    assert viewer.user.shown is not None
    assert viewer.user.shown.entry.kind == "gaussians"
    curves = curves_beside_scene(viewer)
    # Losses come before other scalars.
    assert [curve.title for curve in curves] == ["Loss", "Gaussians", "Other"]
    # Both end at the last step.
    loss, gaussians, _ = curves
    assert gaussians.curve["time"][-1] >= loss.curve["time"][-1]
    scalars = next(
        s for s in viewer.catalogue.slots.values() if s.entry.kind == "scalars"
    )
    assert loss.key == scalars.entry.key

    def until_watched(expected: bool) -> None:
        viewer.until(lambda: (scalars in viewer.catalogue.watched()) is expected)

    # Without the panel, the scalars are not needed.
    viewer.do(Key("h"), Key("h", pressed=False))
    until_watched(False)
    viewer.do(Key("h"), Key("h", pressed=False))
    until_watched(True)
    viewer.user.select(scalars.entry.key)

    def has_plot_of_gaussians() -> bool:
        view = viewer.shows(ScalarsView)
        return view is not None and "Gaussians" in view.data.plots

    viewer.until(has_plot_of_gaussians)
    # They stay beside the plots.
    assert len(curves_beside_scene(viewer)) == 3
