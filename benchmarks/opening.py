"""Measure the time from the command to the first picture of a PLY.

1.5 million Gaussians, the file in the page cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from splatview_viewer.formats.ply import write_ply
from splatview_viewer.scene.scene import GaussianScene

COUNT = 1_500_000
LIMIT_S = 3.0


def _scene_file(folder: Path, n: int) -> Path:
    """Write a PLY as trainers do, SH degree 3.

    Points on a bumpy sphere, small and opaque.
    """
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(n, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    means = direction * (
        1 + 0.1 * np.sin(8 * direction[:, :1]) * np.cos(8 * direction[:, 1:2])
    )
    arrays = (
        means,
        np.tile([1, 0, 0, 0], (n, 1)),
        np.full((n, 3), -6),
        np.full(n, 2),
        direction,
        0.05 * rng.normal(size=(n, 15, 3)),
    )
    return write_ply(
        GaussianScene.of_arrays(*(a.astype(np.float32) for a in arrays)),
        folder / "scene.ply",
    )[0]


def run() -> list[dict[str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ply = _scene_file(Path(folder), COUNT)
        png = Path(folder) / "picture.png"
        for command, args in {
            "splatview shot": ["shot", str(png), str(ply), "--size", "1280x720"],
            "splatview serve": [
                "serve",
                str(ply),
                "--offscreen",
                "--out",
                str(png),
                "--size",
                "1280x720",
            ],
        }.items():
            times = []
            for _ in range(3):
                png.unlink(missing_ok=True)
                times.append(_seconds(args, png))
            rows.append(
                {
                    "command": command,
                    "Gaussians": f"{COUNT:,}",
                    "size": "1280x720",
                    "seconds": " / ".join(f"{t:.2f}" for t in times),
                    "limit": f"{LIMIT_S:.0f} s",
                }
            )
    return rows


def _seconds(args: list[str], png: Path) -> float:
    """Until the picture of the scene is on disk; it must show something."""
    from PIL import Image

    started_at = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "splatview_viewer", *args], stdout=subprocess.DEVNULL
    )
    try:
        while time.perf_counter() - started_at < 60:
            if png.exists():
                seconds = time.perf_counter() - started_at
                picture = np.asarray(Image.open(png).convert("L"), np.float32)
                height, width = picture.shape
                middle = picture[
                    height // 3 : -height // 3, width * 2 // 5 : -width * 2 // 5
                ]
                if (
                    middle > 40
                ).mean() > 0.5:  # the ball fills it; a progress bar does not
                    return seconds
            time.sleep(0.005)
        raise RuntimeError(f"no picture: viewer_app {' '.join(args)}")
    finally:
        process.terminate()
        process.wait()
