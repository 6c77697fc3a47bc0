"""`splatview.grab`: what the viewer draws comes back as a tensor, and the program that draws it comes and goes."""

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
from support.wait import PATIENCE, turns

import splatview
from splatview.api.session import session
from splatview_viewer.__main__ import main

PLACE = {"position": [0.4, -0.3, -4], "look_at": [0, 0, 0]}


def grab(name: str | None = None, **options: Any) -> torch.Tensor:
    """On the CPU, wherever it was drawn."""
    return splatview.grab(name, timeout=PATIENCE, **options).cpu()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two pictures are the same, but for how CUDA and OpenGL round."""
    return a.shape == b.shape and int((a.int() - b.int()).abs().max()) <= (
        1 if torch.cuda.is_available() else 0
    )


def scene(seed: int = 0, count: int = 300) -> dict[str, torch.Tensor]:
    made = cloud(count, seed=seed)
    return made | {"sh0": made["sh0"][:, None]}


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
    """The processes that draw for this one."""
    return [
        pid
        for pid, command in children(os.getpid()).items()
        if command.rstrip().endswith(" grab")
    ]


@pytest.mark.programs
def test_grab_returns_what_viewers_show(
    tmp_path: Path, other_run: Callable[[], OtherRun]
) -> None:
    """In one test, since each test that draws starts a program of its own."""
    with pytest.raises(LookupError, match="no run is publishing"):
        grab()
    _pictures()
    _overlays()
    splatview.log(loss=1.0)
    assert same(
        grab("scalars", size=(200, 160)), grab("scalars", size=(200, 160))
    )  # drawn again without news
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
    splatview.publish(image, "render")
    assert torch.equal(grab("render"), image)
    for x in (20, 60):
        splatview.annotate("render", boxes=[[x, 30, x + 40, 90]], colors=[[255, 0, 0]])
        red = (grab("render").int() - torch.tensor([255, 0, 0])).abs().sum(-1) < 60
        found = [
            int(place[k])
            for place in (red.any(0).nonzero(), red.any(1).nonzero())
            for k in (0, -1)
        ]
        assert all(
            abs(a - b) < 4 for a, b in zip(found, (x, x + 40, 30, 90), strict=True)
        )
    splatview.annotate("render")
    assert torch.equal(grab("render"), image)


def _scenes(tmp_path: Path) -> None:
    parameters = scene()
    splatview.publish(parameters)
    whole = splatview.grab(timeout=PATIENCE)
    assert (whole.shape, whole.dtype) == ((720, 1280, 3), torch.uint8)
    placed = grab(camera=PLACE, size=(200, 160), background=(0.2, 0.5, 1.0))
    assert same(
        placed,
        shot(
            tmp_path,
            "--size",
            "200x160",
            "--background",
            "0.2,0.5,1",
            "--camera",
            json.dumps(PLACE),
        ),
    )
    assert same(
        grab(size=(200, 160)), shot(tmp_path, "--size", "200x160")
    )  # nothing of that camera stays
    seen = [grab(camera=PLACE, size=(160, 120))]
    with torch.no_grad():
        parameters["sh0"].neg_()  # and no publish
    seen.append(grab(camera=PLACE, size=(160, 120)))
    splatview.publish(scene(1, 500))  # others, and more of them
    seen.append(grab(camera=PLACE, size=(160, 120)))
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])

    viewmat = torch.eye(4, dtype=torch.float64)
    viewmat[2, 3] = 4.0
    K = torch.tensor([[90.0, 0, 60], [0, 90, 40], [0, 0, 1]])
    file = tmp_path / "camera.json"
    lists = {"viewmat": viewmat.tolist(), "K": K.tolist(), "width": 120, "height": 80}
    file.write_text(json.dumps(lists))
    first = grab(camera=lists)
    assert first.shape == (80, 120, 3)  # what K was made for
    tensors = {
        "viewmat": viewmat[None].requires_grad_(),
        "K": K[None].numpy(),
        "width": np.int64(120),
        "height": torch.tensor(80),
    }
    for form in (tensors, json.dumps(lists), file):
        assert same(grab(camera=form), first)

    splatview.publish(
        scene() | {"background": torch.tensor([1.0, 0.0, 0.5])}, "coloured"
    )
    away = {"position": [0, 0, -40], "look_at": [0, 0, 0]}
    assert grab("coloured", size=(64, 48), camera=away)[0, 0].tolist() == [255, 0, 128]
    assert grab("coloured", size=(64, 48), camera=away, background=(0, 0, 0))[
        0, 0
    ].tolist() == [0, 0, 0]


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
        ({"name": "render", "camera": PLACE}, ValueError, "takes no camera"),
        (
            {"camera": {"viewmat": [[float("nan")] * 4] * 4, "K": [[1]]}},
            ValueError,
            "finite 4x4 matrix",
        ),
    ]:
        with pytest.raises(error, match=f"(?s){message}"):
            grab(**arguments)
    assert torch.equal(grab("render"), picture(4)), "its own before all others'"


@pytest.mark.programs
def test_the_program_that_draws_is_replaced_and_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splatview.publish(picture(), "render")
    grabbed: list[torch.Tensor] = []
    threads = [
        threading.Thread(target=lambda: grabbed.append(grab("render")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [torch.equal(each, picture()) for each in grabbed] == [True] * 3
    (first,) = drawing()
    in_child(splatview.close)  # which ends nothing of the parent's
    assert torch.equal(grab("render"), picture())
    assert drawing() == [first]

    os.kill(first, signal.SIGKILL)
    for _ in turns("it has died"):
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
