"""What the tests of views share: values, rectangles, users of several views of the same data, and pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from splatview_viewer.core.events import (
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import ShownView
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds import make_view
from splatview_viewer.kinds.gaussians.cache import SceneCache
from splatview_viewer.kinds.gaussians.state import GaussianState
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.panel import Panel
from support import stub_kind
from support.frames import (
    cameras_frame,
    cloud,
    frame_of,
    gaussian_frame,
    image_frame,
    memory_frame,
    memory_samples,
    scalar_rows,
    scalars_frame,
)
from support.memory_data import small_snapshot
from support.wait import PATIENCE, turns

W = 64
H = 48
RECT = Rect(0, 0, W, H)
WRITTEN = ("scalars", "memory", "snapshot")
"""The kinds whose picture is what is written over it."""
SMALL = Rect(3, 5, 40, 30)
LOW = Rect(0, 10, W, 20)


def value(kind: str, k: int = 0, **more: Any) -> Any:
    """The `k`th of three frames, or of what three files hold, that look different."""
    match kind:
        case "image":
            return image_frame(
                torch.rand(20, 30, 3, generator=torch.Generator().manual_seed(k)),
                **more,
            )
        case "gaussians":
            return gaussian_frame(cloud(300, seed=k), **more)
        case "memory":
            return memory_frame(memory_samples(100 + 50 * k), **more)
        case "scalars":
            return scalars_frame(scalar_rows(400 - 150 * k, k), **more)
        case "cameras":
            return cameras_frame(9 - 2 * k, distance=2.0 + k, **more)
        case "snapshot":
            return small_snapshot(k)
        case "stub":
            return frame_of(
                "stub", {"levels": torch.tensor([0.2, 0.6, 0.4 - 0.1 * k])}, **more
            )
    raise AssertionError(kind)


def view_pixels(
    view: ShownView, screen: OffscreenScreen, rect: Rect | None = None
) -> np.ndarray:
    """(H, W, 3) int: what the view draws; all of it, of one whose pictures are painted by threads."""
    rect = rect or Rect(0, 0, *screen.size)
    panel = Panel() if view.kind in WRITTEN else None
    inner: Any = view.view
    quiet = 0
    for _ in turns("the picture is complete"):
        view.draw(screen.framebuffer, rect)
        if panel is None:
            break
        panel.draw_over(
            screen.framebuffer, lambda _, scale: view.draw_ui(rect, scale), 1.0
        )
        quiet += 1
        if not getattr(inner, "complete", True) and not view.empty:
            inner.wait(PATIENCE)
            quiet = 0
        if quiet == 2:  # words find their places
            panel.close()
            break
    return screen.pixels()[..., :3].astype(int)


class ViewUser:
    """A user: a place on the screen, settings, and what the mouse did."""

    def __init__(
        self, rect: Rect, events: tuple[Any, ...] = (), **settings: Any
    ) -> None:
        self.rect = rect
        self.events = events
        self.settings = settings

    def take(self, view: ShownView, screen: OffscreenScreen) -> None:
        """Make a view that has data look like this."""
        names = {field.name for field in fields(view.view.state)}
        change_state(
            view,
            **{name: value for name, value in self.settings.items() if name in names},
        )
        view_pixels(view, screen, self.rect)
        for event in self.events:
            view.handle(event, self.rect)


VIEW_USERS = [
    ViewUser(
        RECT,
        (Wheel(30, 20, 2),),
        exposure=1.0,
        show="color",
        background=(0.2, 0.3, 0.4),
    ),
    ViewUser(
        SMALL,
        (PointerPress(20, 20), PointerMove(26, 18), PointerRelease(26, 18)),
        gamma=2.0,
        show="depth",
    ),
    ViewUser(
        RECT, (Pinch(20, 10, 1.7, 4, -3),), exposure=-1.0, background=(0.9, 0.1, 0.1)
    ),
    ViewUser(LOW, (Wheel(30, 20, -3),), show="alpha"),
]


@contextlib.contextmanager
def opened(
    kind: str, screen: OffscreenScreen, count: int = 2
) -> Iterator[list[ShownView]]:
    first: Any = (
        ShownView(stub_kind.view(screen.ctx, None))
        if kind == "stub"
        else make_view(kind, screen.ctx)
    )
    views = [first, *(first.another_view() for _ in range(count - 1))]
    try:
        yield views
    finally:
        for view in views:
            view.close()


def alone(
    kind: str, screen: OffscreenScreen, look: ViewUser, *later: Any
) -> np.ndarray:
    """What a view without others draws in `look`, as far as that reaches; `later`: values after the first."""
    with opened(kind, screen, 1) as (view,):
        view.update(value(kind))
        look.take(view, screen)
        for other in later:
            view.update(other)
        return user_pixels(view, screen, look)


def scene_view(
    screen: OffscreenScreen,
    renderer: Any = None,
    work: GpuWork | None = None,
    **changes: Any,
) -> Any:
    """A view of Gaussians, in a state with these fields changed."""
    data = SceneCache(screen.ctx, work or GpuWork(screen.ctx), renderer)
    return ShownView(GaussianView(data, GaussianState(**changes)))


def image_view(screen: OffscreenScreen, **changes: Any) -> Any:
    """A view of an image, in a state with these fields changed."""
    view = make_view("image", screen.ctx)
    change_state(view, **changes)
    return view


def change_state(view: Any, **changes: Any) -> None:
    """Change fields of a view's state."""
    view.view.state = replace(view.view.state, **changes)


def user_pixels(view: ShownView, screen: OffscreenScreen, look: ViewUser) -> np.ndarray:
    r = look.rect
    return view_pixels(view, screen, r)[r.y : r.y + r.height, r.x : r.x + r.width]
