"""A driver that refuses a shader, and an OpenGL or CUDA that is lost: the viewer says so in words, draws by other means
or starts itself anew, and the trainer never notices."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.meters import footprint, settled
from support.reading import next_frame, stream_of
from support.renderer_cases import MAKERS, Chance, draw, looking_at_origin, random_scene
from support.wait import PATIENCE, wait_until
from support.web_clients import Page, address

from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gl import passes

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl
    from support.programs import Programs

VIEW = looking_at_origin(80, 60)
TRAIN = """
import sys, time, torch, splatview
g = torch.Generator().manual_seed(0)
scene = dict(means=torch.randn(300, 3, generator=g) * 0.3, quats=torch.randn(300, 4, generator=g),
             scales=torch.full((300, 3), -3.0), opacities=torch.zeros(300), sh0=torch.rand(300, 3, generator=g))
scene = {name: t.to(sys.argv[1]) for name, t in scene.items()}
print("ready", flush=True)
while True:
    splatview.publish(scene)
    time.sleep(0.005)
"""
"""Publishes from a device and says nothing, unless something goes wrong."""
SERVE = """
import os, sys, threading, time
from splatview_viewer.__main__ import main
from splatview_viewer.gpu import work as health
from splatview_viewer.app import restart

def lost():
    try:
        os.unlink("lost")
    except FileNotFoundError:
        return False
    return True

look = health.cuda_is_lost

def told():  # what a driver says after a fault
    return "a fault on the GPU has ended CUDA for this process" if lost() else look()

def fault():
    while not lost():
        time.sleep(0.02)
    import torch
    try:  # a device-side assertion: CUDA is over for this process
        torch.zeros(4, device="cuda")[torch.tensor([10**6], device="cuda")]
        torch.cuda.synchronize()
    except RuntimeError:
        pass

restart.WITHIN, restart.MOST = 1e9, int(sys.argv.pop(1))
if sys.argv.pop(1) == "cuda":
    threading.Thread(target=fault, daemon=True).start()
else:
    health.cuda_is_lost = told
sys.exit(main(sys.argv[1:]))
"""
"""The viewer, which loses its GPU, or takes it to be lost, as soon as there is a file of this name."""


# -- shaders that a driver refuses -----------------------------------------------------------------------------------


@pytest.fixture
def shaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shaders, to be damaged."""
    copy = tmp_path / "shaders"
    shutil.copytree(passes.SHADERS, copy)
    monkeypatch.setattr(passes, "SHADERS", copy)
    return copy


def damage(shader: Path) -> None:
    whole = shader.read_text()
    assert "void main() {" in whole
    shader.write_text(whole.replace("void main() {", "void main() {\n    vec3 torn = nonsense(1.0);"))


@pytest.mark.parametrize("shader", ["project.frag", "walk.frag", "unfinished.frag"])
def test_a_shader_that_is_refused_is_named(ctx: moderngl.Context, shaders: Path, shader: str) -> None:
    damage(shaders / shader)
    with pytest.raises(RendererError, match=f"gl: this driver refuses {shader} .*nonsense.*update the graphics driver"):
        draw(MAKERS["gl-tiles"](ctx), random_scene(1, Chance(n=200)), VIEW)
    assert ctx.error == "GL_NO_ERROR"


# -- what is lost for the whole process ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_lost_gpu_is_left_behind_and_pages_come_back(programs: Programs, device: str, tmp_path: Path) -> None:
    trainer = programs.code(TRAIN, device)
    assert trainer.line() == "ready"
    with Subscriber() as subscriber:  # from now on it has what it needs for viewers
        next_frame(subscriber, stream_of(subscriber)).close()
    most, base = 2, footprint(trainer.pid)
    viewer = programs.code(SERVE, most, device, "serve", "--host", "127.0.0.1", "--port", "0",
                           XDG_STATE_HOME=str(tmp_path))
    said: list[str] = []
    where = address(viewer, said)
    lives = [footprint(viewer.pid).descriptors]
    for life in range(most + 1):
        with Page(where[0], acks=True) as page:
            page.connect(token=where[1])
            page.greet()
            page.picture()
            (programs.folder / "lost").touch()
            assert page.ended()
        if life < most:
            assert address(viewer, said) == where, "the same port and the same token"
            lives.append(footprint(viewer.pid).descriptors)
    assert viewer.wait(PATIENCE) == 2
    text = "".join(said) + viewer.stderr.read()
    assert text.count("a fault on the GPU has ended CUDA for this process; the viewer starts anew") == most, text
    assert text.count("stays down now. Training goes on") == 1, text
    assert device == "cuda" or ("Traceback" not in text and max(lives) <= lives[0] + 40)
    assert trainer.poll() is None
    settled(base, wait_until, trainer.pid, descriptors=4, threads=4, rss=64 << 20)
    trainer.kill()
    assert "rror" not in trainer.stderr.read(), "it was told nothing, and has nothing to tell"
