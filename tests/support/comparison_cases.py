"""A viewer whose streams and files are compared, for the tests of that."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from splatview_viewer.app.loop import AppOptions, step
from splatview_viewer.compare.pair_view import PairView
from splatview_viewer.compare.together import Together
from splatview_viewer.screens.offscreen import OffscreenScreen
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from splatview_viewer.core.settings import Entry

SIZE = 500, 320

class House:
    """A viewer with files of scenes a, b, c and pictures p, q."""

    def __init__(self, folder: Path, *names: str, panel: bool = False) -> None:
        self.files = [make(folder, name) for name in names]
        self.app = Viewer(OffscreenScreen(*SIZE), AppOptions(files=tuple(self.files), max_fps=500, panel=panel))
        self.keys = {name: str(file.absolute()) for name, file in zip(names, self.files, strict=True)}
        for entry in self.app.state.entries:
            exactly(entry)
        self.app.do()
        if names:
            self.app.until(lambda: all(e.progress is None for e in self.app.state.entries))

    @property
    def pane(self) -> Any:
        return self.app.seat.panes.active

    @property
    def comparisons(self) -> Any:
        return self.app.catalogue.comparisons

    def show(self, name: str) -> Any:
        """Have it shown alone; its view."""
        self.app.seat.select(self.keys[name])
        self.app.until(lambda: self.pane.view is not None and not self.pane.view.empty)
        return self.pane.view

    def pair(self, first: str, second: str) -> PairView:
        self.show(first)
        self.comparisons.pair(self.pane, self.keys[second])
        view = self.pane.view
        assert isinstance(view, PairView)
        self.app.until(lambda: len(view.views) == 2)
        return view

    def together(self, *names: str) -> Together:
        self.show(names[0])
        for name in names[1:]:
            self.comparisons.together(self.pane, self.keys[name])
        exactly(self.pane.entry)
        source = self.pane.slot.source
        assert isinstance(source, Together)
        self.app.until(lambda: self.pane.view is not None and not self.pane.view.empty)
        return source

    def picture(self) -> np.ndarray:
        """(H, W, 3) int: what is seen, once nothing moves any more."""
        source = self.pane.slot.source
        if isinstance(source, Together):
            step(self.app)
            self.app.until(lambda: not (source.reading or source.has_news()))
        self.app.seat.mark()
        self.app.do()
        return self.app.picture()

    def alone(self, name: str, like: Any) -> np.ndarray:
        """The picture of one scene, from where `like`, another view of Gaussians, looks."""
        view = self.show(name)
        view.like(like)
        self.app.seat.mark()
        self.app.do()
        return self.app.picture()


def exactly(entry: Entry) -> None:
    """No picture of it is coarse, or another one that was moved."""
    entry.settings.gaussians.coarse_ms, entry.settings.gaussians.reproject = math.inf, False


def make(folder: Path, name: str) -> Path:
    if name in "pq":
        file = folder / f"{name}.png"
        Image.fromarray(np.random.default_rng(ord(name)).integers(0, 256, (40, 60, 3), np.uint8)).save(file)
        return file
    if name == "ab":
        a, b = (ply_columns(truth(200, seed=ord(n))) for n in "ab")
        return write_ply(folder / "ab.ply", {key: np.concatenate([a[key], b[key]]) for key in a})
    return write_ply(folder / f"{name}.ply", ply_columns(truth(200, seed=ord(name))))


@contextmanager
def houses(folder: Path) -> Iterator[Callable[..., House]]:
    """Makes viewers, and closes them."""
    made: list[House] = []

    def build(*names: str, panel: bool = False) -> House:
        made.append(House(folder, *names, panel=panel))
        return made[-1]

    yield build
    for one in made:
        error = one.app.screen.ctx.error
        one.app.close()
        assert error == "GL_NO_ERROR"
