"""Calls a function that draws a scene, and checks what it returns.

Nothing here waits for a GPU: whether all values are numbers is told by
`DrawnPicture.is_whole`, a tensor that is read once the picture has come to the host.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters.tensors import as_tensor, is_array
from splatview.adapters.value_texts import type_text
from splatview.rendering.trouble import DrawingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from splatview.rendering.camera import RenderCamera

_EXPECTED = "return rgb, or (rgb, depth, alpha) with None for what there is not"


@dataclass(frozen=True, slots=True)
class DrawnPicture:
    """A picture in the form in which viewers get it, on the function's device."""

    color: torch.Tensor
    """(H, W, 3) uint8; on a GPU (H, W, 4), with alpha."""
    depth: torch.Tensor | None
    """(H, W) float32."""
    alpha: torch.Tensor | None
    """(H, W) uint8; None: there is none, or `color` has it."""
    is_whole: torch.Tensor
    """() bool: no colour and no alpha is NaN."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame of kind picture."""
        tensors = {"color": self.color}
        if self.alpha is not None:
            tensors["alpha"] = self.alpha
        if self.depth is not None:
            tensors["depth"] = self.depth
        return tensors


NOT_WHOLE = (
    "the function returned a picture with NaN in rgb or alpha; expected numbers from 0 "
    "to 1: look for a division by 0, or use torch.nan_to_num"
)
"""The trouble with a picture whose `is_whole` is false."""


def draw_picture(
    function: Callable[..., Any], arguments: Sequence[Any], controls: Any
) -> DrawnPicture:
    """Call a function and return its picture, as viewers get it.

    Gradients are off in the call. The generators of random numbers, the current CUDA
    device and stream are afterwards as they were before it.

    Args:
        function: takes the arguments, and the controls unless it takes one fewer.
        arguments: what comes before the controls. The last one is the camera.
        controls: the values of the script's controls.

    Raises:
        DrawingError: what it returns cannot be shown.
        Exception: whatever the function raises.
    """
    camera: RenderCamera = arguments[-1]
    if takes_controls(function, len(arguments)):
        arguments = (*arguments, controls)
    with torch.no_grad(), _unchanged_state(camera.viewmat.device):
        return checked_picture(function(*arguments), camera)


def takes_controls(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function takes more than so many arguments by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return True
        is_positional = parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        # A default after the camera is the function's own, unless it is for controls.
        is_taken = parameter.default is parameter.empty or parameter.name == "controls"
        positional += is_positional and is_taken
    return positional > count


@contextlib.contextmanager
def _unchanged_state(device: torch.device) -> Iterator[None]:
    """Leave random numbers and the current CUDA device and stream as they were."""
    numpy_random: Any = sys.modules.get("numpy.random")
    python_state = random.getstate()
    numpy_state = None if numpy_random is None else numpy_random.get_state()
    gpus = [device] if device.type == "cuda" else []
    with contextlib.ExitStack() as restoring:
        restoring.callback(random.setstate, python_state)
        if numpy_random is not None:
            restoring.callback(numpy_random.set_state, numpy_state)
        restoring.enter_context(torch.random.fork_rng(gpus))
        if gpus:
            restoring.enter_context(torch.cuda.device(device))
            stream = torch.cuda.current_stream(device)
            restoring.enter_context(torch.cuda.stream(stream))
        yield


# ---- what a function returns


def checked_picture(value: Any, camera: RenderCamera) -> DrawnPicture:
    """Return what a function returned in the form in which viewers get it.

    Args:
        value: rgb, or (rgb, depth, alpha), of which the last two may be None. Tensors or
            arrays: rgb (H, W, 3) or (3, H, W), depth and alpha (H, W), (H, W, 1) or
            (1, H, W); uint8, or floating point, where rgb and alpha are clamped to 0..1
            and depth is camera z. Where there is alpha, rgb is premultiplied.
        camera: the camera that it was drawn with.

    Raises:
        DrawingError: it cannot be shown.
    """
    rgb, depth, alpha = _result_parts(value)
    size = camera.height, camera.width
    rgb_tensor = _channels_last(_tensor("rgb", rgb), "rgb", 3, size)
    device = rgb_tensor.device
    pixels: torch.Tensor | None = None
    if device.type == "cuda":
        pixels = torch.empty((*size, 4), dtype=torch.uint8, device=device)
    rgb_target = None if pixels is None else pixels[..., :3]
    color, whole_flags = _as_bytes("rgb", rgb_tensor, rgb_target)
    alpha_bytes: torch.Tensor | None = None
    if alpha is not None:
        alpha_tensor = _channels_last(_tensor("alpha", alpha), "alpha", 1, size)
        alpha_target = None if pixels is None else pixels[..., 3]
        alpha_bytes, flag = _as_bytes("alpha", alpha_tensor.to(device), alpha_target)
        whole_flags = whole_flags & flag
    elif pixels is not None:
        pixels[..., 3] = 255
    if pixels is not None:
        color = pixels
        alpha_bytes = None
    depth_floats = None
    if depth is not None:
        depth_tensor = _channels_last(_tensor("depth", depth), "depth", 1, size)
        if not depth_tensor.is_floating_point():
            raise DrawingError(
                f"depth is {_dtype(depth_tensor)}; expected floating point, camera z in "
                "world units: use .float()"
            )
        depth_floats = _settled(depth_tensor.to(device, torch.float32))
    return DrawnPicture(color, depth_floats, alpha_bytes, whole_flags)


def _result_parts(value: Any) -> tuple[Any, Any, Any]:
    """Return rgb, depth and alpha of what a function returned."""
    if value is None:
        raise DrawingError(f"the function returned nothing; {_EXPECTED}")
    if is_array(value):
        return value, None, None
    if not isinstance(value, (tuple, list)):
        raise DrawingError(f"the function returned {type_text(value)}; {_EXPECTED}")
    if len(value) == 1:
        return value[0], None, None
    if len(value) != 3:
        raise DrawingError(
            f"the function returned a {type(value).__name__} of {len(value)}; {_EXPECTED}"
        )
    rgb, depth, alpha = value
    return rgb, depth, alpha


def _tensor(name: str, value: Any) -> torch.Tensor:
    """Return a tensor over a value's memory, detached from its graph."""
    try:
        return as_tensor(value, name).detach()
    except (TypeError, ValueError) as error:
        raise DrawingError(str(error)) from None


def _channels_last(
    tensor: torch.Tensor, name: str, channels: int, size: tuple[int, int]
) -> torch.Tensor:
    """Return a tensor (H, W, channels), or (H, W) for one channel.

    Raises DrawingError unless it has this form and size (height, width).
    """
    shape = tuple(tensor.shape)
    if channels == 1 and shape == size:
        return tensor
    if shape == (*size, channels):
        return tensor[..., 0] if channels == 1 else tensor
    if shape == (channels, *size):
        return tensor[0] if channels == 1 else tensor.movedim(0, -1)
    height, width = size
    forms = [f"({height}, {width}, {channels})", f"({channels}, {height}, {width})"]
    if channels == 1:
        forms.insert(0, f"({height}, {width})")
    message = f"{name} has shape {shape}; expected {' or '.join(forms)}"
    raise DrawingError(f"{message}: {_advice_on_shape(shape, channels, size)}")


def _advice_on_shape(
    shape: tuple[int, ...], channels: int, size: tuple[int, int]
) -> str:
    """Return what to do about a shape that is not the one expected."""
    height, width = size
    if len(shape) > 3 and shape[0] == 1:
        return "take the first of the batch, [0]"
    if math.prod(shape) == height * width * channels and len(shape) <= 2:
        return f"use .reshape({height}, {width}, {channels})"
    if shape in ((*size, 4), (4, *size)):
        return "return alpha as the third part of (rgb, depth, alpha)"
    return "draw camera.height by camera.width pixels"


def _as_bytes(
    name: str, tensor: torch.Tensor, target: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values from 0 to 1 as uint8, and whether none is NaN, a tensor () bool.

    Args:
        name: what the values are, for users.
        tensor: the values.
        target: where to store them; None: in memory of their own.
    """
    if tensor.dtype == torch.uint8:
        is_whole = torch.ones((), dtype=torch.bool, device=tensor.device)
        return _stored(tensor, target), is_whole
    if not tensor.is_floating_point():
        raise DrawingError(
            f"{name} is {_dtype(tensor)}; expected uint8 from 0 to 255, or floating "
            "point from 0 to 1: use .to(torch.uint8), or .float() / 255"
        )
    is_whole = ~torch.isnan(tensor).any()
    # Half precision cannot hold the steps of 255.
    floats = tensor.float().clamp(0, 1)
    return _stored(floats.mul(255).add_(0.5), target), is_whole


def _stored(values: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    """Return values as uint8, in a target where there is one."""
    if target is None:
        return values.to(torch.uint8, copy=True).contiguous()
    return target.copy_(values)


def _settled(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy: the function may draw into the same memory again."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
