"""The Gaussians within a value of a trainer: their holder and their names.

A holder is the mapping, tuple or object that holds the tensors. It is the value itself, or
is within what wraps it (`module` of DDP and DataParallel, `model` of pipelines), in the
mappings that models keep (nerfstudio's `gauss_params`, the `gaussians` of
gaussian-splatting-lightning, gsplat's `splats`), or under a common prefix of the names in
a state dict (`module.splats.`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from os import PathLike
from typing import Any, NamedTuple

import torch

from splatview.adapters.tensors import is_array
from splatview.adapters.value_texts import type_text
from splatview_ipc.kinds.gaussians import COLOR_NAMES, FIELD_NAMES, FILTER_NAMES

TUPLE = ("background", "means3d", "shs", "opacity", "scales", "rotations")
"""The parts of async_torchwindow's tuple, in order."""
_EXPECTED = (
    "expected an image tensor (H, W) or (H, W, 3), or Gaussians as a mapping (means, "
    "quats, scales, opacities, sh0, shN), an inria GaussianModel, a nerfstudio model or "
    f"a tuple ({', '.join(TUPLE)})"
)
CONTAINERS = ("gauss_params", "gaussians", "splats")
"""Attributes by which models keep a mapping of their Gaussians."""
WRAPPERS = ("module", "model", "_model", "gaussian_model", "gaussians")
"""Attributes by which one object keeps the model."""
_FORWARDERS = ("_orig_mod", "_original_module", "_fsdp_wrapped_module", "__wrapped__")
"""Attributes by which wrappers keep the model to which they forward everything.

Such wrappers are those of torch.compile, Lightning's Fabric and FSDP, and proxies.
"""
_MAX_DEPTH = 3
"""Wrappers around each other that are searched."""


class Color(NamedTuple):
    """Names of one way to hold colours, and their meaning for the other parts."""

    first: str
    rest_name: str | None
    space: str
    activated: bool


COLORS = (
    *(Color(first, others, "sh", False) for first, others in COLOR_NAMES),
    Color("shs", None, "sh", True),
    # Beside "features" these colours are logits.
    Color("colors", None, "rgb", True),
    Color("rgb", None, "rgb", True),
    Color("colors_precomp", None, "rgb", True),
    Color("rgb_colors", None, "rgb", False),
)


def _all_names() -> frozenset[str]:
    """Return all names that a part of a scene may have."""
    names = {*FILTER_NAMES, "background", "features"}
    for aliases in FIELD_NAMES.values():
        names.update(aliases)
    for color in COLORS:
        names.add(color.first)
        if color.rest_name is not None:
            names.add(color.rest_name)
    return frozenset(names)


_ALL_NAMES = _all_names()
_PUBLIC_NAMES = [name for name in _ALL_NAMES if not name.startswith("_")]
_INRIA_NAMES = [
    *(name for name in _ALL_NAMES if name.startswith("_")),
    *FILTER_NAMES,
    "background",
]
"""Attributes of inria's models."""


@dataclass(frozen=True)
class HolderLocation:
    """The location of the Gaussians within a value."""

    holder: Callable[[Any], Any]
    """Function from the value to the holder of the parts: mapping, tuple or object."""
    names: dict[str, str]
    """Keys or attributes of the holder by the name of a part without its prefix."""
    owner: Callable[[Any], Any] | None = None
    """Function from the value to the model, which may have getters and a degree in use.

    None: there is no model.
    """
    container: str | None = None
    """The owner's attribute that is the holder.

    None where the owner's own attributes are the parts.
    """

    @property
    def complete(self) -> bool:
        """True if there are names for every part that a scene needs."""
        return is_complete(self.names)


def is_complete(names: Iterable[str]) -> bool:
    """Return whether these names are those of a whole scene."""
    present = set(names)
    has_all_parts = all(
        present.intersection(aliases) for aliases in FIELD_NAMES.values()
    )
    return has_all_parts and any(color.first in present for color in COLORS)


def is_any_part(names: Iterable[str]) -> bool:
    """Return whether one of these names is that of a part of a scene."""
    return not _ALL_NAMES.isdisjoint(names)


def find(value: Any) -> HolderLocation:
    """Return the location of the Gaussians of a value; its names may be incomplete.

    Raises TypeError for a value that holds none.
    """
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", ())
        if is_complete(names):
            return HolderLocation(itself, {name: name for name in names})
        if len(value) != len(TUPLE):
            raise TypeError(_explain_sequence(value))
        # A named tuple of other names is read by its order, like any other.
        return HolderLocation(tuple, {name: name for name in TUPLE})
    if _is_mapping(value):
        return _of_mapping(value)
    candidates: list[HolderLocation] = []
    # Submodules come last: a model that they belong to may have getters and a degree in use.
    for locate in (_of_model, _of_submodules):
        for path, model in _models(value):
            for location in locate(path, model):
                if location.complete:
                    return location
                candidates.append(location)
    if candidates:
        return candidates[0]
    advice = ""
    if isinstance(value, (int, float)):
        advice = "; a number for each step: splatview.log(step, loss=value)"
    elif isinstance(value, (str, bytes, PathLike)):
        advice = "; a file is shown by the command: splatview serve FILE"
    raise TypeError(f"cannot publish {type_text(value)}: {_EXPECTED}{advice}")


def _explain_sequence(value: Any) -> str:
    """Return why a list or tuple of any length but a scene's cannot be published."""
    sequence = f"a {type(value).__name__} of {len(value)}"
    if any(is_array(item) for item in value):
        return (
            f"cannot publish {sequence} with tensors or arrays in it: publish each under a "
            'name of its own, splatview.publish(value[0], "left"); a scene as a tuple '
            f"has {len(TUPLE)} parts ({', '.join(TUPLE)})"
        )
    content = ""
    if value:
        content = f" that begins with {type_text(value[0])}"
    return f"cannot publish {sequence}{content}: {_EXPECTED}"


def itself(value: Any) -> Any:
    """Return the value: the holder where the value itself holds the parts."""
    return value


def attribute(model: Any, name: str) -> Any:
    """Return an attribute of a caller's object; None where it has none, or its property fails."""
    try:
        return getattr(model, name, None)
    except Exception:
        return None


def _is_mapping(value: Any) -> bool:
    return isinstance(value, (Mapping, torch.nn.ParameterDict))


def _of_mapping(mapping: Any) -> HolderLocation:
    """Return the location of the parts in a mapping, or in a mapping within it."""
    keys = [key for key in mapping.keys() if isinstance(key, str)]
    groups = _groups(keys)
    names = next((names for names in groups if is_complete(names)), None)
    if names is None:
        for key in keys:
            inner = mapping[key]
            if _is_mapping(inner):
                location = _of_mapping(inner)
                if location.complete:
                    return _location_within(key, location)
        names = max(groups, key=lambda names: len(_ALL_NAMES.intersection(names)))
    if _is_plain_parameter_dict(mapping):
        return HolderLocation(attrgetter("_parameters"), names)
    return HolderLocation(itself, names)


def _location_within(key: str, location: HolderLocation) -> HolderLocation:
    outer = itemgetter(key)
    inner = location.holder
    return HolderLocation(lambda value: inner(outer(value)), location.names)


def _is_plain_parameter_dict(mapping: Any) -> bool:
    """Return whether the dict below a ParameterDict holds all of it.

    Its own __getitem__ goes through Module.__getattr__, at ten times the cost of that dict.
    """
    return isinstance(mapping, torch.nn.ParameterDict) and all(
        key in mapping._parameters for key in mapping.keys()
    )


def _groups(keys: Iterable[str]) -> list[dict[str, str]]:
    """Return keys by their last word, a dict for each prefix (`module.splats.`); the empty prefix first."""
    groups: dict[str, dict[str, str]] = {"": {}}
    for key in keys:
        prefix, _, last = key.rpartition(".")
        groups.setdefault(prefix, {})[last] = key
    return list(groups.values())


def _models(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value and the models that it wraps, each with its path of attributes."""
    level: list[tuple[str, Any]] = [("", value)]
    for _ in range(_MAX_DEPTH + 1):
        level = [_unwrapped(path, model) for path, model in level]
        yield from level
        next_level: list[tuple[str, Any]] = []
        for path, model in level:
            for name in WRAPPERS:
                inner = attribute(model, name)
                if inner is not None and not _is_mapping(inner):
                    next_level.append((f"{path}.{name}".lstrip("."), inner))
        level = next_level


def _unwrapped(path: str, model: Any) -> tuple[str, Any]:
    """Return the model behind objects that only forward to it, whose getters count."""
    for _ in range(_MAX_DEPTH):
        inner = {name: attribute(model, name) for name in _FORWARDERS}
        names = [name for name in _FORWARDERS if inner[name] is not None]
        if not names or callable(inner[names[0]]) != callable(model):
            break
        path = f"{path}.{names[0]}".lstrip(".")
        model = inner[names[0]]
    return path, model


def _of_model(path: str, model: Any) -> Iterator[HolderLocation]:
    """Yield the locations in one object at which Gaussians may be."""
    owner = attrgetter(path) if path else itself
    for name in CONTAINERS:
        mapping = attribute(model, name)
        if not _is_mapping(mapping):
            continue
        location = _of_mapping(mapping)
        mapping_path = f"{path}.{name}".lstrip(".")
        if location.holder is itself:
            yield HolderLocation(attrgetter(mapping_path), location.names, owner, name)
        elif _is_plain_parameter_dict(mapping):
            holder = attrgetter(f"{mapping_path}._parameters")
            yield HolderLocation(holder, location.names, owner, name)
    if attribute(model, "_xyz") is not None:
        names = _tensor_attributes(model, _INRIA_NAMES)
        yield HolderLocation(owner, names, owner)
    names = _tensor_attributes(model, _PUBLIC_NAMES)
    if is_complete(names):
        yield HolderLocation(owner, names, owner)


def _tensor_attributes(model: Any, names: Iterable[str]) -> dict[str, str]:
    """Return those of some attributes that an object has as arrays.

    They are sorted, so that equal objects give equal locations.
    """
    present: dict[str, str] = {}
    for name in sorted(names):
        value = attribute(model, name)
        is_array = hasattr(value, "shape") or name.startswith("_")
        if value is not None and is_array:
            present[name] = name
    return present


def _of_submodules(path: str, model: Any) -> Iterator[HolderLocation]:
    """Yield the submodules whose own parameters and buffers are a whole scene."""
    if not isinstance(model, torch.nn.Module):
        return
    for prefix, inner in model.named_modules():
        names = {**inner._parameters, **inner._buffers}
        if prefix and is_complete(names):
            holder = attrgetter(f"{path}.{prefix}".lstrip("."))
            yield HolderLocation(holder, {name: name for name in names}, holder)
