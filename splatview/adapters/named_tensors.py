"""Mappings of names to tensors, and modules, from which a function draws.

Modules, and mappings within a mapping, are flattened with dots: "net.0.weight". Of a
module its parameters and buffers count. A layout remembers where each tensor was found:
the next value of that form costs one look-up for each tensor and each module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from splatview.adapters.gaussians import TensorForm
from splatview.adapters.tensors import as_tensor, is_array
from splatview.adapters.value_texts import short_repr, type_text
from splatview_ipc.control.dtypes import DTYPES, dtype_name
from splatview_ipc.control.limits import MAX_DIMS, MAX_TENSOR_NAME, MAX_TENSORS
from splatview_ipc.control.messages import TensorName
from splatview_ipc.kinds.gaussians import FIELD_NAMES
from splatview_ipc.kinds.rendered import sample_stride

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensors = tuple[torch.Tensor, ...]

_POSITION_NAMES = (
    *FIELD_NAMES["means"],
    "points",
    "vertices",
    "verts",
    "centers",
    "pos",
)
"""Last parts of names that positions have, the likeliest first."""
_MODULE_TABLES = ("_parameters", "_buffers", "_modules")
"""Where a module of torch keeps what is its own. To ask for it by name costs ten times
as much, at every publish."""
_MAX_DEPTH = 32
"""Modules and mappings within each other."""


class Holder(NamedTuple):
    """A module or mapping within a value."""

    outer: int
    """Number of the holder that it is in."""
    find: Callable[[Any], Any]
    """Returns it, given the outer one."""


class TensorPlace(NamedTuple):
    """The place of a tensor within a value."""

    holder: int
    """Number of its holder."""
    find: Callable[[Any], Any]
    """Returns the tensor, given its holder."""


class NamedTensorsLayout:
    """The form of values that hold the same names."""

    kind = "tensors"

    def __init__(self, value: Any) -> None:
        """Find and check the tensors of a value.

        Raises:
            TypeError: it is no mapping or module, or holds something else than arrays.
            ValueError: names, shapes, dtypes or devices that cannot be shared.
        """
        self._type = type(value)
        self._is_mapping = isinstance(value, Mapping)
        self._count = len(value) if self._is_mapping else 0
        self._holders: list[Holder] = []
        self._tensor_places: dict[str, TensorPlace] = {}
        self._find(value, 0, "", 0)
        self.names = tuple(self._tensor_places)
        if not 1 <= len(self.names) <= MAX_TENSORS:
            raise ValueError(
                f"{type_text(value)} with {len(self.names)} tensors; expected 1 to "
                f"{MAX_TENSORS}: publish those that the function draws from"
            )
        arrays = self._read(value)
        tensors = tuple(map(as_tensor, arrays, self.names))
        self._must_convert = not all(isinstance(a, torch.Tensor) for a in arrays)
        """True for arrays of other libraries."""
        self._check(tensors)
        self._forms = tuple(TensorForm(t.shape, t.dtype, t.device) for t in tensors)
        self._sizes = [t.nbytes for t in tensors]
        self._last: Tensors = tensors
        self.device = str(tensors[0].device)
        self.shape = (len(tensors),)
        self.dtype = dtype_name(tensors[0])
        self.positions = position_index(self.names, tensors)
        """Number of the tensor that looks like positions; None: none does."""

    def match(self, value: Any, meta: dict[str, Any]) -> Any:
        """Return the tensors and metadata to publish; None for a value of another form."""
        if type(value) is not self._type:
            return None
        if self._is_mapping and len(value) != self._count:
            return None
        try:
            tensors = self._read(value)
            if self._must_convert:
                tensors = tuple(map(as_tensor, tensors, self.names))
            # The very tensors of the last call keep their shapes, but for an assignment
            # to `.data`, which changes their sizes.
            last = self._last
            is_last = len(last) > 0 and all(map(is_, tensors, last))
            if not is_last or [tensor.nbytes for tensor in tensors] != self._sizes:
                forms = zip(self._forms, tensors, strict=True)
                if not all(form.fits(tensor) for form, tensor in forms):
                    return None
                last = tensors
                self._last = last
        except (LookupError, AttributeError, TypeError, ValueError):
            return None
        return last, meta

    def release(self) -> None:
        """Let go of the tensors of the last value. On any thread."""
        self._last = ()

    def frame(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name, of those that `match` has checked."""
        plain_tensors = (tensor.detach().resolve_neg() for tensor in tensors)
        return dict(zip(self.names, plain_tensors, strict=True))

    def _read(self, value: Any) -> Tensors:
        """Return what is at the places of a value's tensors."""
        holders = [value]
        for outer, find in self._holders:
            holders.append(find(holders[outer]))
        return tuple(
            [find(holders[holder]) for holder, find in self._tensor_places.values()]
        )

    def _find(self, value: Any, holder_number: int, prefix: str, depth: int) -> None:
        """Note where the tensors of a holder are, and those of holders within it.

        Args:
            value: a mapping or module.
            holder_number: its number among the holders.
            prefix: what stands before the names in it.
            depth: holders around it.
        """
        if depth > _MAX_DEPTH:
            raise ValueError(
                f"{prefix.rstrip('.')} is {depth} mappings or modules deep; expected at "
                f"most {_MAX_DEPTH}: does it hold itself?"
            )
        if isinstance(value, torch.nn.Module):
            for table in _MODULE_TABLES:
                items = getattr(value, table)
                if not items:
                    continue
                self._holders.append(Holder(holder_number, attrgetter(table)))
                self._find_items(items, len(self._holders), prefix, depth)
            return
        if not isinstance(value, Mapping):
            name = prefix.rstrip(".") or "value"
            raise TypeError(
                f"{name} is {type_text(value)}; a function draws from a mapping of names "
                "to tensors, such as {'means': means}, or from a torch.nn.Module"
            )
        self._find_items(value, holder_number, prefix, depth)

    def _find_items(
        self, items: Mapping[str, Any], holder_number: int, prefix: str, depth: int
    ) -> None:
        """Note where the tensors among the items of a holder are, and within them."""
        for key, item in items.items():
            name = f"{prefix}{key}"
            if item is None:
                continue
            if not isinstance(key, str) or not _is_tensor_name(name):
                raise ValueError(
                    f"a tensor is called {short_repr(name)}; expected letters, digits "
                    f"and '_', with dots between parts, at most {MAX_TENSOR_NAME}"
                )
            if not is_array(item):
                self._holders.append(Holder(holder_number, itemgetter(key)))
                self._find(item, len(self._holders), f"{name}.", depth + 1)
            elif name in self._tensor_places:
                raise ValueError(f"two tensors are called {name!r}: rename one")
            else:
                self._tensor_places[name] = TensorPlace(holder_number, itemgetter(key))

    def _check(self, tensors: Tensors) -> None:
        """Raise ValueError for tensors that cannot be shared together."""
        device = tensors[0].device
        for name, tensor in zip(self.names, tensors, strict=True):
            if tensor.device != device:
                raise ValueError(
                    f"{name} is on {tensor.device} and {self.names[0]} on {device}; "
                    "expected one device: move it there"
                )
            if dtype_name(tensor) not in DTYPES:
                raise ValueError(
                    f"{name} is {dtype_name(tensor)}; expected {', '.join(DTYPES)}"
                )
            if tensor.ndim > MAX_DIMS:
                raise ValueError(
                    f"{name} has {tensor.ndim} dimensions; at most {MAX_DIMS} travel"
                )


def _is_tensor_name(name: str) -> bool:
    try:
        msgspec.convert(name, TensorName)
    except msgspec.ValidationError:
        return False
    return True


# ---- the scene that viewers see of it


def position_index(names: tuple[str, ...], tensors: Tensors) -> int | None:
    """Return the number of the tensor that looks like positions; None: none does.

    It is (N, 3), of floating point, with a name that trainers give to positions.
    """
    candidates: list[tuple[int, int, int]] = []
    for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        last_part = name.rpartition(".")[2]
        is_table = tensor.ndim == 2 and tensor.shape[1] == 3 and len(tensor) > 0
        if is_table and tensor.is_floating_point() and last_part in _POSITION_NAMES:
            rank = _POSITION_NAMES.index(last_part)
            candidates.append((rank, -len(tensor), index))
    if not candidates:
        return None
    return min(candidates)[2]


@dataclass
class RenderedLayout:
    """The form of the scene that viewers see: a sample of its points."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    device: str = "cpu"
    kind: str = "rendered"

    def frame(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name: of positions every nth."""
        if not tensors:
            return {}
        positions = tensors[0].detach().resolve_neg()
        stride = sample_stride(len(positions))
        return {"points": positions[::stride].to(torch.float32)}


def rendered_layout(positions: torch.Tensor | None) -> RenderedLayout:
    """Return the layout of scenes with positions of this form, or without any."""
    if positions is None:
        return RenderedLayout()
    count = math.ceil(len(positions) / sample_stride(len(positions)))
    return RenderedLayout((count, 3), device=str(positions.device))
