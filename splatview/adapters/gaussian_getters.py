"""Getters and activations of models that differ from the usual ones.

A `GaussianModel` says what is drawn by its getters: `get_scaling` is usually exp of
`_scaling`, and then the viewer works on the raw tensors. Some models have another
activation (Taming 3DGS: abs for opacities), also from the middle of a training on, or
move their Gaussians with a mesh (GaussianAvatars). Each getter is tried on a few numbers
on the CPU, in place of the model's tensors, so that nothing waits for a GPU. One that
gives what the raw numbers stand for is not called again until something that it read has
changed. Any other one is called at each publish.
"""

from __future__ import annotations

import enum
import functools
import inspect
import logging
import types
from dataclasses import dataclass, replace
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters.gaussian_holders import attribute
from splatview.adapters.tensors import as_tensor, is_array
from splatview_ipc.kinds.gaussians import FILTER_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger("splatview")

GETTERS = {
    "means": ("get_xyz", "get_means", "get_positions"),
    "quats": ("get_rotation", "get_rotations"),
    "scales": ("get_scaling", "get_scales", "get_scale"),
    "opacities": ("get_opacity", "get_opacities", "get_density"),
    "color": ("get_features", "get_shs"),
}
"""Names of properties or methods by which models give each part as it is drawn."""
ACTIVATIONS = {
    "quats": ("rotation_activation",),
    "scales": ("scaling_activation", "scale_activation"),
    "opacities": ("opacity_activation", "density_activation"),
}
"""Functions of models without such a getter, which make the drawn part of the stored one."""
_ROWS = 9
"""Gaussians on which getters are tried."""
_RANGES = {"means": 3.0, "quats": 2.0, "scales": 7.0, "opacities": 9.0, "color": 1.0}
"""The largest of the numbers on which they are tried, and minus the smallest."""
_CONSTANTS = (bool, int, float, str, type(None), enum.Enum)
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type,
    torch.jit.ScriptFunction,
    functools.partial,
)
_MAX_DEPTH = 4
"""Functions within each other that are inspected."""
_MISSING = object()


@dataclass(frozen=True)
class _OfType:
    """The type of a value, watched in its place where it may change in itself."""

    type: type


class _OpaqueError(Exception):
    """A getter uses something that samples cannot stand for."""


@dataclass
class Getters:
    """The getters by which parts of a model are read, and the attributes they depend on."""

    parts: Mapping[str, Callable[[Any], torch.Tensor]]
    """Functions from the model to a part as it is drawn, by field.

    There is one for each part that is not what the raw tensor stands for.
    """
    watched: tuple[tuple[str, Any], ...] = ()
    """Attributes that the getters read, and their values."""
    usual: frozenset[str] = frozenset()
    """Fields whose getters give what the raw tensors stand for."""
    postponed: bool = False
    """True if they could not be called now and are tried again at the next publish."""
    filters: bool = False
    """True if a getter of scales or opacities applies the 3D filter itself."""

    def __post_init__(self) -> None:
        names = [name for name, _ in self.watched]
        values = [value for _, value in self.watched]
        self._values = (*values, *values[:1])
        # An attrgetter of at least two names returns a tuple.
        self._read_watched: Any = attrgetter(*names, *names[:1]) if names else None

    def changed(self, model: Any) -> bool:
        """Return whether the getters may mean something else by now. Called at each publish."""
        if not self.watched:
            return False
        try:
            current = self._read_watched(model)
        except AttributeError:
            return True
        if all(map(is_, current, self._values)):
            return False
        return self._differs(model)

    def _differs(self, model: Any) -> bool:
        return any(self._has_changed(model, *pair) for pair in self.watched)

    @staticmethod
    def _has_changed(model: Any, name: str, value: Any) -> bool:
        current = getattr(model, name, _MISSING)
        if current is value:
            return False
        if isinstance(value, _OfType):
            return type(current) is not value.type
        return not isinstance(current, _CONSTANTS) or current != value

    def read(self, model: Any) -> dict[str, torch.Tensor]:
        """Return the parts that the model's own getters give, queued on torch's current stream."""
        with torch.no_grad():
            return {field: read(model) for field, read in self.parts.items()}

    def settled(self, model: Any) -> Getters:
        """Return the getters without the attributes that reading a part has changed.

        A getter may count its calls, or keep what it computed.
        """
        unchanged = [
            pair for pair in self.watched if not self._has_changed(model, *pair)
        ]
        if len(unchanged) == len(self.watched):
            return self
        return replace(self, watched=tuple(unchanged))

    def only(self, fields: Iterable[str]) -> Getters:
        """Return the getters of these parts alone."""
        return replace(self, parts={field: self.parts[field] for field in fields})


NONE = Getters({})


def getters_of(
    model: Any, keys: Mapping[str, str], container: str | None, skipped: set[str]
) -> Getters:
    """Try a model's getters; return those that differ from what raw tensors stand for.

    Args:
        model: the object.
        keys: the names of its raw parts by field, "color_rest" included.
        container: its attribute that holds them; None: they are attributes of its own.
        skipped: fields whose getters do not count.
    """
    readers: dict[str, Callable[[Any], torch.Tensor]] = {}
    usual: list[str] = []
    watched: dict[str, Any] = {}
    filters = False
    sampled_fields = [field for field in keys if field in (*GETTERS, "color_rest")]
    samples = {field: _sample(field, keys) for field in sampled_fields}
    sample_of_key = {keys[field]: sample for field, sample in samples.items()}
    for field in GETTERS.keys() & keys.keys() - skipped:
        read = _reader(model, field, keys, container)
        if read is None:
            continue
        if not _is_own(model, field):
            # Another object has it, which cannot be replaced by samples here.
            readers[field] = read
            continue
        probe = _Probe(model, sample_of_key, container)
        if _is_usual(read, probe, field, samples):
            usual.append(field)
        else:
            readers[field] = read
        for name, value in probe.splatview_reads.items():
            is_constant = isinstance(value, (*_CONSTANTS, *_FUNCTIONS))
            watched[name] = value if is_constant else _OfType(type(value))
        names = probe.splatview_reads.keys() | probe.splatview_other_keys
        has_filter = not names.isdisjoint(FILTER_NAMES)
        filters = filters or (has_filter and field in ("scales", "opacities"))
    return Getters(readers, tuple(watched.items()), frozenset(usual), filters=filters)


def _is_simple(value: Any, depth: int = 0) -> bool:
    """Return whether a value stays what it is as long as it is the same object."""
    if isinstance(value, (*_CONSTANTS, type, torch.jit.ScriptFunction)):
        return True
    if not isinstance(value, _FUNCTIONS) or depth > _MAX_DEPTH:
        return False
    # The values bound to a function may change in themselves: a dict of settings, the
    # object of a method.
    bound_values: list[Any] = []
    if isinstance(value, types.MethodType):
        bound_values = [value.__self__, value.__func__]
    elif isinstance(value, functools.partial):
        bound_values = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, types.FunctionType):
        cells = value.__closure__ or ()
        try:
            bound_values = [cell.cell_contents for cell in cells]
        except ValueError:
            return False
    return all(_is_simple(bound, depth + 1) for bound in bound_values)


def _reader(
    model: Any, field: str, keys: Mapping[str, str], container: str | None
) -> Callable[[Any], torch.Tensor] | None:
    """Return a function from the model to a part as it is drawn.

    None where the model has none for this part.
    """
    for name in GETTERS[field]:
        if inspect.getattr_static(model, name, None) is not None:
            return functools.partial(_call_getter, name)
    for name in GETTERS[field]:
        value = _forwarded(model, name)
        if callable(value) or is_array(value):
            return functools.partial(_call_getter, name)
    for name in ACTIVATIONS.get(field, ()):
        if callable(attribute(model, name)):
            return functools.partial(_activate, name, container, keys[field])
    return None


def _is_own(model: Any, field: str) -> bool:
    """Return whether a part's getter is an attribute of the model itself, or its class."""
    names = (*GETTERS[field], *ACTIVATIONS.get(field, ()))
    if any(inspect.getattr_static(model, name, None) is not None for name in names):
        return True
    return all(_forwarded(model, name) is None for name in GETTERS[field])


def _forwarded(model: Any, name: str) -> Any:
    """Return an attribute that an object forwards from another one.

    Such an object has a `__getattr__` of its own, or is a proxy written in C, as weakref's
    are. None for other objects.
    """
    fallback = getattr(type(model), "__getattr__", None)
    is_usual = fallback is None or fallback is torch.nn.Module.__getattr__
    if is_usual and type(model).__getattribute__ is object.__getattribute__:
        return None
    return attribute(model, name)


def _call_getter(name: str, model: Any) -> torch.Tensor:
    """Return the part that a property or a method gives."""
    value = getattr(model, name)
    if isinstance(value, torch.Tensor):
        return value
    if not is_array(value):
        # A method, in contrast to a property that is an array of another library.
        value = value()
    return as_tensor(value, name)


def _activate(name: str, container: str | None, key: str, model: Any) -> torch.Tensor:
    """Return the part that an activation function makes of the raw one."""
    activation = getattr(model, name)
    if container is None:
        raw = getattr(model, key)
    else:
        raw = getattr(model, container)[key]
    return as_tensor(activation(raw), name)


def _sample(field: str, keys: Mapping[str, str]) -> torch.Tensor:
    """Return numbers like those of a part, on the CPU."""
    shapes = {
        "means": (3,),
        "quats": (4,),
        "scales": (3,),
        "opacities": (1,),
        "color": (1, 3) if "color_rest" in keys else (4, 3),
        "color_rest": (3, 3),
    }
    shape = (_ROWS, *shapes.get(field, (1,)))
    limit = _RANGES.get(field, 1.0)
    count = int(torch.Size(shape).numel())
    values = torch.linspace(-limit, limit, count, device="cpu", dtype=torch.float32)
    # In an order that no sum or sorting leaves as it is, and without a draw from the
    # trainer's generator.
    order = torch.arange(count, device="cpu") * 7919 % count
    return values[order].reshape(shape)


def _is_usual(
    read: Callable[[Any], torch.Tensor],
    probe: _Probe,
    field: str,
    samples: Mapping[str, torch.Tensor],
) -> bool:
    """Return whether a getter gives what the raw numbers stand for."""
    raw = samples[field]
    try:
        with torch.no_grad():
            value = read(probe)
            if field == "scales":
                expected = raw.exp()
            elif field == "opacities":
                value = value.squeeze(-1)
                expected = raw.sigmoid().squeeze(-1)
            elif field == "quats":
                expected = torch.nn.functional.normalize(raw)
                value = torch.nn.functional.normalize(value)
            elif field == "color" and "color_rest" in samples:
                expected = torch.cat((raw, samples["color_rest"]), 1)
            else:
                expected = raw
            if value.shape != expected.shape:
                return False
            return torch.allclose(value, expected, rtol=1e-4, atol=1e-6)
    except Exception:
        # The model's own code may raise anything for samples in place of its tensors.
        return False


class _Samples(dict[str, torch.Tensor]):
    """Samples in the place of a model's mapping; notes the keys that have none."""

    def __init__(
        self, samples: Mapping[str, torch.Tensor], other_keys: set[str]
    ) -> None:
        super().__init__(samples)
        self._other_keys = other_keys

    def __missing__(self, key: str) -> torch.Tensor:
        self._other_keys.add(key)
        raise _OpaqueError(key)


class _Probe:
    """A stand-in for a model while a getter is tried, with samples for its tensors."""

    splatview_model: Any
    splatview_stored: Mapping[str, Any]
    splatview_reads: dict[str, Any]
    """Attributes of the model that were read, and their values."""
    splatview_other_keys: set[str]
    """Keys of its mapping that were read and are no part."""

    def __init__(
        self, model: Any, samples: Mapping[str, torch.Tensor], container: str | None
    ) -> None:
        reads: dict[str, Any] = {}
        other_keys: set[str] = set()
        stored: Mapping[str, Any] = samples
        if container is not None:
            stored = {container: _Samples(samples, other_keys)}
        set_own = functools.partial(object.__setattr__, self)
        set_own("splatview_model", model)
        set_own("splatview_stored", stored)
        set_own("splatview_reads", reads)
        set_own("splatview_other_keys", other_keys)

    def __getattr__(self, name: str) -> Any:
        model = self.splatview_model
        if name in self.splatview_stored:
            return self.splatview_stored[name]
        static = inspect.getattr_static(model, name, None)
        if isinstance(static, property) and static.fget is not None:
            return static.fget(self)
        instance_attributes = getattr(model, "__dict__", {})
        if isinstance(static, types.FunctionType) and name not in instance_attributes:
            return types.MethodType(static, self)
        value = getattr(model, name)
        if isinstance(static, (classmethod, staticmethod)):
            return value
        if isinstance(value, types.MethodType) and value.__self__ is model:
            # An activation that is a method of the model itself: the attributes that it
            # reads count as well.
            self.splatview_reads[name] = value
            return types.MethodType(value.__func__, self)
        self.splatview_reads[name] = value
        if not _is_simple(value):
            raise _OpaqueError(name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise _OpaqueError(name)
