"""What is meant by a name, or by none; and the queue of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from splatview_viewer.workspace.names import Candidate, meant

if TYPE_CHECKING:
    from support.viewer import Viewer

IMAGE, SCENE, CURVES, FILE, ENDED = (
    Candidate("render", "image"), Candidate("splats", "gaussians"), Candidate("log", "scalars"),
    Candidate("a.ply", "gaussians", is_file=True), Candidate("splats", "gaussians", alive=False))


@pytest.mark.parametrize(("found", "name", "expected"), [
    ([], None, None), ([CURVES, IMAGE], None, 1), ([SCENE, IMAGE], None, 0), ([IMAGE, IMAGE], None, 1),
    ([FILE, CURVES], None, 1), ([ENDED, FILE], None, 1), ([SCENE, IMAGE], "render", 1),
    ([ENDED, SCENE, IMAGE], "splats", 1), ([SCENE], "other", None),
])
def test_meant(found: list[Candidate], name: str | None, expected: int | None) -> None:
    assert meant([(candidate, i) for i, candidate in enumerate(found)], name) == expected


def test_commands_are_executed_in_their_order_in_the_next_turn(viewer: Viewer) -> None:
    done: list[str] = []
    viewer.catalogue.do(done.append, "a")
    viewer.catalogue.do(viewer.catalogue.do, done.append, "b")
    assert done == []
    viewer.step()
    assert done == ["a", "b"]
    assert viewer.settled()
