"""The table of tensors' element types, by their names in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import torch

DType = Literal[
    "uint8",
    "uint16",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int32",
    "int64",
    "bool",
]


class DtypeFacts(NamedTuple):
    """Facts about an element type that can be shared."""

    item_size: int
    """Bytes of an element."""
    numpy: str
    """NumPy's name of what holds the elements: integers for bfloat16, which it lacks."""
    is_float: bool = True
    one: float = 1.0
    """The value that a shader sees as 1 in a picture."""


DTYPES: dict[str, DtypeFacts] = {
    "uint8": DtypeFacts(1, "uint8", is_float=False, one=255.0),
    "uint16": DtypeFacts(2, "uint16", is_float=False, one=65535.0),
    "float16": DtypeFacts(2, "float16"),
    "bfloat16": DtypeFacts(2, "uint16"),
    "float32": DtypeFacts(4, "float32"),
    "float64": DtypeFacts(8, "float64"),
    "int32": DtypeFacts(4, "int32", is_float=False),
    "int64": DtypeFacts(8, "int64", is_float=False),
    "bool": DtypeFacts(1, "bool", is_float=False),
}
"""Facts by `DType`. `tests/ipc/test_dtypes.py` compares the lists of `kinds/` and the
tables of OpenGL's names with it."""


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype: "float32" for torch.float32."""
    return str(tensor.dtype).rpartition(".")[2]
