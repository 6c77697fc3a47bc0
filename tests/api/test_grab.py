"""`splatview.grab`: what the viewer draws comes back as a tensor, whoever publishes it, and nothing is left behind."""

from __future__ import annotations

import gc
import json
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.open_files import open_files
from support.publishers import BOTH, IMAGE
from support.wait import PATIENCE

import splatview
from splatview import grabber, grabbing, publishing
from splatview.viewer_app.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

PLACE = {"position": [0.4, -0.3, -4], "look_at": [0, 0, 0]}


def grab(name: str | None = None, **options: Any) -> torch.Tensor:
    """On the CPU, wherever it was drawn."""
    return splatview.grab(name, timeout=PATIENCE, **options).cpu()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two pictures are the same, but for how CUDA and OpenGL round."""
    return a.shape == b.shape and int((a.int() - b.int()).abs().max()) <= (1 if torch.cuda.is_available() else 0)


def scene(seed: int = 0, count: int = 300) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {"means": torch.randn(count, 3, generator=g), "quats": torch.randn(count, 4, generator=g),
            "scales": torch.full((count, 3), -2.0), "opacities": torch.full((count,), 3.0),
            "sh0": torch.rand(count, 1, 3, generator=g), "shN": torch.zeros(count, 0, 3)}


def picture(seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape or (30, 40, 3), generator=torch.manual_seed(seed), dtype=torch.uint8)


def shot(tmp_path: Path, *args: object) -> torch.Tensor:
    out = tmp_path / "shot.png"
    assert main(["shot", str(out), *map(str, args)]) == 0
    return torch.from_numpy(np.asarray(Image.open(out)).copy())


def pid() -> int:
    """Of the program that draws."""
    assert grabbing._grabber is not None
    return grabbing._grabber._process.pid


# -- what is drawn -------------------------------------------------------------------------------------------


def test_it_is_what_shot_draws(tmp_path: Path) -> None:
    splatview.publish(picture(), "render")
    splatview.publish(scene())
    whole = splatview.grab(timeout=PATIENCE)
    assert (whole.shape, whole.dtype) == ((720, 1280, 3), torch.uint8)
    assert whole.device.type == "cpu" or torch.cuda.is_initialized()
    assert same(whole.cpu(), shot(tmp_path))
    assert same(grab(size=(200, 160), background=(0.2, 0.5, 1.0)),
                shot(tmp_path, "--size", "200x160", "--background", "0.2,0.5,1"))
    placed = grab(camera=PLACE, size=(200, 160))
    assert same(placed, shot(tmp_path, "--size", "200x160", "--camera", json.dumps(PLACE)))
    assert same(grab(size=(200, 160)), shot(tmp_path, "--size", "200x160"))  # nothing of that camera stays
    assert torch.equal(grab("render"), picture())
    fitted = grab("render", size=(64, 64), background=(1.0, 0.0, 0.0))
    assert same(fitted, shot(tmp_path, "--stream", "render", "--size", "64x64", "--background", "1,0,0"))


def test_a_picture_is_the_callers_own() -> None:
    splatview.publish(picture(1), "one")
    first = grab("one")
    splatview.publish(picture(2), "one")
    for _ in range(6):
        assert torch.equal(grab("one"), picture(2))
    assert torch.equal(first, picture(1))
    first.zero_()
    assert torch.equal(grab("one"), picture(2))


def test_pictures_of_every_size_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grabber, "_LARGE", 5000)  # larger ones do not keep the memory that they came in
    sizes = [(1, 1), (300, 2), (17, 33), (3, 500), (90, 70)]
    for k, (height, width) in enumerate(sizes * 2):
        image = picture(k, height, width, 3)
        splatview.publish(image, f"{height}x{width}")
        assert torch.equal(grab(f"{height}x{width}"), image)


def test_cameras_in_every_form(tmp_path: Path) -> None:
    splatview.publish(scene())
    viewmat = torch.eye(4, dtype=torch.float64)
    viewmat[2, 3] = 4.0
    K = torch.tensor([[90.0, 0, 60], [0, 90, 40], [0, 0, 1]])
    file = tmp_path / "camera.json"
    lists = {"viewmat": viewmat.tolist(), "K": K.tolist(), "width": 120, "height": 80}
    file.write_text(json.dumps(lists))
    first = grab(camera=lists)
    assert first.shape == (80, 120, 3)  # what K was made for
    assert first.max() > 60
    forms: list[Any] = [
        {"viewmat": viewmat, "K": K, "width": 120, "height": 80},
        {"viewmat": viewmat[None].requires_grad_(), "K": K[None].numpy(), "width": np.int64(120),
         "height": torch.tensor(80)},
        {"viewmat": viewmat.numpy(), "K": K, "width": 120, "height": 80, "model": None},
        json.dumps(lists), str(file), file]
    for form in forms:
        assert same(grab(camera=form), first)
    assert same(grab(camera={"viewmat": viewmat, "K": K}, size=(120, 80)), first)
    ortho = grab(camera=PLACE | {"model": "ortho"}, size=(120, 80))
    assert not torch.equal(ortho, grab(camera=PLACE, size=(120, 80)))


def test_ones_own_scene_is_drawn_as_it_is_now() -> None:
    parameters = scene()
    view = partial(grab, camera=PLACE, size=(160, 120))
    splatview.publish(parameters)
    before = view()
    with torch.no_grad():
        parameters["sh0"].neg_()  # nobody publishes that
    after = view()
    assert not torch.equal(before, after)
    splatview.publish(parameters)
    assert same(view(), after)
    splatview.publish(scene(1, 500))  # others, and more of them
    grown = view()
    assert not torch.equal(grown, after)
    with torch.no_grad():
        parameters["sh0"].neg_()
    assert same(view(), grown)
    splatview.publish(parameters)
    assert same(view(), before)


def test_ones_own_image_is_what_was_published() -> None:
    image = picture()
    splatview.publish(image, "render")
    assert torch.equal(grab("render"), picture())
    splatview.publish(image, "render")
    image.zero_()
    assert torch.equal(grab("render"), picture())
    version = publishing._entries["render"].stream.version
    assert torch.equal(grab("render"), picture())
    assert publishing._entries["render"].stream.version == version  # readers of it have nothing to read again


def test_the_background_that_was_published() -> None:
    splatview.publish(scene() | {"background": torch.tensor([1.0, 0.0, 0.5])})
    corner = grab(size=(64, 48), camera={"position": [0, 0, -40], "look_at": [0, 0, 0]})[0, 0]
    assert corner.tolist() == [255, 0, 128]
    assert grab(size=(64, 48), camera=PLACE | {"fov": 160}, background=(0, 0, 0))[0, 0].tolist() == [0, 0, 0]


def test_alpha_shows_the_background() -> None:
    splatview.publish(torch.tensor([200, 100, 0, 128], dtype=torch.uint8).expand(20, 20, 4), "see-through")
    assert (grab("see-through").int() - torch.tensor([100, 50, 0])).abs().max() <= 1
    assert (grab("see-through", background=(0, 0, 1)).int() - torch.tensor([100, 50, 127])).abs().max() <= 1


def test_memory_can_be_seen() -> None:
    splatview.publish_memory(device="cpu", record=False)
    drawn = grab("memory", size=(320, 200))
    assert drawn.shape == (200, 320, 3)
    assert len(drawn.flatten(0, 1).unique(dim=0)) > 3


def test_what_lies_over_an_image_is_drawn(tmp_path: Path) -> None:
    image = torch.full((120, 160, 3), 40, dtype=torch.uint8)
    splatview.publish(image, "render")
    assert torch.equal(grab("render"), image)
    for x in (20, 60):
        splatview.annotate("render", boxes=[[x, 30, x + 40, 90]], colors=[[255, 0, 0]])
        drawn = grab("render").int()
        red = (drawn - torch.tensor([255, 0, 0])).abs().sum(-1) < 60
        columns, rows = red.any(0).nonzero().flatten(), red.any(1).nonzero().flatten()
        assert abs(int(columns[0]) - x) < 4 and abs(int(columns[-1]) - x - 40) < 4
        assert abs(int(rows[0]) - 30) < 4 and abs(int(rows[-1]) - 90) < 4
    assert same(shot(tmp_path, "--stream", "render"), drawn)
    splatview.annotate("render")
    assert torch.equal(grab("render"), image)
    with pytest.raises(LookupError, match="no stream 'render overlay' that can be drawn"):
        grab("render overlay")


# -- whose streams -------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_streams_of_other_processes(programs: Programs) -> None:
    trainers = [programs.code(IMAGE, str(grey), "render") for grey in (50, 90)]
    other = programs.code(BOTH)
    _until(lambda: grab("render", run=other.pid).shape == (30, 40, 3))
    for grey, trainer in zip((50, 90), trainers, strict=True):
        _until(lambda pid=trainer.pid: grab("render", run=pid).shape == (40, 60, 3))
        drawn = grab(run=str(trainer.pid))
        assert drawn[20, 30].tolist() == [grey] * 3
        assert drawn[0, 0].tolist() == [255, 0, 0]
    assert grab().shape == (720, 1280, 3)  # Gaussians before images
    splatview.publish(picture(), "own")
    assert torch.equal(grab(), picture())  # its own before all others'
    assert torch.equal(grab(run=publishing._publisher.run_id), picture())  # type: ignore[union-attr]
    assert grab("splats", size=(32, 32)).max() > 20
    splatview.publish(picture(3), "render")
    assert torch.equal(grab("render"), picture(3))
    assert grab("render", run=trainers[0].pid)[20, 30].tolist() == [50] * 3
    splatview.publish(scene())
    assert grab().shape == (720, 1280, 3)


def _until(condition: Callable[[], bool]) -> None:
    """Until a stream is there to be drawn, which is looked for no longer than a second each time."""
    for _ in range(int(PATIENCE)):
        try:
            if condition():
                return
        except LookupError:
            continue
    raise AssertionError(f"not within {PATIENCE} s")


def test_a_newer_version_is_drawn_than_before(programs: Programs) -> None:
    counting = programs.code(
        "import time, torch, splatview\n"
        "for i in range(10**9):\n"
        "    splatview.publish(torch.full((16, 16, 3), i % 256, dtype=torch.uint8), 'count'); time.sleep(0.01)")
    _until(lambda: grab("count").shape == (16, 16, 3))
    seen = []
    while len(seen) < 5:
        drawn = grab("count", run=counting.pid)
        assert len(drawn.unique()) == 1  # whole
        if not seen or seen[-1] != int(drawn[0, 0, 0]):
            seen.append(int(drawn[0, 0, 0]))


# -- what cannot be drawn ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"name": 3}, TypeError, "name is a int"),
    ({"name": "a/b"}, ValueError, "contains '/'"),
    ({"size": (100,)}, ValueError, r"size \(100,\) is not"),
    ({"size": (100, 50.5)}, ValueError, "is not \\(width, height\\)"),
    ({"size": (100, -1)}, ValueError, "is not \\(width, height\\)"),
    ({"size": "100x50"}, ValueError, "is not \\(width, height\\)"),
    ({"background": (0, 0)}, ValueError, r"background \(0, 0\) is not"),
    ({"background": (0, 0, 255)}, ValueError, "each from 0 to 1"),
    ({"background": (0, 0, float("nan"))}, ValueError, "each from 0 to 1"),
    ({"run": True}, ValueError, "run True"),
    ({"run": ""}, ValueError, "run ''"),
    ({"timeout": 0}, ValueError, "timeout 0"),
    ({"timeout": float("inf")}, ValueError, "timeout inf"),
    ({"camera": 7}, TypeError, "camera is a int"),
    ({"camera": "no such file"}, ValueError, "neither a JSON object nor a readable file"),
    ({"camera": "{"}, ValueError, "not JSON"),
    ({"camera": {"viewmat": object()}}, TypeError, "viewmat is a object"),
    ({"camera": {"viewmat": torch.zeros(1000, 1000)}}, ValueError, "takes one matrix"),
    ({"camera": {"position": "x" * (1 << 20)}}, ValueError, "more than"),
])
def test_arguments_that_make_no_sense(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        splatview.grab(**arguments)
    assert grabbing._grabber is None  # nothing was started for it


def test_what_cannot_be_drawn_is_told_and_the_next_is_drawn() -> None:
    with pytest.raises(LookupError, match="no run is publishing"):
        grab()
    splatview.publish(picture(), "render")
    splatview.publish(scene(), "splats")
    same = pid()
    for arguments, error, message in [
            ({"name": "nothing"}, LookupError, r"no stream 'nothing'.*render \(image.*splats \(gaussians"),
            ({"run": "nobody"}, LookupError, "no run 'nobody'"),
            ({"name": "render", "camera": PLACE}, ValueError, "takes no camera"),
            ({"camera": {"position": [0, 0]}}, ValueError, "camera: needs"),
            ({"camera": {"position": [0, 0], "look_at": [0, 0, 0]}}, ValueError, "camera: position"),
            ({"camera": PLACE | {"zoom": 2}}, ValueError, "unknown key 'zoom'"),
            ({"camera": {"viewmat": [[float("nan")] * 4] * 4, "K": [[1]]}}, ValueError, "finite 4x4 matrix"),
            ({"size": (8, 8)}, ValueError, "out of range"),
            ({"size": (100, 20000)}, ValueError, "out of range")]:
        with pytest.raises(error, match=f"(?s){message}"):
            grab(**arguments)
    assert torch.equal(grab("render"), picture())
    assert pid() == same


def test_where_nothing_can_be_drawn_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files()
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere.json")
    splatview.publish(picture(), "render")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nothing can be drawn here"):
            grab()
    monkeypatch.delenv("__EGL_VENDOR_LIBRARY_FILENAMES")
    assert torch.equal(grab(), picture())
    splatview.close()
    gc.collect()
    assert open_files() <= before


# -- several at once -----------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_from_several_threads() -> None:
    images = {f"image {k}": picture(k) for k in range(4)}
    for name, image in images.items():
        splatview.publish(image, name)
    wrong: list[str] = []

    def work(name: str) -> None:
        for _ in range(5):
            if not torch.equal(grab(name), images[name]):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in images]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.exhaustive
def test_it_lets_go_of_what_nobody_asks_for(wait_until: Callable[..., Any]) -> None:
    splatview.publish(picture(), "render")
    splatview.publish(scene(), "splats")
    assert torch.equal(grab("render"), picture())
    grab("splats", size=(32, 32))
    streams = [publishing._entries[name].stream for name in ("render", "splats")]
    assert [s.readers for s in streams] == [1, 1]
    same = pid()
    wait_until(lambda: not any(s.readers for s in streams))
    image = picture(1)
    splatview.publish(image, "render")
    assert torch.equal(grab("render"), image)
    assert pid() == same
