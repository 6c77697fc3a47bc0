"""Numbers that a page may send reach the views within bounds and break none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.frames import cloud
from support.view_cases import value
from support.viewer import Viewer

import splatview
from splatview_viewer.core import events as ev
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.recording.options import RecordOptions
from splatview_viewer.web.messages import MessageError, parse
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import ValueSource

FAR = 65536.0
KINDS = ("image", "gaussians", "cameras", "scalars", "memory", "snapshot")
ODD: tuple[ev.Event, ...] = (
    ev.PointerMove(FAR, FAR),
    ev.PointerPress(-FAR, -FAR),
    ev.PointerMove(FAR, -FAR),
    ev.PointerRelease(FAR, FAR),
    ev.PointerPress(400.0, 100.0),
    ev.PointerMove(-FAR, FAR),
    ev.PointerLeave(),
    ev.PointerRelease(400.5, 100.5),
    ev.PointerPress(400.0, 100.0, "right", frozenset({"shift", "ctrl"})),
    ev.Pinch(400.0, 100.0, 0.1, FAR, -FAR, 7.0),
    ev.PointerRelease(-FAR, 0.0, "right"),
    *(ev.Wheel(400.0, 100.0, dy, dx) for dy, dx in ((20, 20), (-20, -20), (0, 20))),
    *(ev.Pinch(400.0, 100.0, factor, 0, 0, -7.0) for factor in (10, 0.1)),
    ev.Wheel(FAR, -FAR, 20.0, -20.0, frozenset({"shift"})),
    ev.PointerLeave(),
)


class OneValue(ValueSource):
    """Source of one value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def has_new_value(self) -> bool:
        return self.value is not None

    def feed(self, view: ShownView) -> bool:
        value = self.value
        self.value = None
        return view.update(value)


def show(viewer: Viewer, kind: str) -> Entry:
    slot = Slot(Entry(kind, "a run", kind, kind), OneValue(value(kind)))
    viewer.catalogue.add(slot)
    viewer.user.select(kind)
    viewer.until(viewer.loaded)
    return slot.entry


@pytest.mark.parametrize("kind", KINDS)
def test_view_survives_the_largest_numbers_of_a_page(
    open_viewer: Callable[..., Viewer], kind: str
) -> None:
    viewer = open_viewer((460, 260))
    entry = show(viewer, kind)
    for event in ODD:
        viewer.do(event)
        viewport = viewer.user.layout.active
        faults = [viewport.faults.reason(section) for section in ("input", "overlay")]
        assert [*faults, entry.fault, *viewer.state.notices] == ["", "", ""], event
    for name in ("f", "escape", "home", "end", "w", "k", "p", "r", "o", "m", "slash"):
        viewer.do(ev.Key(name), ev.Key(name, pressed=False), ev.PointerMove(FAR, FAR))
    assert not entry.fault
    assert not viewer.state.notices


@pytest.mark.parametrize(
    ("size", "scale"),
    [
        ((16, 520), 2.0),
        ((16, 16), 1.0),
        ((1024, 28), 1.0),
        pytest.param((16, 16), 8.0, marks=pytest.mark.soak),
        pytest.param((1024, 16), 8.0, marks=pytest.mark.soak),
        pytest.param((16, 1024), 0.25, marks=pytest.mark.soak),
    ],
)
def test_view_survives_the_odd_sizes_of_a_page(
    open_viewer: Callable[..., Viewer], size: tuple[int, int], scale: float
) -> None:
    viewer = open_viewer((900, 520))
    entries = [show(viewer, kind) for kind in KINDS]
    viewer.do(ev.Resize(*size, scale))
    for kind in KINDS:
        viewer.user.select(kind)
        for event in (ev.PointerMove(8, 8), ev.Wheel(8, 8, 3.0), ev.Key("h")):
            viewer.do(event)
        faults = viewer.user.layout.active.faults
        assert not faults.reason("overlay")
        assert not faults.reason("input")
    assert not [entry.fault for entry in entries if entry.fault]
    assert not viewer.state.notices


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinite_number_reaches_no_view(
    open_viewer: Callable[..., Viewer], value: float
) -> None:
    viewer = open_viewer((300, 200))
    entry = show(viewer, "image")
    initial = viewer.picture()
    for event in (
        ev.PointerMove(value, 100.0),
        ev.Wheel(400.0, 100.0, value),
        ev.Wheel(400.0, value, 2.0),
        ev.Pinch(400.0, 100.0, value),
        ev.PointerPress(value, value),
    ):
        viewer.do(event)
    assert not entry.fault
    assert not viewer.user.held.buttons
    np.testing.assert_array_equal(viewer.picture(), initial)


@pytest.mark.parametrize(
    ("event", "bounded"),
    [
        (ev.Wheel(1.0, 2.0, 300.0, -1e30), ev.Wheel(1.0, 2.0, 20.0, -20.0)),
        (ev.PointerMove(1e30, -1e30), ev.PointerMove(FAR, -FAR)),
        (ev.Pinch(0.0, 0.0, 0.0, turn=100.0), ev.Pinch(0.0, 0.0, 0.1, turn=7.0)),
        (ev.PointerPress(1.0, 1.0, clicks=99), ev.PointerPress(1.0, 1.0, clicks=2)),
        (ev.PointerMove(math.nan, 1.0), None),
        (ev.Key("a", at=math.inf), None),
        (ev.Close(), ev.Close()),
    ],
)
def test_events_of_any_screen_are_bounded_like_those_of_pages(
    event: ev.Event, bounded: ev.Event | None
) -> None:
    assert ev.bounded(event) == bounded


@pytest.mark.parametrize(
    ("kind", "name"),
    [("move", "x"), ("press", "clicks"), ("wheel", "dy"), ("pinch", "turn")],
)
def test_page_message_with_an_unbounded_number_is_refused(kind: str, name: str) -> None:
    fields = {"x": 1, "y": 1}
    if kind == "wheel":
        fields["dy"] = 1
    if kind == "pinch":
        fields["factor"] = 1
    for literal in ("1e400", "NaN", "-1e300", "1e99"):
        message = json.dumps({"t": kind, **fields, name: 0})
        with pytest.raises(MessageError):
            parse(message.replace(f'"{name}": 0', f'"{name}": {literal}'))


def scene_keys(viewer: Viewer) -> list[str]:
    return [entry.key for entry in viewer.catalogue.entries if entry.name == "splats"]


def has_recorded(viewer: Viewer, count: int) -> bool:
    """Return whether the shown scene has recorded this number of snapshots."""
    source: Any = viewer.user.shown.source  # type: ignore[union-attr]
    return len(source.tape.recording) >= count


def test_pointer_that_leaves_a_page_leaves_the_history_of_a_scene(
    open_viewer: Callable[..., Viewer],
) -> None:
    """Move the pointer from the bar under a scene of several snapshots.

    Its track looks where the pointer is.
    """
    viewer = open_viewer((600, 360), record=RecordOptions(every=1))
    for version in range(3):
        splatview.publish(
            cloud(100 + version, seed=version), "splats", meta={"step": version}
        )
        viewer.until(partial(scene_keys, viewer))
        viewer.user.select(scene_keys(viewer)[0])
        viewer.until(viewer.loaded)
        viewer.until(partial(has_recorded, viewer, version + 1))
    viewer.do(ev.PointerMove(400, 300), ev.PointerLeave())
    viewer.user.mark()
    viewer.do()
    assert viewer.state.selected_entry is not None
    assert not viewer.state.selected_entry.fault
    assert not viewer.user.layout.active.faults.reason("overlay")
