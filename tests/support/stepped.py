"""Scenes that are drawn in steps, of which a test decides when they are taken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from splatview_viewer.app import loop
from splatview_viewer.core.screen import Rect
from splatview_viewer.gpu.steps import StepQueue
from splatview_viewer.kinds.gaussians import arrivals
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.render.gl import renderer as gl_renderer
from splatview_viewer.render.gl.passes import Parts
from splatview_viewer.shell.user import User
from support.house import House
from support.web_clients import Page


class Gate:
    """Lets no step be taken while it is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = True
        self.step_count = 0
        advance = StepQueue.advance

        def advance_if_open(
            queue: StepQueue, seconds: float, must_end: Callable[[], bool]
        ) -> None:
            if self.is_open:
                self.step_count += 1
                advance(queue, seconds, must_end)

        monkeypatch.setattr(StepQueue, "advance", advance_if_open)


def draw_in_steps(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Have all scenes be drawn in steps, one in each turn; return what stops them."""
    monkeypatch.setattr(gl_renderer, "STEPPED_FROM", 1)
    monkeypatch.setattr(arrivals, "COPIED_APART_FROM", 1)
    monkeypatch.setattr(gl_renderer, "Parts", partial(Parts, 4096, 200, 20_000, 4096))
    monkeypatch.setattr(loop, "_MAX_STEPS_S", 0.0)
    return Gate(monkeypatch)


def view_of(user: User) -> GaussianView:
    view = user.view
    assert view is not None
    assert isinstance(view.view, GaussianView)
    return view.view


def until_in_steps(house: House, view: GaussianView) -> None:
    """Take turns until a picture is unfinished."""

    def is_in_steps() -> bool:
        return view.data.stepped.is_drawing

    house.until(is_in_steps)


def until_final(house: House, page: Page) -> np.ndarray:
    """Take turns until all is drawn; return what the page shows."""
    user = house.users[page]

    def is_whole() -> bool:
        if user.view is None:
            return False
        view = view_of(user)
        # A coarse picture is followed by a sharp one.
        return view.picture.scale == 1.0 and not view.data.stepped.is_drawing

    house.until(is_whole)
    picture = house.final_picture(page)
    house.until(is_whole)
    return picture


def is_like_one_drawn_at_once(
    house: House, page: Page, picture: np.ndarray, rect: Rect
) -> bool:
    """Return whether a pane's middle is as it is without steps."""
    gl_renderer.STEPPED_FROM = 1 << 30
    user = house.users[page]
    view_of(user).picture.drop()
    user.mark()
    drawn_at_once = house.final_picture(page)
    gl_renderer.STEPPED_FROM = 1
    middle = np.s_[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width]
    return np.array_equal(drawn_at_once[middle], picture[middle])


def scene_values(color: float, count: int = 200) -> dict[str, torch.Tensor]:
    return {
        "means": torch.randn(count, 3),
        "quats": torch.ones(count, 4),
        "scales": torch.full((count, 3), -2.0),
        "opacities": torch.ones(count),
        "sh0": torch.full((count, 1, 3), color),
    }


def published_page(house: House) -> tuple[Page, User, GaussianView]:
    """Return a page that shows all of a published scene, its user and view."""
    page = house.page(400, 300)
    user = house.users[page]
    house.until(lambda: user.view is not None and user.view.kind == "gaussians")
    until_final(house, page)
    return page, user, view_of(user)


def begin_picture(house: House, user: User, gate: Gate) -> None:
    """Have a picture be unfinished while the gate is closed."""
    view = view_of(user)
    gate.is_open = False
    view.change(scale=view.state.scale * 0.9)
    user.mark()
    until_in_steps(house, view)
