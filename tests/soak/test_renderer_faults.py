"""A driver that refuses a shader, and an OpenGL or CUDA that is lost: the viewer says so in words, draws by other means
or starts itself anew, and the trainer never notices."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.meters import footprint, settled
from support.reading import newest
from support.renderer_cases import MAKERS, Chance, draw, looking_at_origin, random_scene
from support.wait import PATIENCE, wait_until
from support.web_clients import Page, address

from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gl import passes

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl
    from support.programs import Program, Programs

VIEW = looking_at_origin(80, 60)
TRAIN = """
import sys, time, torch, splatview
g = torch.Generator().manual_seed(0)
scene = dict(means=torch.randn(300, 3, generator=g) * 0.3, quats=torch.randn(300, 4, generator=g),
             scales=torch.full((300, 3), -3.0), opacities=torch.zeros(300), sh0=torch.rand(300, 3, generator=g))
print("ready", flush=True)
while True:
    splatview.publish(scene)
    time.sleep(0.005)
"""
"""Publishes and says nothing, unless something goes wrong."""
SERVE = """
import os, sys
from splatview_viewer.core import errors
from splatview_viewer.__main__ import main
from splatview_viewer.gpu import work as health
from splatview_viewer.app import restart

restart.WITHIN, restart.MOST = 1e9, int(sys.argv[1])
look = health.cuda_is_lost

def told():
    try:
        os.unlink("lost")
    except FileNotFoundError:
        return look()
    return "a fault on the GPU has ended CUDA for this process"

health.cuda_is_lost = told  # what a driver says after a fault
sys.exit(main(sys.argv[2:]))
"""
"""The viewer, which takes its GPU to be lost as soon as there is a file of this name."""


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


@pytest.fixture
def trainer(programs: Programs) -> Program:
    program = programs.code(TRAIN)
    assert program.line() == "ready"
    with Subscriber() as subscriber:  # from now on it has what it needs for viewers
        newest(subscriber, "gaussians")
    return program


def test_a_lost_gpu_is_left_behind_and_pages_come_back(programs: Programs, trainer: Program,
                                                       tmp_path: Path) -> None:
    most, base = 2, footprint(trainer.pid)
    viewer = programs.python("-c", SERVE, str(most), "serve", "--host", "127.0.0.1", "--port", "0",
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
    assert text.count("; the viewer starts anew") == most and text.count("stays down now. Training goes on") == 1, text
    assert "Traceback" not in text and max(lives) <= lives[0] + 40
    assert trainer.poll() is None
    settled(base, wait_until, trainer.pid, descriptors=2, threads=2)
    trainer.kill()
    assert trainer.stderr.read() == "", "it was told nothing, and has nothing to tell"
