"""Pictures from the GPU, and how alike the two renderers draw: `python -m benchmarks.gpu.pictures FOLDER [PART ...]`.

Parts (all that can be done, by default): "offscreen" and "window" write PNGs of an image and a scene as `splatview
serve` shows them; "compare" draws three views each of the garden and of playbot with gsplat and with OpenGL, prints the
PSNR of each pair and ends with 1 when one lies below 50 dB. SPLATVIEW_TEST_DATA names the folder of the data.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.__main__ import table
from benchmarks.gpu import Skipped, require_gpu
from benchmarks.gpu.viewer import ROOT
from splatview_viewer.formats import load_scene
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.scene.scene import SH_C0, GaussianScene
from splatview_viewer.screens.offscreen import create_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.render.base import Renderer

DATA = Path(os.environ.get("SPLATVIEW_TEST_DATA", ROOT.parent / "shared" / "data"))
GATE = 50.0


def garden() -> tuple[GaussianScene, list[Camera]]:
    """The reconstruction's points as round Gaussians that reach to their neighbours, and its three cameras."""
    with np.load(DATA / "test_garden.npz") as data:
        means, colors = data["means3d"], data["colors"].astype(np.float32) / 255
        width, height = int(data["width"]), int(data["height"])
        cameras = [Camera(v.astype(np.float64), K.astype(np.float64), width, height)
                   for v, K in zip(data["viewmats"], data["Ks"], strict=True)]
    points = torch.from_numpy(means.astype(np.float32)).cuda()
    nearest = torch.cat([torch.cdist(part, points).topk(4, largest=False).values[:, 1:].mean(1)
                         for part in points.split(4096)])
    n = len(means)
    radius = 0.6 * nearest.clamp(1e-4, 2 * float(nearest.median()))
    scales = radius.log().cpu().numpy()[:, None].repeat(3, 1)
    quats = np.zeros((n, 4), np.float32)
    quats[:, 0] = 1
    scene = GaussianScene.of_arrays(means.astype(np.float32), quats, np.ascontiguousarray(scales, np.float32),
                          np.full(n, 2.0, np.float32), (colors - 0.5) / np.float32(SH_C0),
                          np.empty((n, 0, 3), np.float32), sh_degree=0)
    return scene, cameras


def playbot() -> tuple[GaussianScene, list[Camera]]:
    from splatview_viewer.geometry.cameras import frame_points

    scene = load_scene(DATA / "playbot")
    first = frame_points(scene.means.numpy(), 1280, 720)
    cameras = []
    for angle in (0.0, 1.1, 2.4):
        turn = np.eye(4)
        turn[[0, 0, 2, 2], [0, 2, 0, 2]] = math.cos(angle), math.sin(angle), -math.sin(angle), math.cos(angle)
        middle = np.eye(4)
        middle[:3, 3] = np.median(scene.means.numpy(), axis=0)
        cameras.append(replace(first, viewmat=first.viewmat @ middle @ turn @ np.linalg.inv(middle)))
    return scene, cameras


def on_gpu(scene: GaussianScene) -> GaussianScene:
    return replace(scene, **{name: torch.from_numpy(np.ascontiguousarray(getattr(scene, name))).cuda()
                             for name in ("means", "quats", "scales", "opacities", "sh0", "shN")})


def compare(folder: Path) -> bool:
    """Print the PSNR of every pair and save both; whether all of them are alike."""
    from splatview_viewer.render.gl.renderer import GlRenderer
    from splatview_viewer.render.gsplat.renderer import GsplatRenderer

    ctx = create_context()
    alike, rows = True, []
    for name, (scene, cameras) in {"garden": garden(), "playbot": playbot()}.items():
        gsplat, gl = GsplatRenderer(ctx), GlRenderer(ctx)
        gsplat.load(on_gpu(scene))
        gl.load(scene)
        for i, camera in enumerate(cameras):
            a, b = (_drawn(renderer, camera) for renderer in (gsplat, gl))
            color, alpha = psnr(a[..., :3], b[..., :3]), psnr(a[..., 3], b[..., 3])
            alike &= color >= GATE
            rows.append({"scene": name, "camera": str(i), "size": f"{camera.width}x{camera.height}",
                         "Gaussians": f"{len(scene):,}", "PSNR of colour, dB": f"{color:.1f}",
                         "of alpha, dB": f"{alpha:.1f}", "at least": f"{GATE:.0f}"})
            for kind, picture in (("gsplat", a), ("gl", b)):
                _save(picture[..., :3], folder / f"{name}_{i}_{kind}.png")
        gsplat.close()
        gl.close()
    ctx.release()
    print(table(rows), flush=True)
    return alike


def _drawn(renderer: Renderer, camera: Camera) -> np.ndarray:
    """(H, W, 4) float32: colour over black, alpha."""
    pixels = renderer.render(camera, RenderOptions("classic")).pixels()
    picture = np.concatenate([pixels.color, pixels.alpha[..., None]], axis=-1)
    if not picture[..., 3].max() > 0.5:
        raise RuntimeError(f"{renderer.name}: the picture is empty: nothing is compared")
    return picture


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(max(np.mean((a.astype(np.float64) - b) ** 2), 1e-20)))


def _save(picture: np.ndarray, path: Path) -> None:
    from PIL import Image

    Image.fromarray((picture.clip(0, 1) * 255 + 0.5).astype(np.uint8)).save(path)


def show(folder: Path, screens: list[str]) -> bool:
    """What the viewer's screens show of a training process on the GPU: this one. Whether all made their pictures."""
    import splatview

    scene, _ = playbot()
    parts = {name: torch.from_numpy(np.ascontiguousarray(getattr(scene, name))).cuda()
             for name in ("means", "quats", "scales", "opacities", "sh0", "shN")}
    parts["sh0"] = parts["sh0"][:, None]
    y, x = torch.meshgrid(torch.linspace(0, 1, 720, device="cuda"), torch.linspace(0, 1, 1280, device="cuda"),
                          indexing="ij")
    image = torch.stack([x, y, 0.5 + 0.5 * torch.sin(40 * (x - 0.5) * (y - 0.5))], dim=-1)
    made = True
    for what, publish in {"image": lambda: splatview.publish(image.clone(), "picture"),
                          "scene": lambda: splatview.publish(parts, "playbot", sh_degree=scene.sh_degree)}.items():
        for screen in screens:
            out = folder / f"{screen}_{what}.png"
            try:
                print(f"{out.name}: {_serve('--' + screen, out, publish)}", flush=True)
            finally:
                splatview.close()
            made &= out.exists()
    return made


def _serve(option: str, out: Path, publish: Callable[[], None]) -> str:
    """Publish for seven seconds to a viewer that writes what it shows."""
    publish()
    viewer = subprocess.Popen([sys.executable, "-m", "splatview", "serve", option, "--out", str(out)], cwd=ROOT)
    try:
        end = time.monotonic() + 7
        while time.monotonic() < end and viewer.poll() is None:
            publish()
            time.sleep(0.05)
    finally:
        viewer.terminate()
        viewer.wait(20)
    if not out.exists():
        return f"no picture; the viewer ended with {viewer.returncode}"
    from PIL import Image

    picture = np.asarray(Image.open(out).convert("RGB"), np.float32)
    return f"{picture.shape[1]}x{picture.shape[0]}, contrast {picture[:, 400:].std():.0f}"


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        require_gpu()
    except Skipped as e:
        print(f"pictures: {e}")
        return 0
    folder, parts = Path(sys.argv[1]), sys.argv[2:]
    if not parts:
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        parts = ["offscreen", *(["window"] if display else []), "compare"]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sv-pictures-") as runs:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = runs
        good = show(folder, [part for part in parts if part != "compare"])
        if "compare" in parts:
            good &= compare(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
