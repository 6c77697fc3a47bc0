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

import splatview

COUNT = 24
WIDTH = 320
HEIGHT = 240


def cameras_around_ball() -> tuple[torch.Tensor, torch.Tensor]:
    """Return cameras in a ring.

    (N, 4, 4) world to camera in OpenCV axes, and (3, 3) intrinsics.
    """
    views = torch.eye(4).repeat(COUNT, 1, 1)
    for i in range(COUNT):
        azimuth = 2 * math.pi * i / COUNT
        x = 3.5 * math.sin(azimuth)
        y = 0.8 * math.sin(3 * azimuth)
        z = 3.5 * math.cos(azimuth)
        position = torch.tensor([x, y, z])
        forward = -position / position.norm()
        right = torch.linalg.cross(forward, torch.tensor([0.0, -1.0, 0.0]))
        right = right / right.norm()
        down = torch.linalg.cross(forward, right)
        views[i, :3, :3] = torch.stack([right, down, forward])
        views[i, :3, 3] = -views[i, :3, :3] @ position
    return views, torch.tensor([[300.0, 0, WIDTH / 2], [0, 300, HEIGHT / 2], [0, 0, 1]])


def color_of(normals: torch.Tensor) -> torch.Tensor:
    """Return the RGB in [0, 1] of the ball's surface."""
    stripes = 0.5 + 0.5 * torch.sin(9 * normals[..., 1:2])
    return (0.5 + 0.45 * normals) * (0.55 + 0.45 * stripes)


def photograph(view: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    """Return the picture that a camera takes of the ball, on black, (H, W, 3)."""
    rows = torch.arange(HEIGHT) + 0.5
    columns = torch.arange(WIDTH) + 0.5
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    x = (x - K[0, 2]) / K[0, 0]
    y = (y - K[1, 2]) / K[1, 1]
    rays = torch.stack([x, y, torch.ones_like(x)], -1)
    rays = torch.nn.functional.normalize(rays, dim=-1) @ view[:3, :3]
    position = -view[:3, :3].T @ view[:3, 3]
    middle = (rays * position).sum(-1)
    inside = middle**2 - position.dot(position) + 1
    hit = position + (-middle - inside.clamp(min=0).sqrt())[..., None] * rays
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
    views, K = cameras_around_ball()
    photos = torch.stack([photograph(view, K) for view in views])
    splatview.publish_cameras(views, K, WIDTH, HEIGHT, photos)
    target_sh0 = (color_of(normals) - 0.5) / 0.28209479177387814
    for step in range(steps):
        camera = step // 20 % COUNT
        splatview.publish_cameras(current=camera)
        position = -views[camera, :3, :3].T @ views[camera, :3, 3]
        # The Gaussians on this camera's side of the ball.
        is_visible = normals @ position > 1
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
