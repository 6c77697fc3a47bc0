"""What several views of an image share, and what each has for itself; on a real OpenGL context."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.beside_cases import opened
from support.device_frames import Shared
from support.frames import image_frame
from support.view_cases import RECT, H, W, shown
from support.wait import PATIENCE, clock

from splatview.ipc.interop.host import HostBridge
from splatview.viewer_app.state import ImageSettings
from splatview.viewer_app.views import _image_content
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.viewer_app.screens.offscreen import OffscreenScreen


def test_broken_values_are_counted_once_and_told_to_all(screen: OffscreenScreen, wait_until: Callable[..., Any],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_image_content, "_COUNT_PERIOD", PATIENCE)
    clean = torch.zeros(8, 8)
    broken = clean.clone()
    broken[2, :3] = float("nan")
    with opened("image", screen, 3) as views:
        views[0].update(image_frame(clean))
        views[0].update(image_frame(broken))  # at once: not counted yet
        told = {view for view in views if view.tick(clock())}
        assert told == set(views[1:])
        monkeypatch.setattr(_image_content, "_COUNT_PERIOD", 0.0)
        told = set()
        wait_until(lambda: told.update(v for v in views if v.tick(clock())) or len(told) == 3)
        assert all("3 NaN or inf (magenta)" in view.details for view in views)


def test_another_size_of_picture_keeps_what_each_looks_at(screen: OffscreenScreen) -> None:
    with opened("image", screen) as (a, b):
        assert isinstance(b, ImageView)
        a.update(np.zeros((60, 80, 3), np.uint8))
        b.pan_zoom.set_zoom(4.0, RECT)
        b.pan_zoom.center = 20.0, 30.0
        a.update(np.zeros((120, 160, 3), np.uint8))
        assert (b.pan_zoom.zoom, b.pan_zoom.center) == (2.0, (40.0, 60.0))
        c = a.beside(ImageSettings())
        assert isinstance(c, ImageView)
        assert c.size == c.pan_zoom.size == (160, 120)
        c.close()


class InPlace(HostBridge):
    """Stands in for the bridge that copies nothing."""

    name = "direct"  # type: ignore[misc]
    reasons: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    monkeypatch.setattr("splatview.viewer_app.views._image_content.AutoBridge", InPlace)


def picture(value: int, **more: Any) -> Shared:
    return Shared("image", {"image": torch.full((H, W, 3), value, dtype=torch.uint8)}, layout="HWC", **more)


@pytest.mark.usefixtures("no_cuda")
def test_an_image_in_place_is_held_once_for_all(screen: OffscreenScreen) -> None:
    with opened("image", screen) as (a, b):
        first, second = picture(50), picture(90)
        first.show(a)
        assert (shown(a, screen) == 50).all()
        second.show(b)
        assert not first.released
        assert (shown(b, screen) == 90).all()
        a.tick(clock())
        assert first.released
        assert (shown(a, screen) == 90).all()
        a.close()
        assert not second.released
        shown(b, screen)
        second.whole = False
        b.tick(clock())
        assert b.stale
        b.close()
        assert second.released
