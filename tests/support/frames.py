"""Frames as a subscriber hands them out, made of given tensors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch

from splatview_ipc.control.frame import DeviceTensor, RemoteTensor, StreamFrame
from splatview_viewer.geometry.cameras import look_at
from splatview_viewer.scene.frames import scene_of
from splatview_viewer.scene.scene import GaussianScene


def remote(tensor: torch.Tensor) -> RemoteTensor:
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return RemoteTensor("bfloat16", tensor.view(torch.uint16).numpy())
    return RemoteTensor(str(tensor.dtype).removeprefix("torch."), tensor.numpy())


def host_array(tensor: RemoteTensor | DeviceTensor) -> np.ndarray:
    """Return the array of a tensor in host memory."""
    assert isinstance(tensor, RemoteTensor)
    return tensor.array


def frame_of(
    kind: str,
    tensors: dict[str, torch.Tensor],
    *,
    intact: bool = True,
    version: int = 1,
    **meta: Any,
) -> StreamFrame:
    def is_intact() -> bool:
        return intact

    def close() -> None:
        pass

    remote_tensors: dict[str, RemoteTensor | DeviceTensor] = {}
    for name, tensor in tensors.items():
        remote_tensors[name] = remote(tensor)
    return StreamFrame(kind, version, 0, meta, remote_tensors, is_intact, close)


def image_frame(
    tensor: torch.Tensor | np.ndarray, layout: str | None = None, **meta: Any
) -> StreamFrame:
    tensor = torch.as_tensor(tensor)
    if not layout:
        layout = "HW" if tensor.ndim == 2 else "HWC"
    return frame_of("image", {"image": tensor}, layout=layout, **meta)


def cloud(n: int = 400, seed: int = 0) -> dict[str, torch.Tensor]:
    """Make a ball of small Gaussians: log scales, logit opacities, SH degree 0."""
    g = torch.Generator().manual_seed(seed)
    means = torch.randn(n, 3, generator=g)
    means = means / means.norm(dim=1, keepdim=True)
    return {
        "means": means,
        "quats": torch.randn(n, 4, generator=g),
        "scales": torch.full((n, 3), -2.5) + 0.3 * torch.rand(n, 3, generator=g),
        "opacities": 1.0 + torch.rand(n, generator=g),
        "sh0": torch.rand(n, 3, generator=g) * 2 - 1,
    }


def memory_samples(n: int = 200, period: float = 0.1) -> torch.Tensor:
    """Make (n, 13) float64 of a training whose memory goes up and down, once higher."""
    rows = torch.zeros(n, 13, dtype=torch.float64)
    t = torch.arange(n, dtype=torch.float64)
    rows[:, 0] = 1.7e9 + period * t
    rows[:, 1] = t.div(5, rounding_mode="floor")
    rows[:, 2] = 4e9 + 1e9 * torch.sin(0.3 * t)
    rows[:, 3] = rows[:, 2] - 0.5e9
    rows[:, 4] = rows[:, 2] + 1e9
    rows[n // 2, 4] = 9e9
    rows[:, 5] = rows[:, 4] + 0.2e9
    rows[:, 6] = rows[:, 2] - 0.1e9
    rows[:, 7] = 8e9
    rows[:, 8] = 0.4e9
    rows[:, 9] = 1e9
    rows[n // 2 :, 7] = 10e9
    rows[:, 10] = 100 * t
    return rows


def memory_frame(rows: torch.Tensor | None = None, **changes: Any) -> StreamFrame:
    meta = {
        "device": "cuda:0",
        "gpu": "A GPU",
        "total": 80 * 2**30,
        "hz": 10.0,
        "snapshot": "",
        "snapshots": 0,
        "trouble": "",
    }
    if rows is None:
        rows = memory_samples()
    return frame_of("memory", {"samples": rows}, **meta | changes)


def gaussian_frame(
    tensors: dict[str, torch.Tensor] | None = None, **changes: Any
) -> StreamFrame:
    meta = {
        "color": "sh",
        "activated": False,
        "sh_degree": 0,
        "antialiased": False,
    }
    if tensors is None:
        tensors = cloud()
    return frame_of("gaussians", tensors, **meta | changes)


def scalar_rows(n: int = 400, seed: int = 0) -> dict[str, torch.Tensor]:
    """Make (n, 7) float64 by name.

    They are a loss that falls, a count that grows, and a rare measure.
    """
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(n, generator=g, dtype=torch.float64)
    steps = torch.arange(n, dtype=torch.float64)
    times = 1.7e9 + 0.05 * steps
    counts = 0 * steps + 1

    def rows(value: torch.Tensor, period: int = 1) -> torch.Tensor:
        columns = [steps, times, value, value, value, counts, 0 * steps]
        return torch.stack(columns, dim=1)[::period].contiguous()

    return {
        "loss": rows(torch.exp(-steps / 100) + 0.1 + 0.02 * noise),
        "parts/count": rows(1000 + 3 * steps),
        "parts/rare": rows(20 + 0.01 * steps, 50),
    }


def scalars_frame(
    rows: dict[str, torch.Tensor] | None = None, **meta: Any
) -> StreamFrame:
    if rows is None:
        rows = scalar_rows()
    lengths = torch.tensor([len(r) for r in rows.values()])
    names = "".join(f"{name}\0" for name in rows).encode()
    tensors = {
        "rows": torch.cat([*rows.values()]),
        "ends": lengths.cumsum(0).to(torch.int32),
        "names": torch.tensor([*names], dtype=torch.uint8),
    }
    return frame_of("scalars", tensors, **meta)


def poses(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Make (n, 4, 4) rigid transforms and (n, 3, 3) intrinsics."""
    g = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=g))
    rotation = rotation * torch.linalg.det(rotation)[:, None, None].sign()
    views = torch.eye(4).repeat(n, 1, 1)
    views[:, :3, :3] = rotation
    views[:, :3, 3] = torch.randn(n, 3, generator=g)
    K = torch.tensor([[50.0, 0, 20], [0, 50, 15], [0, 0, 1]])
    return views, K.repeat(n, 1, 1)


NAMES = ("means", "quats", "scales", "opacities", "sh0", "shN")


def scene(
    n: int = 500, degree: int = 3, seed: int = 0, activated: bool = False
) -> GaussianScene:
    g = torch.Generator().manual_seed(seed)
    gaussians, _ = scene_of(gaussian_frame(cloud(n, seed)))
    higher = 0.2 * torch.randn(n, (degree + 1) ** 2 - 1, 3, generator=g)
    gaussians = dataclasses.replace(
        gaussians,
        shN=higher,
        sh_degree=degree,
        quats=gaussians.quats * (0.1 + 9.9 * torch.rand(n, 1, generator=g)),
        scales=gaussians.scales + torch.randn(n, 3, generator=g),
    )
    if not activated:
        return gaussians
    return dataclasses.replace(
        gaussians,
        activated=True,
        scales=gaussians.scales.exp(),
        opacities=gaussians.opacities.sigmoid(),
    )


SIZE = 48, 32


def ring(count: int = 8, distance: float = 4.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Make cameras in a circle that look at the origin, y down.

    Returns:
        World to camera (count, 4, 4), and intrinsics (count, 3, 3).
    """
    views = []
    for angle in np.linspace(0, 2 * math.pi, count, endpoint=False):
        position = (distance * math.sin(angle), -1.0, distance * math.cos(angle))
        views.append(look_at(position, (0, 0, 0)))
    K = torch.tensor(
        [[40.0, 0, SIZE[0] / 2], [0, 40, SIZE[1] / 2], [0, 0, 1]], dtype=torch.float64
    )
    return torch.from_numpy(np.array(views).reshape(-1, 4, 4)), K.repeat(count, 1, 1)


def photographs(count: int = 8, seed: int = 0) -> torch.Tensor:
    """Make (count, H, W, 3) uint8, each of its own colour, brighter to the right."""
    g = torch.Generator().manual_seed(seed)
    width, height = SIZE
    colors = torch.randint(60, 200, (count, 1, 1, 3), generator=g)
    rows = colors + torch.arange(width)[None, None, :, None]
    images = rows.expand(-1, height, -1, -1)
    return images.clamp(0, 255).to(torch.uint8).contiguous()


def cameras_frame(
    count: int = 8,
    photos: int = 0,
    paths: list[str] | None = None,
    distance: float = 4.0,
    intact: bool = True,
    **meta: Any,
) -> StreamFrame:
    """Make a frame of cameras, without photographs."""
    views, Ks = ring(count, distance)
    tensors = {
        "viewmats": views,
        "Ks": Ks,
        "sizes": torch.tensor([SIZE] * count, dtype=torch.int32).reshape(-1, 2),
    }
    if paths is not None:
        text = bytearray(("\0".join(paths) + "\0").encode())
        tensors["paths"] = torch.frombuffer(text, dtype=torch.uint8)
    return frame_of("cameras", tensors, intact=intact, photos=photos, **meta)


def photos_frame(
    photos: torch.Tensor,
    camera: int,
    side: int = 0,
    number: int = 1,
    intact: bool = True,
) -> StreamFrame:
    """Make a frame of photographs as a publisher sends them."""
    return frame_of(
        "cameras",
        {"photos": photos},
        intact=intact,
        camera=camera,
        side=side,
        photos=number,
    )
