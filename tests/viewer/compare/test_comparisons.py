"""Two streams or files in one picture, split by a line or as their difference; and
viewports that are tied.
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
from splatview_viewer.compare.merged import MergedSource
from splatview_viewer.compare.pair import PairView
from splatview_viewer.core.events import (
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.render.pair_compositor import PairCompositor
from splatview_viewer.scene.turning import IDENTITY, Placement

pytestmark = pytest.mark.usefixtures("sharp")
SIZE = 500, 320


def make(folder: Path, name: str) -> Path:
    if name in "pq":
        file = folder / f"{name}.png"
        Image.fromarray(
            np.random.default_rng(ord(name)).integers(0, 256, (40, 60, 3), np.uint8)
        ).save(file)
        return file
    if name == "ab":
        a, b = (ply_columns(truth(200, seed=ord(n))) for n in "ab")
        return write_ply(
            folder / "ab.ply", {key: np.concatenate([a[key], b[key]]) for key in a}
        )
    return write_ply(folder / f"{name}.ply", ply_columns(truth(200, seed=ord(name))))


class House:
    """A viewer with files of scenes a, b, c and pictures p, q."""

    def __init__(
        self, open_viewer: Callable[..., Viewer], folder: Path, names: tuple[str, ...]
    ) -> None:
        self.files = [make(folder, name) for name in names]
        self.app = open_viewer(SIZE, files=tuple(self.files), panel=False)
        self.keys = {
            name: str(file.absolute())
            for name, file in zip(names, self.files, strict=True)
        }
        self.app.do()
        self.app.until(lambda: all(e.progress is None for e in self.app.state.entries))

    @property
    def viewport(self) -> Any:
        return self.app.user.layout.active

    def show(self, name: str) -> Any:
        """Have it shown alone; its view."""
        self.app.user.select(self.keys[name])
        self.app.until(
            lambda: self.viewport.view is not None and not self.viewport.view.empty
        )
        return self.viewport.view

    def pair(self, first: str, second: str) -> PairView:
        self.show(first)
        self.app.user.compare("pair", self.keys[second])
        self.app.until(lambda: len(self.app.shows(PairView).views) == 2)  # type: ignore[union-attr]
        return self.app.shows(PairView)  # type: ignore[return-value]

    def together(self, first: str, second: str) -> MergedSource:
        self.show(first)
        self.app.user.compare("together", self.keys[second])
        self.app.until(
            lambda: self.viewport.view is not None and not self.viewport.view.empty
        )
        return self.viewport.slot.source

    def picture(self) -> np.ndarray:
        """(H, W, 3) int: what is seen, once nothing moves any more."""
        source = self.viewport.slot.source
        if isinstance(source, MergedSource):
            step(self.app)
            self.app.until(lambda: not (source.reading or source.has_new_value()))
        self.app.user.mark()
        self.app.do()
        return self.app.picture()

    def alone(self, name: str, like: Any) -> np.ndarray:
        """The picture of one scene, from where `like`, another view of Gaussians,
        looks.
        """
        view = self.show(name)
        view.follow(like, alike=True)
        self.app.user.mark()
        self.app.do()
        return self.app.picture()


@pytest.fixture
def house(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Callable[..., House]:
    """`house("a", "b")`: a viewer with files of these names."""
    return lambda *names: House(open_viewer, tmp_path, names)


@pytest.mark.parametrize(("names", "x"), [(("a", "b"), 100), (("p", "q"), 400)])
def test_sides_show_their_own_and_move_together(
    house: Callable[..., House], names: tuple[str, str], x: int
) -> None:
    h = house(*names)
    view = h.pair(*names)
    before = h.picture()
    line = view.divider.x(h.app.user.layout.active.rect)
    assert (before[:, :line].mean((0, 1)) != before[:, line:].mean((0, 1))).any()
    h.app.do(
        Wheel(x, 100, 2.0),
        PointerPress(x, 100),
        PointerMove(x + 30, 140),
        PointerRelease(x + 30, 140),
    )
    after = h.picture()
    line = view.divider.x(h.app.user.layout.active.rect)
    assert (after != before).any()
    assert line == SIZE[0] // 2
    first, second = (
        h.alone(name, part) for name, part in zip(names, list(view.views), strict=True)
    )
    np.testing.assert_array_equal(after[:, :line], first[:, :line])
    np.testing.assert_array_equal(after[:, line:], second[:, line:])


def test_the_line_is_dragged_and_nothing_else(house: Callable[..., House]) -> None:
    h = house("a", "b")
    view = h.pair("a", "b")
    before = h.picture()
    h.app.do(
        PointerMove(250, 100),
        PointerPress(250, 100),
        PointerMove(120, 160),
        PointerRelease(120, 160),
    )
    after = h.picture()
    assert view.divider.x(h.app.user.layout.active.rect) == 120
    np.testing.assert_array_equal(after[:, :120], before[:, :120])
    np.testing.assert_array_equal(after[:, 250:], before[:, 250:])
    assert (after[:, 120:250] != before[:, 120:250]).any()
    h.app.do(PointerPress(120, 100, clicks=2), PointerRelease(120, 100))
    assert view.divider.x(h.app.user.layout.active.rect) == 250, (
        "a double click puts it into the middle"
    )


def test_boxes_are_seen_in_a_difference_and_do_not_count_in_its_psnr(
    house: Callable[..., House],
) -> None:
    h = house()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    for name in ("one", "two"):
        splatview.publish(pixels, name)
    h.app.until(lambda: len(h.app.state.entries) == 2)
    h.keys |= {entry.name: entry.key for entry in h.app.state.entries}
    view = h.pair("one", "two")
    change_state(h.viewport.view, mode="difference")
    assert h.picture().max() <= 4
    splatview.annotate("two", boxes=[[5, 5, 40, 30]])
    h.app.until(lambda: h.picture().max() > 100)
    view.psnr = None
    h.app.until(lambda: view.psnr is not None)
    assert "no difference" in view.info().details
    splatview.publish(255 - pixels, "two")
    h.app.until(lambda: any(line.startswith("PSNR") for line in view.info().details))


def test_panes_beside_each_other_are_tied(house: Callable[..., House]) -> None:
    h = house("a", "b")
    h.show("a")
    h.app.user.compare("beside", h.keys["b"])
    layout = list(h.app.user.layout)
    h.app.until(
        lambda: all(
            viewport.view is not None and not viewport.view.empty for viewport in layout
        )
    )
    h.app.do()

    def cameras() -> list[bytes]:
        h.app.do()
        views: list[Any] = [viewport.view for viewport in layout]
        return [view.view.rig.camera().viewmat.tobytes() for view in views]

    assert len(set(cameras())) == 1
    for viewport in layout:
        before = cameras()
        x = viewport.rect.x + 40
        y = viewport.rect.y + 60
        h.app.do(
            PointerPress(x, y),
            PointerMove(x + 25, y + 10),
            PointerRelease(x + 25, y + 10),
        )
        assert len(set(cameras())) == 1
        assert cameras() != before
    h.app.catalogue.features[0].tie(h.app.user, False)  # type: ignore[attr-defined]
    h.app.do(Wheel(layout[0].rect.x + 40, layout[0].rect.y + 60, 3.0))
    assert len(set(cameras())) == 2


def test_scenes_are_one_and_each_is_seen_or_not_and_put_anywhere(
    house: Callable[..., House],
) -> None:
    h = house("a", "b", "ab")
    source = h.together("a", "b")
    both = h.picture()
    look = h.viewport.view
    source.scenes[1].visible = False
    only = h.picture()
    assert look.info.details[0] == "200 Gaussians"
    source.scenes[0].placement = Placement((1.0, 0, 0), (0, 90, 0), 0.5)
    assert (h.picture() != only).any()
    source.scenes[0].placement = IDENTITY
    source.scenes[0].visible = False
    assert h.picture().max() == 0
    source.scenes[0].visible = True
    source.scenes[1].visible = True
    np.testing.assert_array_equal(h.picture(), both)
    np.testing.assert_allclose(only, h.alone("a", look), atol=1)
    np.testing.assert_allclose(both, h.alone("ab", look), atol=1)


def test_scenes_come_and_go(house: Callable[..., House]) -> None:
    h = house("a", "b", "c")
    source = h.together("a", "b")
    assert h.viewport.entry.name == "a.ply + b.ply"
    h.app.user.compare("together", h.keys["c"])
    h.app.until(lambda: h.viewport.view.info.details[0] == "600 Gaussians")
    assert h.viewport.entry.name == "a.ply + b.ply + c.ply"
    assert [e.group for e in h.app.state.entries].count("Compare") == 1
    h.app.catalogue.forget(h.keys["b"])
    h.app.until(lambda: h.viewport.view.info.details[0] == "400 Gaussians")
    source.remove(source.scenes[0])
    h.app.until(lambda: h.viewport.view.info.details[0] == "200 Gaussians")
    h.app.catalogue.forget(h.keys["c"])
    h.app.until(lambda: len(h.app.state.entries) == 1)
    assert h.show("a").info.details[0] == "200 Gaussians"


@pytest.mark.parametrize("how", ["together", "pair"])
def test_live_streams_are_open_while_they_are_compared_and_no_longer(
    house: Callable[..., House], how: str
) -> None:
    h = house("a")
    splatview.publish(cloud(300), "splats")
    h.app.until(lambda: len(h.app.state.entries) == 2)
    entry = next(e for e in h.app.state.entries if e.name == "splats")
    stream = h.app.catalogue.slots[entry.key].source.stream  # type: ignore[attr-defined]
    h.show("a")
    h.app.until(lambda: not stream.opened)
    h.app.user.compare(how, entry.key)

    def counts(second: int) -> bool:
        """Whether both are seen, the stream with so many Gaussians."""
        pair = h.app.shows(PairView)
        view = h.viewport.view
        views = pair.views if pair is not None else [view]
        wanted = [200, second] if how == "pair" else [200 + second]
        return [v.info.details[0] for v in views if v is not None and not v.empty] == [
            f"{n} Gaussians" for n in wanted
        ]

    h.app.until(lambda: counts(300))
    splatview.publish(cloud(100), "splats")
    h.app.until(lambda: counts(100))
    h.show("a")
    h.app.until(lambda: not stream.opened)


def test_measurement_that_fails_leaves_the_pair_drawn_for_the_screen(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    h = house("p", "q")
    view = h.pair("p", "q")
    before = h.picture()
    entry = h.viewport.entry
    faults: list[str] = []

    def fail(*_: Any) -> Any:
        if view.host.exact:  # while it is measured
            faults.append(view.host.exact)
            raise RuntimeError("no memory for a target")
        return target(*_)

    target = PairCompositor.target
    monkeypatch.setattr(PairCompositor, "target", fail)
    h.app.user.mark()
    h.app.until(lambda: faults)
    assert view.host.exact == ""
    assert entry.fault == "no memory for a target"
    entry.fault = ""
    np.testing.assert_array_equal(h.picture(), before)


def test_kept_picture_that_fails_leaves_the_view_drawn_for_the_screen(
    house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    h = house("a")
    view = h.show("a").view

    def fail(*_: Any) -> Any:
        assert view.host.exact == "picture"
        raise RuntimeError("no memory to read it")

    monkeypatch.setattr("splatview_viewer.shell.viewport.settled_pixels", fail)
    h.viewport.keep_picture()
    assert view.host.exact == ""
    assert not h.viewport.entry.fault
    assert "no memory to read it" in h.app.state.toasts[-1][1]
