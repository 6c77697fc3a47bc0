"""Cameras around a ball, as frames and as photographs, for tests of what shows them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview_viewer.geometry.cameras import look_at
from support.frames import frame_of

if TYPE_CHECKING:
    from splatview_ipc.control.frame import Frame

SIZE = 48, 32


def ring(count: int = 8, distance: float = 4.0) -> tuple[torch.Tensor, torch.Tensor]:
    """(count, 4, 4) and (count, 3, 3): cameras in a circle that look at the origin, y down."""
    views = [look_at((distance * math.sin(a), -1.0, distance * math.cos(a)), (0, 0, 0))
             for a in np.linspace(0, 2 * math.pi, count, endpoint=False)]
    K = torch.tensor([[40.0, 0, SIZE[0] / 2], [0, 40, SIZE[1] / 2], [0, 0, 1]], dtype=torch.float64)
    return torch.from_numpy(np.array(views).reshape(-1, 4, 4)), K.repeat(count, 1, 1)


def photographs(count: int = 8, seed: int = 0) -> torch.Tensor:
    """(count, H, W, 3) uint8, each of a colour of its own, brighter to the right."""
    g = torch.Generator().manual_seed(seed)
    colors = torch.randint(60, 200, (count, 1, 1, 3), generator=g)
    return (colors + torch.arange(SIZE[0])[None, None, :, None]).expand(-1, SIZE[1], -1, -1).clamp(0, 255).to(
        torch.uint8).contiguous()


def cameras_frame(count: int = 8, photos: int = 0, paths: list[str] | None = None, distance: float = 4.0,
                  intact: bool = True, **meta: Any) -> Frame:
    """The cameras themselves."""
    views, Ks = ring(count, distance)
    tensors = {"viewmats": views, "Ks": Ks, "sizes": torch.tensor([SIZE] * count, dtype=torch.int32).reshape(-1, 2)}
    if paths is not None:
        tensors["paths"] = torch.frombuffer(bytearray(("\0".join(paths) + "\0").encode()), dtype=torch.uint8)
    return frame_of("cameras", tensors, intact=intact, photos=photos, **meta)


def photos_frame(photos: torch.Tensor, camera: int, side: int = 0, number: int = 1, intact: bool = True) -> Frame:
    """Photographs as a publisher brings them."""
    return frame_of("cameras", {"photos": photos}, intact=intact, camera=camera, side=side, photos=number)
