"""Share values of each kind, rectangles, users of several views, and pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from splatview_viewer.core.command import command_of, parse_shortcut
from splatview_viewer.core.events import (
    Key,
    Pinch,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.kinds import make_view
from splatview_viewer.kinds.gaussians.cache import SceneCache
from splatview_viewer.kinds.gaussians.state import GaussianState
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from support import stub_kind
from support.drawn_scene import answer, scene_frame
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
from support.memory_data import rank_table, small_snapshot
from support.wait import PATIENCE_S, polls

W = 64
H = 48
RECT = Rect(0, 0, W, H)
WRITTEN = ("scalars", "memory", "snapshot", "ranks")
"""The kinds whose whole picture is the text that is drawn over it."""
SMALL = Rect(3, 5, 40, 30)
LOW = Rect(0, 10, W, 20)


def value(kind: str, k: int = 0, **meta: Any) -> Any:
    """Make the `k`th of three frames, or contents of files, that look different."""
    match kind:
        case "image":
            g = torch.Generator().manual_seed(k)
            return image_frame(torch.rand(20, 30, 3, generator=g), **meta)
        case "gaussians":
            return gaussian_frame(cloud(300, seed=k), **meta)
        case "memory":
            return memory_frame(memory_samples(100 + 50 * k), **meta)
        case "scalars":
            return scalars_frame(scalar_rows(400 - 150 * k, k), **meta)
        case "cameras":
            return cameras_frame(9 - 2 * k, distance=2.0 + k, **meta)
        case "snapshot":
            return small_snapshot(k)
        case "ranks":
            return rank_table(20 + k)
        case "rendered":
            return scene_frame(k, **meta)
        case "stub":
            levels = torch.tensor([0.2, 0.6, 0.4 - 0.1 * k])
            return frame_of("stub", {"levels": levels}, **meta)
    raise AssertionError(kind)


def view_pixels(
    view: ShownView, screen: OffscreenScreen, rect: Rect | None = None
) -> np.ndarray:
    """Draw a view and return (H, W, 3) int.

    Of a view whose pictures threads paint, the complete picture is awaited.
    """
    rect = rect or Rect(0, 0, *screen.size)
    if view.kind not in WRITTEN:
        view.draw(screen.framebuffer, rect)
        if view.kind == "rendered" and not view.empty:
            answer(view.content)
            view.draw(screen.framebuffer, rect)
        return screen.pixels()[..., :3].astype(int)
    panel = Surface()
    inner: Any = view.view
    quiet = 0

    def draw_text(_: Any, scale: float) -> bool:
        return view.draw_ui(rect, scale)

    for _ in polls("the picture is complete"):
        view.draw(screen.framebuffer, rect)
        panel.draw_over(screen.framebuffer, draw_text, 1.0)
        quiet += 1
        if not getattr(inner, "complete", True) and not view.empty:
            inner.wait(PATIENCE_S)
            quiet = 0
        # Text takes its final position in the second picture.
        if quiet == 2:
            panel.close()
            break
    return screen.pixels()[..., :3].astype(int)


class ViewUser:
    """A user: a rectangle of the screen, settings, and events of the mouse."""

    def __init__(
        self, rect: Rect, events: tuple[Any, ...] = (), **settings: Any
    ) -> None:
        self.rect = rect
        self.events = events
        self.settings = settings

    def take(self, view: ShownView, screen: OffscreenScreen) -> None:
        """Set a view that has data as this user does."""
        names = {field.name for field in fields(view.view.state)}
        settings = {name: v for name, v in self.settings.items() if name in names}
        change_state(view, **settings)
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
    """Open several views of one kind, which share their data."""
    if kind == "stub":
        first: Any = ShownView(stub_kind.view(screen.ctx, None))
    else:
        first = make_view(kind, screen.ctx)
    views = [first, *(first.another_view() for _ in range(count - 1))]
    try:
        yield views
    finally:
        for view in views:
            view.close()


def alone(
    kind: str, screen: OffscreenScreen, user: ViewUser, *later_values: Any
) -> np.ndarray:
    """Return what the only view draws for a user, in the user's rectangle.

    Args:
        kind: The kind of the view.
        screen: The screen.
        user: The user.
        later_values: Values after the first.
    """
    with opened(kind, screen, 1) as (view,):
        view.update(value(kind))
        user.take(view, screen)
        for later in later_values:
            view.update(later)
        return user_pixels(view, screen, user)


def scene_view(
    screen: OffscreenScreen,
    renderer: Any = None,
    work: GpuWork | None = None,
    **changes: Any,
) -> Any:
    """Make a view of Gaussians, in a state with these fields changed."""
    data = SceneCache(screen.ctx, work or GpuWork(screen.ctx), renderer)
    return ShownView(GaussianView(data, GaussianState(**changes)))


def image_view(screen: OffscreenScreen, **changes: Any) -> Any:
    """Make a view of an image, in a state with these fields changed."""
    view = make_view("image", screen.ctx)
    change_state(view, **changes)
    return view


def press_shortcut(view: ShownView, keys: str) -> None:
    """Run the command of a view that some keys are the shortcut of: "Ctrl C"."""
    shortcut = parse_shortcut(keys)
    event = Key(shortcut.key, mods=shortcut.mods)
    command = command_of(view.view.commands(), event)
    assert command is not None, keys
    assert command.reason(view.view) is None, command
    view.run(command)


def change_state(view: Any, **changes: Any) -> None:
    """Change fields of a view's state."""
    view.view.state = replace(view.view.state, **changes)


def user_pixels(view: ShownView, screen: OffscreenScreen, user: ViewUser) -> np.ndarray:
    r = user.rect
    return view_pixels(view, screen, r)[r.y : r.y + r.height, r.x : r.x + r.width]
