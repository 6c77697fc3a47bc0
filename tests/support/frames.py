"""Frames as a subscriber hands them out, made of tensors at hand."""

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
    return StreamFrame(
        kind,
        version,
        0,
        meta,
        {k: remote(t) for k, t in tensors.items()},
        lambda: intact,
        lambda: None,
    )


def image_frame(
    tensor: torch.Tensor | np.ndarray, layout: str | None = None, **more: Any
) -> StreamFrame:
    tensor = torch.as_tensor(tensor)
    return frame_of(
        "image",
        {"image": tensor},
        layout=layout or ("HW" if tensor.ndim == 2 else "HWC"),
        **more,
    )


def cloud(n: int = 400, seed: int = 0) -> dict[str, torch.Tensor]:
    """A ball of small Gaussians: log scales, logit opacities, SH degree 0."""
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
    """(n, 13) float64: a training whose memory goes up and down, and higher once."""
    rows = torch.zeros(n, 13, dtype=torch.float64)
    t = torch.arange(n, dtype=torch.float64)
    rows[:, 0], rows[:, 1] = 1.7e9 + period * t, t.div(5, rounding_mode="floor")
    rows[:, 2] = 4e9 + 1e9 * torch.sin(0.3 * t)
    rows[:, 3], rows[:, 4] = rows[:, 2] - 0.5e9, rows[:, 2] + 1e9
    rows[n // 2, 4] = 9e9
    rows[:, 5], rows[:, 6] = rows[:, 4] + 0.2e9, rows[:, 2] - 0.1e9
    rows[:, 7] = 8e9
    rows[:, 8] = 0.4e9
    rows[:, 9] = 1e9
    rows[n // 2 :, 7] = 10e9
    rows[:, 10] = 100 * t
    return rows


def memory_frame(rows: torch.Tensor | None = None, **more: Any) -> StreamFrame:
    meta = {
        "device": "cuda:0",
        "gpu": "A GPU",
        "total": 80 * 2**30,
        "hz": 10.0,
        "snapshot": "",
        "snapshots": 0,
        "trouble": "",
    } | more
    return frame_of(
        "memory", {"samples": memory_samples() if rows is None else rows}, **meta
    )


def gaussian_frame(
    tensors: dict[str, torch.Tensor] | None = None, **more: Any
) -> StreamFrame:
    meta = {
        "color": "sh",
        "activated": False,
        "sh_degree": 0,
        "antialiased": False,
    } | more
    return frame_of("gaussians", cloud() if tensors is None else tensors, **meta)


def scalar_rows(n: int = 400, seed: int = 0) -> dict[str, torch.Tensor]:
    """(n, 7) float64 by name: a loss that falls, a count that grows, and a rare measure."""
    noise = torch.randn(
        n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    steps = torch.arange(n, dtype=torch.float64)

    def rows(value: torch.Tensor, every: int = 1) -> torch.Tensor:
        found = torch.stack(
            [
                steps,
                1.7e9 + 0.05 * steps,
                value,
                value,
                value,
                0 * steps + 1,
                0 * steps,
            ],
            dim=1,
        )
        return found[::every].contiguous()

    return {
        "loss": rows(torch.exp(-steps / 100) + 0.1 + 0.02 * noise),
        "parts/count": rows(1000 + 3 * steps),
        "parts/rare": rows(20 + 0.01 * steps, 50),
    }


def scalars_frame(
    rows: dict[str, torch.Tensor] | None = None, **more: Any
) -> StreamFrame:
    rows = scalar_rows() if rows is None else rows
    tensors = {
        "rows": torch.cat([*rows.values()]),
        "ends": torch.tensor([len(r) for r in rows.values()]).cumsum(0).to(torch.int32),
        "names": torch.tensor(
            [*"".join(f"{name}\0" for name in rows).encode()], dtype=torch.uint8
        ),
    }
    return frame_of("scalars", tensors, **more)


def poses(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 4, 4) rigid transforms and (n, 3, 3) intrinsics."""
    g = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=g))
    turn = turn * torch.linalg.det(turn)[:, None, None].sign()
    views = torch.eye(4).repeat(n, 1, 1)
    views[:, :3, :3] = turn
    views[:, :3, 3] = torch.randn(n, 3, generator=g)
    K = torch.tensor([[50.0, 0, 20], [0, 50, 15], [0, 0, 1]])
    return views, K.repeat(n, 1, 1)


NAMES = ("means", "quats", "scales", "opacities", "sh0", "shN")


def scene(
    n: int = 500, degree: int = 3, seed: int = 0, activated: bool = False
) -> GaussianScene:
    g = torch.Generator().manual_seed(seed)
    parts, _ = scene_of(gaussian_frame(cloud(n, seed)))
    higher = 0.2 * torch.randn(n, (degree + 1) ** 2 - 1, 3, generator=g)
    parts = dataclasses.replace(
        parts,
        shN=higher,
        sh_degree=degree,
        quats=parts.quats * (0.1 + 9.9 * torch.rand(n, 1, generator=g)),
        scales=parts.scales + torch.randn(n, 3, generator=g),
    )
    if activated:
        parts = dataclasses.replace(
            parts,
            activated=True,
            scales=parts.scales.exp(),
            opacities=parts.opacities.sigmoid(),
        )
    return parts


SIZE = 48, 32


def ring(count: int = 8, distance: float = 4.0) -> tuple[torch.Tensor, torch.Tensor]:
    """(count, 4, 4) and (count, 3, 3): cameras in a circle that look at the origin, y down."""
    views = [
        look_at((distance * math.sin(a), -1.0, distance * math.cos(a)), (0, 0, 0))
        for a in np.linspace(0, 2 * math.pi, count, endpoint=False)
    ]
    K = torch.tensor(
        [[40.0, 0, SIZE[0] / 2], [0, 40, SIZE[1] / 2], [0, 0, 1]], dtype=torch.float64
    )
    return torch.from_numpy(np.array(views).reshape(-1, 4, 4)), K.repeat(count, 1, 1)


def photographs(count: int = 8, seed: int = 0) -> torch.Tensor:
    """(count, H, W, 3) uint8, each of a colour of its own, brighter to the right."""
    g = torch.Generator().manual_seed(seed)
    colors = torch.randint(60, 200, (count, 1, 1, 3), generator=g)
    return (
        (colors + torch.arange(SIZE[0])[None, None, :, None])
        .expand(-1, SIZE[1], -1, -1)
        .clamp(0, 255)
        .to(torch.uint8)
        .contiguous()
    )


def cameras_frame(
    count: int = 8,
    photos: int = 0,
    paths: list[str] | None = None,
    distance: float = 4.0,
    intact: bool = True,
    **meta: Any,
) -> StreamFrame:
    """The cameras themselves."""
    views, Ks = ring(count, distance)
    tensors = {
        "viewmats": views,
        "Ks": Ks,
        "sizes": torch.tensor([SIZE] * count, dtype=torch.int32).reshape(-1, 2),
    }
    if paths is not None:
        tensors["paths"] = torch.frombuffer(
            bytearray(("\0".join(paths) + "\0").encode()), dtype=torch.uint8
        )
    return frame_of("cameras", tensors, intact=intact, photos=photos, **meta)


def photos_frame(
    photos: torch.Tensor,
    camera: int,
    side: int = 0,
    number: int = 1,
    intact: bool = True,
) -> StreamFrame:
    """Photographs as a publisher brings them."""
    return frame_of(
        "cameras",
        {"photos": photos},
        intact=intact,
        camera=camera,
        side=side,
        photos=number,
    )
