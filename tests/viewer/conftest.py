"""Viewers of the tests, stepped by hand, on screens in memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.browser_rig import Rig
from support.viewer import Viewer


@pytest.fixture(autouse=True)
def forgotten_widgets() -> Iterator[None]:
    """Have no test find the widgets of another one."""
    yield
    widgets = sys.modules.get("support.widgets")
    if widgets is not None:
        widgets.clear()


@pytest.fixture
def open_viewer(
    runtime_dir: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Viewer]]:
    """Return `open_viewer((width, height), **options)`, which opens a viewer.

    The options are those of `AppOptions`.
    """
    from support.late_rendering import LateRendering
    from support.viewer import Viewer

    from splatview_viewer.app.loop import AppOptions
    from splatview_viewer.screens.offscreen import OffscreenScreen

    viewers: list[Viewer] = []
    LateRendering(viewers, monkeypatch)

    def build(size: tuple[int, int], **options: Any) -> Viewer:
        app_options = AppOptions(**{"max_fps": 500, **options})
        viewer = Viewer(OffscreenScreen(*size), app_options)
        viewers.append(viewer)
        return viewer

    yield build
    for viewer in viewers:
        viewer.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Provide what browser screens need around them."""
    from support.browser_rig import Rig

    with Rig() as browser_rig:
        yield browser_rig


@pytest.fixture
def sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw scenes in full resolution while the camera moves.

    It does not depend on the speed of the machine.
    """
    monkeypatch.setattr("splatview_viewer.gpu.governor.ALONE", math.inf)


@pytest.fixture
def viewer(
    request: pytest.FixtureRequest, open_viewer: Callable[..., Viewer]
) -> Viewer:
    """Return a viewer of `support.viewer.SIZE`; a parameter has its options."""
    from support.viewer import SIZE

    viewer = open_viewer(SIZE, **getattr(request, "param", {}))
    viewer.do()
    return viewer
