"""Names of tensors' element types, as messages hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype: "float32" for torch.float32."""
    return str(tensor.dtype).rpartition(".")[2]
