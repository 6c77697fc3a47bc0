"""Two streams or files in one picture, and viewports that are tied.

The picture is split by a line, or has the difference of both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.frames import cloud
from support.scene_files import ply_columns, truth, write_ply
from support.view_cases import change_state
from support.viewer import Viewer

import splatview
from splatview_viewer.app.loop import step
from splatview_viewer.compare.comparisons import Comparisons
from splatview_viewer.compare.merged import MergedSource
from splatview_viewer.compare.pair import PairView
from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.scene.turning import IDENTITY, Placement

pytestmark = pytest.mark.usefixtures("sharp")
SIZE = 500, 320


def write_file(folder: Path, name: str) -> Path:
    """Write a picture p or q, or a scene of one or several letters."""
    if name in "pq":
        file = folder / f"{name}.png"
        random = np.random.default_rng(ord(name))
        Image.fromarray(random.integers(0, 256, (40, 60, 3), np.uint8)).save(file)
        return file
    clouds = [ply_columns(truth(200, seed=ord(letter))) for letter in name]
    columns = {}
    for key in clouds[0]:
        columns[key] = np.concatenate(
            [columns_of_letter[key] for columns_of_letter in clouds]
        )
    return write_ply(folder / f"{name}.ply", columns)


class CompareRig:
    """Viewer with files of scenes a, b, c and pictures p, q."""

    def __init__(
        self, open_viewer: Callable[..., Viewer], folder: Path, names: tuple[str, ...]
    ) -> None:
        self.files = [write_file(folder, name) for name in names]
        self.app = open_viewer(SIZE, files=tuple(self.files), panel=False)
        self.keys = {}
        for name, file in zip(names, self.files, strict=True):
            self.keys[name] = str(file.absolute())
        self.app.do()
        self.app.until(self._has_read_all)

    def _has_read_all(self) -> bool:
        return all(entry.progress is None for entry in self.app.state.entries)

    @property
    def viewport(self) -> Any:
        return self.app.user.layout.active

    def _shows_something(self) -> bool:
        return self.viewport.view is not None and not self.viewport.view.empty

    def until_entries(self, count: int) -> None:
        """Take turns until the list has this number of entries."""

        def has_entries() -> bool:
            return len(self.app.state.entries) == count

        self.app.until(has_entries)

    def until_gaussians(self, *counts: int) -> None:
        """Take turns until the drawn views have these numbers of Gaussians."""

        def has_counts() -> bool:
            pair = self.app.shows(PairView)
            views = [self.viewport.view] if pair is None else pair.views
            if any(view is None or view.empty for view in views):
                return False
            details = [view.info.details[0] for view in views]
            return details == [f"{count} Gaussians" for count in counts]

        self.app.until(has_counts)

    def show(self, name: str) -> Any:
        """Show a file alone, and return its view."""
        self.app.user.select(self.keys[name])
        self.app.until(self._shows_something)
        return self.viewport.view

    def pair(self, first: str, second: str) -> PairView:
        """Show two files beside each other in one picture, and return its view."""
        self.show(first)
        self.app.user.compare("pair", self.keys[second])

        def has_both() -> bool:
            view = self.app.shows(PairView)
            assert view is not None
            return len(view.views) == 2

        self.app.until(has_both)
        return self.app.shows(PairView)  # type: ignore[return-value]

    def merge(self, first: str, second: str) -> MergedSource:
        """Show two scenes as one, and return its source."""
        self.show(first)
        self.app.user.compare("together", self.keys[second])
        self.app.until(self._shows_something)
        return self.viewport.slot.source

    def picture(self) -> np.ndarray:
        """Return the picture (H, W, 3) of integers, once nothing moves any more."""
        source = self.viewport.slot.source
        if isinstance(source, MergedSource):
            step(self.app)
            self.app.until(lambda: not (source.reading or source.has_new_value()))
        self.app.user.mark()
        self.app.do()
        return self.app.picture()

    def picture_of(self, name: str, leader: Any) -> np.ndarray:
        """Return the picture of one scene, from where another view looks."""
        view = self.show(name)
        view.follow(leader, alike=True)
        self.app.user.mark()
        self.app.do()
        return self.app.picture()


@pytest.fixture
def open_files(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> Callable[..., CompareRig]:
    """Return `open_files("a", "b")`, which opens a viewer with files of these names."""

    def open_rig(*names: str) -> CompareRig:
        return CompareRig(open_viewer, tmp_path, names)

    return open_rig


@pytest.mark.parametrize(("names", "x"), [(("a", "b"), 100), (("p", "q"), 400)])
def test_sides_show_their_own_scene_and_move_together(
    open_files: Callable[..., CompareRig], names: tuple[str, str], x: int
) -> None:
    rig = open_files(*names)
    view = rig.pair(*names)
    initial = rig.picture()
    line = view.divider.x(rig.app.user.layout.active.rect)
    # A pairing is a way to show two streams, and none itself.
    assert len(rig.app.state.entries) == 2
    assert rig.app.state.selected == rig.keys[names[0]]
    assert (initial[:, :line].mean((0, 1)) != initial[:, line:].mean((0, 1))).any()
    rig.app.do(
        Wheel(x, 100, 2.0),
        PointerPress(x, 100),
        PointerMove(x + 30, 140),
        PointerRelease(x + 30, 140),
    )
    moved = rig.picture()
    line = view.divider.x(rig.app.user.layout.active.rect)
    assert (moved != initial).any()
    assert line == SIZE[0] // 2
    first_view, second_view = view.views
    first = rig.picture_of(names[0], first_view)
    second = rig.picture_of(names[1], second_view)
    np.testing.assert_array_equal(moved[:, :line], first[:, :line])
    np.testing.assert_array_equal(moved[:, line:], second[:, line:])


def test_commands_of_the_pressed_side_are_those_of_the_pair(
    open_files: Callable[..., CompareRig],
) -> None:
    rig = open_files("a", "b")
    view = rig.pair("a", "b")
    rig.app.do(Key("v"), Key("v", pressed=False))
    assert [side.view.state.show for side in view.views] == ["depth", "depth"]
    rig.app.do(Key("z", mods=frozenset({"ctrl"})), Key("z", pressed=False))
    assert [side.view.state.show for side in view.views] == ["color", "color"]


def test_dragging_the_line_moves_nothing_else(
    open_files: Callable[..., CompareRig],
) -> None:
    rig = open_files("a", "b")
    view = rig.pair("a", "b")
    initial = rig.picture()
    rig.app.do(
        PointerMove(250, 100),
        PointerPress(250, 100),
        PointerMove(120, 160),
        PointerRelease(120, 160),
    )
    moved = rig.picture()
    assert view.divider.x(rig.app.user.layout.active.rect) == 120
    np.testing.assert_array_equal(moved[:, :120], initial[:, :120])
    np.testing.assert_array_equal(moved[:, 250:], initial[:, 250:])
    assert (moved[:, 120:250] != initial[:, 120:250]).any()
    # A double click puts the line into the middle.
    rig.app.do(PointerPress(120, 100, clicks=2), PointerRelease(120, 100))
    assert view.divider.x(rig.app.user.layout.active.rect) == 250


def test_boxes_are_drawn_in_a_difference_and_do_not_count_in_its_psnr(
    open_files: Callable[..., CompareRig],
) -> None:
    rig = open_files()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    for name in ("one", "two"):
        splatview.publish(pixels, name)
    rig.until_entries(2)
    rig.keys |= {entry.name: entry.key for entry in rig.app.state.entries}
    view = rig.pair("one", "two")
    change_state(rig.viewport.view, mode="difference")
    assert rig.picture().max() <= 4
    splatview.annotate("two", boxes=[[5, 5, 40, 30]])

    def has_box() -> bool:
        return rig.picture().max() > 100

    rig.app.until(has_box)
    # The next picture is measured anew.
    view.psnr = None
    rig.app.user.mark()
    rig.app.until(lambda: view.psnr is not None)
    assert "no difference" in view.info().details
    splatview.publish(255 - pixels, "two")

    def has_psnr() -> bool:
        return any(line.endswith("dB PSNR") for line in view.info().details)

    rig.app.until(has_psnr)


def test_viewports_beside_each_other_are_tied(
    open_files: Callable[..., CompareRig],
) -> None:
    rig = open_files("a", "b")
    rig.show("a")
    rig.app.user.compare("beside", rig.keys["b"])
    layout = list(rig.app.user.layout)
    views: list[Any] = []

    def have_views() -> bool:
        views[:] = [viewport.view for viewport in layout]
        return all(view is not None and not view.empty for view in views)

    rig.app.until(have_views)
    rig.app.do()

    def cameras() -> list[bytes]:
        rig.app.do()
        return [view.view.rig.camera().viewmat.tobytes() for view in views]

    assert len(set(cameras())) == 1
    for viewport in layout:
        previous = cameras()
        x = viewport.rect.x + 40
        y = viewport.rect.y + 60
        rig.app.do(
            PointerPress(x, y),
            PointerMove(x + 25, y + 10),
            PointerRelease(x + 25, y + 10),
        )
        assert len(set(cameras())) == 1
        assert cameras() != previous
    rig.app.user.switch_tie(layout[1])
    rig.app.do(Wheel(layout[0].rect.x + 40, layout[0].rect.y + 60, 3.0))
    assert len(set(cameras())) == 2


def test_what_is_seen_beside_is_compared(open_files: Callable[..., CompareRig]) -> None:
    rig = open_files("a", "b", "c")
    rig.show("a")
    user = rig.app.user
    user.compare("beside", rig.keys["b"])
    rig.app.do()
    (comparisons,) = rig.app.catalogue.features
    assert isinstance(comparisons, Comparisons)
    first, second = user.layout
    # B was compared with A before, but is not seen any more.
    second.select(rig.keys["c"])
    rig.app.do()
    for viewport in (first, second):
        assert comparisons.pairing(viewport) == (rig.keys["a"], rig.keys["c"])
    badges = [comparisons.note(viewport).badge for viewport in (first, second)]
    assert badges == ["A", "B"]
    # The letters of a difference whose A is not seen any more are another pair's.
    pairing = comparisons.pairing(first)
    assert pairing is not None
    comparisons.show_difference(first, pairing, True)
    (difference,) = set(user.layout) - {first, second}
    assert not comparisons.note(difference).subtitle
    second.select(rig.keys["b"])
    rig.app.do()
    assert comparisons.note(difference).subtitle == "a.ply, c.ply"


def test_merged_scenes_are_hidden_and_moved_one_by_one(
    open_files: Callable[..., CompareRig],
) -> None:
    rig = open_files("a", "b", "ab")
    source = rig.merge("a", "b")
    both = rig.picture()
    view = rig.viewport.view
    source.scenes[1].visible = False
    only = rig.picture()
    assert view.info.details[0] == "200 Gaussians"
    source.scenes[0].placement = Placement((1.0, 0, 0), (0, 90, 0), 0.5)
    assert (rig.picture() != only).any()
    source.scenes[0].placement = IDENTITY
    source.scenes[0].visible = False
    # Nothing but the background, which is of one colour.
    assert np.ptp(rig.picture(), axis=(0, 1)).max() == 0
    source.scenes[0].visible = True
    source.scenes[1].visible = True
    np.testing.assert_array_equal(rig.picture(), both)
    np.testing.assert_allclose(only, rig.picture_of("a", view), atol=1)
    np.testing.assert_allclose(both, rig.picture_of("ab", view), atol=1)


def test_scenes_are_added_to_a_merged_one_and_removed(
    open_files: Callable[..., CompareRig],
) -> None:
    rig = open_files("a", "b", "c")
    source = rig.merge("a", "b")
    assert rig.viewport.entry.name == "a.ply + b.ply"
    rig.app.user.compare("together", rig.keys["c"])
    rig.until_gaussians(600)
    assert rig.viewport.entry.name == "a.ply + b.ply + c.ply"
    assert [e.group for e in rig.app.state.entries].count("Together") == 1
    rig.app.catalogue.forget(rig.keys["b"])
    rig.until_gaussians(400)
    source.remove(source.scenes[0])
    rig.until_gaussians(200)
    rig.app.catalogue.forget(rig.keys["c"])
    rig.until_entries(1)
    assert rig.show("a").info.details[0] == "200 Gaussians"


@pytest.mark.parametrize("mode", ["together", "pair"])
def test_streams_are_open_only_while_they_are_compared(
    open_files: Callable[..., CompareRig], mode: str
) -> None:
    rig = open_files("a")
    splatview.publish(cloud(300), "splats")
    rig.until_entries(2)
    entry = next(e for e in rig.app.state.entries if e.name == "splats")
    stream = rig.app.catalogue.slots[entry.key].source.stream  # type: ignore[attr-defined]
    rig.show("a")

    def until_closed() -> None:
        rig.app.until(lambda: not stream.opened)

    until_closed()
    rig.app.user.compare(mode, entry.key)

    def until_both(stream_count: int) -> None:
        if mode == "pair":
            rig.until_gaussians(200, stream_count)
        else:
            rig.until_gaussians(200 + stream_count)

    until_both(300)
    splatview.publish(cloud(100), "splats")
    until_both(100)
    rig.show("a")
    until_closed()


def test_measurement_that_fails_leaves_the_pair_drawn_for_the_screen(
    open_files: Callable[..., CompareRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_files("p", "q")
    view = rig.pair("p", "q")
    initial = rig.picture()
    entry = rig.viewport.entry
    faults: list[str] = []

    def fail(*arguments: Any) -> Any:
        is_measuring = bool(view.host.exact)
        if is_measuring:
            faults.append(view.host.exact)
            raise RuntimeError("no memory for a target")
        return target(*arguments)

    target = PairCompositor.target
    monkeypatch.setattr(PairCompositor, "target", fail)
    rig.app.user.mark()
    rig.app.until(lambda: faults)
    assert view.host.exact == ""
    assert entry.fault == "no memory for a target"
    entry.fault = ""
    np.testing.assert_array_equal(rig.picture(), initial)


def test_kept_picture_that_fails_leaves_the_view_drawn_for_the_screen(
    open_files: Callable[..., CompareRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_files("a")
    view = rig.show("a").view

    def fail(*_: Any) -> Any:
        assert view.host.exact == "picture"
        raise RuntimeError("no memory to read it")

    monkeypatch.setattr("splatview_viewer.shell.kept_pictures.settled_pixels", fail)
    rig.viewport.keep_picture()
    assert view.host.exact == ""
    assert not rig.viewport.entry.fault
    assert "no memory to read it" in rig.app.state.toasts[-1].text
