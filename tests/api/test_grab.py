"""`splatview.grab`: what the viewer draws comes back as a tensor, and the program that
draws it comes and goes.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import cloud
from support.pair import OtherRun
from support.programs import children, in_child
from support.wait import PATIENCE_S, polls

import splatview
from splatview.api.session import session
from splatview_viewer.__main__ import main

CAMERA = {"position": [0.4, -0.3, -4], "look_at": [0, 0, 0]}


def grab(name: str | None = None, **options: Any) -> torch.Tensor:
    """Return the drawn picture on the CPU, wherever it was drawn."""
    return splatview.grab(name, timeout=PATIENCE_S, **options).cpu()


def look_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two pictures are equal but for how CUDA and OpenGL round."""
    if a.shape != b.shape:
        return False
    tolerance = int(torch.cuda.is_available())
    return int((a.int() - b.int()).abs().max()) <= tolerance


def scene(seed: int = 0, count: int = 300) -> dict[str, torch.Tensor]:
    tensors = cloud(count, seed=seed)
    return tensors | {"sh0": tensors["sh0"][:, None]}


def picture(seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randint(
        0,
        256,
        shape or (30, 40, 3),
        generator=torch.manual_seed(seed),
        dtype=torch.uint8,
    )


def shot(tmp_path: Path, *args: object) -> torch.Tensor:
    out = tmp_path / "shot.png"
    assert main(["shot", str(out), *map(str, args)]) == 0
    return torch.from_numpy(np.asarray(Image.open(out)).copy())


def drawing() -> list[int]:
    """Return the processes that draw for this one."""
    return [
        pid
        for pid, command in children(os.getpid()).items()
        if command.rstrip().endswith(" grab")
    ]


@pytest.mark.programs
def test_grab_returns_what_viewers_show(
    tmp_path: Path, other_run: Callable[[], OtherRun]
) -> None:
    """Draw all of it in one test: each test that draws starts a program of its own."""
    with pytest.raises(LookupError, match="no run is publishing"):
        grab()
    _pictures()
    _overlays()
    splatview.log(loss=1.0)
    # The second one is drawn again without news.
    assert look_alike(
        grab("scalars", size=(200, 160)), grab("scalars", size=(200, 160))
    )
    _scenes(tmp_path)
    pid = drawing()
    _runs_and_errors(other_run)
    assert drawing() == pid, "none of that has ended it"


def _pictures() -> None:
    image = picture(1)
    splatview.publish(image, "one")
    first = grab("one")
    image.zero_()
    assert torch.equal(grab("one"), picture(1)), "as it was published"
    splatview.publish(picture(2), "one")
    assert torch.equal(grab("one"), picture(2))
    assert torch.equal(first, picture(1)), "the caller's own"
    for k, (height, width) in enumerate([(1, 1), (300, 2), (3, 500)]):
        splatview.publish(picture(k, height, width, 3), f"{height}x{width}")
        assert torch.equal(grab(f"{height}x{width}"), picture(k, height, width, 3))


def _overlays() -> None:
    image = torch.full((120, 160, 3), 40, dtype=torch.uint8)
    splatview.publish(image, "val/render")
    assert torch.equal(grab("val/render"), image)
    for x in (20, 60):
        splatview.annotate(
            "val/render", boxes=[[x, 30, x + 40, 90]], colors=[[255, 0, 0]]
        )
        red = (grab("val/render").int() - torch.tensor([255, 0, 0])).abs().sum(-1) < 60
        columns = red.any(0).nonzero()
        rows = red.any(1).nonzero()
        edges = [int(i) for i in (columns[0], columns[-1], rows[0], rows[-1])]
        assert edges == pytest.approx([x, x + 40, 30, 90], rel=0, abs=3)
    splatview.annotate("val/render")
    assert torch.equal(grab("val/render"), image)


def _scenes(tmp_path: Path) -> None:
    parameters = scene()
    splatview.publish(parameters)
    default = splatview.grab(timeout=PATIENCE_S)
    assert (default.shape, default.dtype) == ((720, 1280, 3), torch.uint8)
    from_camera = grab(camera=CAMERA, size=(200, 160), background=(0.2, 0.5, 1.0))
    assert look_alike(
        from_camera,
        shot(
            tmp_path,
            "--size",
            "200x160",
            "--background",
            "0.2,0.5,1",
            "--camera",
            json.dumps(CAMERA),
        ),
    )
    # Nothing of that camera stays.
    assert look_alike(grab(size=(200, 160)), shot(tmp_path, "--size", "200x160"))
    grabbed = [grab(camera=CAMERA, size=(160, 120))]
    with torch.no_grad():
        parameters["sh0"].neg_()  # There is no call of publish.
    grabbed.append(grab(camera=CAMERA, size=(160, 120)))
    splatview.publish(scene(1, 500))  # Other Gaussians, and more of them.
    grabbed.append(grab(camera=CAMERA, size=(160, 120)))
    assert not torch.equal(grabbed[0], grabbed[1])
    assert not torch.equal(grabbed[1], grabbed[2])

    viewmat = torch.eye(4, dtype=torch.float64)
    viewmat[2, 3] = 4.0
    K = torch.tensor([[90.0, 0, 60], [0, 90, 40], [0, 0, 1]])
    file = tmp_path / "camera.json"
    lists = {"viewmat": viewmat.tolist(), "K": K.tolist(), "width": 120, "height": 80}
    file.write_text(json.dumps(lists))
    first = grab(camera=lists)
    assert first.shape == (80, 120, 3)  # The size that K belongs to.
    tensors = {
        "viewmat": viewmat[None].requires_grad_(),
        "K": K[None].numpy(),
        "width": np.int64(120),
        "height": torch.tensor(80),
    }
    for form in (tensors, json.dumps(lists), file):
        assert look_alike(grab(camera=form), first)

    splatview.publish(
        scene() | {"background": torch.tensor([1.0, 0.0, 0.5])}, "coloured"
    )
    away = {"position": [0, 0, -40], "look_at": [0, 0, 0]}
    options = {"size": (64, 48), "camera": away}
    assert grab("coloured", **options)[0, 0].tolist() == [255, 0, 128]
    on_black = grab("coloured", **options, background=(0, 0, 0))
    assert on_black[0, 0].tolist() == [0, 0, 0]


def _runs_and_errors(other_run: Callable[[], OtherRun]) -> None:
    for seed in (1, 2):
        run = other_run()
        run.show(picture(seed), "render")
        assert torch.equal(grab("render", run=run.run_id), picture(seed))
    splatview.publish(picture(4), "render")
    for arguments, error, message in [
        ({"name": "nothing"}, LookupError, r"no stream 'nothing'.*render \(image"),
        (
            {"name": "render overlay"},
            LookupError,
            "no stream 'render overlay' that can be drawn",
        ),
        ({"run": "none"}, LookupError, "no run 'none'"),
        ({"name": "render", "camera": CAMERA}, ValueError, "takes no camera"),
        (
            {"camera": {"viewmat": [[float("nan")] * 4] * 4, "K": [[1]]}},
            ValueError,
            "finite 4x4 matrix",
        ),
    ]:
        with pytest.raises(error, match=f"(?s){message}"):
            grab(**arguments)
    assert torch.equal(grab("render"), picture(4)), "this run precedes all others"


@pytest.mark.programs
@pytest.mark.soak
def test_drawing_program_is_replaced_after_its_death_and_ended_when_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splatview.publish(picture(), "render")
    grabbed: list[torch.Tensor] = []

    def grab_render() -> None:
        grabbed.append(grab("render"))

    threads = [threading.Thread(target=grab_render) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [torch.equal(grabbed_picture, picture()) for grabbed_picture in grabbed] == [
        True
    ] * 3
    (first,) = drawing()
    in_child(splatview.close)  # This ends nothing of the parent's.
    assert torch.equal(grab("render"), picture())
    assert drawing() == [first]

    os.kill(first, signal.SIGKILL)
    for _ in polls("it has died"):
        if not session().features["grab"].alive:  # type: ignore[attr-defined]
            break
    assert torch.equal(grab("render"), picture())
    (second,) = drawing()

    os.kill(second, signal.SIGSTOP)
    with (
        monkeypatch.context() as patch,
        pytest.raises(TimeoutError, match="did not answer"),
    ):
        patch.setattr("splatview.api.grab_client.LATE_S", 0.0)
        splatview.grab("render", timeout=0.1)
    assert not drawing()
