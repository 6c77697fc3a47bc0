"""Show the cameras and photographs of a training over its scene.

Run `splatview serve` in another terminal, before this script starts or while it runs.
Click a camera to look through it, at the photograph and at what is rendered.

A ball of Gaussians learns the colours of a ball in photographs, so the PSNR that the
viewer shows of each photograph rises. The photographs are computed, ray by ray.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from functions.balls import rays, viewmat_from

import splatview
from splatview.demo.views import DatasetView

COUNT = 24
WIDTH = 320
HEIGHT = 240


def cameras_around_ball() -> list[DatasetView]:
    """Return cameras in a ring."""
    K = torch.tensor(
        [
            [300.0, 0, WIDTH / 2],
            [0, 300, HEIGHT / 2],
            [0, 0, 1],
        ]
    )
    cameras = []
    for i in range(COUNT):
        azimuth = 2 * math.pi * i / COUNT
        viewmat = viewmat_from(0.8 * math.sin(3 * azimuth), azimuth, distance=3.5)
        cameras.append(DatasetView(viewmat, K, WIDTH, HEIGHT))
    return cameras


def color_of(normals: torch.Tensor) -> torch.Tensor:
    """Return the RGB in [0, 1] of the ball's surface."""
    colors = 0.5 + 0.45 * normals
    stripes = torch.sin(9 * normals[..., 1:2])
    light = 0.775 + 0.225 * stripes
    return colors * light


def photograph(camera: DatasetView) -> torch.Tensor:
    """Return the picture that a camera takes of the ball, on black, (H, W, 3)."""
    position, directions = rays(camera)
    directions = torch.nn.functional.normalize(directions, dim=-1)
    middle = directions @ position
    inside = middle**2 - position.dot(position) + 1
    distance = -middle - inside.clamp(min=0).sqrt()
    hit = position + distance[..., None] * directions
    return torch.where((inside > 0)[..., None], color_of(hit), 0.0)


def main(steps: int) -> None:
    """Fit the colours of a ball to its photographs, and show that."""
    generator = torch.Generator().manual_seed(0)
    normals = torch.nn.functional.normalize(
        torch.randn(20_000, 3, generator=generator), dim=1
    )
    splats = {
        "means": 0.985 * normals,
        "quats": torch.tensor([1.0, 0, 0, 0]).repeat(len(normals), 1),
        "scales": torch.full((len(normals), 3), math.log(0.015)),
        "opacities": torch.full((len(normals),), 4.0),
        "sh0": torch.zeros(len(normals), 1, 3),
        "shN": torch.zeros(len(normals), 0, 3),
    }
    cameras = cameras_around_ball()
    viewmats = torch.stack([camera.viewmat for camera in cameras])
    photos = torch.stack([photograph(camera) for camera in cameras])
    splatview.publish_cameras(viewmats, cameras[0].K, WIDTH, HEIGHT, photos)
    target_sh0 = (color_of(normals) - 0.5) / 0.28209479177387814
    for step in range(steps):
        camera = step // 20 % COUNT
        splatview.publish_cameras(current=camera)
        # The Gaussians on this camera's side of the ball.
        is_visible = normals @ cameras[camera].position > 1
        error = target_sh0 - splats["sh0"][:, 0]
        visible_error = torch.where(is_visible[:, None], error, 0.0)
        splats["sh0"] = splats["sh0"] + 0.02 * visible_error[:, None]
        splatview.publish(splats, "ball", meta={"step": step})
        splatview.wait_while_paused()
        time.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="steps to train")
    main(parser.parse_args().steps)
