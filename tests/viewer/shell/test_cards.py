"""The cards over a pane: what a script needs, and that a run ended."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import torch
from support import widgets
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import FileDrop
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.shell.cards import LINES


def is_drawn(viewer: Viewer, name: str) -> bool:
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return name in widgets.drawn


def test_lines_for_a_script_are_copied(viewer: Viewer) -> None:
    viewer.click("Copy")
    assert viewer.screen.desktop.pasted() == LINES
    calls = [node for node in ast.walk(ast.parse(LINES)) if isinstance(node, ast.Call)]
    names = [call.func.attr for call in calls if isinstance(call.func, ast.Attribute)]
    assert names
    assert all(hasattr(splatview, name) for name in names)


def test_end_of_a_run_is_said_until_it_is_put_away(viewer: Viewer) -> None:
    splatview.publish(torch.zeros((40, 60, 3), dtype=torch.uint8), "render")
    viewer.until_listed()
    viewer.until(viewer.loaded)
    assert not is_drawn(viewer, "close the card")
    splatview.close()
    viewer.until_run_ended()
    assert is_drawn(viewer, "close the card")
    viewer.click("close the card")
    assert not is_drawn(viewer, "close the card")


def test_card_of_a_refused_file_covers_no_tools(
    open_viewer: Callable[..., Viewer], tmp_path: Path
) -> None:
    path = write_ply(tmp_path / "a.ply", ply_columns(truth(20)))
    damaged = tmp_path / "damaged.ply"
    damaged.write_bytes(b"neither text nor a scene")
    viewer = open_viewer((820, 620), files=(path,))
    view = viewer.until_shows(GaussianView)
    viewer.do(FileDrop((str(damaged),)))
    viewer.until_refused()
    viewport = viewer.user.layout.active
    (tools,) = view.covered(viewport.rect)
    (card,) = viewport.cards
    assert card.x >= tools.x + tools.width
    assert card.x + card.width <= viewport.rect.x + viewport.rect.width
