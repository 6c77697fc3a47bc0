"""The viewer beside a training that says its cameras: they are seen over its scene, and nobody else pays for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.repetitions import exhaustive
from support.viewer import Viewer

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.cameras import project
from splatview.viewer_app.events import Key, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.views.cameras import CamerasView
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

    from splatview.viewer_app.views._gaussians.frustums import Frustums

TRAINER = """
import math, sys, time, torch, splatview
g = torch.Generator().manual_seed(0)
means = torch.randn(400, 3, generator=g)
means = means / means.norm(dim=1, keepdim=True)
splats = {"means": means, "quats": torch.randn(400, 4, generator=g), "scales": torch.full((400, 3), -2.3),
          "opacities": torch.full((400,), 2.0), "sh0": torch.rand(400, 1, 3, generator=g),
          "shN": torch.zeros(400, 0, 3)}
N, W, H = 6, 48, 32
views = torch.eye(4).repeat(N, 1, 1)
for i in range(N):
    a = 2 * math.pi * i / N
    views[i, :3, :3] = torch.tensor([[math.cos(a), 0, -math.sin(a)], [0, 1, 0], [math.sin(a), 0, math.cos(a)]])
    views[i, 2, 3] = 4.0
K = torch.tensor([[40.0, 0, W / 2], [0, 40, H / 2], [0, 0, 1]])
photos = torch.zeros(N, H, W, 3, dtype=torch.uint8)
for i in range(N):
    photos[i] = torch.tensor([200, 30 + 30 * i, 40], dtype=torch.uint8)
images = photos if sys.argv[1] == "memory" else None
if sys.argv[1] == "files":
    from PIL import Image
    images = []
    for i in range(N):
        images.append(f"photo{i}.png")
        Image.fromarray(photos[i].numpy()).save(images[-1])
splatview.publish(splats, "splats")
splatview.publish_cameras(views, K, W, H, images, current=2)
print("published", flush=True)
for line in sys.stdin:
    number = int(line)
    splatview.publish_cameras(current=number)
    splatview.publish(splats, "splats")
    print("done", flush=True)
"""


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(680, 420), AppOptions(max_fps=500))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


def tool(viewer: Viewer) -> Frustums | None:
    view = viewer.seat.view
    return view.tools["frustums"] if isinstance(view, GaussianView) else None  # type: ignore[return-value]


def content(viewer: Viewer) -> Any:
    frustums = tool(viewer)
    return None if frustums is None else frustums.content


def opened(viewer: Viewer) -> list[str]:
    return sorted(s.name for s in viewer.catalogue.subscriber.streams if s._opened)


@pytest.mark.parametrize("where", ["memory", exhaustive("files")])
def test_cameras_come_over_the_scene_and_one_looks_through_them(viewer: Viewer, programs: Programs,
                                                                 where: str) -> None:
    programs.code(TRAINER, where)
    viewer.until(lambda: content(viewer) is not None)
    viewer.until(lambda: content(viewer).current == 2)
    assert sorted((e.name, e.kind) for e in viewer.state.entries) == [("cameras", "cameras"), ("splats", "gaussians")]
    frustums = tool(viewer)
    assert frustums is not None
    assert len(content(viewer).cameras) == 6
    # All photographs come in small.
    viewer.until(lambda: content(viewer).drawing._flags[:, 0].all())
    with_frustums = viewer.picture()
    frustums.shown = False
    viewer.seat.mark()
    viewer.do()
    assert np.abs(with_frustums - viewer.picture()).sum(-1).astype(bool).sum() > 200
    frustums.shown = True
    # A click looks through the camera, a key through the next, Escape goes back.
    view = viewer.seat.view
    assert isinstance(view, GaussianView)
    viewer.do()
    before, rect = view.camera(), view.rect
    assert before is not None
    middles = project(before, np.stack([content(viewer).cameras.outline(i, frustums.depth)[1:].mean(0)
                                        for i in range(6)]))
    seen = [i for i, (x, y) in enumerate(middles) if 0 < x < rect.width and 0 < y < rect.height]
    assert seen
    number = seen[0]
    place = float(middles[number][0] + rect.x), float(middles[number][1] + rect.y)
    viewer.do(PointerMove(*place))
    assert frustums.hovered == number
    viewer.do(PointerPress(*place), PointerRelease(*place))
    viewer.until(lambda: frustums.through.there)
    assert frustums.through.index == number
    frustums.through.how = "photo"
    viewer.until(lambda: frustums.through.photo(content(viewer)) is not None)
    viewer.seat.mark()
    viewer.do()
    spot = frustums.through.place(view.rect)
    middle = viewer.pixels()[spot.y + spot.height // 2, spot.x + spot.width // 2]
    assert np.abs(middle - [200, 30 + 30 * number, 40]).max() <= 1
    navigate: Any = view.tools["navigate"]
    assert navigate.gizmo._middle(view.rect) is None  # no axes over the photograph
    viewer.until(lambda: frustums.through.psnr is not None)
    viewer.do(Key("page_down"))
    viewer.until(lambda: frustums.through.there)
    assert frustums.through.index == (number + 1) % 6
    viewer.do(Key("escape"))
    assert frustums.through.index is None
    assert navigate.gizmo._middle(view.rect) is not None
    viewer.until(lambda: (now := view.camera()) is not None and np.allclose(now.viewmat, before.viewmat))


def test_it_follows_the_camera_that_is_trained_with(viewer: Viewer, programs: Programs) -> None:
    trainer = programs.code(TRAINER, "none")
    viewer.until(lambda: content(viewer) is not None and content(viewer).current == 2)
    frustums = tool(viewer)
    assert frustums is not None
    frustums.follow(True)
    viewer.until(lambda: frustums.through.there and frustums.through.index == 2)
    assert trainer.stdin is not None
    trainer.stdin.write("4\n")
    trainer.stdin.flush()
    viewer.until(lambda: frustums.through.there and frustums.through.index == 4)
    viewer.until(lambda: frustums.through.photo(content(viewer)) is None
                 and "without a photograph" in content(viewer).photos.trouble(4))
    view = viewer.seat.view
    assert isinstance(view, GaussianView)
    view.frame()  # the user goes elsewhere
    viewer.until(lambda: not frustums.following and frustums.through.index is None)


def test_nobody_pays_for_cameras_that_are_not_seen(viewer: Viewer, programs: Programs, tmp_path: Path) -> None:
    from PIL import Image

    programs.code(TRAINER, "memory")
    viewer.until(lambda: content(viewer) is not None and content(viewer).current == 2)
    assert opened(viewer) == ["cameras", "cameras current", "cameras photos", "splats"]
    frustums = tool(viewer)
    assert frustums is not None
    Image.fromarray(np.full((8, 8, 3), 90, np.uint8)).save(tmp_path / "grey.png")
    viewer.seat.drop([str(tmp_path / "grey.png")])
    viewer.until(lambda: opened(viewer) == [])
    assert frustums.content is None
    cameras = next(e.key for e in viewer.state.entries if e.name == "cameras")
    viewer.seat.select(cameras)
    viewer.until(lambda: isinstance(viewer.seat.view, CamerasView) and not viewer.seat.view.empty)
    view = viewer.seat.view
    assert isinstance(view, CamerasView)
    viewer.until(lambda: view.content.current == 2 and view.content.drawing._flags[:, 0].all())
    assert opened(viewer) == ["cameras", "cameras current", "cameras photos"]
    view.open(3)
    viewer.seat.mark()
    viewer.until(lambda: view.content.photos.whole(3) is not None)
    viewer.seat.mark()
    viewer.do()
    h, w = viewer.picture().shape[:2]
    assert np.abs(viewer.picture()[h // 2, w // 2] - [200, 120, 40]).max() <= 1
    splats = next(e.key for e in viewer.state.entries if e.name == "splats")
    viewer.seat.select(splats)
    viewer.until(lambda: frustums.content is not None)


def test_the_viewer_rests_when_nothing_comes(viewer: Viewer, programs: Programs) -> None:
    programs.code(TRAINER, "memory")
    viewer.until(lambda: content(viewer) is not None and content(viewer).drawing._flags[:, 0].all())
    viewer.do()
    viewer.until(lambda: _draws_in(viewer, 0.4) <= 2)


def _draws_in(viewer: Viewer, seconds: float) -> int:
    before, end = viewer.draws, time.monotonic() + seconds
    while time.monotonic() < end:
        viewer.turn()
    return viewer.draws - before


def test_a_run_that_ends_leaves_its_cameras(viewer: Viewer, programs: Programs) -> None:
    trainer = programs.code(TRAINER, "memory")
    viewer.until(lambda: content(viewer) is not None and content(viewer).drawing._flags[:, 0].all())
    trainer.kill()
    viewer.until(lambda: all(not e.alive for e in viewer.state.entries))
    assert content(viewer) is not None
    viewer.do(PointerMove(500, 200))
    programs.code(TRAINER, "memory")
    viewer.until(lambda: all(e.alive for e in viewer.state.entries))
    viewer.until(lambda: content(viewer) is not None and content(viewer).current == 2)
    assert len(viewer.state.entries) == 2
