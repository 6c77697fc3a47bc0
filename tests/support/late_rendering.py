"""The interface of a test's viewers is rendered when the test reads their pixels.

Few of their pictures are looked at, and a software renderer takes 5 ms for the
interface in each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import moderngl
import pytest

from splatview_viewer.shell.surface import Surface
from splatview_viewer.shell.user import User
from support.viewer import Viewer

Render = Callable[[], None]


class LateRendering:
    """Keeps what imgui has drawn for some viewers until their pixels are read."""

    def __init__(self, viewers: list[Viewer], patch: pytest.MonkeyPatch) -> None:
        """Render late until the patch is undone."""
        self._viewers = viewers
        self._render_now = Surface.render
        self._waiting: dict[moderngl.Framebuffer, Render] = {}
        patch.setattr(Surface, "render", self._make_render())
        self._call_first(patch, User, "draw", self._forget)
        self._call_first(patch, Viewer, "close", self._finish)
        for name in ("read", "read_into"):
            self._call_first(patch, moderngl.Framebuffer, name, self._catch_up)

    def _call_first(
        self,
        patch: pytest.MonkeyPatch,
        owner: type,
        name: str,
        first: Callable[[Any], None],
    ) -> None:
        """Have a method of a class call a function with its object before it begins."""
        method = getattr(owner, name)

        def call_both(called: Any, *args: Any, **options: Any) -> Any:
            first(called)
            return method(called, *args, **options)

        patch.setattr(owner, name, call_both)

    def _make_render(self) -> Callable[..., None]:
        """Return a method that renders at once only where others see it."""

        def render_late(
            surface: Surface,
            framebuffer: moderngl.Framebuffer,
            *args: Any,
            **options: Any,
        ) -> None:
            render = partial(self._render_now, surface, framebuffer, *args, **options)
            screens = [viewer.screen.framebuffer for viewer in self._viewers]
            if framebuffer not in screens:
                render()
                return
            self._waiting[framebuffer] = render

        return render_late

    def _forget(self, user: User) -> None:
        """Forget the interface of a picture over which another one is drawn."""
        self._waiting.pop(user.screen.framebuffer, None)

    def _finish(self, viewer: Viewer) -> None:
        """Render the last interface, so that an error of OpenGL is seen."""
        framebuffer = viewer.screen.framebuffer
        if framebuffer in self._waiting:
            with viewer.screen.ctx:
                self._catch_up(framebuffer)

    def _catch_up(self, framebuffer: moderngl.Framebuffer) -> None:
        """Render what was kept for a framebuffer."""
        render = self._waiting.pop(framebuffer, None)
        if render is not None:
            render()
