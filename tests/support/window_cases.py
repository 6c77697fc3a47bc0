"""Pictures and scenes for `splatview.Window`, and a look at what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.desktop import Desktop

SIZE = 120, 90


def image(value: float, size: tuple[int, int] = SIZE) -> torch.Tensor:
    return torch.full((size[1], size[0], 3), value)


def scene(n: int = 400) -> tuple[torch.Tensor, ...]:
    """A red ball before a blue background, as the arguments of `set_gaussian_splatting_scene`."""
    g = torch.Generator().manual_seed(0)
    shs = torch.zeros(n, 4, 3)
    shs[:, 0] = torch.tensor([1.77, -1.77, -1.77])  # (0.5, -0.5, -0.5) over Y00: pure red
    rotations = torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1)
    return (torch.tensor([0.0, 0.0, 1.0]), torch.randn(n, 3, generator=g) * 0.3, shs, torch.full((n, 1), 0.95),
            torch.full((n, 3), 0.1), rotations)


class Seen:
    """Waits until a window shows something."""

    def __init__(self, desktop: Desktop, wait_until: Callable[..., Any]) -> None:
        self._desktop = desktop
        self._wait = wait_until

    def __call__(self, title: str, fits: Callable[[np.ndarray], Any]) -> np.ndarray:
        def look() -> list[np.ndarray]:
            picture = self._desktop.picture(title)
            return [picture] if picture is not None and picture.size and fits(picture) else []

        return self._wait(look, what=title)[0]

    def grey(self, title: str, value: float) -> np.ndarray:
        """The whole of it in one colour."""
        return self(title, lambda p: (np.abs(p.astype(int) - round(value * 255)) <= 1).all())



def red_ball(picture: np.ndarray) -> bool:
    h, w = picture.shape[:2]
    middle, corner = picture[h // 2, w // 2].astype(int), picture[2, 2].astype(int)
    return bool(middle[0] > 150 and middle[1:].max() < 90 and corner[2] > 200 and corner[:2].max() < 40)
