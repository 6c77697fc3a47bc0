"""What views do with frames on a GPU, as far as that shows without one: which frames
are held, for how long, and what happens when one is overwritten. The tensors' memory is
a stand-in on the host; tests/cuda has the real thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud
from support.view_cases import (
    RECT,
    VIEW_USERS,
    H,
    W,
    image_view,
    scene_view,
    view_pixels,
)
from support.wait import clock

from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.gl.base import PixelSource
from splatview_ipc.gl.host import HostBridge
from splatview_viewer.core.events import Wheel
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import Pixels, RenderedPicture, RenderOptions
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen


class Memory:
    """What stands in for GPU memory."""

    gpu = "0" * 32
    pieces = ()

    def __init__(self, tensor: torch.Tensor):
        self.values = tensor
        self.size = tensor.numel() * tensor.element_size()

    def pointer(self) -> int:
        return self.values.data_ptr()

    def tensor(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> torch.Tensor:
        return self.values

    def close(self) -> None:
        pass


class Shared:
    """A frame on a GPU and what became of it."""

    def __init__(
        self,
        kind: str,
        tensors: dict[str, torch.Tensor] | dict[str, Memory],
        *,
        arrived: bool = True,
        **meta: Any,
    ):
        """`tensors`: values, or memory that other frames lie in as well."""
        self.whole = True
        self.arrived = arrived
        self.released = False
        memories = {
            name: t if isinstance(t, Memory) else Memory(t)
            for name, t in tensors.items()
        }
        device = {
            name: DeviceTensor(
                str(m.values.dtype).removeprefix("torch."),
                tuple(m.values.shape),
                m.values.stride(),
                m,
                0,
            )
            for name, m in memories.items()
        }
        more: dict[str, Any] = {} if arrived else {"wait": lambda _: None}
        self.frame = StreamFrame(
            kind,
            1,
            1,
            meta,
            device,  # type: ignore[arg-type]
            lambda: self.whole,
            self._release,
            arrived=lambda: self.arrived,
            **more,
        )

    def _release(self) -> None:
        self.released = True

    def show(self, view: Any) -> bool:
        """As a source does."""
        with self.frame:
            return view.update(self.frame)


class Canvased(RenderedPicture):
    """A picture of `Reader`."""

    def __init__(self, source: PixelSource, pixels: Pixels) -> None:
        self._source = source
        self._pixels = pixels

    def source(self) -> PixelSource:
        return self._source

    def pixels(self) -> Pixels:
        return self._pixels


class Reader(GlRenderer):
    """Stands in for a renderer that reads scenes on a GPU with the next picture, and
    whose pictures last as long as a canvas's do: until the next but one is shown.
    """

    name = "gsplat"
    reads_gpu = True
    has_fallback = True

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.waiting: GaussianScene | None = None
        self.loads = 0
        self.drawings = 0
        self._canvas = HostBridge(ctx)

    @property
    def pending(self) -> bool:
        return self.waiting is not None

    reading = pending

    def load(self, scene: GaussianScene, ready: Any = None) -> None:
        self.waiting = scene

    def read(self) -> None:
        if self.waiting is not None:
            scene = self.waiting
            self.waiting = None
            self.loads = self.loads + 1
            super().load(scene.to_host(), None)

    def render(self, camera: Camera, options: RenderOptions) -> Any:
        self.read()
        pixels = super().render(camera, options).pixels()
        self.drawings += 1
        source = self._canvas.put(np.dstack([pixels.color, pixels.alpha]), "HWC")
        return Canvased(source, pixels)

    def close(self) -> None:
        self._canvas.close()
        super().close()


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch, sharp: None) -> None:
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    # However slow the machine is, a trainer lives.
    for name in ("_MAX_REPLACEMENT_S", "_MAX_ARRIVAL_S"):
        monkeypatch.setattr(f"splatview_viewer.kinds.gaussians.cache.{name}", 1e6)


# -- images --------------------------------------------------------------------


def picture(value: int) -> Shared:
    return Shared(
        "image",
        {"image": torch.full((H, W, 3), value, dtype=torch.uint8)},
        layout="HWC",
    )


class InPlace(HostBridge):
    """Stands in for the bridge that copies nothing."""

    name = "direct"  # type: ignore[misc]
    reasons: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def in_place(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("splatview_viewer.kinds.image.content.AutoBridge", InPlace)
    v = image_view(screen)
    yield v
    v.close()


def test_an_image_in_place_is_held_for_all_until_the_next_is_drawn(
    in_place: Any, screen: OffscreenScreen
) -> None:
    a = in_place
    b = in_place.another_view()
    first = picture(50)
    second = picture(90)
    torn = picture(20)
    first.show(a)
    torn.whole = False
    assert not torn.show(a)
    assert torn.released
    assert (view_pixels(a, screen) == 50).all()
    assert a.info.path == ["drawn in place"]
    assert not a.tick(clock())
    assert not first.released
    second.show(b)
    assert not first.released
    assert (view_pixels(b, screen) == 90).all()
    a.tick(clock())
    assert first.released
    assert not second.released
    assert (view_pixels(a, screen) == 90).all()
    a.close()
    assert not second.released
    view_pixels(b, screen)
    second.whole = False  # overwritten while it is drawn
    b.tick(clock())
    assert b.wants.stale
    third = picture(70)
    assert third.show(b)
    assert not b.wants.stale
    b.close()
    assert second.released
    assert third.released


def test_the_first_version_in_a_place_decides_and_the_next_is_drawn_again_when_it_arrives(
    in_place: Any,
) -> None:
    """Of a trainer that is always ahead of its GPU, none of the newest versions has
    arrived when it is read.
    """
    memory = Memory(torch.full((H, W, 3), 50, dtype=torch.uint8))
    first, other, second = (
        Shared("image", {"image": memory}, arrived=False, layout="HWC")
        for _ in range(3)
    )
    assert not first.show(in_place)
    assert not other.show(in_place)
    first.arrived = True
    assert second.show(in_place)
    assert not in_place.tick(0.0)
    second.arrived = True
    assert in_place.tick(0.0)
    assert not in_place.tick(60.0)


# -- Gaussians -----------------------------------------------------------------


def scene(seed: int = 0) -> Shared:
    return Shared(
        "gaussians",
        cloud(seed=seed),
        color="sh",
        activated=False,
        sh_degree=0,
        antialiased=False,
    )


@pytest.fixture
def reader(screen: OffscreenScreen) -> Reader:
    return Reader(screen.ctx)


@pytest.fixture
def two(screen: OffscreenScreen, reader: Reader) -> Iterator[list[Any]]:
    """Two views in different looks that show a scene in place."""
    first = scene_view(screen, reader)
    views = [first, first.another_view()]
    scene().show(first)
    for view, look in zip(views, (VIEW_USERS[0], VIEW_USERS[2]), strict=True):
        look.take(view, screen)
        view_pixels(view, screen)
    yield views
    for view in views:
        view.close()


def test_a_scene_in_place_is_read_with_the_first_picture_of_any_and_held_until_then(
    two: list[Any], reader: Reader, screen: OffscreenScreen
) -> None:
    assert all(
        view.info.path == ["parameters read in place", "gsplat renderer"]
        for view in two
    )
    for k in range(4):
        loads = reader.loads
        drawings = reader.drawings
        shared = scene(seed=k + 1)
        assert shared.show(two[k % 2])
        assert not shared.released
        assert not two[k % 2].wants.busy
        before = [view.view.picture.key for view in two]
        for view in two:
            view_pixels(view, screen)
            assert shared.released
        assert all(
            view.view.picture.key != b for view, b in zip(two, before, strict=True)
        )
        assert reader.loads - loads == 1
        assert reader.drawings - drawings == 2
        view_pixels(two[0], screen)
        assert reader.drawings - drawings == 2  # the same picture again
    last = scene(seed=9)
    last.show(two[0])
    two[0].close()
    assert not last.released
    two[1].close()
    assert last.released


def test_what_was_overwritten_while_it_was_read_is_never_seen(
    two: list[Any], screen: OffscreenScreen
) -> None:
    """However many such scenes follow each other: the renderer draws into the memory of
    earlier pictures again.
    """
    before = [view_pixels(view, screen) for view in two]
    for k in range(5):
        torn = scene(seed=k + 5)
        assert torn.show(two[k % 2])
        torn.whole = False
        for i in (k // 2 % 2, (k // 2 + 1) % 2):
            two[i].handle(Wheel(20, 20, 1), RECT)  # has it want another picture, too
            np.testing.assert_array_equal(view_pixels(two[i], screen), before[i])
        assert torn.released
        assert all(view.wants.stale for view in two)
    assert scene(seed=9).show(two[0])
    assert not any(view.wants.stale for view in two)
    for view, pixels in zip(two, before, strict=True):
        assert (view_pixels(view, screen) != pixels).any()
