"""The protocol of an encoder: pixels in, the bytes of an image file out.

`tests/web/test_encoders.py` runs one conformance suite over all implementations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from splatview_viewer.web.messages import Format

    Pixels = np.ndarray | torch.Tensor
    Size = tuple[int, int]

MAX_SIDE = 16383
"""Pixels; the most that WebP and JPEG have in common."""
BEST = 90
"""From this quality on colours have the full resolution."""


class Encoder(Protocol):
    """Encodes one picture after the other; may be used by several threads at once."""

    name: ClassVar[str]
    format: ClassVar[Format]
    lossless: ClassVar[bool]
    cuda: ClassVar[bool]
    """Whether it takes CUDA tensors, and nothing else; otherwise arrays."""

    @property
    def reason(self) -> str:
        """Why a faster one is not used; "" where there is none."""
        ...

    @property
    def gpu_ms(self) -> float | None:
        """Milliseconds that the GPU spent on this thread's last picture; None where it has no part in it."""
        ...

    def encode(self, pixels: Pixels, quality: int, *, bottom_up: bool = False, size: Size | None = None) -> bytes:
        """The file. Alpha is dropped.

        `pixels`: (H, W, 4) uint8, contiguous, sides 1 to MAX_SIDE; on the GPU it must be there for what this thread's
        current CUDA stream does next, and is read no more when the call returns. `quality`: 1 to 100, of no meaning
        to a lossless one. `bottom_up`: the first row is the lowest, as OpenGL has it. `size`: width and height to
        shrink the picture to. Raises ValueError for other pixels, quality or size, ViewerError when encoding fails.
        """
        ...

    def close(self) -> None:
        """Give back everything; waits for what is being encoded. Idempotent."""
        ...


def check(pixels: Pixels, quality: int, size: Size | None) -> None:
    """Raises ValueError for what no encoder takes."""
    shape, kind = tuple(pixels.shape), str(pixels.dtype).removeprefix("torch.")
    contiguous = pixels.flags.c_contiguous if isinstance(pixels, np.ndarray) else pixels.is_contiguous()
    if len(shape) != 3 or shape[2] != 4 or kind != "uint8" or not contiguous:
        raise ValueError(f"pixels: {kind} {shape}{'' if contiguous else ', not contiguous'}; an encoder takes "
                         "contiguous uint8 (H, W, 4)")
    if not all(1 <= n <= MAX_SIDE for n in shape[:2]):
        raise ValueError(f"pixels: {shape[1]} x {shape[0]}; both sides must be 1 to {MAX_SIDE}")
    if not 1 <= quality <= 100:
        raise ValueError(f"quality: {quality} is not 1 to 100")
    if size is not None and not (1 <= size[0] <= shape[1] and 1 <= size[1] <= shape[0]):
        raise ValueError(f"size: {size[0]} x {size[1]}; a picture of {shape[1]} x {shape[0]} can be shrunk only")


def host_pixels(pixels: Pixels) -> np.ndarray:
    """The pixels as an array; those of a GPU are copied, for which this thread waits."""
    return pixels if isinstance(pixels, np.ndarray) else pixels.cpu().numpy()


def shrunk(pixels: np.ndarray, size: Size) -> Image.Image:
    """(H, W, 4) uint8 as a picture of another size, each pixel the mean of those that it stands for."""
    from PIL import Image

    height, width = pixels.shape[:2]
    image = Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1)
    for factor in (2, 3, 4):
        if size == (-(-width // factor), -(-height // factor)):
            return image.reduce(factor)  # four times as fast
    return image.resize(size, Image.Resampling.BOX)
