"""What the CUDA renderer does between its kernels, with those run on the CPU (`on_cpu.py`) and gsplat's by its rules.

CUDA's streams and events are left out: here everything is done when a call returns.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu
from support.renderer_cases import CLASSIC, Chance, looking_at_origin, psnr, random_scene
from test_frame_graph_cpu import KERNELS, GsplatRules

from splatview.viewer_app.errors import RendererError
from splatview.viewer_app.renderers import frame_graph, gpu_stream, gsplat, gsplat_frame, gsplat_scene
from splatview.viewer_app.renderers.base import FAINT, RenderOptions
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.renderers.kernels.capacity import Capacity
from splatview.viewer_app.renderers.reference import ReferenceRenderer
from splatview.viewer_app.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

    from splatview.viewer_app.cameras import Camera
    from splatview.viewer_app.renderers.base import Pixels

VIEW = looking_at_origin(70, 45)
SHOWN = RenderOptions(depth=False)
CPU = torch.device("cpu")


class Stream:
    cuda_stream, priority, device_index = 0, 0, 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record_event(self) -> Event:
        return Event()

    def wait_event(self, _: Event) -> None: ...

    def synchronize(self) -> None: ...


class Event:
    def __init__(self, **_: Any) -> None: ...

    def record(self, stream: Stream) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Event) -> float:
        return 1.5


class OnStream:
    """`gpu_stream.OnStream`: without gradients is all that is left of it."""

    def __init__(self, stream: Stream) -> None:
        self.before: list[bool] = []

    def __enter__(self) -> None:
        self.before.append(torch.is_grad_enabled())
        torch.set_grad_enabled(False)

    def __exit__(self, *_: object) -> None:
        torch.set_grad_enabled(self.before.pop())


class Canvas:
    """`splatview.ipc.interop.canvas.Canvas` of one tensor."""

    name = "host"

    def __init__(self) -> None:
        self.begun = 0
        self.drawn = torch.empty(0)

    def begin(self, height: int, width: int, channels: int = 4, dtype: str = "float16") -> torch.Tensor:
        self.begun += 1
        self.drawn = torch.full((height, width, channels), 7, dtype=getattr(torch, dtype))
        return self.drawn

    def show(self, *, finished: bool = False) -> torch.Tensor:
        return self.drawn

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def compiled() -> dict[str, OnCpu]:
    return {"activate.cu": OnCpu("activate.cu", {"activate": True}),
            "frame.cu": OnCpu("frame.cu", KERNELS, {"KEY": "short"})}


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, compiled: dict[str, OnCpu]) -> None:
    def pageable(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args, pin_memory=False, **settings: make(*args, **settings)

    for name in ("zeros", "full", "empty"):
        monkeypatch.setattr(torch, name, pageable(getattr(torch, name)))
    for name, value in {"device": nullcontext, "stream": nullcontext, "Stream": Stream, "Event": Event,
                        "current_stream": Stream, "empty_cache": lambda: None,
                        "current_device": lambda: None}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(gpu_stream, "OnStream", OnStream)
    monkeypatch.setattr(frame_graph, "raw_stream", lambda index: 0)
    for module in (frame_graph, gsplat_scene):
        monkeypatch.setattr(module, "kernels", lambda file, *_, **__: compiled[file])
    monkeypatch.setattr(frame_graph, "_gsplat_kernels", GsplatRules)
    monkeypatch.setattr(frame_graph, "CAPTURE_AFTER", 1 << 30)
    monkeypatch.setattr(gsplat, "kernels", lambda: SimpleNamespace(wait=lambda: True))


@pytest.fixture(name="renderer")
def renderer_fixture(no_gpu: None) -> Iterator[GsplatRenderer]:
    made = GsplatRenderer(device=CPU)
    made._ctx, made._canvas_held = cast("moderngl.Context", object()), Canvas()
    yield made
    made.close()


def on_gpu(s: GaussianScene) -> GaussianScene:
    return replace(s, **{name: torch.from_numpy(np.array(getattr(s, name))) for name in FIELDS})


def reference(s: GaussianScene, view: Camera = VIEW) -> Pixels:
    made = ReferenceRenderer()
    made.load(s)
    return made.render(view, CLASSIC).pixels()


def shown(renderer: GsplatRenderer, view: Camera = VIEW, options: RenderOptions = SHOWN) -> np.ndarray:
    values = cast("torch.Tensor", renderer.render(view, options).source())
    assert values.dtype == torch.float16
    return values.float().numpy()


@pytest.mark.parametrize("place", [lambda s: s, on_gpu], ids=["host", "gpu"])
@pytest.mark.parametrize("options", [CLASSIC, SHOWN], ids=["depth", "shown"])
def test_pictures(renderer: GsplatRenderer, place: Callable[[GaussianScene], GaussianScene],
                  options: RenderOptions) -> None:
    s = random_scene(1, Chance(n=200))
    expected = reference(s)
    renderer.load(place(s))
    assert psnr(shown(renderer, options=options)[..., :3], expected.color) > 60
    picture = renderer.render(VIEW, options)
    p = picture.pixels()
    assert min(psnr(p.color, expected.color), psnr(p.alpha, expected.alpha)) > 80 and p.color.dtype == np.float32
    assert (p.depth is not None) is options.depth
    with picture.on_gpu() as (rgba, depth):
        assert rgba.dtype == torch.float32 and (depth is not None) is options.depth
    assert renderer.note == "" and not renderer.reading and not renderer.tick()


def test_it_is_drawn_where_it_is_shown(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer.load(random_scene(1, Chance(n=50)))
    targets: list[Any] = []
    draw = renderer._frame.render
    monkeypatch.setattr(renderer._frame, "render", lambda *args: (targets.append(args[2]), draw(*args))[1])
    picture = renderer.render(VIEW, SHOWN)
    source = picture.source()
    assert len(targets) == 1 and targets[0] is source is picture.source()
    picture.pixels()
    assert targets[1:] == [None] and picture.source() is source
    assert renderer._canvas_held.begun == 1


def test_it_is_brought_with_its_depth_behind_the_drawing(renderer: GsplatRenderer,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    renderer._depths_held = Canvas()
    s = random_scene(1, Chance(n=50))
    renderer.load(on_gpu(s))
    waits: list[str] = []
    monkeypatch.setattr(renderer._reading, "wait", lambda: waits.append("wait"))
    picture = renderer.render(VIEW, CLASSIC)
    picture.bring()
    assert picture.done and not waits
    color, depth = cast("tuple[torch.Tensor, torch.Tensor]", picture.brought())
    assert waits == ["wait"] and picture.source() is color
    p = picture.pixels()
    assert p.depth is not None
    assert psnr(color.float().numpy()[..., :3], p.color) > 60
    there = p.alpha > FAINT
    assert there.any() and depth.shape == (*p.alpha.shape, 1) and depth.dtype == torch.float32
    assert np.allclose(depth.numpy()[..., 0][there], (p.depth / np.maximum(p.alpha, 1e-6))[there], rtol=1e-5)
    assert not depth.numpy()[..., 0][~there].any()
    assert picture.brought() is None  # that is over
    monkeypatch.setattr(renderer._reading, "wait", lambda: None)
    renderer._drawn = None
    monkeypatch.setattr(Capacity, "FIRST", 64)
    renderer.load(random_scene(1, Chance(n=200)))
    frame = cast("frame_graph.FrameGraph", renderer._frame)
    frame._capacity.slots = 64
    again = renderer.render(VIEW, CLASSIC)
    again.bring()
    assert again.brought() is None and frame.slots > 64  # it had too little room
    elsewhere = renderer.render(replace(VIEW, near=0.03), CLASSIC)
    elsewhere.bring()
    renderer._canvas_held = Canvas()
    assert elsewhere.brought() is None
    with pytest.raises(RendererError, match="without depth"):
        renderer.render(VIEW, SHOWN).bring()


def test_a_picture_with_too_little_room_is_drawn_again_in_its_place(
        renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    s = random_scene(1, Chance(n=200))
    renderer.load(s)
    whole = shown(renderer)
    monkeypatch.setattr(Capacity, "FIRST", 64)
    frame = cast("frame_graph.FrameGraph", renderer._frame)
    for options in (SHOWN, CLASSIC):
        frame._capacity.slots = 64
        renderer.load(s)
        assert np.array_equal(shown(renderer, options=options), whole)
        assert frame.slots > 64
    frame._capacity.slots = 64
    renderer.load(s)
    picture = renderer.render(VIEW, SHOWN)
    assert psnr(picture.pixels().color, whole[..., :3]) > 60
    assert np.array_equal(cast("torch.Tensor", picture.source()).float().numpy(), whole)


def test_the_gpu_is_given_everything_in_one_go(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a scene, drawing it and the mark to wait for: nothing before, in between or afterwards."""
    log: list[str] = []

    def told(owner: Any, name: str, word: str = "") -> None:
        before = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **more: (log.append(word or name), before(*args, **more))[1])

    told(renderer._canvas_held, "begin")
    told(renderer._gaussians, "load", "read")
    told(renderer._frame, "render", "draw")
    told(renderer._reading, "end", "mark")
    told(renderer._reading, "wait")
    monkeypatch.setattr(renderer._canvas_held, "show", lambda *, finished: log.append(f"show {finished}") or CPU)
    s = on_gpu(random_scene(1, Chance(n=50)))
    renderer.load(s, lambda stream: log.append("never"))
    renderer.load(s, lambda stream: log.append("ready"))
    assert not log and renderer.pending and renderer.reading and renderer.skipped == 0
    picture = renderer.render(VIEW, SHOWN)
    assert log == ["begin", "ready", "read", "draw", "mark"] and not renderer.pending and not renderer.reading
    picture.source()
    picture.source()
    assert log[5:] == ["wait", "show True"]
    renderer.render(replace(VIEW, near=0.02), SHOWN).source()
    assert log[7:] == ["begin", "draw", "mark", "wait", "show True"]
    renderer.load(s, lambda stream: log.append("ready"))
    renderer.read()
    renderer.read()
    assert log[12:] == ["ready", "read", "mark"] and not renderer.pending


def test_a_scene_that_could_not_be_read_can_be_had(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(renderer._gaussians, "load", full)
    s, waits = on_gpu(random_scene(1, Chance(n=50))), []
    renderer.load(s, waits.append)
    with pytest.raises(RendererError, match="no room"):
        renderer.render(VIEW, SHOWN)
    assert np.array_equal(renderer.host_scene().means, s.to_host().means) and len(waits) == 2


def test_without_opengl(no_gpu: None) -> None:
    renderer = GsplatRenderer(device=CPU)
    renderer.load(random_scene(1, Chance(n=50)))
    picture = renderer.render(VIEW, SHOWN)
    assert picture.pixels().alpha.any()
    with pytest.raises(RendererError, match="without an OpenGL context"):
        picture.source()
    renderer.close()


def test_the_scene_is_lent_as_it_lies_there(renderer: GsplatRenderer) -> None:
    assert len(renderer.scene()) == 0
    s = random_scene(1, Chance(n=50))
    renderer.load(on_gpu(s))
    lent = renderer.scene()
    assert not renderer.pending and lent.activated and lent.on_gpu and lent is renderer.scene()
    assert np.allclose(lent.to_host().means, s.means) and np.array_equal(lent.to_host().sh0, s.sh0)
    kept = np.array(lent.to_host().means)
    renderer.load(on_gpu(replace(s, means=s.means + 1000)))
    assert np.allclose(renderer.scene().to_host().means, kept + 1000, atol=1e-3)
    assert renderer._gaussians.origin.any()


def test_far_from_the_origin(renderer: GsplatRenderer) -> None:
    s = random_scene(11, Chance(n=200))
    s = replace(s, means=np.round(s.means * 8) / 8)
    offset = np.array([3e5, -2e5, 1e5])
    view = replace(VIEW, viewmat=VIEW.viewmat.copy())
    view.viewmat[:3, 3] -= view.viewmat[:3, :3] @ offset
    far, near = replace(s, means=(s.means + offset).astype(np.float32)), shown_after(renderer, s)
    for place in (on_gpu, on_gpu, lambda scene: scene):
        assert psnr(shown_after(renderer, place(far), view), near) > 60
        assert renderer._gaussians.origin.all() and not renderer.tick()
    assert np.abs(renderer.host_scene().means - far.means).max() < 0.1
    assert psnr(shown_after(renderer, on_gpu(s)), near) > 60 and not renderer._gaussians.origin.any()


def shown_after(renderer: GsplatRenderer, s: GaussianScene, view: Camera = VIEW) -> np.ndarray:
    renderer.load(s)
    return shown(renderer, view)


def test_bad_numbers_and_none_at_all(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(1, Chance(n=100)))
    s.means[3:7] = float("nan")
    assert shown_after(renderer, s).any() and renderer.skipped == 4
    assert not shown_after(renderer, replace(s, **{name: getattr(s, name)[:0] for name in FIELDS})).any()
    assert renderer.skipped == 0


def test_loads_and_pictures_are_timed_each(renderer: GsplatRenderer) -> None:
    assert renderer.gpu_ms is None and renderer.load_gpu_ms is None
    renderer.load(random_scene(1, Chance(n=20)))
    assert renderer.gpu_ms is None and renderer.load_gpu_ms == 1.5
    renderer.render(VIEW, SHOWN)
    assert renderer.gpu_ms == 1.5 and {"gpu", "gpu load"} <= set(renderer.timings)


def test_why_it_is_slower_is_said(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer._frame.failure = "no CUDA graph: for a reason"
    assert renderer.note == "no CUDA graph: for a reason"

    def broken(*_: Any, **__: Any) -> None:
        raise RendererError("NVRTC is missing")

    monkeypatch.setattr(gsplat_scene, "kernels", broken)
    gaussians = gsplat_scene.DeviceGaussians(CPU)
    assert gaussians.note == "activation with torch: NVRTC is missing"
    s = random_scene(1, Chance(n=100))
    renderer.load(s)
    gaussians.load(on_gpu(s))
    assert torch.allclose(gaussians.colors, renderer._gaussians.colors) and len(gaussians) == 100
    assert torch.allclose(gaussians.scales, renderer._gaussians.scales)


def test_gsplat_by_itself_where_frames_cannot_be_made(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RendererError("of another version")

    monkeypatch.setattr(frame_graph, "_gsplat_kernels", broken)
    frame, note = gsplat_frame.make_frame(CPU)
    assert isinstance(frame, gsplat_frame.PlainFrame) and note == "plain gsplat: of another version"
    assert frame.failure == ""
