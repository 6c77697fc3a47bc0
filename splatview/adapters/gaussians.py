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
| gaussian-splatting-lightning's models | means, rotations, scales, opacities, shs_dc, shs_rest | raw |
| 3DGRUT's `MixtureOfGaussians` | positions, rotation, scale, density, features_albedo, features_specular | raw |
| fVDB's `GaussianSplat3d` | means, quats, log_scales, logit_opacities, sh0, shN | raw |
| async_torchwindow's tuple | background, means3d, shs, opacity, scales, rotations | activated |

Raw: scales are logarithms, opacities logits, as optimisers hold them. Activated: scales are world units, opacities
lie in [0, 1]. Quaternions are w, x, y, z and need not be normalised. Axes are OpenCV's. Scales (N, 2) are those of flat
Gaussians. `filter_3D` beside the parts is mip-splatting's. Where a model has getters (`get_scaling`) that give anything
else than its raw tensors stand for, what they give is published (`gaussian_getters`). Names may have a common prefix, and
models may be wrapped (`gaussian_holders`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters import gaussian_getters
from splatview.adapters.gaussian_holders import (
    COLORS,
    TUPLE,
    Color,
    HolderPlace,
    attribute,
    find,
)
from splatview.adapters.tensors import as_tensor, holds_values
from splatview_ipc.kinds.gaussians import (
    FILTER_NAMES,
    NAMES,
    SH_REST,
    Activated,
    activated_of,
)
from splatview_ipc.kinds.rules import FLOAT_DTYPES
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    from splatview.adapters.gaussian_getters import Getters

log = logging.getLogger("splatview")

_REST = "|".join(map(str, SH_REST))
_FLAT_REST = "|".join(str(3 * rest) for rest in SH_REST)
_LEGAL = {
    "means": "(N, 3)",
    "scales": "(N, 3|2|1)",
    "quats": "(N, 4)",
    "opacities": "(N,) or (N, 1)",
    "background": "(3,)",
    "color": "(N, 3) or (N, 1, 3)",
    "color_rest": f"(N, {_REST}, 3) or (N, {_FLAT_REST})",
    "filter_3D": "(N,) or (N, 1)",
    "sh": f"(N, 3) or (N, {'|'.join(str(rest + 1) for rest in SH_REST)}, 3)",
}
"""Shapes of the parts; "sh": of colours that hold all coefficients."""
_RAW_NAMES = {
    "scaling",
    "_scaling",
    "log_scales",
    "_opacity",
    "logit_opacities",
    "density",
}
_DEGREE_BUFFER = "_active_sh_degree"
"""The degree in use of gaussian-splatting-lightning's models, whose property `active_sh_degree` waits for the GPU."""
_MOST_FAILED = 100
_failed: set[tuple[type, str]] = set()
"""Types of models, and faults of their getters that were logged."""


class GaussianLayout:
    """Scenes from one kind of holder, with one N."""

    kind = "gaussians"

    def __init__(
        self,
        value: Any,
        place: HolderPlace,
        keys: dict[str, str],
        color: Color,
        activated: Activated,
        getters: Getters,
    ):
        """`keys`: the names of the parts in the holder. Raises TypeError, ValueError."""
        held = place.holder(value)
        self._type = type(value)
        self._holder = place.holder
        self._owner = place.owner
        self._getters = getters
        self._look_up = _part_getter(held, keys)
        self._raw_fields = tuple(keys)
        raw = self._look_up(held)
        self._convert = not all(isinstance(part, torch.Tensor) for part in raw)
        """True for arrays of other libraries."""
        tensors = {
            field: as_tensor(part, f"gaussians: {key}")
            for (field, key), part in zip(keys.items(), raw, strict=True)
        }
        space = color.space
        if space == "rgb" and tensors["color"].ndim == 3:
            space = "sh"
        model = place.owner(value) if place.owner is not None else None
        if getters.parts:
            tensors, self._getters = _read_getters(getters, model, keys, tensors, space)
        self._getters = self._getters.settled(model)
        activated = Activated(
            _is_activated("scales", activated.scales, self._getters),
            _is_activated("opacities", activated.opacities, self._getters),
        )
        _check(keys, tensors, space)
        self._fields = tuple(tensors)
        self._color = _logits_or(space, keys, tensors)
        """The space of the colours: "sh", "rgb" or "rgb_logit"."""
        self._activated: bool | tuple[float, float] = activated.scales
        if activated.scales != activated.opacities:
            self._activated = (float(activated.scales), float(activated.opacities))
        means = tensors["means"]
        self.shape = tuple(means.shape)
        self.device = str(means.device)
        self.dtype = dtype_name(means)
        self._looks = tuple((t.shape, t.dtype, t.device) for t in tensors.values())
        self._last: tuple[Any, ...] = (None,) * len(tensors)
        self._degree = _stored_degree(tensors) if self._color == "sh" else 0
        """The SH degree for which there are coefficients."""
        self._degree_name = _degree_name(model)
        """The model's attribute that is the degree in use."""
        self._facts = _facts_reader(model)
        self._may_filter = (
            model is not None
            and place.container is None
            and "filter_3D" not in keys
            and not self._getters.filters
        )
        """True if the model has no filter yet and may get one."""

    def match(
        self, value: Any, meta: dict[str, Any]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]] | None:
        if type(value) is not self._type:
            return None
        degree = None
        antialiased = False
        # Measured: a model of inria's costs twice what a mapping does here.
        try:
            tensors = self._look_up(self._holder(value))
            if self._convert:
                tensors = tuple(map(as_tensor, tensors, self._raw_fields))
            if self._owner is not None:
                model = self._owner(value)
                if self._getters.changed(model) or self._has_new_filter(model):
                    return None
                if self._getters.postponed and not _is_capturing(tensors[0]):
                    return None
                if self._getters.parts:
                    tensors = self._replaced(tensors, model)
                if self._degree_name is not None:
                    degree = getattr(model, self._degree_name, None)
                elif self._facts is not None:
                    degree, antialiased = self._facts(model)
            # The very tensors of the last call keep their shapes, but for an assignment to `.data`, which changes N.
            if not (
                all(map(is_, tensors, self._last))
                and tensors[0].shape == self._looks[0][0]
            ):
                if not all(
                    not t.is_nested
                    and t.shape == shape
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
        degree = meta.get("sh_degree", degree)
        return self._last, {
            "antialiased": antialiased,
            **meta,
            "color": self._color,
            "activated": self._activated,
            "sh_degree": self._degree
            if degree is None
            else min(int(degree), self._degree),
        }

    def _replaced(
        self, raw: tuple[torch.Tensor, ...], model: Any
    ) -> tuple[torch.Tensor, ...]:
        """Return the parts with those that the model's own getters give. Raises LookupError where one fails."""
        has_values = self._last[0] is not None
        if has_values and _is_capturing(raw[0]):
            return self._last
        tensors = dict(zip(self._raw_fields, raw, strict=True))
        try:
            tensors.update(self._getters.read(model))
        except Exception as e:
            # Recognised anew, which says what is wrong.
            raise LookupError(str(e)) from e
        return tuple(tensors[field] for field in self._fields)

    def _has_new_filter(self, model: Any) -> bool:
        if not self._may_filter:
            return False
        sizes = getattr(model, FILTER_NAMES[0], None)
        return sizes is not None and _is_filter(sizes, self.shape[0])

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        fields = {
            field: as_tensor(t, field).detach()
            for field, t in zip(self._fields, tensors, strict=True)
        }
        n = len(fields["means"])
        fields["opacities"] = fields["opacities"].reshape(n)
        if fields["scales"].shape[1] == 1:
            # As large along every axis.
            fields["scales"] = fields["scales"].expand(n, 3)
        if "filter_3D" in fields:
            fields["filter_3D"] = fields["filter_3D"].reshape(n)
        first = fields.pop("color")
        more = fields.pop("color_rest", None)
        if self._color != "sh":
            fields["rgb"] = first
            return fields
        if first.ndim == 3 and more is None:
            more = first[:, 1:]
            first = first[:, 0]
        fields["sh0"] = first.reshape(n, 3)
        if more is not None and more.shape[1]:
            fields["shN"] = more.unflatten(1, (-1, 3)) if more.ndim == 2 else more
        return fields


def recognise_gaussians(
    value: Any, option: bool | tuple[bool, bool] | None = None
) -> GaussianLayout:
    """Return the layout of a Gaussian scene. `option` is `activated`, which overrules what the names tell: True or False, or a
    pair of them for scales and opacities.

    Raises TypeError when it is none of the forms above, ValueError when shapes, dtypes or devices do not fit.
    """
    place = find(value)
    names = place.names
    some = ", ".join([*sorted(names)[:12], *(["..."] if len(names) > 12 else [])])
    some = some or "nothing"
    keys: dict[str, str] = {}
    for field, aliases in NAMES.items():
        name = next((n for n in aliases if n in names), None)
        if name is None:
            raise TypeError(
                f"gaussians: no {field} (looked for {', '.join(aliases)}) among {some}"
            )
        keys[field] = name
    color = next((c for c in COLORS if c.first in names), None)
    if color is None:
        raise TypeError(
            f"gaussians: no colours (looked for {', '.join(c.first for c in COLORS)}) among {some}"
        )
    if color.first == "colors" and "features" in names:
        color = color._replace(space="rgb_logit", activated=False)
    if option is None:
        is_activated = color.activated and not _RAW_NAMES.intersection(keys.values())
        activated = Activated(is_activated, is_activated)
    else:
        activated = _activated_option(option)
    keys["color"] = color.first
    if color.rest in names:
        keys["color_rest"] = str(color.rest)
    if "background" in names:
        keys["background"] = "background"
    _add_filter(keys, place, value)
    keys = {field: names[name] for field, name in keys.items()}
    getters = gaussian_getters.NONE
    if place.owner is not None:
        skipped = set() if option is None else {"scales", "opacities"}
        getters = gaussian_getters.getters_of(
            place.owner(value), keys, place.container, skipped
        )
        if getters.filters:
            keys.pop("filter_3D", None)
    return GaussianLayout(value, place, keys, color, activated, getters)


def _activated_option(option: Any) -> Activated:
    try:
        return activated_of(option)
    except ValueError as e:
        raise TypeError(str(e)) from None


def _add_filter(keys: dict[str, str], place: HolderPlace, value: Any) -> None:
    """Add the 3D filter of mip-splatting. A model's own counts once it has been computed for all of its Gaussians."""
    name = next((n for n in FILTER_NAMES if n in place.names), None)
    if name is None:
        return
    if place.owner is not None:
        held = place.holder(value)
        lookup = _part_getter(
            held, {f: place.names[n] for f, n in (("m", keys["means"]), ("f", name))}
        )
        means, sizes = lookup(held)
        if not _is_filter(sizes, len(means)):
            return
    keys["filter_3D"] = name


def _is_filter(value: Any, count: int) -> bool:
    """Return whether a value is a filter for so many Gaussians."""
    return isinstance(value, torch.Tensor) and tuple(value.shape) in (
        (count,),
        (count, 1),
    )


def _part_getter(held: Any, keys: Mapping[str, str]) -> Callable[[Any], Any]:
    """Return what takes at least two parts out of what holds them."""
    if isinstance(held, (tuple, list)) and not hasattr(held, "_fields"):
        return itemgetter(*(TUPLE.index(key) for key in keys.values()))
    if isinstance(held, (Mapping, torch.nn.ParameterDict)):
        return itemgetter(*keys.values())
    return attrgetter(*keys.values())


def _read_getters(
    getters: Getters,
    model: Any,
    keys: dict[str, str],
    tensors: dict[str, torch.Tensor],
    space: str,
) -> tuple[dict[str, torch.Tensor], Getters]:
    """Return the parts as the model's getters give them, and those getters; the raw parts where one does not work."""
    if _is_capturing(tensors["means"]):
        # What is queued now would run at each replay of the graph.
        return tensors, replace(getters.only(()), postponed=True)
    values: dict[str, torch.Tensor] = {}
    for field in getters.parts:
        try:
            value = getters.only([field]).read(model)[field]
            value = as_tensor(value, f"gaussians: {field} of a getter")
            if field == "color" and value.ndim != 3:
                raise ValueError(
                    f"colours of shape {tuple(value.shape)}, not (N, K, 3)"
                )
            values[field] = value
        except Exception as e:
            _tell_once(model, str(e))
    for check in (None, tensors["means"]):
        if check is not None:
            # Together they do not fit: those that fit the raw tensors count.
            values = _fitting(model, keys, values, len(check))
        replaced = {**tensors, **values}
        if "color" in values:
            replaced.pop("color_rest", None)
        try:
            _check(keys, replaced, "sh" if "color" in values else space)
        except ValueError:
            continue
        return replaced, getters.only(values)
    return tensors, getters.only(())


def _fitting(
    model: Any, keys: dict[str, str], values: dict[str, torch.Tensor], count: int
) -> dict[str, torch.Tensor]:
    """Return those values of getters that are of the legal shape for so many Gaussians."""
    means = torch.empty(count, 3, device="meta")
    fitting: dict[str, torch.Tensor] = {}
    for field, value in values.items():
        try:
            _check_shape(field, value, "sh", keys, means)
        except ValueError as e:
            _tell_once(model, str(e))
        else:
            fitting[field] = value
    return fitting


def _is_capturing(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _tell_once(model: Any, reason: str) -> None:
    """Log that a model's getters do not work."""
    fault = (type(model), reason[:200])
    if fault in _failed or len(_failed) >= _MOST_FAILED:
        return
    _failed.add(fault)
    log.warning(
        "splatview: a getter of %s cannot be used, so that its raw tensor is shown: %s",
        type(model).__name__,
        fault[1],
    )


def _is_activated(field: str, named: bool, getters: Getters) -> bool:
    """Return whether a field is activated: the model's getters say so, else its names."""
    if field in getters.parts:
        return True
    return named and field not in getters.usual


def _logits_or(
    space: str, keys: Mapping[str, str], tensors: Mapping[str, torch.Tensor]
) -> str:
    """Return the space of the colours. splatfacto without harmonics holds logits, under the names of harmonics."""
    rest = tensors.get("color_rest")
    is_splatfacto = (
        keys["color"].rpartition(".")[2] == "features_dc"
        and tensors["color"].ndim == 2
        and rest is not None
        and rest.ndim == 3
        and rest.shape[1] == 0
    )
    return "rgb_logit" if is_splatfacto else space


def _stored_degree(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return the SH degree for which there are coefficients."""
    rest = tensors.get("color_rest")
    if rest is not None:
        return SH_REST.index(rest.shape[1] if rest.ndim == 3 else rest.shape[1] // 3)
    color = tensors["color"]
    return SH_REST.index(color.shape[1] - 1) if color.ndim == 3 else 0


# -- what a model says beside its tensors -----------------------------------------------------------------------------


def _degree_name(model: Any) -> str | None:
    """Return the attribute of a model that says which degree is in use, if reading it never waits for a GPU."""
    if isinstance(attribute(model, _DEGREE_BUFFER), torch.Tensor):
        return None
    for name in ("active_sh_degree", "n_active_features"):
        degree = attribute(model, name)
        is_on_gpu = isinstance(degree, torch.Tensor) and degree.device.type != "cpu"
        if hasattr(degree, "__index__") and not is_on_gpu:
            return name
    return None


def _facts_reader(model: Any) -> Callable[[Any], tuple[int | None, bool]] | None:
    """Return what reads the degree in use and whether the model is antialiased, without waiting for a GPU."""
    if attribute(attribute(model, "config"), "rasterize_mode") is not None:
        return _splatfacto_facts
    buffer = attribute(model, _DEGREE_BUFFER)
    # Of a buffer on the GPU it is not asked: coefficients that are not in use yet are zeros.
    if isinstance(buffer, torch.Tensor) and buffer.device.type == "cpu":
        return _buffer_facts
    return None


def _buffer_facts(model: Any) -> tuple[int | None, bool]:
    return int(getattr(model, _DEGREE_BUFFER)), False


def _splatfacto_facts(model: Any) -> tuple[int | None, bool]:
    config = model.config
    antialiased = config.rasterize_mode == "antialiased"
    step = attribute(model, "step")
    interval = attribute(config, "sh_degree_interval")
    if isinstance(step, int) and isinstance(interval, int) and interval > 0:
        return step // interval, antialiased
    return None, antialiased


def _check(keys: dict[str, str], parts: dict[str, torch.Tensor], space: str) -> None:
    means = parts["means"]
    for field, tensor in parts.items():
        name = keys[field]
        dtype = dtype_name(tensor)
        if dtype not in FLOAT_DTYPES:
            raise ValueError(
                f"gaussians: {name} is {dtype}; legal are {', '.join(FLOAT_DTYPES)}"
            )
        if tensor.device != means.device:
            raise ValueError(
                f"gaussians: {name} is on {tensor.device}, {keys['means']} on {means.device}; "
                "all parts must be on one device"
            )
        has_all = space == "sh" and "color_rest" not in parts
        _check_shape(field, tensor, "sh" if has_all else "", keys, means)


def _check_shape(
    field: str,
    tensor: torch.Tensor,
    space: str,
    keys: Mapping[str, str],
    means: torch.Tensor,
) -> None:
    """Raise ValueError for a part of an illegal shape. `space`: "sh" for colours that hold all coefficients."""
    legal = _LEGAL["sh" if field == "color" and space == "sh" else field]
    count = len(means) if means.ndim else -1
    forms = [
        form.strip("(,)").replace("N", str(count)).split(", ")
        for form in legal.split(" or ")
    ]
    if any(_has_form(tensor, form) for form in forms):
        return
    known = ""
    if count >= 0 and field != "means":
        known = f", and {keys['means']} says N = {count}"
    raise ValueError(
        f"gaussians: {keys[field]} has shape {tuple(tensor.shape)}; legal is {legal}{known}"
    )


def _has_form(tensor: torch.Tensor, form: list[str]) -> bool:
    """Return whether a tensor has the sides of a form, each one or several numbers with | between them."""
    if len(form) != tensor.ndim:
        return False
    pairs = zip(form, tensor.shape, strict=True)
    return all(str(extent) in sides.split("|") for sides, extent in pairs)
