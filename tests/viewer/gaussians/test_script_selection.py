"""A script reads as a mask what is selected in a viewer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from support.frames import cloud
from support.viewer import Viewer
from support.wait import clock

import splatview
from splatview_viewer.core.selection import EVERYTHING, Box
from splatview_viewer.kinds.gaussians.script_selection import SendSelection
from splatview_viewer.kinds.gaussians.select import Select
from splatview_viewer.kinds.gaussians.view import GaussianView

LEFT = Box(center=(-5.0, 0.0, 0.0), half=(5.0, 9.0, 9.0))


def reads(expected: torch.Tensor | None) -> bool:
    """Return whether the script reads this mask."""
    mask = splatview.selection()
    if mask is None or expected is None:
        return mask is expected
    return torch.equal(mask, expected)


def let_selection_rest(view: GaussianView, seconds: float = 1.0) -> None:
    """Have the tool see a selection that has rested for so long."""
    tool = view.tools.of(SendSelection)
    now = clock()
    tool.tick(now)
    tool.tick(now + seconds)


def test_script_prunes_what_is_selected(open_viewer: Callable[..., Viewer]) -> None:
    """By a crop, also where Gaussians move, then by a choice.

    A user may keep the selection to himself.
    """
    scene: dict[str, Any] = cloud(300)
    splatview.publish(scene)
    viewer = open_viewer((940, 680))
    view = viewer.until_shows(GaussianView)
    assert splatview.selection() is None
    viewer.until(lambda: view.tools.of(SendSelection).is_read)
    view.change(selection=replace(EVERYTHING, box=LEFT))
    let_selection_rest(view)
    is_left = scene["means"][:, 0] <= 0
    viewer.until(partial(reads, is_left))
    # As many Gaussians, elsewhere.
    scene["means"] = -scene["means"]
    loads = view.data.loads
    splatview.publish(scene)
    viewer.until(lambda: view.data.loads > loads)
    let_selection_rest(view, 9.0)
    is_left = scene["means"][:, 0] <= 0
    viewer.until(partial(reads, is_left))
    scene = {name: value[is_left] for name, value in scene.items()}
    splatview.publish(scene)
    count = len(scene["means"])
    viewer.until(partial(reads, torch.ones(count, dtype=torch.bool)))
    is_chosen = np.arange(count) % 3 == 0
    view.tools.of(Select).choose(is_chosen, "new")
    let_selection_rest(view)
    viewer.until(partial(reads, torch.from_numpy(is_chosen)))
    view.tools.of(SendSelection).is_shared = False
    let_selection_rest(view)
    viewer.until(partial(reads, None))
