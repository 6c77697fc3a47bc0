"""Gaussian scenes in the forms that trainers hold them, recognised by the names of their parts.

| source | parts | values |
|---|---|---|
| gsplat `ParameterDict`, or any mapping with its names | means, quats, scales, opacities, sh0, shN | raw |
| gsplat with appearance optimisation | means, quats, scales, opacities, features, colors | raw |
| the arguments of `gsplat.rasterization` | means, quats, scales, opacities, colors | activated |
| nerfstudio `gauss_params`, or a model that has them | means, quats, ..., features_dc, features_rest | raw |
| inria `GaussianModel`, or its parameters by name | _xyz, _rotation, _scaling, _opacity, _features_dc, ... | raw |
| the arguments of inria's rasteriser | means3D, rotations, scales, opacities, shs | activated |
| SplaTAM's `params` | means3D, unnorm_rotations, log_scales (also (N, 1)), logit_opacities, rgb_colors | raw |
| async_torchwindow's tuple | background, means3d, shs, opacity, scales, rotations | activated |

Raw: scales are logarithms, opacities logits, as optimisers hold them. Activated: scales are world units, opacities
lie in [0, 1]. Quaternions are w, x, y, z and need not be normalised. Axes are OpenCV's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch

from splatview.adapters.tensors import as_tensor, holds_values, shape_text
from splatview_ipc.kinds.gaussians import SH_REST
from splatview_ipc.shm.slot_layout import dtype_name

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NAMES = {
    "means": ("means", "means3d", "means3D", "xyz", "_xyz"),
    "quats": ("quats", "rotations", "rotation", "_rotation", "unnorm_rotations"),
    "scales": ("scales", "scaling", "_scaling", "log_scales"),
    "opacities": ("opacities", "opacity", "_opacity", "logit_opacities"),
}
_TUPLE = ("background", "means3d", "shs", "opacity", "scales", "rotations")


@dataclass(frozen=True)
class _Color:
    """Names of one way to hold colours, and what follows for the other parts."""

    first: str
    rest: str | None
    space: str
    activated: bool


_COLORS = (
    _Color("sh0", "shN", "sh", False),
    _Color("features_dc", "features_rest", "sh", False),
    _Color("_features_dc", "_features_rest", "sh", False),
    _Color("f_dc", "f_rest", "sh", False),
    _Color("shs", None, "sh", True),
    _Color("colors", None, "rgb", True),  # beside "features" they are logits: see _find_color
    _Color("rgb", None, "rgb", True),
    _Color("colors_precomp", None, "rgb", True),
    _Color("rgb_colors", None, "rgb", False),
)
_LEGAL: dict[str, Callable[[int], list[tuple[int, ...]]]] = {
    "means": lambda n: [(n, 3)],
    "scales": lambda n: [(n, 3), (n, 1)],
    "quats": lambda n: [(n, 4)],
    "opacities": lambda n: [(n,), (n, 1)],
    "background": lambda n: [(3,)],
    "color": lambda n: [(n, 3), (n, 1, 3)],
    "color_rest": lambda n: [(n, k, 3) for k in SH_REST],
    "sh": lambda n: [(n, 3), *((n, k + 1, 3) for k in SH_REST)],
}
_LEGAL_TEXT = {
    "means": "(N, 3)", "scales": "(N, 3) or (N, 1)", "quats": "(N, 4)", "opacities": "(N,) or (N, 1)",
    "background": "(3,)", "color": "(N, 3) or (N, 1, 3)", "color_rest": "(N, 0|3|8|15|24, 3)",
    "sh": "(N, 3) or (N, 1|4|9|16|25, 3)",
}
_RAW_NAMES = {"scaling", "_scaling", "log_scales", "_opacity", "logit_opacities"}


class GaussianLayout:
    """Scenes from one kind of holder, with one N."""

    kind = "gaussians"

    def __init__(self, parts: _Parts, color: str, activated: bool):
        tensors = parts.tensors
        self.color = color
        self.activated = activated
        self.shape = tuple(tensors["means"].shape)
        self.dtype = dtype_name(tensors["means"])
        self.device = str(tensors["means"].device)
        self._parts = parts
        self._looks = tuple((t.shape, t.dtype, t.device) for t in tensors.values())
        self._last: tuple[Any, ...] = (None,) * len(tensors)
        self._given: tuple[dict[str, Any], int | None] | None = None
        self._meta: dict[str, Any] = {}
        self._stored = 0
        """The SH degree for which there are coefficients."""
        if color == "sh":
            first, more = tensors["color"], tensors.get("color_rest")
            rest = more.shape[1] if more is not None else first.shape[1] - 1 if first.ndim == 3 else 0
            self._stored = SH_REST.index(rest)

    def match(self, value: Any, meta: dict[str, Any]) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]] | None:
        parts = self._parts
        if type(value) is not parts.type:
            return None
        try:
            tensors = parts.look_up(value if parts.holder is None else parts.holder(value))
            if parts.convert:
                tensors = tuple(map(as_tensor, tensors, parts.fields))
            # The very tensors of the last call keep their shapes, but for an assignment to `.data`, which changes N.
            if not (all(map(is_, tensors, self._last)) and tensors[0].shape == self._looks[0][0]):
                if not all(t.shape == shape and t.dtype is dtype and t.device == device and holds_values(t)
                           for t, (shape, dtype, device) in zip(tensors, self._looks, strict=True)):
                    return None
                self._last = tensors
        except (LookupError, AttributeError, TypeError, ValueError):
            return None
        # An inria model knows how far it has come.
        given = meta, getattr(value, "active_sh_degree", None) if parts.by_attribute else None
        if given != self._given:
            self._given, degree = given, meta.get("sh_degree", given[1])
            self._meta = {"antialiased": False, **meta, "color": self.color, "activated": self.activated,
                          "sh_degree": self._stored if degree is None else min(int(degree), self._stored)}
        return self._last, self._meta

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        fields = {field: as_tensor(t, field).detach() for field, t in zip(self._parts.fields, tensors, strict=True)}
        n = len(fields["means"])
        fields["opacities"] = fields["opacities"].reshape(n)
        fields["scales"] = fields["scales"].expand(n, 3)  # also (N, 1): as large along every axis
        if self.color == "sh":
            first = fields.pop("color")
            more = fields.pop("color_rest", None)
            if first.ndim == 3 and more is None:
                first, more = first[:, 0], first[:, 1:]
            fields["sh0"] = first.reshape(n, 3)
            if more is not None and more.shape[1]:
                fields["shN"] = more
        else:
            fields["rgb"] = fields.pop("color")
        return fields


def recognise_gaussians(value: Any, options: dict[str, Any]) -> GaussianLayout:
    """Return the layout of a Gaussian scene. `options["activated"]` True or False overrules what the names tell.

    Raises TypeError when it is none of the forms above, ValueError when shapes, dtypes or devices do not fit.
    """
    holder = _holder(value)
    have = _names(value, holder)
    keys: dict[str, Any] = {}
    for field, names in _NAMES.items():
        name = next((n for n in names if n in have), None)
        if name is None:
            raise TypeError(f"gaussians: no {field} (looked for {', '.join(names)}) among {_some(have)}")
        keys[field] = name
    color, space, activated = _find_color(have)
    if _RAW_NAMES.intersection(keys.values()):
        activated = False
    forced = options.get("activated")
    if forced is not None:
        if not isinstance(forced, bool):
            raise TypeError(f"activated is {forced!r}, not True or False")
        activated = forced
    keys["color"] = color.first
    if color.rest is not None and color.rest in have:
        keys["color_rest"] = color.rest
    if "background" in have:
        keys["background"] = "background"
    if holder == "tuple":
        keys = {field: _TUPLE.index(str(name)) for field, name in keys.items()}
    parts = _Parts(value, holder, keys)
    tensors = parts.tensors
    if space == "rgb" and tensors["color"].ndim == 3:
        space = "sh"
    _check({field: (_label(key), tensors[field]) for field, key in keys.items()}, space)
    return GaussianLayout(parts, space, activated)


class _Parts:
    """How to get the parts out of values of one type."""

    def __init__(self, value: Any, holder: str, keys: dict[str, Any]):
        self.type = type(value)
        self.fields = tuple(keys)
        self.by_attribute = holder == "object"
        self.look_up = (attrgetter if self.by_attribute else itemgetter)(*keys.values())
        self.holder: Callable[[Any], Any] | None = None
        """From a value to what holds the parts; None: the value itself."""
        if holder == "mapping":
            if not isinstance(value, (Mapping, torch.nn.ParameterDict)):
                self.holder = attrgetter("gauss_params")
            elif isinstance(value, torch.nn.ParameterDict) and all(key in value._parameters for key in keys.values()):
                # Its own __getitem__ goes through Module.__getattr__, at ten times the cost of the dict below it.
                self.holder = attrgetter("_parameters")
        found = self.look_up(value if self.holder is None else self.holder(value))
        self.convert = not all(isinstance(part, torch.Tensor) for part in found)
        """True for arrays of other libraries."""
        self.tensors = {field: as_tensor(part, f"gaussians: {_label(key)}")
                        for (field, key), part in zip(keys.items(), found, strict=True)}


def _holder(value: Any) -> str:
    """Return "mapping" (also for a model's `gauss_params`), "tuple" or, for attributes, "object"."""
    if isinstance(value, (Mapping, torch.nn.ParameterDict)) or hasattr(value, "gauss_params"):
        return "mapping"
    if isinstance(value, (tuple, list)):
        if len(value) != len(_TUPLE):
            raise TypeError(f"gaussians: a tuple of {len(value)}; legal is ({', '.join(_TUPLE)})")
        return "tuple"
    if hasattr(value, "_xyz"):
        return "object"
    raise TypeError(f"cannot publish a {type(value).__name__}: legal are an image tensor, and Gaussians as a mapping "
                    "(means, quats, scales, opacities, sh0, shN), an inria GaussianModel, a nerfstudio model or "
                    f"a tuple ({', '.join(_TUPLE)})")


def _names(value: Any, holder: str) -> set[str]:
    if holder == "tuple":
        return set(_TUPLE)
    if holder == "mapping":
        mapping = value if isinstance(value, (Mapping, torch.nn.ParameterDict)) else value.gauss_params
        return {k for k in mapping.keys() if isinstance(k, str)}
    every = [*(n for names in _NAMES.values() for n in names), *(c.first for c in _COLORS)]
    return {n for n in (*every, "_features_rest") if n.startswith("_") and hasattr(value, n)}


def _find_color(have: set[str]) -> tuple[_Color, str, bool]:
    for color in _COLORS:
        if color.first in have:
            if color.first == "colors" and "features" in have:
                return color, "rgb_logit", False
            return color, color.space, color.activated
    raise TypeError(f"gaussians: no colours (looked for {', '.join(c.first for c in _COLORS)}) among {_some(have)}")


def _check(parts: dict[str, tuple[str, torch.Tensor]], space: str) -> None:
    means_label, means = parts["means"]
    n = len(means) if means.ndim else -1
    for field, (label, tensor) in parts.items():
        shape = shape_text(tensor)
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"gaussians: {label} is {dtype_name(tensor)}; legal are "
                             "float16, bfloat16, float32, float64")
        if tensor.device != means.device:
            raise ValueError(f"gaussians: {label} is on {tensor.device}, {means_label} on {means.device}; "
                             "all parts must be on one device")
        kind = "sh" if field == "color" and space == "sh" and "color_rest" not in parts else field
        if tuple(tensor.shape) not in _LEGAL[kind](n):
            known = f", and {means_label} says N = {n}" if n >= 0 and field != "means" else ""
            raise ValueError(f"gaussians: {label} has shape {shape}; legal is {_LEGAL_TEXT[kind]}{known}")


def _label(key: str | int) -> str:
    return _TUPLE[key] if isinstance(key, int) else key


def _some(have: set[str]) -> str:
    names = sorted(have)
    return (", ".join(names[:12]) + (", ..." if len(names) > 12 else "")) or "nothing"
