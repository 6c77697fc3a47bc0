"""Curves of scalars: what a frame may say, smoothing, columns of pixels, limits, rates;
and plots in the viewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud, frame_of, host_array, scalars_frame
from support.viewer import Viewer

import splatview
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key, PointerMove, Wheel
from splatview_viewer.kinds.scalars.curves import Curve, read_frame
from splatview_viewer.kinds.scalars.plots import (
    HorizontalAxis,
    color_of,
    pixel_columns,
    smoothed,
)
from splatview_viewer.kinds.scalars.view import ScalarsView
from splatview_viewer.shell.stream_list import Strips, strips_of
from splatview_viewer.ui import theme


def made(value: Any, step: Any = None, count: Any = 1.0) -> Curve:
    value = np.asarray(value, np.float64)
    n = len(value)
    rows = np.zeros((n, 7))
    rows[:, 0] = np.arange(n) if step is None else step
    rows[:, 1] = 1.7e9 + np.arange(n)
    rows[:, 2] = value
    rows[:, 3] = rows[:, 4] = np.where(np.isfinite(value), value, np.nan)
    rows[:, 5] = count
    rows[:, 6] = ~np.isfinite(value)
    return Curve.from_rows("it", rows)


def test_a_frame_is_read_and_copied() -> None:
    frame = scalars_frame(step=399, trouble="2 values are missing", note="a")
    curves = read_frame(frame.tensors, frame.meta)
    assert [c.name for c in curves.all] == ["loss", "parts/count", "parts/rare"]
    assert {
        title: [c.name for c in found] for title, found in curves.groups.items()
    } == {"loss": ["loss"], "parts": ["parts/count", "parts/rare"]}
    assert curves.step == 399
    assert curves.trouble == "2 values are missing"
    assert curves.metadata == {"note": "a"}
    assert curves.clock.name == "loss"
    assert curves["parts/rare"]["value"].tolist() == [20 + 0.5 * i for i in range(8)]
    host_array(frame.tensors["rows"])[...] = 0
    assert curves["loss"].newest_value != 0
    with pytest.raises(ValueError, match="read-only"):
        curves["loss"].rows[0, 0] = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t["ends"].__setitem__(0, 0), "series that end at"),
        (lambda t: t.update(names=t["names"][:3]), "0 names for 3"),
        (
            lambda t: t.update(names=torch.tensor([*b"a\0a\0b\0"], dtype=torch.uint8)),
            "two series of one name",
        ),
        (lambda t: t["rows"][5, 0].fill_(1e300), "a step that is none"),
        (lambda t: t["rows"][5, 1].fill_(float("inf")), "a time that is none"),
    ],
)
def test_frames_that_are_none_are_refused_by_name(
    change: Callable[[dict[str, torch.Tensor]], Any], words: str
) -> None:
    good = scalars_frame()
    tensors = {
        name: torch.from_numpy(np.array(host_array(t)))
        for name, t in good.tensors.items()
    }
    change(tensors)
    frame = frame_of("scalars", tensors)
    with pytest.raises(ViewerError, match=words):
        read_frame(frame.tensors, frame.meta)


@pytest.mark.parametrize("weight", [0.5, 0.999])
def test_smoothing_is_a_debiased_average(weight: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=500)
    values[[0, 70, 71]] = np.nan, np.inf, -np.inf
    known = np.isfinite(values)
    shares = (
        np.tril(weight ** (np.cumsum(known)[:, None] - np.cumsum(known))) * known
    )  # newer ones count more
    want = (
        shares
        @ np.where(known, values, 0)
        / np.where(known.cumsum(), shares.sum(1), np.nan)
    )
    np.testing.assert_allclose(smoothed(made(values), weight), want, rtol=1e-9)


@pytest.mark.parametrize(
    ("begin", "end", "width"),
    [(-500, 2000, 300), (400.2, 400.7, 64), (500, 500.0001, 1)],
)
def test_columns_tell_what_lies_in_them(begin: float, end: float, width: int) -> None:
    curve = made(np.random.default_rng(1).normal(size=1000))
    steps = curve["step"]
    values = curve["value"]
    (part,) = pixel_columns(curve, HorizontalAxis(begin, end, width), 0.0, "step")
    seen = values[(steps >= begin) & (steps <= end)]
    assert part.high.max() >= max(seen, default=-9)
    assert part.low.min() <= min(seen, default=9)
    assert set(part.high) <= set(values)
    assert len(part.x) <= 2 * width + 2


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer]) -> Viewer:
    return open_viewer((820, 640), max_fps=15)


def beside(viewer: Viewer) -> Strips:
    slot = viewer.user.shown
    return strips_of(viewer.catalogue, slot) if slot is not None else Strips()


@pytest.fixture
def plotted(viewer: Viewer) -> tuple[Viewer, ScalarsView]:
    """A viewer that shows the plots of a thousand steps."""
    for step in range(1000):
        splatview.log(
            step,
            loss=math.exp(-step / 200) + 0.01,
            **{"parts/a": step, "parts/b": 2.0 * step},
        )
    splatview.log(1000, loss=0.01, rare=math.nan)
    viewer.until(
        lambda: (
            (view := viewer.shows(ScalarsView)) is not None
            and view.data.curves.step == 1000
        )
    )
    viewer.do()
    return viewer, viewer.shows(ScalarsView)  # type: ignore[return-value]


def colored(viewer: Viewer, number: int = 0) -> np.ndarray:
    """Where the picture has the colour of a plot's curve of this number."""
    color = color_of(number)
    return np.all(
        abs(viewer.pixels() - 255 * np.array([color.x, color.y, color.z])) < 12, axis=-1
    )


def test_the_curves_are_seen(plotted: tuple[Viewer, ScalarsView]) -> None:
    viewer, view = plotted
    assert list(view.data.plots)[:3] == ["loss", "parts", "rare"]
    assert {"step 1,000", "4 scalars", "3,002 values"} <= set(view.info().details)
    blue = colored(viewer)
    orange = colored(viewer, 1)
    left = viewer.user.layout.active.rect
    assert blue[:, left.x :].sum() > 300
    assert orange[:, left.x :].sum() > 150  # two share a plot
    faults = np.all(
        abs(
            viewer.pixels()
            - 255 * np.array([theme.FAULT.x, theme.FAULT.y, theme.FAULT.z])
        )
        < 12,
        axis=-1,
    )
    assert faults[:, left.x :].sum() > 20  # "1 not finite"


def test_the_wheel_zooms_all_plots_along_the_axis(
    plotted: tuple[Viewer, ScalarsView],
) -> None:
    viewer, view = plotted
    before = view.window()
    rect = viewer.user.layout.active.rect
    x = rect.x + rect.width / 4
    y = rect.y + 120
    viewer.do(PointerMove(x, y))
    viewer.do(Wheel(x, y, 3.0))
    after = view.window()
    assert after[1] - after[0] < 0.8 * (before[1] - before[0])
    assert view.state.heights == {}  # heights go on following what is seen
    splatview.log(2000, loss=0.02)
    viewer.until(lambda: view.data.curves.step == 2000)
    assert view.window() == after  # it stays where it was zoomed
    viewer.do(Key("f"))
    assert view.state.window is None
    assert view.window()[1] >= 2000


def test_plots_are_apart_whatever_their_names(viewer: Viewer) -> None:
    """Imgui takes these names for one, and would say so over the picture."""
    for step in range(50):
        splatview.log(step, **{"a###b": step, "c###b": 2.0 * step})
    viewer.until(
        lambda: (
            (view := viewer.shows(ScalarsView)) is not None
            and view.data.curves.step == 49
        )
    )
    view = viewer.shows(ScalarsView)
    rect = viewer.user.layout.active.rect
    assert view is not None
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
    viewer.until(
        lambda: (
            (view := viewer.shows(ScalarsView)) is not None
            and view.data.curves.step == 49
        )
    )
    # Squares of the curves' colours, much wider than their lines.
    for number in range(2):
        rows = colored(viewer, number)[:, viewer.user.layout.active.rect.x :]
        assert (rows.sum(axis=1) >= 9).sum() >= 6


def test_axes_may_be_logarithmic_and_of_time(
    plotted: tuple[Viewer, ScalarsView],
) -> None:
    viewer, view = plotted
    for change in ({"log_up": True}, {"across": "time"}, {"across": "clock"}):
        view.state = replace(view.state.fitted(), **change)
        viewer.user.mark(3)
        viewer.do()
        assert colored(viewer).sum() > 200


def test_a_run_that_logs_is_seen_beside_its_scene(viewer: Viewer) -> None:
    step = -1

    def both() -> bool:
        """Train one step of a scene that grows; whether the strip has both curves."""
        nonlocal step
        step += 1
        splatview.publish(cloud(50 + step), meta={"step": step})
        splatview.log(step, other=1.0, loss=1 / (step + 1))
        return len(beside(viewer).curves) == 2

    viewer.until(both)
    assert viewer.user.shown is not None
    assert viewer.user.shown.entry.kind == "gaussians"
    strip = beside(viewer)
    assert [title for title, _ in strip.curves] == [
        "loss",
        "Gaussians",
    ]  # losses before others
    assert strip.head.startswith("Step ")
    scalars = next(
        s for s in viewer.catalogue.slots.values() if s.entry.kind == "scalars"
    )
    assert strip.key == scalars.entry.key
    viewer.do(Key("h"), Key("h", pressed=False))  # without the panel it is not needed
    viewer.until(lambda: scalars not in viewer.catalogue.watched())
    viewer.do(Key("h"), Key("h", pressed=False))
    viewer.until(lambda: scalars in viewer.catalogue.watched())
    viewer.user.select(scalars.entry.key)
    viewer.until(
        lambda: (
            (view := viewer.shows(ScalarsView)) is not None
            and "Gaussians" in view.data.plots
        )
    )
    assert not beside(viewer).curves
