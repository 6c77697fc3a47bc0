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
from operator import attrgetter, is_, itemgetter
from typing import Any, NamedTuple

import torch

from splatview.adapters.tensors import as_tensor, holds_values
from splatview_ipc.kinds.gaussians import SH_REST
from splatview_ipc.kinds.rules import FLOAT_DTYPES
from splatview_ipc.shm.slot_layout import dtype_name

_NAMES = {
    "means": ("means", "means3d", "means3D", "xyz", "_xyz"),
    "quats": ("quats", "rotations", "rotation", "_rotation", "unnorm_rotations"),
    "scales": ("scales", "scaling", "_scaling", "log_scales"),
    "opacities": ("opacities", "opacity", "_opacity", "logit_opacities"),
}
_TUPLE = ("background", "means3d", "shs", "opacity", "scales", "rotations")


class _Color(NamedTuple):
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
    _Color("colors", None, "rgb", True),  # beside "features" they are logits
    _Color("rgb", None, "rgb", True),
    _Color("colors_precomp", None, "rgb", True),
    _Color("rgb_colors", None, "rgb", False),
)
_LEGAL = {
    "means": "(N, 3)",
    "scales": "(N, 3|1)",
    "quats": "(N, 4)",
    "opacities": "(N,) or (N, 1)",
    "background": "(3,)",
    "color": "(N, 3) or (N, 1, 3)",
    "color_rest": f"(N, {'|'.join(map(str, SH_REST))}, 3)",
    "sh": f"(N, 3) or (N, {'|'.join(str(rest + 1) for rest in SH_REST)}, 3)",
}
"""Shapes of the parts; "sh": of colours that hold all coefficients."""
_RAW_NAMES = {"scaling", "_scaling", "log_scales", "_opacity", "logit_opacities"}


class GaussianLayout:
    """Scenes from one kind of holder, with one N."""

    kind = "gaussians"

    def __init__(
        self,
        value: Any,
        holder: Callable[[Any], Any],
        keys: dict[str, str],
        color: _Color,
        activated: bool,
    ):
        """`holder`: from a value to what holds the parts; `keys`: their names there. Raises TypeError, ValueError."""
        held = holder(value)
        self._type, self._holder, self._fields = type(value), holder, tuple(keys)
        self._by_attribute = not isinstance(
            held, (Mapping, torch.nn.ParameterDict, tuple, list)
        )
        places = (
            [_TUPLE.index(key) for key in keys.values()]
            if isinstance(held, (tuple, list))
            else keys.values()
        )
        getter: Any = attrgetter if self._by_attribute else itemgetter
        self._look_up: Callable[[Any], tuple[Any, ...]] = getter(*places)
        found = self._look_up(held)
        self._convert = not all(isinstance(part, torch.Tensor) for part in found)
        """True for arrays of other libraries."""
        tensors = {
            field: as_tensor(part, f"gaussians: {key}")
            for (field, key), part in zip(keys.items(), found, strict=True)
        }
        first, more = tensors["color"], tensors.get("color_rest")
        self._color = "sh" if color.space == "rgb" and first.ndim == 3 else color.space
        self._activated = activated
        _check(keys, tensors, self._color)
        self.shape, self.device = (
            tuple(tensors["means"].shape),
            str(tensors["means"].device),
        )
        self.dtype = dtype_name(tensors["means"])
        self._looks = tuple((t.shape, t.dtype, t.device) for t in tensors.values())
        self._last: tuple[Any, ...] = (None,) * len(tensors)
        rest = (
            more.shape[1]
            if more is not None
            else first.shape[1] - 1
            if first.ndim == 3
            else 0
        )
        self._degree = SH_REST.index(rest) if self._color == "sh" else 0
        """The SH degree for which there are coefficients."""

    def match(
        self, value: Any, meta: dict[str, Any]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]] | None:
        if type(value) is not self._type:
            return None
        try:
            tensors = self._look_up(self._holder(value))
            if self._convert:
                tensors = tuple(map(as_tensor, tensors, self._fields))
            # The very tensors of the last call keep their shapes, but for an assignment to `.data`, which changes N.
            if not (
                all(map(is_, tensors, self._last))
                and tensors[0].shape == self._looks[0][0]
            ):
                if not all(
                    t.shape == shape
                    and t.dtype is dtype
                    and t.device == device
                    and holds_values(t)
                    for t, (shape, dtype, device) in zip(
                        tensors, self._looks, strict=True
                    )
                ):
                    return None
                self._last = tensors
        except (LookupError, AttributeError, TypeError, ValueError):
            return None
        degree = meta.get("sh_degree")
        if (
            degree is None and self._by_attribute
        ):  # an inria model knows how far it has come
            degree = getattr(value, "active_sh_degree", None)
        return self._last, {
            "antialiased": False,
            **meta,
            "color": self._color,
            "activated": self._activated,
            "sh_degree": self._degree
            if degree is None
            else min(int(degree), self._degree),
        }

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        fields = {
            field: as_tensor(t, field).detach()
            for field, t in zip(self._fields, tensors, strict=True)
        }
        n = len(fields["means"])
        fields["opacities"] = fields["opacities"].reshape(n)
        fields["scales"] = fields["scales"].expand(
            n, 3
        )  # also (N, 1): as large along every axis
        first, more = fields.pop("color"), fields.pop("color_rest", None)
        if self._color != "sh":
            fields["rgb"] = first
            return fields
        if first.ndim == 3 and more is None:
            first, more = first[:, 0], first[:, 1:]
        fields["sh0"] = first.reshape(n, 3)
        if more is not None and more.shape[1]:
            fields["shN"] = more
        return fields


def recognise_gaussians(value: Any, options: dict[str, Any]) -> GaussianLayout:
    """Return the layout of a Gaussian scene. `options["activated"]` True or False overrules what the names tell.

    Raises TypeError when it is none of the forms above, ValueError when shapes, dtypes or devices do not fit.
    """
    holder, have = _holder(value)
    some = (
        ", ".join([*sorted(have)[:12], *(["..."] if len(have) > 12 else [])])
        or "nothing"
    )
    keys: dict[str, str] = {}
    for field, names in _NAMES.items():
        name = next((n for n in names if n in have), None)
        if name is None:
            raise TypeError(
                f"gaussians: no {field} (looked for {', '.join(names)}) among {some}"
            )
        keys[field] = name
    color = next((c for c in _COLORS if c.first in have), None)
    if color is None:
        raise TypeError(
            f"gaussians: no colours (looked for {', '.join(c.first for c in _COLORS)}) among {some}"
        )
    if color.first == "colors" and "features" in have:
        color = color._replace(space="rgb_logit", activated=False)
    activated = options.get("activated")
    if activated is None:
        activated = color.activated and not _RAW_NAMES.intersection(keys.values())
    if not isinstance(activated, bool):
        raise TypeError(f"activated is {activated!r}, not True or False")
    keys["color"] = color.first
    if color.rest in have:
        keys["color_rest"] = str(color.rest)
    if "background" in have:
        keys["background"] = "background"
    return GaussianLayout(value, holder, keys, color, activated)


def _holder(value: Any) -> tuple[Callable[[Any], Any], set[str]]:
    """Return how to get from a value to the mapping, tuple or object that holds the parts, and their names there."""
    if isinstance(value, (tuple, list)):
        if len(value) != len(_TUPLE):
            raise TypeError(
                f"gaussians: a tuple of {len(value)}; legal is ({', '.join(_TUPLE)})"
            )
        return _itself, set(_TUPLE)
    mapping = (
        value
        if isinstance(value, (Mapping, torch.nn.ParameterDict))
        else getattr(value, "gauss_params", None)
    )
    if mapping is not None:
        if mapping is not value:
            holder: Callable[[Any], Any] = attrgetter("gauss_params")
        elif isinstance(mapping, torch.nn.ParameterDict) and all(
            key in mapping._parameters for key in mapping.keys()
        ):
            # Its own __getitem__ goes through Module.__getattr__, at ten times the cost of the dict below it.
            holder = attrgetter("_parameters")
        else:
            holder = _itself
        return holder, {key for key in mapping.keys() if isinstance(key, str)}
    if hasattr(value, "_xyz"):
        every = [
            *(name for names in _NAMES.values() for name in names),
            *(c.first for c in _COLORS),
            "_features_rest",
        ]
        return _itself, {
            name for name in every if name.startswith("_") and hasattr(value, name)
        }
    raise TypeError(
        f"cannot publish a {type(value).__name__}: legal are an image tensor, and Gaussians as a mapping "
        "(means, quats, scales, opacities, sh0, shN), an inria GaussianModel, a nerfstudio model or "
        f"a tuple ({', '.join(_TUPLE)})"
    )


def _itself(value: Any) -> Any:
    return value


def _check(keys: dict[str, str], parts: dict[str, torch.Tensor], space: str) -> None:
    means = parts["means"]
    n = len(means) if means.ndim else -1
    for field, tensor in parts.items():
        name = keys[field]
        if (dtype := dtype_name(tensor)) not in FLOAT_DTYPES:
            raise ValueError(
                f"gaussians: {name} is {dtype}; legal are {', '.join(FLOAT_DTYPES)}"
            )
        if tensor.device != means.device:
            raise ValueError(
                f"gaussians: {name} is on {tensor.device}, {keys['means']} on {means.device}; "
                "all parts must be on one device"
            )
        legal = _LEGAL[
            "sh"
            if field == "color" and space == "sh" and "color_rest" not in parts
            else field
        ]
        forms = [
            form.strip("(,)").replace("N", str(n)).split(", ")
            for form in legal.split(" or ")
        ]
        if not any(
            len(form) == tensor.ndim
            and all(
                str(extent) in sides.split("|")
                for sides, extent in zip(form, tensor.shape, strict=True)
            )
            for form in forms
        ):
            known = (
                f", and {keys['means']} says N = {n}"
                if n >= 0 and field != "means"
                else ""
            )
            raise ValueError(
                f"gaussians: {name} has shape {tuple(tensor.shape)}; legal is {legal}{known}"
            )
