"""Several views of the same data on a GPU: one picture in place, one scene and one renderer, whoever looks and however
large."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.device_frames import Shared
from support.frames import cloud
from support.view_cases import LOOKS, Look, image_view, opened, part
from support.viewer_cases import H, Trainer, W, expected_image
from support.wait import PATIENCE, clock, turns

from splatview_viewer.app.offscreen import find
from splatview_viewer.core.events import Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import BRIDGE_WORDS
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.names import Finder
from splatview_viewer.workspace.sources import StreamSource, make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.shown_view import ShownView

pytestmark = pytest.mark.cuda
SIZE = 320, 240


@pytest.fixture(name="screen")
def screen_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[OffscreenScreen]:
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gsplat")
    monkeypatch.setattr("splatview_viewer.gpu.governor.ALONE", math.inf)
    screen = OffscreenScreen(*SIZE)
    yield screen
    error = screen.ctx.error
    screen.close()
    assert error == "GL_NO_ERROR"


def scene(seed: int = 0, n: int = 2000) -> GaussianScene:
    t = {name: v.cuda() for name, v in cloud(n, seed).items()}
    torch.cuda.synchronize()
    return GaussianScene(t["means"], t["quats"], t["scales"], t["opacities"], t["sh0"],
                         torch.empty(n, 0, 3, device="cuda"))


def frame(seed: int) -> Shared:
    """A scene in place that a test can overwrite."""
    t = {name: v.cuda() for name, v in cloud(2000, seed).items()}
    torch.cuda.synchronize()
    return Shared("gaussians", t, color="sh", activated=False, sh_degree=0, antialiased=False)


class Followed:
    """A stream of a trainer that is given to the views of several users."""

    def __init__(self, screen: OffscreenScreen, trainer: Trainer, name: str, view: ShownView) -> None:
        self.trainer, self.view = trainer, view
        self.subscriber: Subscriber = make_subscriber(screen.ctx, None)
        self.source = StreamSource(find(Finder(self.subscriber, "test"), name, None, clock() + PATIENCE))
        self.source.stream.open()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Take what comes, as the viewer's loop does."""
        for _ in turns(f"{what}; {self.view.details}, {self.view.path}"):
            if condition():
                break
            self.subscriber.poll()
            self.view.tick(clock())
            if self.view.stale:
                self.source.again()
            if self.source.has_news() and not self.view.busy:
                self.source.feed(self.view)
            self.trainer.alive()

    def close(self) -> None:
        self.source.close()
        self.subscriber.close()


@pytest.mark.parametrize("way", ["ring", "in-place"])
def test_an_image_in_place_is_right_for_all(screen: OffscreenScreen, trainers: dict[str, Trainer], way: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainers["expandable"]
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(trainer.runtime))
    first = image_view(screen, alpha="ignore")
    views = [first, first.beside(), first.beside()]
    looks = [Look(Rect(5, 7, W, H)), Look(Rect(100, 20, 2 * W, 2 * H)), Look(Rect(20, 100, 4 * W, 2 * H))]
    followed = Followed(screen, trainer, f"{way} uint8 HWC", first)
    try:
        for _ in range(3):
            want = expected_image(trainer.k, "uint8", "HWC")
            twice = np.kron(want, np.ones((2, 2, 1), int))
            expected = [want, twice, twice]

            def right(expected: list[np.ndarray] = expected) -> bool:
                pictures = [part(view, screen, look) for view, look in zip(views, looks, strict=True)]
                pictures[2] = pictures[2][:, W:3 * W]
                return all(np.abs(p - e).max() <= 1 for p, e in zip(pictures, expected, strict=True))

            followed.until(lambda: not first.empty and right(), "the same picture in all")
            trainer.next()
        assert all(view.path == [BRIDGE_WORDS["direct"]] for view in views)
        first.close()
        twice = np.kron(expected_image(trainer.k, "uint8", "HWC"), np.ones((2, 2, 1), int))
        followed.view = views[1]
        followed.until(lambda: bool(np.abs(part(views[1], screen, looks[1]) - twice).max() <= 1), "what is left")
    finally:
        for view in views:
            view.close()
        followed.close()


@pytest.mark.parametrize("bridge", ["import", "host"])
def test_what_was_overwritten_is_never_seen_by_anybody(screen: OffscreenScreen, bridge: str,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_INTEROP", bridge)
    users = LOOKS[0], LOOKS[2]
    with opened("gaussians", screen) as views:
        frame(0).show(views[0])
        for view, look in zip(views, users, strict=True):
            look.take(view, screen)
            view.picture.motion.moved_at = -math.inf  # type: ignore[attr-defined]
        before = [part(view, screen, look) for view, look in zip(views, users, strict=True)]
        for k in range(6):
            torn = frame(k + 5)
            assert torn.show(views[k % 2])
            torn.whole = False
            for i in (k % 2, 1 - k % 2) if k < 3 else (1 - k % 2, k % 2):
                views[i].handle(Wheel(20, 20, 1), users[i].rect)  # has it want another picture, too
                np.testing.assert_array_equal(part(views[i], screen, users[i]), before[i])
            assert torn.released
            assert all(view.stale for view in views)
        whole = frame(1)
        assert whole.show(views[1])
        for view, look, pixels in zip(views, users, before, strict=True):
            assert (part(view, screen, look) != pixels).any()
        assert whole.released
        assert not any(view.stale for view in views)
