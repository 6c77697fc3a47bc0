"""CUDA's renderer on scenes that are odd or endless work, and what becomes of a viewer whose CUDA is full or lost."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.meters import footprint, settled
from support.odd_cases import SCENES, everywhere
from support.programs import ROOT
from support.renderer_cases import camera, draw, looking_at_origin, psnr
from support.wait import PATIENCE
from support.web_clients import Page, address

from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.render.base import COLOR_MAX
from splatview_viewer.render.gsplat.frame import Capacity
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.render.reference import ReferenceRenderer
from splatview_viewer.scene.scene import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

    from splatview_viewer.scene.scene import GaussianScene

pytestmark = pytest.mark.cuda
VIEW = looking_at_origin(80, 60)


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    made = GsplatRenderer(ctx)
    yield made
    made.close()


def on_gpu(s: GaussianScene) -> GaussianScene:
    return replace(s, **{name: getattr(s, name).cuda() for name in FIELDS})


def test_every_odd_scene_has_the_reference_s_picture(renderer: GsplatRenderer) -> None:
    for name, (make, left_out) in SCENES.items():
        odd = make()
        draw(renderer, on_gpu(odd), VIEW)  # roughly, where it lies far from the scene before
        expected, got = draw(ReferenceRenderer(), odd, VIEW), draw(renderer, on_gpu(odd), VIEW)
        assert renderer.left_out == left_out, name
        assert np.isfinite(got.color).all() and np.isfinite(got.alpha).all() and got.color.max() <= COLOR_MAX, name
        assert np.abs(got.alpha - expected.alpha).max() < 5e-3, name
        assert psnr(np.minimum(got.color, 1), np.minimum(expected.color, 1)) > 45, name


def test_more_pairs_than_may_be_are_not_drawn(renderer: GsplatRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest are."""
    most, view, many = 62 * 20, camera(80, 64), everywhere(500)
    monkeypatch.setattr(Capacity, "FIRST", 64)
    renderer._frame._capacity = Capacity(most)
    nearest = replace(many, **{n: getattr(many, n)[:62] for n in FIELDS})
    got, expected = draw(renderer, many, view), draw(ReferenceRenderer(), nearest, view)
    assert psnr(got.color, expected.color) > 45
    assert re.fullmatch(r"only the nearest are shown: all would take 8\.\d times as long", renderer.thinned)
    draw(renderer, everywhere(20), view)
    assert renderer.thinned == ""


FULL = """
import sys
sys.path[:0] = sys.argv[1:]
import torch
from support.renderer_cases import Chance, psnr, random_scene
from support.view_cases import scene_view, shown
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat.build import kernels
from splatview_viewer.screens.offscreen import OffscreenScreen

assert kernels().wait(), kernels().reason
screen = OffscreenScreen(160, 120)
view = scene_view(screen)
view.update(random_scene(1, Chance(n=3000)))
shown(view, screen)
assert "gsplat renderer" in view.info.path, view.info.extras
torch.cuda.synchronize()
torch.cuda.empty_cache()
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
big = random_scene(1, Chance(n=2_000_000, sh_degree=3))
view.update(big)
got = shown(view, screen)
assert "gl renderer" in view.info.path and "memory" in view.info.extras[-1], view.info.extras
other = scene_view(screen, GlRenderer(screen.ctx))
other.update(big)
other.like(view)
assert psnr(got / 255, shown(other, screen) / 255) > 40
print(view.info.extras[-1], flush=True)
"""


def test_full_memory_and_opengl_takes_over(programs: Any) -> None:
    program = programs.python("-c", FULL, str(ROOT / "tests"))
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    assert re.search("gl: gsplat: the memory of cuda:0 is full", out)


TRAIN = """
import time, torch, splatview
g = torch.Generator("cuda").manual_seed(0)
rand = lambda *shape: torch.rand(*shape, generator=g, device="cuda")
scene = dict(means=rand(3000, 3) - 0.5, quats=rand(3000, 4), scales=torch.full((3000, 3), -4.0, device="cuda"),
             opacities=torch.zeros(3000, device="cuda"), sh0=rand(3000, 3))
print("ready", flush=True)
while True:
    splatview.publish(scene)
    torch.cuda.synchronize()
    time.sleep(0.005)
"""
SERVE = """
import os, sys, threading, time
from splatview_viewer.__main__ import main
from splatview_viewer.app import restart

restart.WITHIN = 1e9

def fault():
    while True:
        try:
            os.unlink("fault")
        except FileNotFoundError:
            time.sleep(0.02)
            continue
        import torch
        try:  # a device-side assertion: CUDA is over for this process
            torch.zeros(4, device="cuda")[torch.tensor([10**6], device="cuda")]
            torch.cuda.synchronize()
        except RuntimeError:
            return

threading.Thread(target=fault, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""


def test_a_fault_that_ends_cuda_ends_neither_the_viewer_nor_the_training(
        programs: Any, tmp_path: Any, wait_until: Callable[..., Any]) -> None:
    trainer = programs.python("-c", TRAIN)
    assert trainer.stdout.readline() == "ready\n"
    with Subscriber() as subscriber:  # from now on it has what it needs for viewers
        seen = wait_until(lambda: subscriber.poll() and [s for s in subscriber.streams if s.run.pid == trainer.pid])[0]
        seen.open()
        wait_until(lambda: seen.version)
    base = footprint(trainer.pid)
    viewer = programs.python("-c", SERVE, "serve", "--host", "127.0.0.1", "--port", "0", XDG_STATE_HOME=str(tmp_path))
    said: list[str] = []

    where = address(viewer, said)
    for life in range(4):
        with Page(where[0], acks=True) as page:
            page.connect(token=where[1])
            page.greet()
            try:
                page.picture()
            except AssertionError as e:
                viewer.kill()
                raise AssertionError(f"life {life}: {e}; the viewer: {''.join(said)}{viewer.stderr.read()}") from None
            (programs.folder / "fault").touch()
            assert page.ended()
        if life < 3:
            assert address(viewer, said) == where
    assert viewer.wait(PATIENCE) == 2
    text = "".join(said) + viewer.stderr.read()
    assert text.count("a fault on the GPU has ended CUDA for this process; the viewer starts anew") == 3, text
    assert "stays down now. Training goes on" in text
    assert trainer.poll() is None
    settled(base, wait_until, trainer.pid, descriptors=4, threads=4, rss=64 << 20)
    trainer.kill()
    assert "rror" not in trainer.stderr.read(), "it was told nothing, and has nothing to tell"
