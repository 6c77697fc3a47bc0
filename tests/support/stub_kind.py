"""The smallest kind: a few numbers, drawn as bars. `docs/kinds.md` explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import moderngl

from splatview_viewer.core.events import Event, Wheel
from splatview_viewer.core.kind import Kind
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Info, Value, View, frame_of


@dataclass
class BarsData:
    """Shared by all views of a stream."""

    levels: Sequence[float] = ()
    """Heights of the bars, 0 to 1."""


@dataclass(frozen=True)
class BarsState:
    """All that decides the picture beside the data."""

    gain: float = 1.0


class BarsView(View[BarsData, BarsState]):
    kind = "stub"

    def take(self, link: str, value: Value) -> bool:
        levels = frame_of(self.kind, value).tensors["levels"].to_float32().tolist()
        # The value may have been overwritten while it was copied.
        if not value.intact():
            return False
        self.data.levels = levels
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        framebuffer.use()
        viewport = rect.viewport(framebuffer.height)
        framebuffer.clear(0.1, 0.1, 0.1, 1.0, viewport=viewport)
        count = len(self.data.levels)
        for i, level in enumerate(self.data.levels):
            left = rect.x + rect.width * i // count
            right = rect.x + rect.width * (i + 1) // count
            height = round(rect.height * min(level * self.state.gain, 1.0))
            bar = Rect(left, rect.y + rect.height - height, right - left, height)
            if bar.width and bar.height:
                viewport = bar.viewport(framebuffer.height)
                framebuffer.clear(0.4, 0.7, 1.0, 1.0, viewport=viewport)

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Wheel):
            self.state = replace(self.state, gain=self.state.gain * 1.2**event.dy)
        # Another state is drawn in any case.
        return False

    def info(self) -> Info:
        return Info([f"{len(self.data.levels)} levels"], path=["host"])

    def release(self, occasion: str) -> None:
        """Release nothing: the view has no memory of the GPU."""


def view(ctx: moderngl.Context, work: Any) -> BarsView:
    return BarsView(BarsData(), BarsState())


KIND = Kind("stub", view=view)
