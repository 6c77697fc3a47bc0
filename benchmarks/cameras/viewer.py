"""Run the viewer with a user who looks at a test picture in it.

`python -m benchmarks.cameras.viewer serve [OPTION ...]`

As `benchmarks.gpu.driver`, and: `result` tells whether there is any yet, `look` begins
to look at every picture before it is shown, `seen` tells what was seen:

    pictures: [[ns, number], ...]   when a picture with another number than the last was
        shown
    results:  [[ns, version, ns of that picture's publishing, number in the label, x of
              the box in the pixels]] when another result than the last was shown, the
              last being -1 while the square hides an edge of the box
    versions: [[version, number]]   of the pictures
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu import driver
from splatview.camera.pattern import read_index

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.screen import Caption
    from splatview_viewer.kinds.image.layers import Layer

_LINE = 8
"""Pixels, more than the width of a box's line."""


class LookingScreen(driver.CountingScreen):
    """Reads what is drawn, pixel by pixel in two rows."""

    def __init__(self, screen: Any) -> None:
        super().__init__(screen)
        self._is_reading = False
        self._pictures: list[tuple[int, int]] = []
        self._results: list[tuple[int, int, int, int, int]] = []
        self._index_of: dict[int, int] = {}

    def present(self, caption: Caption) -> None:
        if self._is_reading:
            self._read_picture()
        super().present(caption)

    def _read_picture(self) -> None:
        view: Any = self._view()
        layers = view.content.layers
        index = read_index(_rows(self._screen.framebuffer))
        if layers.version:
            self._index_of[layers.version] = index
        now = time.time_ns()
        if not self._pictures or self._pictures[-1][1] != index:
            self._pictures.append((now, index))
        layer: Layer | None = next(iter(layers.all), None)
        if layer is None or layer.result is None or not layer.result.labels:
            return
        result = layer.result
        if not self._results or self._results[-1][1] != result.version:
            self._results.append(
                (
                    now,
                    result.version,
                    layer.time_ns,
                    int(result.labels[0]),
                    _edge(self._screen.framebuffer),
                )
            )

    def _do_result(self) -> dict[str, Any]:
        view: Any = self._view()
        return {
            "result": any(layer.result is not None for layer in view.content.layers.all)
        }

    def _do_look(self) -> None:
        self._pictures.clear()
        self._results.clear()
        self._index_of.clear()
        self._is_reading = True

    def _do_seen(self) -> dict[str, Any]:
        self._is_reading = False
        return {
            "pictures": self._pictures,
            "results": self._results,
            "versions": list(self._index_of.items()),
        }


def _rows(framebuffer: moderngl.Framebuffer) -> np.ndarray:
    """Read the rows in which the picture's index stands."""
    return _read(framebuffer, framebuffer.height - 24, 24)[::-1]


def _edge(framebuffer: moderngl.Framebuffer) -> int:
    """Return the x of the box's left edge in the middle row, in pixels.

    -1 unless both edges are visible.

    Of one edge alone, beside a white square that hides the other, it is unknown which
    it is.
    """
    row = _read(framebuffer, framebuffer.height // 2, 1)[0].astype(int)
    edges = ((row[:, 0] > 190) & (row[:, 1] < 90) & (row[:, 2] > 190)).nonzero()[0]
    if len(edges) and edges[-1] - edges[0] > _LINE:
        return int(edges[0])
    return -1


def _read(framebuffer: moderngl.Framebuffer, y: int, height: int) -> np.ndarray:
    raw = framebuffer.read(
        viewport=(0, y, framebuffer.width, height), components=3, alignment=1
    )
    return np.frombuffer(raw, np.uint8).reshape(height, framebuffer.width, 3)


if __name__ == "__main__":
    sys.exit(driver.main(LookingScreen))
