"""Rules for tensors of any names, which a function of the trainer's own draws from.

Names are those of a mapping, or of a module's parameters and buffers: "net.0.weight".
Any dtype that can be shared, any shape. Metadata "step" is optional.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from splatview_ipc.kinds.rules import Meta, Tensors


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless there are tensors."""
    if not tensors:
        raise ValueError("a frame of tensors needs one at least")
