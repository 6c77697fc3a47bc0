"""Viewers of the tests, stepped by hand, on screens in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.browser_rig import Rig
from support.viewer import Viewer


@pytest.fixture
def open_viewer(runtime_dir: object) -> Iterator[Callable[..., Viewer]]:
    """`open_viewer((width, height), **options)`: a viewer with these `AppOptions`."""
    from support.viewer import Viewer

    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    opened: list[Viewer] = []

    def build(size: tuple[int, int], **options: Any) -> Viewer:
        opened.append(
            Viewer(OffscreenScreen(*size), AppOptions(**{"max_fps": 500, **options}))
        )
        return opened[-1]

    yield build
    for viewer in opened:
        viewer.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    """What browser screens need around them."""
    from support.browser_rig import Rig

    with Rig() as made:
        yield made


@pytest.fixture
def sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenes are drawn in full resolution while the camera moves, however slow the
    machine is.
    """
    monkeypatch.setattr("splatview_viewer.gpu.governor.ALONE", math.inf)


@pytest.fixture
def viewer(
    request: pytest.FixtureRequest, open_viewer: Callable[..., Viewer]
) -> Viewer:
    """A viewer of `support.viewer.SIZE`; a parameter: its options."""
    from support.viewer import SIZE

    made = open_viewer(SIZE, **getattr(request, "param", {}))
    made.do()
    return made
