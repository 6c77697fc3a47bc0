"""What the pictures show: the garden of Mip-NeRF 360 from its coloured points, drawn without any renderer of ours."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.programs import ROOT

DATA = Path(os.environ.get("SPLATVIEW_TEST_DATA", ROOT.parent / "shared" / "data"))


def picture(width: int, height: int) -> tuple[np.ndarray, str]:
    """(height, width, 3) uint8 and what it is. Clouds where nothing is known; clouds alone without the data's file."""
    clouds = _clouds(width, height)
    file = DATA / "test_garden.npz"
    if not file.exists():
        return clouds, "clouds (1/f noise)"
    with np.load(file) as data:
        points, colours = data["means3d"].astype(np.float64), data["colors"]
        viewmat, K = data["viewmats"][0].astype(np.float64), data["Ks"][0].astype(np.float64)
        scale = max(width / int(data["width"]), height / int(data["height"]))
    seen = points @ viewmat[:3, :3].T + viewmat[:3, 3]
    front = seen[:, 2] > 0.05
    seen, colours = seen[front], colours[front]
    x = (seen[:, 0] / seen[:, 2] * K[0, 0]) * scale + width / 2
    y = (seen[:, 1] / seen[:, 2] * K[1, 1]) * scale + height / 2
    far_first = np.argsort(-seen[:, 2])
    x, y, colours, z = x[far_first], y[far_first], colours[far_first], seen[far_first, 2]
    reach = np.clip(0.006 * K[0, 0] * scale / z, 1.5, 9)
    step = np.arange(-9, 10)
    dx, dy = (a.ravel() for a in np.meshgrid(step, step))
    whole = clouds
    for begin in range(0, len(x), 20000):  # what is written last lies on top
        part = slice(begin, begin + 20000)
        inside = np.hypot(dx, dy)[None] <= reach[part, None]
        px = (x[part, None].round().astype(int) + dx)[inside]
        py = (y[part, None].round().astype(int) + dy)[inside]
        colour = np.repeat(colours[part], inside.sum(1), axis=0)
        on = (px >= 0) & (px < width) & (py >= 0) & (py < height)
        whole[py[on], px[on]] = colour[on]
    soft = whole.astype(np.float32)
    for axis in (0, 0, 1, 1):  # discs become soft, like Gaussians
        soft = sum(weight / 16 * np.roll(soft, shift, axis)
                   for shift, weight in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True))  # type: ignore[assignment]
    grain = np.random.default_rng(1).normal(0, 1.5, whole.shape)
    return np.clip(soft + grain, 0, 255).astype(np.uint8), "the garden"


def _clouds(width: int, height: int) -> np.ndarray:
    """(height, width, 3) uint8 with the spectrum of natural pictures."""
    rng = np.random.default_rng(0)
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    amplitude = 1 / np.maximum(np.hypot(fx, fy), 1 / max(width, height))
    shared = rng.normal(size=(height, width))
    channels = []
    for _ in range(3):
        wave = np.fft.irfft2(np.fft.rfft2(shared + 0.3 * rng.normal(size=(height, width))) * amplitude, (height, width))
        channels.append(np.clip(128 + 45 * wave / wave.std(), 0, 255))
    return np.stack(channels, -1).astype(np.uint8)
