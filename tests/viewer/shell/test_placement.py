"""Places of the interface with many streams, long names and odd sizes of the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
from support.placement import placement_of
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.core.view import Tab

ARABIC = "\u0645\u0634\u0647\u062f-\u0627\u0644\u062a\u062f\u0631\u064a\u0628"
HEBREW = "\u05e1\u05e6\u05e0\u05d4 \u05e9\u05dc \u05d0\u05d9\u05de\u05d5\u05df 12"
NAMES = ("n" * 200, ARABIC, HEBREW, f"run 7 {ARABIC} scene {HEBREW} end", ARABIC * 12)
SIZES = (
    (320, 240, 1.0),
    (390, 844, 1.0),
    (590, 400, 1.0),
    (610, 400, 1.0),
    (1000, 600, 1.5),
    (1200, 760, 1.0),
    (1170, 900, 3.0),
)


def scene() -> dict[str, torch.Tensor]:
    """Return a few Gaussians."""
    means = torch.rand(20, 3)
    return {
        "means": means,
        "quats": torch.ones(20, 4),
        "scales": torch.full((20, 3), -3.0),
        "opacities": torch.ones(20),
        "sh0": torch.ones(20, 1, 3),
    }


def resize(viewer: Viewer, width: int, height: int, scale: float) -> None:
    """Give the screen another size."""
    viewer.screen.resize(width, height, scale)
    viewer.user.mark(3)
    viewer.do()


def show(viewer: Viewer, name: str) -> None:
    """Show the stream of a name."""
    [key] = [entry.key for entry in viewer.state.entries if entry.name == name]
    viewer.user.choose(key)
    viewer.until(viewer.loaded)


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer that shows a scene."""
    file = write_ply(tmp_path / f"{ARABIC}.ply", ply_columns(truth(50)))
    viewer = open_viewer((940, 720), files=(file,))
    viewer.until(viewer.loaded)
    return viewer


def drag(viewer: Viewer, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Drag with the left button."""
    viewer.do(PointerMove(*start))
    viewer.do(PointerPress(*start))
    viewer.do(PointerMove(*end))
    viewer.do(PointerRelease(*end))


def test_nothing_overlaps_and_nothing_is_cut(
    open_viewer: Callable[..., Viewer],
) -> None:
    for index in range(60):
        splatview.publish(torch.rand(4, 4, 3), f"stream {index:03}")
    for name in NAMES:
        splatview.publish(torch.rand(4, 4, 3), name)
        splatview.publish(scene(), f"{name[:150]} scene", meta={"step": 1000})
    splatview.log(1000, **{"loss": 0.5, "l" * 100: 1.0, ARABIC: 2.0})
    viewer = open_viewer((940, 720))
    viewer.until_listed(*NAMES)
    show(viewer, f"{NAMES[3][:150]} scene")
    faults = []
    for size in SIZES:
        resize(viewer, *size)
        for tab in get_args(Tab):
            viewer.user.choose_tab(tab)
            faults += [(size, tab, x) for x in placement_of(viewer).faults()]
    for name in (NAMES[0], "scalars"):
        viewer.user.show_beside(viewer.user.layout.active.key)
        show(viewer, name)
    for size in SIZES:
        resize(viewer, *size)
        faults += [(size, "panes", x) for x in placement_of(viewer).faults()]
    assert not faults


def test_panel_of_a_narrow_window_takes_the_pointer(viewer: Viewer) -> None:
    resize(viewer, 844, 560, 1.0)
    viewer.user.choose_tab("look")
    viewer.click("Data")
    assert viewer.user.interface.state.tab == "data"
    # The strip of the pane lies below the first rows of the list.
    viewer.click("Files")
    assert viewer.user.interface.state.folded_runs


def test_edge_of_the_panel_is_dragged_at_every_height(viewer: Viewer) -> None:
    interface = viewer.user.interface
    for zone in ("streams", "sparks", "tabs", "sections", "footer"):
        rect = getattr(interface.zones, zone)
        right = rect.x + rect.width + 2
        middle = rect.y + rect.height // 2
        drag(viewer, (right, middle), (right + 20, middle))
        assert interface.zones.panel.width > rect.width, zone


@pytest.mark.parametrize("key", ["k", "o"])
def test_fields_write_letters_from_right_to_left(viewer: Viewer, key: str) -> None:
    viewer.do(Key(key, mods=frozenset({"ctrl"})))
    viewer.do(Text(ARABIC))
    texts = [text.name for text in placement_of(viewer).texts]
    assert texts.count(ARABIC) == 1
    assert all("\ufffd" not in text for text in texts)
