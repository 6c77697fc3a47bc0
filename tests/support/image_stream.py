"""The stream `image` of a pair: its values, and when a viewer shows them."""

from __future__ import annotations

from typing import Any

import torch

from splatview_ipc.publisher.stream import Stream
from support.pair import Pair


def image(value: int, side: int = 8) -> torch.Tensor:
    return torch.full((side, side), value, dtype=torch.uint8)


def published(pair: Pair) -> Stream:
    return pair.publisher.streams["image"]


def shows(pair: Pair, value: int, **options: Any) -> int:
    """Wait until a viewer is shown this value, and return the version."""

    def find_version() -> int:
        version, _, arrays = pair.newest(**options)
        if int(arrays["image"].max()) != value:
            return 0
        return version

    return pair.until(find_version, f"{value} is shown")
