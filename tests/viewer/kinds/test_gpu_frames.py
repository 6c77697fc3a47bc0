"""Frames on a GPU, as far as views can be tested with them without one.

The tests check which frames are held, for how long, and what happens when one is
overwritten. The tensors' memory is a stand-in on the host; tests/cuda has the real
thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.drawn_scene import scene_frame
from support.frames import frame_of
from support.gpu_stand_ins import (
    Drafter,
    Memory,
    Reader,
    Shared,
    scene_on_gpu,
    stand_in_for_cuda,
)
from support.view_cases import (
    RECT,
    VIEW_USERS,
    H,
    W,
    change_state,
    image_view,
    scene_view,
    view_pixels,
)
from support.wait import clock

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.gl.host import HostBridge
from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.events import Wheel
from splatview_viewer.kinds import links_of, make_view
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.links import Feed


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch, sharp: None) -> None:
    stand_in_for_cuda(monkeypatch)


# -- images --------------------------------------------------------------------


def picture(value: int) -> Shared:
    return Shared(
        "image",
        {"image": torch.full((H, W, 3), value, dtype=torch.uint8)},
        layout="HWC",
    )


class InPlace(HostBridge):
    """Stand-in for the bridge that copies nothing."""

    name = "direct"  # type: ignore[misc]
    reasons: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def in_place(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("splatview_viewer.kinds.image.content.AutoBridge", InPlace)
    v = image_view(screen)
    yield v
    v.close()


def test_image_in_place_is_held_until_the_next_is_drawn(
    in_place: Any, screen: OffscreenScreen
) -> None:
    a = in_place
    b = in_place.another_view()
    first = picture(50)
    second = picture(90)
    torn = picture(20)
    first.show(a)
    torn.is_intact = False
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
    # The frame is overwritten while it is drawn.
    second.is_intact = False
    b.tick(clock())
    assert b.wants.stale
    third = picture(70)
    assert third.show(b)
    assert not b.wants.stale
    b.close()
    assert second.released
    assert third.released


def test_version_in_the_same_memory_is_drawn_again_when_it_arrives(
    in_place: Any,
) -> None:
    """Read versions of a trainer that is ahead of its GPU.

    None of its newest versions has arrived when it is read, so that the first version
    decides.
    """
    memory = Memory(torch.full((H, W, 3), 50, dtype=torch.uint8))
    first, skipped, second = (
        Shared("image", {"image": memory}, arrived=False, layout="HWC")
        for _ in range(3)
    )
    assert not first.show(in_place)
    assert not skipped.show(in_place)
    first.has_arrived = True
    assert second.show(in_place)
    assert not in_place.tick(0.0)
    second.has_arrived = True
    assert in_place.tick(0.0)
    assert not in_place.tick(60.0)


# -- Gaussians -----------------------------------------------------------------


@pytest.fixture
def reader(screen: OffscreenScreen) -> Reader:
    return Reader(screen.ctx)


@pytest.mark.parametrize("is_overwritten", [False, True])
def test_tensor_is_queued_and_finished_later(
    screen: OffscreenScreen, reader: Reader, is_overwritten: bool
) -> None:
    scene_user = scene_view(screen, reader)
    view = scene_user.view
    frame = scene_on_gpu()
    frame.show(scene_user)
    reader.lacks_next = True
    assert view.tensor(W, H) is not None
    frame.is_intact = not is_overwritten
    assert not view.finish_tensor()
    assert not frame.released, "it is drawn again"
    tensor = view.tensor(W, H)
    assert view.finish_tensor()
    assert tensor.shape == (H, W, 3)
    assert frame.released
    assert scene_user.wants.stale == is_overwritten
    scene_user.close()


@pytest.fixture
def both_views(screen: OffscreenScreen, reader: Reader) -> Iterator[list[Any]]:
    """Return two views of different settings that show a scene in place."""
    first = scene_view(screen, reader)
    views = [first, first.another_view()]
    scene_on_gpu().show(first)
    for view, user in zip(views, (VIEW_USERS[0], VIEW_USERS[2]), strict=True):
        user.take(view, screen)
        view_pixels(view, screen)
    yield views
    for view in views:
        view.close()


def test_picture_that_fails_while_it_is_awaited_is_drawn_again(
    both_views: list[Any], reader: Reader, screen: OffscreenScreen
) -> None:
    view = both_views[0]
    old_pixels = view_pixels(view, screen)
    reader.fails_next = True
    view.handle(Wheel(W / 2, H / 2, 0.0, -1.0), RECT)
    with pytest.raises(RendererError, match="memory is full"):
        view_pixels(view, screen)
    drawings = reader.drawings
    new_pixels = view_pixels(view, screen)
    assert reader.drawings == drawings + 1
    assert (new_pixels != old_pixels).any()


def test_scene_in_place_is_held_until_the_first_picture_reads_it(
    both_views: list[Any], reader: Reader, screen: OffscreenScreen
) -> None:
    assert all(
        view.info.path == ["parameters read in place", "gsplat renderer"]
        for view in both_views
    )
    for k in range(4):
        loads = reader.loads
        drawings = reader.drawings
        shared = scene_on_gpu(seed=k + 1)
        assert shared.show(both_views[k % 2])
        assert not shared.released
        assert not both_views[k % 2].wants.busy
        last_keys = [view.view.picture.key for view in both_views]
        for view in both_views:
            view_pixels(view, screen)
            assert shared.released
        assert all(
            view.view.picture.key != b
            for view, b in zip(both_views, last_keys, strict=True)
        )
        assert reader.loads - loads == 1
        assert reader.drawings - drawings == 2
        view_pixels(both_views[0], screen)
        # The same picture is drawn again without the renderer.
        assert reader.drawings - drawings == 2
    last = scene_on_gpu(seed=9)
    last.show(both_views[0])
    both_views[0].close()
    assert not last.released
    both_views[1].close()
    assert last.released


def test_scene_overwritten_while_it_is_read_is_never_shown(
    both_views: list[Any], screen: OffscreenScreen
) -> None:
    """Check many such scenes in a row.

    The renderer draws into the memory of earlier pictures again.
    """
    last_pictures = [view_pixels(view, screen) for view in both_views]
    for k in range(5):
        torn = scene_on_gpu(seed=k + 5)
        assert torn.show(both_views[k % 2])
        torn.is_intact = False
        for i in (k // 2 % 2, (k // 2 + 1) % 2):
            both_views[i].handle(
                Wheel(20, 20, 1), RECT
            )  # has it want another picture, too
            np.testing.assert_array_equal(
                view_pixels(both_views[i], screen), last_pictures[i]
            )
        assert torn.released
        assert all(view.wants.stale for view in both_views)
    assert scene_on_gpu(seed=9).show(both_views[0])
    assert not any(view.wants.stale for view in both_views)
    for view, pixels in zip(both_views, last_pictures, strict=True):
        assert (view_pixels(view, screen) != pixels).any()


# -- pictures of a function ----------------------------------------------------


@pytest.fixture
def drawn_scenes(screen: OffscreenScreen) -> Iterator[list[Any]]:
    """Return a scene whose pictures come on a GPU, and one whose come to the host."""
    screen.resize(W, H)
    views = [make_view("rendered", screen.ctx) for _ in range(2)]
    for view in views:
        view.update(scene_frame())
        change_state(view, background=(0.2, 0.5, 0.7))
        view.draw(screen.framebuffer, RECT)
    yield views
    for view in views:
        view.close()


def drawn_picture(
    view: Any, *, on_gpu: bool, shift: int = 0, now: float = 0.0
) -> Shared | StreamFrame:
    """Return the answer to a view's request: half transparent, the lower part far."""
    request = view.content.requests.next_request(0, now)
    height = request.camera.height
    rows = torch.arange(height)[:, None].expand(height, request.camera.width)
    color = torch.stack([rows % 120, rows * 2 % 120, rows * 3 % 120], dim=2)
    tensors = {
        "color": (color + shift).to(torch.uint8),
        "alpha": (rows % 100 + 130).to(torch.uint8),
        "depth": 2.0 + 0.25 * (rows // (height // 2)),
    }
    meta = {"viewer": request.viewer, "request": request.number, "ms": 1.0}
    if on_gpu:
        return Shared("picture", tensors, **meta)
    return frame_of("picture", tensors, **meta)


def test_picture_on_a_gpu_is_shown_as_one_in_host_memory(
    drawn_scenes: list[Any], screen: OffscreenScreen
) -> None:
    pictures = []
    points = []
    for on_gpu, view in zip((True, False), drawn_scenes, strict=True):
        answer = drawn_picture(view, on_gpu=on_gpu)
        frame = answer.frame if isinstance(answer, Shared) else answer
        assert view.content.requests.take(frame)
        frame.close()
        assert view.view.drawn_camera is not None
        pictures.append(view_pixels(view, screen))
        camera = view.view.picture.camera
        point = view.view.pick_later(camera, W / 2, H - 3.0)().point
        np.testing.assert_allclose(camera.to_local(point)[2], 2.25)
        points.append(point)
    assert pictures[0].std() > 10
    np.testing.assert_array_equal(*pictures)
    np.testing.assert_array_equal(*points)


def test_picture_overwritten_while_it_is_copied_is_not_shown(
    drawn_scenes: list[Any], screen: OffscreenScreen
) -> None:
    view = drawn_scenes[0]
    requests = view.content.requests
    first = drawn_picture(view, on_gpu=True)
    assert isinstance(first, Shared)
    assert requests.take(first.frame)
    shown_pixels = view_pixels(view, screen)
    view.update(scene_frame(1))
    for now, is_intact in ((10.0, False), (20.0, True)):
        view.tick(now)
        shared = drawn_picture(view, on_gpu=True, shift=100, now=now)
        assert isinstance(shared, Shared)
        shared.is_intact = is_intact
        assert requests.take(shared.frame) == is_intact
        view.tick(now)
        assert (view_pixels(view, screen) == shown_pixels).all() != is_intact


def test_picture_that_turns_out_to_be_torn_is_asked_for_again(
    drawn_scenes: list[Any], screen: OffscreenScreen
) -> None:
    view = drawn_scenes[0]
    requests = view.content.requests
    for now, is_intact in ((1.0, False), (1.1, True)):
        # None is due unless the last picture was torn.
        shared = drawn_picture(view, on_gpu=True, now=now)
        assert isinstance(shared, Shared)
        assert requests.take(shared.frame)
        shared.is_intact = is_intact
        screen.ctx.finish()
    assert requests.next_request(0, 9.0) is None
    assert view_pixels(view, screen).std() > 10


class NoBridge:
    """Stand-in for OpenGL that reads no memory of others."""

    def __init__(self, ctx: Any) -> None:
        pass

    def put(self, tensor: Any, layout: str) -> Any:
        raise SharingError("OpenGL has no GL_EXT_memory_object")

    def close(self) -> None:
        pass


def test_picture_in_memory_that_opengl_cannot_read_comes_in_another_way(
    drawn_scenes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatview_viewer.kinds.rendered.textures.AutoBridge", NoBridge)
    view = drawn_scenes[0]
    shared = drawn_picture(view, on_gpu=True)
    assert isinstance(shared, Shared)
    reasons: list[str] = []
    frames = [shared.frame]
    run = SimpleNamespace(alive=True)

    def read_next(last_version: int) -> StreamFrame | None:
        return frames[0] if last_version < frames[0].version else None

    stream: Any = SimpleNamespace(
        read_next=read_next,
        refuse=reasons.append,
        version=1,
        run=run,
        info=SimpleNamespace(over_run="ab"),
    )
    (link,) = (link for link in links_of("rendered") if link.kind == "picture")
    feed = Feed(link, view, stream)
    feed.content = view.content
    assert not feed.take(0.0)
    assert reasons == ["OpenGL has no GL_EXT_memory_object"]
    color = torch.full((H, W, 3), 90, dtype=torch.uint8)
    frames[0] = frame_of("picture", {"color": color}, **shared.frame.meta)
    assert feed.take(0.0)
    assert (view.view.picture.pixels.color == 90).all()


# -- drafts --------------------------------------------------------------------


@pytest.fixture
def drafting(screen: OffscreenScreen) -> Iterator[Any]:
    view = scene_view(screen, Drafter(screen.ctx))
    yield view
    view.close()


def is_draft(view: Any) -> bool:
    return view.view.picture.key.options.is_draft


def test_pictures_are_drafts_until_the_camera_has_rested(
    drafting: Any, screen: OffscreenScreen
) -> None:
    drafting.tick(10.0)
    scene_on_gpu().show(drafting)
    view_pixels(drafting, screen)
    assert not is_draft(drafting), "nothing moves yet"
    drafting.handle(Wheel(20, 20, 1.0), RECT)
    drafting.tick(11.0)
    view_pixels(drafting, screen)
    assert is_draft(drafting)
    assert not drafting.tick(11.4)
    assert drafting.tick(11.6), "it is drawn again, to stay"
    view_pixels(drafting, screen)
    assert not is_draft(drafting)
    assert not drafting.tick(20.0)


def test_a_stream_of_versions_is_drawn_in_drafts_until_it_ends(
    drafting: Any, screen: OffscreenScreen
) -> None:
    """Read the last version again, with all detail, before it is drawn to stay."""
    for i in range(3):
        drafting.tick(10 + 0.1 * i)
        scene_on_gpu(i).show(drafting)
        view_pixels(drafting, screen)
    assert is_draft(drafting)
    assert drafting.view.data.renderer.is_coarse
    draft_pixels = view_pixels(drafting, screen)
    assert not drafting.wants.stale
    assert drafting.tick(11.0)
    assert (view_pixels(drafting, screen) == draft_pixels).all()
    assert drafting.wants.stale
    scene_on_gpu(2).show(drafting)
    view_pixels(drafting, screen)
    assert not is_draft(drafting)
    assert not drafting.view.data.renderer.is_coarse
    assert not drafting.wants.stale


def test_pictures_to_keep_are_no_drafts(drafting: Any, screen: OffscreenScreen) -> None:
    for i in range(3):
        drafting.tick(10 + 0.1 * i)
        scene_on_gpu(i).show(drafting)
        view_pixels(drafting, screen)
    copy = drafting.view.bare_copy()
    copy.draw(screen.framebuffer, RECT)
    assert not copy.picture.key.options.is_draft
    copy.release("closed")
