"""The Gaussians within a value of a trainer: the mapping, tuple or object that holds the tensors, and their names.

Searched are the value itself, what wraps it (`module` of DDP and DataParallel, `model` of pipelines), the mappings that
models keep (nerfstudio's `gauss_params`, the `gaussians` of gaussian-splatting-lightning, gsplat's `splats`), and the
common prefixes of names in state dicts (`module.splats.`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch

from splatview_ipc.kinds.gaussians import COLOR_NAMES, FILTER_NAMES, NAMES

TUPLE = ("background", "means3d", "shs", "opacity", "scales", "rotations")
"""The parts of async_torchwindow's tuple, in order."""
CONTAINERS = ("gauss_params", "gaussians", "splats")
"""Attributes by which models keep a mapping of their Gaussians."""
WRAPPERS = ("module", "model", "_model", "gaussian_model", "gaussians")
"""Attributes by which one object keeps the model."""
_FORWARDERS = ("_orig_mod", "_original_module", "_fsdp_wrapped_module", "__wrapped__")
"""Attributes by which torch.compile, Lightning's Fabric, FSDP and proxies keep the model to which they hand on everything
that they are asked for."""
_DEPTH = 3
"""Wrappers around each other that are looked through, at most."""


class Color(NamedTuple):
    """Names of one way to hold colours, and what follows for the other parts."""

    first: str
    rest: str | None
    space: str
    activated: bool


COLORS = (
    *(Color(first, rest, "sh", False) for first, rest in COLOR_NAMES),
    Color("shs", None, "sh", True),
    # Beside "features" they are logits.
    Color("colors", None, "rgb", True),
    Color("rgb", None, "rgb", True),
    Color("colors_precomp", None, "rgb", True),
    Color("rgb_colors", None, "rgb", False),
)
_KNOWN = {
    *(name for names in NAMES.values() for name in names),
    *(name for color in COLORS for name in color[:2] if name is not None),
    *FILTER_NAMES,
    "background",
    "features",
}
"""All names that mean anything."""


@dataclass(frozen=True)
class HolderPlace:
    """The place of the Gaussians within a value."""

    holder: Callable[[Any], Any]
    """From the value to what holds the parts: a mapping, a tuple or an object."""
    names: dict[str, str]
    """The key or attribute there by the name of a part without its prefix."""
    owner: Callable[[Any], Any] | None = None
    """From the value to the model, which may have getters and a degree in use; None: there is none."""
    container: str | None = None
    """The owner's attribute that holds the mapping; None where the owner's own attributes are the parts."""

    @property
    def complete(self) -> bool:
        """True if there are names for every part that a scene needs."""
        return is_complete(self.names)


def is_complete(names: Iterable[str]) -> bool:
    """Return whether these names are those of a whole scene."""
    present = set(names)
    has_parts = all(present.intersection(aliases) for aliases in NAMES.values())
    return has_parts and any(color.first in present for color in COLORS)


def find(value: Any) -> HolderPlace:
    """Return where the Gaussians of a value are; the names may be incomplete. Raises TypeError for what holds none."""
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", ())
        if is_complete(names):
            return HolderPlace(itself, {name: name for name in names})
        if len(value) != len(TUPLE):
            raise TypeError(
                f"gaussians: a tuple of {len(value)}; legal is ({', '.join(TUPLE)})"
            )
        # A named tuple of other names is read by its order, like any other.
        return HolderPlace(tuple, {name: name for name in TUPLE})
    if _is_mapping(value):
        return _of_mapping(value)
    candidates: list[HolderPlace] = []
    # Submodules come last: a model that they belong to may have getters and a degree in use.
    for places_of in (_of_model, _of_submodules):
        for path, model in _models(value):
            for place in places_of(path, model):
                if place.complete:
                    return place
                candidates.append(place)
    if candidates:
        return candidates[0]
    raise TypeError(
        f"cannot publish a {type(value).__name__}: legal are an image tensor, and Gaussians as a mapping "
        "(means, quats, scales, opacities, sh0, shN), an inria GaussianModel, a nerfstudio model or "
        f"a tuple ({', '.join(TUPLE)})"
    )


def itself(value: Any) -> Any:
    return value


def attribute(model: Any, name: str) -> Any:
    """Return an attribute of a caller's object; None where it has none, or its property fails."""
    try:
        return getattr(model, name, None)
    except Exception:
        return None


def _is_mapping(value: Any) -> bool:
    return isinstance(value, (Mapping, torch.nn.ParameterDict))


def _of_mapping(mapping: Any) -> HolderPlace:
    """Return the place of the parts in a mapping, or in a mapping within it."""
    keys = [key for key in mapping.keys() if isinstance(key, str)]
    groups = _groups(keys)
    names = next((names for names in groups if is_complete(names)), None)
    if names is None:
        for key in keys:
            inner = mapping[key]
            if _is_mapping(inner):
                place = _of_mapping(inner)
                if place.complete:
                    return _within(key, place)
        names = max(groups, key=lambda names: len(_KNOWN.intersection(names)))
    if _is_plain_parameter_dict(mapping):
        return HolderPlace(attrgetter("_parameters"), names)
    return HolderPlace(itself, names)


def _within(key: str, place: HolderPlace) -> HolderPlace:
    outer = itemgetter(key)
    inner = place.holder
    return HolderPlace(lambda value: inner(outer(value)), place.names)


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
    for _ in range(_DEPTH + 1):
        level = [_unwrapped(path, model) for path, model in level]
        yield from level
        wrapped = [
            (f"{path}.{name}".lstrip("."), attribute(model, name))
            for path, model in level
            for name in WRAPPERS
        ]
        level = [
            (path, model)
            for path, model in wrapped
            if model is not None and not _is_mapping(model)
        ]


def _unwrapped(path: str, model: Any) -> tuple[str, Any]:
    """Return the model behind what only hands on what it is asked for: its getters are those that count."""
    for _ in range(_DEPTH):
        inner = {name: attribute(model, name) for name in _FORWARDERS}
        name = next((n for n, held in inner.items() if held is not None), None)
        if name is None or callable(inner[name]) != callable(model):
            break
        path = f"{path}.{name}".lstrip(".")
        model = inner[name]
    return path, model


def _of_model(path: str, model: Any) -> Iterator[HolderPlace]:
    """Yield the places in one object at which Gaussians may be."""
    owner = attrgetter(path) if path else itself
    for name in CONTAINERS:
        mapping = attribute(model, name)
        if not _is_mapping(mapping):
            continue
        place = _of_mapping(mapping)
        full = f"{path}.{name}".lstrip(".")
        if place.holder is itself:
            yield HolderPlace(attrgetter(full), place.names, owner, name)
        elif _is_plain_parameter_dict(mapping):
            full = f"{full}._parameters"
            yield HolderPlace(attrgetter(full), place.names, owner, name)
    if attribute(model, "_xyz") is not None:
        names = [
            name
            for name in _KNOWN
            if name.startswith("_") or name in (*FILTER_NAMES, "background")
        ]
        yield HolderPlace(owner, _tensor_attributes(model, names), owner)
    names = _tensor_attributes(model, (name for name in _KNOWN if name[0] != "_"))
    if is_complete(names):
        yield HolderPlace(owner, names, owner)


def _tensor_attributes(model: Any, names: Iterable[str]) -> dict[str, str]:
    """Return which of these attributes an object has as arrays, sorted so that equal objects give equal places."""
    return {
        name: name
        for name in sorted(names)
        if hasattr(attribute(model, name), "shape") or name.startswith("_")
        if attribute(model, name) is not None
    }


def _of_submodules(path: str, model: Any) -> Iterator[HolderPlace]:
    """Yield the submodules whose own parameters and buffers are a whole scene."""
    if not isinstance(model, torch.nn.Module):
        return
    for prefix, inner in model.named_modules():
        names = {**inner._parameters, **inner._buffers}
        if prefix and is_complete(names):
            holder = attrgetter(f"{path}.{prefix}".lstrip("."))
            yield HolderPlace(holder, {name: name for name in names}, holder)
