"""torch's side of a picture on its way to OpenGL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    import torch

    from splatview_ipc.gl.base import Form, Pixels


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def cuda_tensor(tensor: Pixels, device: int) -> torch.Tensor:
    """A picture as a CUDA tensor on `device`, this process's ordinal, in the order of its current stream.

    From another GPU it is copied. Raises SharingError for a tensor in host memory, or on a GPU that is not visible.
    """
    import torch

    if isinstance(tensor, torch.Tensor):
        values = tensor.detach()
    elif getattr(tensor, "memory", None) is not None:
        values = tensor.torch()  # type: ignore[union-attr]
        tensor.ready(torch.cuda.current_stream(values.device).cuda_stream)  # type: ignore[union-attr]
    else:
        raise SharingError("the tensor is in host memory")
    if not values.is_cuda:
        raise SharingError(f"the tensor is on {values.device}")
    return values if values.device.index == device else values.to(torch.device("cuda", device), non_blocking=True)


def height_width_channels(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """A view of it as (H, W, C)."""
    return tensor.unsqueeze(-1) if layout == "HW" else tensor.movedim(0, -1) if layout == "CHW" else tensor


def fewest_values(form: Form) -> int:
    """Values per pixel at which a shader reads a pixel with one fetch; the unused ones are left as they are."""
    return 4 if form.channels == 3 and form.dtype != "float32" else form.channels
