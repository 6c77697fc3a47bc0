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
        if not value.intact():  # overwritten while it was copied
            return False
        self.data.levels = levels
        return True

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        framebuffer.use()
        framebuffer.clear(
            0.1, 0.1, 0.1, 1.0, viewport=rect.viewport(framebuffer.height)
        )
        for i, level in enumerate(self.data.levels):
            left, right = (
                rect.x + rect.width * k // len(self.data.levels) for k in (i, i + 1)
            )
            height = round(rect.height * min(level * self.state.gain, 1.0))
            bar = Rect(left, rect.y + rect.height - height, right - left, height)
            if bar.width and bar.height:
                framebuffer.clear(
                    0.4, 0.7, 1.0, 1.0, viewport=bar.viewport(framebuffer.height)
                )

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Wheel):
            self.state = replace(self.state, gain=self.state.gain * 1.2**event.dy)
        return False  # another state is drawn in any case

    def info(self) -> Info:
        return Info([f"{len(self.data.levels)} levels"], path=["host"])

    def release(self, occasion: str) -> None:
        """Nothing is held on the GPU."""


def view(ctx: moderngl.Context, work: Any) -> BarsView:
    return BarsView(BarsData(), BarsState())


KIND = Kind("stub", view=view)
