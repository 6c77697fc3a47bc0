"""What the CUDA renderer keeps from one version of a scene to the next shows in no picture. See `test_gsplat_cpu`."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from on_cpu import OnCpu
from renderer_cases import Chance, psnr, random_scene
from test_gsplat_cpu import (  # noqa: F401  (fixtures)
    CPU,
    SHOWN,
    VIEW,
    Canvas,
    compiled,
    no_gpu,
    on_gpu,
    renderer_fixture,
    shown,
    shown_after,
)

from splatview.viewer_app.errors import RendererError
from splatview.viewer_app.renderers.activation import medians
from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.renderers.gsplat_scene import FAR, _middle
from splatview.viewer_app.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    import moderngl

    from splatview.viewer_app.cameras import Camera


def fresh(s: GaussianScene, view: Camera = VIEW, options: RenderOptions = SHOWN) -> np.ndarray:
    """By a renderer that knows nothing."""
    made = GsplatRenderer(device=CPU)
    made._ctx, made._canvas_held = cast("moderngl.Context", object()), Canvas()
    made.load(replace(s, **{name: getattr(s, name).clone() for name in FIELDS}))
    values = shown(made, view, options)
    made.close()
    return values


def assert_fresh(renderer: GsplatRenderer, s: GaussianScene, view: Camera = VIEW,
                 options: RenderOptions = SHOWN) -> np.ndarray:
    renderer.load(s)
    values = shown(renderer, view, options)
    assert np.array_equal(values, fresh(s, view, options)) and values.any()
    return values


def test_versions_in_place_are_told_to_nobody_again(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    s = on_gpu(random_scene(1, Chance(n=200)))
    pictures = [assert_fresh(renderer, s)]
    inverted, told, prepared = [], [], []
    inv, load, prepare = np.linalg.inv, renderer._frame.load, OnCpu.prepare
    monkeypatch.setattr(np.linalg, "inv", lambda m: (inverted.append(m), inv(m))[1])
    monkeypatch.setattr(renderer._frame, "load", lambda *args: (told.append(args), load(*args))[1])
    monkeypatch.setattr(OnCpu, "prepare", lambda self, name, *args: (prepared.append(name),
                                                                     prepare(self, name, *args))[1])
    active = renderer._gaussians.active
    for version in range(3):
        s.means.add_(0.05)  # type: ignore[union-attr]
        s.shN.mul_(-0.5)  # type: ignore[union-attr]
        renderer.load(replace(s, version=version))
        pictures.append(shown(renderer))
    assert renderer._gaussians.active is active and not inverted and not told
    assert not {"activate", "set_frame"} & set(prepared)
    assert np.array_equal(pictures[-1], fresh(s)) and len({p.tobytes() for p in pictures}) == 4


def test_sizes_degrees_and_generations_that_come_and_go(renderer: GsplatRenderer) -> None:
    """Buffers grow and shrink; tensors of one generation lie in memory of another; the same ones come back."""
    memory = {name: torch.empty(400 * 15 * 3) for name in FIELDS}

    def there(s: GaussianScene) -> GaussianScene:
        """In the one memory, in tensors of its own."""
        tensors = {}
        for name in FIELDS:
            values = torch.from_numpy(np.array(getattr(s, name)))
            tensors[name] = memory[name][:values.numel()].view(values.shape).copy_(values)
        return replace(s, **tensors)

    first, large, low = (random_scene(seed, Chance(n=n, sh_degree=degree))
                         for seed, n, degree in ((1, 100, 3), (2, 390, 3), (3, 100, 1)))
    stays = on_gpu(first)
    for s in (first, large, first, low, large, first):
        assert_fresh(renderer, there(s))
        assert_fresh(renderer, stays)
    raised = [assert_fresh(renderer, replace(stays, sh_degree=degree)) for degree in (0, 1, 2, 3, 1)]
    assert np.array_equal(raised[1], raised[4]) and len({p.tobytes() for p in raised}) == 4
    assert_fresh(renderer, replace(stays, activated=True))
    assert_fresh(renderer, stays)
    none = replace(stays, **{name: getattr(stays, name)[:0] for name in FIELDS})
    assert not shown_after(renderer, none).any()
    assert_fresh(renderer, stays)


def test_room_that_could_not_be_had_is_asked_for_again(renderer: GsplatRenderer,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (on_gpu(random_scene(n, Chance(n=n))) for n in (50, 300))
    assert_fresh(renderer, small)
    room, asked = renderer._gaussians._room, []

    def full(name: str, size: int) -> torch.Tensor:
        asked.append(name)
        if name == "opacities":
            raise RuntimeError("no room")
        return room(name, size)

    with monkeypatch.context() as patch:
        patch.setattr(renderer._gaussians, "_room", full)
        renderer.load(large)
        for _ in range(2):
            with pytest.raises(RendererError, match="no room"):
                renderer.render(VIEW, SHOWN)
        renderer.load(small)
        with pytest.raises(RendererError, match="no room"):
            renderer.render(VIEW, SHOWN)
        renderer.load(large)
    assert asked.count("means") == 3, "a scene that was there before has to find its place again"
    assert np.array_equal(shown(renderer), fresh(large))
    assert_fresh(renderer, small)


def test_on_another_gpu_everything_is_told_again(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(1, Chance(n=200)))
    before = assert_fresh(renderer, s)
    gaussians, frame, canvas = renderer._gaussians, renderer._frame, renderer._canvas_held
    renderer._device = torch.device("cpu", 7)  # as if it had been there
    renderer.load(s)
    renderer._canvas_held = canvas
    assert np.array_equal(shown(renderer), before)
    assert renderer._gaussians is not gaussians and renderer._frame is not frame


def test_a_camera_that_is_moved_in_place(renderer: GsplatRenderer) -> None:
    s = on_gpu(random_scene(1, Chance(n=200)))
    view = replace(VIEW, viewmat=VIEW.viewmat.copy(), K=VIEW.K.copy())
    first = assert_fresh(renderer, s, view)
    picture = renderer.render(view, SHOWN)
    view.viewmat[2, 3] += 1.5
    exact = picture.pixels().color  # drawn only now, but from where it was
    assert psnr(exact, first[..., :3]) > 60
    assert np.array_equal(renderer.render(VIEW, SHOWN).pixels().color, exact)
    far = shown(renderer, view)
    assert np.array_equal(far, fresh(s, view)) and not np.array_equal(far, first)
    view.K[0, 0] *= 1.5
    assert np.array_equal(shown(renderer, view), fresh(s, view))
    for other in (replace(view, width=60), replace(view, near=6.5), RenderOptions("antialiased", depth=False),
                  RenderOptions(sh_degree=0, depth=False), RenderOptions()):
        v, o = (view, other) if isinstance(other, RenderOptions) else (other, SHOWN)
        assert np.array_equal(shown(renderer, v, o), fresh(s, v, o))
    assert np.array_equal(shown(renderer), first)


def test_a_scene_in_place_that_goes_far_away_and_comes_back(renderer: GsplatRenderer) -> None:
    s = random_scene(11, Chance(n=200))
    s = on_gpu(replace(s, means=np.round(s.means * 8) / 8))
    near, offset = assert_fresh(renderer, s), np.array([3e5, -2e5, 1e5])
    view = replace(VIEW, viewmat=VIEW.viewmat.copy())
    view.viewmat[:3, 3] -= view.viewmat[:3, :3] @ offset
    for sign, v in ((1, view), (-1, VIEW), (1, view)):
        s.means.add_(torch.from_numpy(sign * offset))  # type: ignore[union-attr]
        renderer.load(s)
        assert psnr(shown(renderer, v), near) > 60 and renderer._gaussians.origin.any() == (sign > 0)
        assert not renderer.tick()
        for _ in range(2):
            assert psnr(shown_after(renderer, s, v), near) > 60 and not renderer.tick()


def test_a_scene_that_was_drawn_is_not_kept(renderer: GsplatRenderer) -> None:
    """A trainer's memory is to be given back in time, whoever read it."""
    s = on_gpu(random_scene(1, Chance(n=50)))
    left = [weakref.ref(getattr(s, name)) for name in FIELDS]
    for _ in range(2):
        renderer.load(s)
        shown(renderer)
    assert not renderer.reading
    del s
    assert not any(one() is not None for one in left)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 1000, 1023])
def test_the_middle_of_a_scene(n: int) -> None:
    rng = np.random.default_rng(n)
    points = rng.standard_normal((n, 3)).astype(np.float32)
    assert np.array_equal(medians(points.T), np.median(points, axis=0)) and not _middle(points).any()
    far = points + np.array([0, 20 * FAR, -5], np.float32)
    assert np.array_equal(_middle(far), np.median(far.astype(np.float64), axis=0).astype(np.float32)) or n == 1
    bad = np.repeat(far, 3, axis=0)
    bad[1::3, 1], bad[2::3, 0] = np.nan, -np.inf
    assert np.array_equal(_middle(bad), _middle(far))
    assert not _middle(bad[1::3]).any() and not _middle(far[:1]).any()
