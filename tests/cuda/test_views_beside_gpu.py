"""Several views of the same data on a GPU: one picture in place, one scene and one renderer, whoever looks and however
large."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.beside_cases import LOOKS, Look, alone, opened, part
from support.device_frames import Shared
from support.frames import cloud
from support.view_cases import shown
from support.viewer_cases import (
    CAMERA,
    H,
    Trainer,
    W,
    expected_image,
    expected_scene,
    psnr,
    trainers_fixture,  # noqa: F401
)
from support.wait import PATIENCE

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.events import Wheel
from splatview.viewer_app.finding import Finder
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.scene import GaussianScene
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.sources import StreamSource, make_subscriber
from splatview.viewer_app.state import GaussianSettings, ImageSettings
from splatview.viewer_app.views.base import BRIDGE_WORDS, CANVAS_WORDS
from splatview.viewer_app.views.gaussians import GaussianView
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.ipc import Subscriber
    from splatview.viewer_app.views.base import View

pytestmark = pytest.mark.cuda
SIZE = 320, 240


@pytest.fixture(name="screen")
def screen_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[OffscreenScreen]:
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gsplat")
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

    def __init__(self, screen: OffscreenScreen, trainer: Trainer, name: str, view: View) -> None:
        self.trainer, self.view = trainer, view
        self.subscriber: Subscriber = make_subscriber(screen.ctx, None)
        self.source = StreamSource(Finder(self.subscriber, "test").find(name, None, time.monotonic() + PATIENCE))
        self.source.open()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Take what comes, as the viewer's loop does."""
        end = time.monotonic() + PATIENCE
        while not condition():
            self.subscriber.poll()
            self.view.tick(time.monotonic())
            if self.view.stale:
                self.source.again()
            if self.source.has_news() and not self.view.busy:
                self.source.feed(self.view)
            else:
                self.source.ask()
            self.trainer.alive()
            assert time.monotonic() < end, f"not within 30 s: {what}; {self.view.details}, {self.view.path}"
            time.sleep(0.001)

    def close(self) -> None:
        self.source.close()
        self.subscriber.close()


@pytest.mark.parametrize("way", ["ring", "in-place"])
def test_an_image_in_place_is_right_for_all(screen: OffscreenScreen, trainers: dict[str, Trainer], way: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainers["expandable"]
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(trainer.runtime))
    first = ImageView(screen.ctx, ImageSettings(alpha="ignore"))
    views = [first, first.beside(ImageSettings(alpha="ignore")), first.beside(ImageSettings(alpha="ignore"))]
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


def test_a_scene_in_place_is_right_for_all(trainers: dict[str, Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainers["plain"]
    wants = [expected_scene(trainer.k + k) for k in range(2)]  # each has an OpenGL context of its own
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(trainer.runtime))
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gsplat")
    screen = OffscreenScreen(*SIZE)
    first = GaussianView(screen.ctx)
    views = [first, first.beside(GaussianSettings())]
    large, half = Rect(0, 0, *SIZE), Rect(0, 0, SIZE[0] // 2, SIZE[1] // 2)
    for view in views:
        view.use_camera(CAMERA)
    followed = Followed(screen, trainer, "splats", first)
    try:
        for want in wants:
            small = want.reshape(SIZE[1] // 2, 2, SIZE[0] // 2, 2, 3).mean(axis=(1, 3))
            followed.until(lambda want=want: not first.empty and psnr(shown(first, screen, large), want) > 36,
                           "the scene")
            quality = psnr(shown(views[1], screen, half)[:half.height, :half.width], small)
            print(f"half the size: {quality:.1f} dB; {views[1].path}")
            assert quality > 25
            assert first.details == views[1].details
            trainer.next()
        assert views[1].path[:2] == ["parameters read in place", "gsplat renderer"]
    finally:
        for view in views:
            view.close()
        followed.close()
        error = screen.ctx.error
        screen.close()
    assert error == "GL_NO_ERROR"


@pytest.mark.parametrize("bridge", ["import", "register", "host"])
@pytest.mark.parametrize("looks", [(0, 1), (0, 2), (1, 3)])
def test_each_draws_what_it_would_alone(screen: OffscreenScreen, bridge: str, looks: tuple[int, int],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_INTEROP", bridge)
    # what is shown depends on no clock
    monkeypatch.setattr("splatview.viewer_app.views._gaussians.depth._RANGE_PERIOD", -1.0)
    first, second = scene(0), scene(1)
    users = [LOOKS[i] for i in looks]
    want = [alone("gaussians", screen, first, look) for look in users]
    after = [alone("gaussians", screen, first, look, second) for look in users]
    with opened("gaussians", screen) as views:
        views[0].update(first)
        for view, look in zip(views, users, strict=True):
            look.take(view, screen)
        for _ in range(20):
            for view, look, pixels in zip(views, users, want, strict=True):
                np.testing.assert_allclose(part(view, screen, look), pixels, atol=2)
        views[1].update(second)
        for view, look, pixels in zip(views, users, after, strict=True):
            np.testing.assert_allclose(part(view, screen, look), pixels, atol=2)
        assert CANVAS_WORDS[bridge] in views[looks.index(min(looks))].path


def test_two_sizes_take_turns_in_memory_that_stays(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_INTEROP", "import")
    rects = Rect(0, 0, *SIZE), Rect(0, 0, 200, 100)
    with opened("gaussians", screen) as views:
        renderer: Any = views[0].content.renderer  # type: ignore[attr-defined]
        assert isinstance(renderer, GsplatRenderer)
        views[0].update(scene())

        def turn() -> None:
            for view, rect in zip(views, rects, strict=True):
                shown(view, screen, rect)
                view.handle(Wheel(60, 60, 0.1), rect)
                view._moved_at = -math.inf  # type: ignore[attr-defined]

        for _ in range(5):
            turn()
        memories = set(renderer._canvas_held._memories)
        assert len(memories) == 2
        allocated, begin = torch.cuda.memory_allocated(), time.perf_counter()
        for _ in range(30):
            turn()
        print(f"two views that move, with reading back: {(time.perf_counter() - begin) / 30 * 1e3:.2f} ms")
        assert set(renderer._canvas_held._memories) == memories
        assert torch.cuda.memory_allocated() <= allocated + (8 << 20)
        begin = time.perf_counter()
        for _ in range(30):
            for view, rect in zip(views, rects, strict=True):
                view.draw(screen.framebuffer, rect)
        print(f"two views at rest: {(time.perf_counter() - begin) / 30 * 1e6:.0f} us")
    assert renderer._closed
    assert renderer._canvas_held is None


@pytest.mark.parametrize("bridge", ["import", "register", "host"])
def test_what_was_overwritten_is_never_seen_by_anybody(screen: OffscreenScreen, bridge: str,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_INTEROP", bridge)
    users = LOOKS[0], LOOKS[2]
    with opened("gaussians", screen) as views:
        frame(0).show(views[0])
        for view, look in zip(views, users, strict=True):
            look.take(view, screen)
            view._moved_at = -math.inf  # type: ignore[attr-defined]
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


def test_who_follows_has_it_drawn_once(screen: OffscreenScreen) -> None:
    with opened("gaussians", screen) as (a, b):
        a.update(scene())
        drawn, rect = [], Rect(0, 0, *SIZE)
        renderer: Any = a.content.renderer  # type: ignore[attr-defined]
        draw = renderer._draw
        renderer._draw = lambda *args: drawn.append(1) or draw(*args)
        shown(a, screen, rect)
        for _ in range(5):
            a.handle(Wheel(60, 60, -0.2), rect)  # away: it needs no more room than before
            a._moved_at = -math.inf  # type: ignore[attr-defined]
            drawn.clear()
            want = shown(a, screen, rect)
            b.like(a)
            np.testing.assert_array_equal(shown(b, screen, rect), want)
            assert len(drawn) == 1
