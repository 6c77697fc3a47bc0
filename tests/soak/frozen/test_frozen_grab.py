"""Pictures of every kind of stream, as `splatview.grab` returns them and `splatview shot` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from support import frozen

import splatview
from splatview.adapters.series import MEMORY
from splatview.api.session import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from support.programs import Programs

SIZE, SMALL = (320, 240), (200, 150)
ASIDE = {"position": [1.5, -1.5, -3.5], "look_at": [0, 0.2, 0]}


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(part) for name, part in frozen.scene(seed).items()}


def rgba() -> np.ndarray:
    """The picture, fading in from left to right."""
    alpha = np.tile(np.linspace(0, 255, 144).astype(np.uint8), (96, 1))
    return np.dstack([frozen.picture(), alpha])


def overlay() -> None:
    splatview.publish(frozen.picture(), "overlay")
    mask = np.zeros((2, 96, 144), bool)
    mask[1, 60:90, 70:120] = True
    splatview.annotate("overlay", boxes=[[78, 8, 122, 52], [70, 60, 120, 90]], labels=["lamp", "mat"],
                       scores=[0.9, 0.5], masks=mask, points=[[[20, 20, 1], [40, 30, 1], [30, 50, 1]]],
                       skeleton=[[0, 1], [1, 2]], lines=[[[5, 90], [40, 70], [60, 92]]], notes=[(4, 64, "a note")],
                       size=(144, 96))


def cameras() -> None:
    views = np.tile(np.eye(4, dtype=np.float32), (5, 1, 1))
    for view, angle in zip(views, np.linspace(-0.6, 0.6, 5), strict=True):
        cos, sin = np.cos(angle), np.sin(angle)
        view[:3, :3], view[:3, 3] = [[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]], (0, 0, 4)
    splatview.publish_cameras(views, np.array([[100, 0, 72], [0, 100, 48], [0, 0, 1]], np.float32), 144, 96)


def scalars() -> None:
    for step in range(60):
        splatview.log(step, loss=1 / (1 + step), psnr=20 + 0.2 * step)


def memory() -> None:
    """As `publish_memory` publishes it on a GPU, with times and numbers of its own."""
    n, t = 200, torch.arange(200, dtype=torch.float64)
    rows = torch.zeros(n, 13, dtype=torch.float64)
    rows[:, 0], rows[:, 1] = 1.7e9 + 0.1 * t, t.div(5, rounding_mode="floor")
    rows[:, 2] = 4e9 + 1e9 * torch.sin(0.1 * t)
    rows[:, 3], rows[:, 4] = rows[:, 2] - 0.5e9, rows[:, 2] + 1e9
    rows[:, 5], rows[:, 6], rows[:, 7] = rows[:, 4] + 0.2e9, rows[:, 2] - 0.1e9, 8e9
    rows[:, 8], rows[:, 9], rows[:, 10] = 0.4e9, 1e9, 100 * t
    publisher = session().run()
    assert publisher is not None
    stream = publisher.stream("memory", MEMORY.kind)
    stream.describe(MEMORY)
    stream.publish(((rows,), {"device": "cuda:0", "gpu": "A GPU", "total": 16 * 2**30, "hz": 10.0, "snapshot": "",
                              "snapshots": 0, "trouble": ""}))


def publishing(value: Any, name: str, **more: Any) -> Callable[[], None]:
    return lambda: splatview.publish(value, name, **more)


def cases() -> dict[str, tuple[Callable[[], None], str, dict[str, Any]]]:
    """Name of the picture: what publishes, the stream, and arguments of `grab`."""
    picture, scene = frozen.picture(), tensors()
    floats = torch.from_numpy(picture).permute(2, 0, 1).float() / 255
    images = {"uint8": publishing(picture, "uint8"), "float": publishing(floats, "float"),
              "bgr": publishing(picture[..., ::-1].copy(), "bgr", layout="BGR"),
              "gray": publishing(picture[..., 1].copy(), "gray")}
    found: dict[str, tuple[Callable[[], None], str, dict[str, Any]]] = {
        f"image-{name}": (publish, name, {}) for name, publish in images.items()}
    found["image-alpha"] = publishing(rgba(), "alpha"), "alpha", {"size": SIZE, "background": (0.1, 0.3, 0.6)}
    found["image-overlay"] = overlay, "overlay", {"size": SIZE}
    publish = publishing(scene, "gaussians")
    found["gaussians"] = publish, "gaussians", {"size": SIZE}
    found["gaussians-background"] = publish, "gaussians", {"size": SMALL, "camera": ASIDE,
                                                           "background": (0.2, 0.5, 0.3)}
    for model in ("ortho", "fisheye"):
        found[f"gaussians-{model}"] = publish, "gaussians", {"size": SMALL, "camera": {**ASIDE, "model": model}}
    matrices = {"viewmat": [[1, 0, 0, 0.3], [0, 1, 0, 0], [0, 0, 1, 3], [0, 0, 0, 1]],
                "K": [[200, 0, 100], [0, 200, 75], [0, 0, 1]], "width": 200, "height": 150}
    found["gaussians-viewmat"] = publish, "gaussians", {"camera": matrices}
    found["gaussians-sh0"] = publishing(scene, "flat", sh_degree=0), "flat", {"size": SMALL, "camera": ASIDE}
    found["gaussians-antialiased"] = (publishing(scene, "antialiased", antialiased=True), "antialiased",
                                      {"size": (80, 60), "camera": ASIDE})
    return found


def test_images_and_scenes_look_as_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One program draws all of them."""
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    wrong = []
    for name, (publish, stream, more) in cases().items():
        publish()
        wrong.append(frozen.eventually(name, lambda: splatview.grab(stream, **more).numpy(), tmp_path))  # noqa: B023
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_plots_look_as_frozen(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    """By `splatview shot`, once a thread has published them."""
    for publish in (cameras, scalars, memory):
        publish()
    publisher = session().run()
    assert publisher is not None
    names = "cameras", "scalars", "memory"
    wait_until(lambda: all(n in publisher.streams and publisher.streams[n].version for n in names))
    done = frozen.run_all({n: ("shot", f"{n}.png", "--stream", n, "--size", "320x240") for n in names}, tmp_path)
    for name, (code, _, err) in done.items():
        assert code == 0, err
        frozen.check_picture(name, frozen.pixels_of(tmp_path / f"{name}.png"), tmp_path)


def test_shards_look_as_one_scene(tmp_path: Path, programs: Programs) -> None:
    rank = ("import numpy as np, splatview, sys; from support import frozen; r = int(sys.argv[1]);"
            "splatview.publish({k: v[r::2].copy() for k, v in frozen.scene().items()}, shard=(r, 2)); print(); input()")
    for r in range(2):
        programs.code(rank, r, SPLATVIEW_GROUP="frozen").line()
    args = "shot", "out.png", "--size", "320x240"
    code, out, err = frozen.run_all({"": args}, tmp_path)[""]
    assert (code, out) == (0, "out.png: 320 x 240\n"), err
    drawn = frozen.pixels_of(tmp_path / "out.png")
    frozen.check_picture("gaussians-shards", drawn, tmp_path)
    apart = np.abs(drawn.astype(int) - frozen.pixels_of(frozen.FOLDER / "gaussians.png"))
    assert (apart.max(2) > frozen.TOLERANCE).mean() <= frozen.EDGE_SHARE, "both halves are the whole"
