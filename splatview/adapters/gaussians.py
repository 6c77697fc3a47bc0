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

Raw: scales are logarithms, opacities logits, as optimisers hold them. Activated: scales
are world units, opacities lie in [0, 1]. Quaternions are w, x, y, z and need not be
normalised. Axes are OpenCV's. Scales (N, 2) are those of flat Gaussians. `filter_3D`
beside the parts is mip-splatting's. Where a model has getters (`get_scaling`) that give anything
else than its raw tensors stand for, what they give is published
(`gaussian_getters`). Names may have a common prefix, and models may be wrapped
(`gaussian_holders`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from splatview.adapters import gaussian_getters
from splatview.adapters.gaussian_facts import degree_attribute, facts_reader
from splatview.adapters.gaussian_holders import (
    COLORS,
    TUPLE,
    Color,
    HolderLocation,
    find,
    is_any_part,
    itself,
)
from splatview.adapters.gaussian_shapes import check_parts, check_shape
from splatview.adapters.tensors import as_tensor, holds_values
from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.kinds.gaussians import (
    FIELD_NAMES,
    FILTER_NAMES,
    SH_REST_COUNTS,
    Activated,
    parse_activated,
)

if TYPE_CHECKING:
    from splatview.adapters.gaussian_getters import Getters

    Tensors = dict[str, torch.Tensor]

log = logging.getLogger("splatview")

_RAW_NAMES = {
    "scaling",
    "_scaling",
    "log_scales",
    "_opacity",
    "logit_opacities",
    "density",
}
_MAX_NAMES_LISTED = 12
"""Names of a value that an error lists."""
_MAX_LOGGED = 100
_logged_failures: set[tuple[type, str]] = set()
"""Types of models, and failures of their getters that were logged."""


class TensorForm(NamedTuple):
    """The form of a part: one of another form makes a scene be recognised again."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def fits(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has this form, and values that can be copied."""
        # A nested tensor has no shape.
        return (
            not tensor.is_nested
            and tensor.shape == self.shape
            and tensor.dtype is self.dtype
            and tensor.device == self.device
            and holds_values(tensor)
        )


class GaussianLayout:
    """The form of scenes from one kind of holder, with one number of Gaussians."""

    kind = "gaussians"

    def __init__(
        self,
        value: Any,
        location: HolderLocation,
        keys: dict[str, str],
        color: Color,
        activated: Activated,
        getters: Getters,
    ) -> None:
        """Read and check the parts of a value.

        Args:
            value: the caller's scene.
            location: where its parts are.
            keys: the names of the parts there, by field.
            color: how its colours are holder_value.
            activated: what its names, or the caller, say of scales and opacities.
            getters: those of its model that may give other parts.

        Raises:
            TypeError: a part is no array.
            ValueError: shapes, dtypes or devices do not fit.
        """
        self._type = type(value)
        self._owner = location.owner
        self._read_parts = _parts_reader(value, location, keys)
        self._raw_fields = tuple(keys)
        arrays = self._read_parts(value)
        self._must_convert = not all(isinstance(a, torch.Tensor) for a in arrays)
        """True for arrays of other libraries."""
        raw: Tensors = {}
        for (field, key), array in zip(keys.items(), arrays, strict=True):
            raw[field] = as_tensor(array, f"gaussians: {key}")
        model = location.owner(value) if location.owner is not None else None
        space = color.space
        if space == "rgb" and raw["color"].ndim == 3:
            space = "sh"
        tensors = raw
        used_getters = getters
        if getters.parts:
            tensors, used_getters = _read_getters(getters, model, keys, raw, space)
        self._getters = used_getters.settled(model)
        check_parts(keys, tensors, space)
        self._fields = tuple(tensors)
        self._color = _logits_or(space, keys, tensors)
        """The space of the colours: "sh", "rgb" or "rgb_logit"."""
        self._activated = _frame_activation(activated, self._getters)
        self._describe(tensors)
        self._degree_attribute = degree_attribute(model)
        self._read_facts = facts_reader(model)
        may_get_filter = "filter_3D" not in keys and not self._getters.filters
        self._awaits_filter = (
            model is not None and location.container is None and may_get_filter
        )
        """True if the model has no filter yet and may get one."""

    def _describe(self, tensors: Tensors) -> None:
        """Note what the parts look like."""
        means = tensors["means"]
        self.shape = tuple(means.shape)
        self._means_bytes = means.nbytes
        self.device = str(means.device)
        self.dtype = dtype_name(means)
        self._forms = tuple(
            TensorForm(t.shape, t.dtype, t.device) for t in tensors.values()
        )
        self._last: tuple[Any, ...] = (None,) * len(tensors)
        self._max_degree = _stored_degree(tensors) if self._color == "sh" else 0
        """The SH degree for which there are coefficients."""

    def match(
        self, value: Any, meta: dict[str, Any]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, Any]] | None:
        """Return the tensors and metadata to publish; None for a scene of another form."""
        if type(value) is not self._type:
            return None
        degree = None
        is_antialiased = False
        # At every publish. Measured: an inria model costs twice what a mapping does here.
        try:
            tensors = self._read_parts(value)
            if self._must_convert:
                tensors = tuple(map(as_tensor, tensors, self._raw_fields))
            if self._owner is not None:
                model = self._owner(value)
                if self._is_outdated(model, tensors[0]):
                    return None
                if self._getters.parts:
                    tensors = self._with_getters(tensors, model)
                if self._degree_attribute is not None:
                    degree = getattr(model, self._degree_attribute, None)
                elif self._read_facts is not None:
                    degree, is_antialiased = self._read_facts(model)
            # The very tensors of the last call keep their shapes, but for an assignment
            # to `.data`, which changes N. To compare shapes takes twice as long.
            last = self._last
            is_last = all(map(is_, tensors, last))
            if not is_last or tensors[0].nbytes != self._means_bytes:
                forms = zip(self._forms, tensors, strict=True)
                if not all(form.fits(tensor) for form, tensor in forms):
                    return None
                last = tensors
                self._last = last
        except (LookupError, AttributeError, TypeError, ValueError):
            return None
        degree = meta.get("sh_degree", degree)
        used_degree = self._max_degree
        if degree is not None:
            used_degree = min(int(degree), used_degree)
        return last, {
            "antialiased": is_antialiased,
            **meta,
            "color": self._color,
            "activated": self._activated,
            "sh_degree": used_degree,
        }

    def release(self) -> None:
        """Let go of the tensors of the last value. On any thread."""
        self._last = (None,) * len(self._forms)

    def _is_outdated(self, model: Any, raw: torch.Tensor) -> bool:
        """Return whether to recognise a model again before its parts are read."""
        if self._getters.changed(model) or self._has_new_filter(model):
            return True
        return self._getters.postponed and not _is_capturing(raw)

    def _has_new_filter(self, model: Any) -> bool:
        if not self._awaits_filter:
            return False
        sizes = getattr(model, FILTER_NAMES[0], None)
        return sizes is not None and _is_filter(sizes, self.shape[0])

    def _with_getters(
        self, raw: tuple[torch.Tensor, ...], model: Any
    ) -> tuple[torch.Tensor, ...]:
        """Return the parts with those that the model's own getters give.

        Raises LookupError where one fails: the scene is recognised again then, which says
        what is wrong.
        """
        has_values = self._last[0] is not None
        if has_values and _is_capturing(raw[0]):
            return self._last
        tensors = dict(zip(self._raw_fields, raw, strict=True))
        try:
            tensors.update(self._getters.read(model))
        except Exception as error:
            raise LookupError(str(error)) from error
        return tuple(tensors[field] for field in self._fields)

    def frame(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name, of parts that `match` has checked."""
        fields: Tensors = {}
        for field, tensor in zip(self._fields, tensors, strict=True):
            fields[field] = tensor.detach().resolve_neg()
        count = len(fields["means"])
        fields["opacities"] = fields["opacities"].reshape(count)
        if fields["scales"].shape[1] == 1:
            # Such Gaussians are as large along every axis.
            fields["scales"] = fields["scales"].expand(count, 3)
        if "filter_3D" in fields:
            fields["filter_3D"] = fields["filter_3D"].reshape(count)
        color = fields.pop("color")
        other_coefficients = fields.pop("color_rest", None)
        if self._color != "sh":
            fields["rgb"] = color
            return fields
        if color.ndim == 3 and other_coefficients is None:
            other_coefficients = color[:, 1:]
            color = color[:, 0]
        fields["sh0"] = color.reshape(count, 3)
        if other_coefficients is not None and other_coefficients.shape[1]:
            if other_coefficients.ndim == 2:
                other_coefficients = other_coefficients.unflatten(1, (-1, 3))
            fields["shN"] = other_coefficients
        return fields


# ---- the parts of a value, and their names


def recognise_gaussians(
    value: Any, activated: bool | tuple[bool, bool] | None = None
) -> GaussianLayout:
    """Return the layout of a Gaussian scene.

    Args:
        value: one of the forms above.
        activated: overrules what the names say: True or False, or a pair of them for
            scales and opacities.

    Raises:
        TypeError: the value is none of these forms.
        ValueError: shapes, dtypes or devices do not fit.
    """
    location = find(value)
    names = location.names
    fields = _field_names(names)
    color = _color_names(names)
    if activated is None:
        is_raw = not _RAW_NAMES.isdisjoint(fields.values())
        is_activated = color.activated and not is_raw
        meaning = Activated(is_activated, is_activated)
    else:
        meaning = _given_activation(activated)
    fields["color"] = color.first
    if color.rest_name in names:
        fields["color_rest"] = str(color.rest_name)
    if "background" in names:
        fields["background"] = "background"
    filter_name = _filter_name(fields["means"], location, value)
    if filter_name is not None:
        fields["filter_3D"] = filter_name
    keys = {field: names[name] for field, name in fields.items()}
    getters = gaussian_getters.NONE
    if location.owner is not None:
        skipped = set() if activated is None else {"scales", "opacities"}
        getters = gaussian_getters.getters_of(
            location.owner(value), keys, location.container, skipped
        )
        if getters.filters:
            keys.pop("filter_3D", None)
    return GaussianLayout(value, location, keys, color, meaning, getters)


def _field_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of means, quats, scales and opacities among those of a value."""
    fields: dict[str, str] = {}
    if not is_any_part(names):
        raise TypeError(
            f"a mapping of {_listed(names)} is no scene; expected means, quats, scales, "
            "opacities and colours (sh0, shN). Publish each picture of a mapping by "
            'itself: splatview.publish(value["left"], "left")'
        )
    for field, aliases in FIELD_NAMES.items():
        name = next((alias for alias in aliases if alias in names), None)
        if name is None:
            raise TypeError(
                f"gaussians: no {field} (looked for {', '.join(aliases)}) among "
                f"{_listed(names)}"
            )
        fields[field] = name
    return fields


def _color_names(names: Mapping[str, str]) -> Color:
    """Return the way in which a value of these names holds its colours."""
    color = next((color for color in COLORS if color.first in names), None)
    if color is None:
        looked_for = ", ".join(color.first for color in COLORS)
        raise TypeError(
            f"gaussians: no colours (looked for {looked_for}) among {_listed(names)}"
        )
    if color.first == "colors" and "features" in names:
        return color._replace(space="rgb_logit", activated=False)
    return color


def _listed(names: Mapping[str, str]) -> str:
    """Return some names of a value for an error."""
    listed = sorted(names)[:_MAX_NAMES_LISTED]
    if len(names) > _MAX_NAMES_LISTED:
        listed.append("...")
    return ", ".join(listed) or "nothing"


def _given_activation(activated: Any) -> Activated:
    try:
        return parse_activated(activated)
    except ValueError as error:
        raise TypeError(str(error)) from None


def _frame_activation(named: Activated, getters: Getters) -> bool | tuple[float, float]:
    """Return the metadata "activated" of frames: the getters say so, else the names."""
    values = {"scales": named.scales, "opacities": named.opacities}
    for field in values:
        if field in getters.parts:
            values[field] = True
        elif field in getters.usual:
            values[field] = False
    if values["scales"] == values["opacities"]:
        return values["scales"]
    return float(values["scales"]), float(values["opacities"])


def _filter_name(means_name: str, location: HolderLocation, value: Any) -> str | None:
    """Return the name of mip-splatting's 3D filter; None if there is none.

    A model's own filter counts once it has been computed for all of its Gaussians.
    """
    name = next((name for name in FILTER_NAMES if name in location.names), None)
    if name is None or location.owner is None:
        return name
    keys = {"means": location.names[means_name], "filter_3D": location.names[name]}
    means, sizes = _parts_reader(value, location, keys)(value)
    if not _is_filter(sizes, len(means)):
        return None
    return name


def _is_filter(value: Any, count: int) -> bool:
    """Return whether a value is a filter for this many Gaussians."""
    if not isinstance(value, torch.Tensor):
        return False
    return tuple(value.shape) in ((count,), (count, 1))


def _parts_reader(
    value: Any, location: HolderLocation, keys: Mapping[str, str]
) -> Callable[[Any], Any]:
    """Return a function from a value to the tuple of its parts, at least two.

    It is called at each publish, and is one C function where the value itself holds the
    parts.
    """
    holder = location.holder
    holder_value = holder(value)
    if isinstance(holder_value, (tuple, list)) and not hasattr(holder_value, "_fields"):
        getter: Callable[[Any], Any] = itemgetter(*map(TUPLE.index, keys.values()))
    elif isinstance(holder_value, (Mapping, torch.nn.ParameterDict)):
        getter = itemgetter(*keys.values())
    else:
        getter = attrgetter(*keys.values())
    if holder is itself:
        return getter
    return lambda value: getter(holder(value))


def _logits_or(space: str, keys: Mapping[str, str], tensors: Tensors) -> str:
    """Return the space of the colours.

    splatfacto without harmonics holds logits, under the names of harmonics.
    """
    coefficients = tensors.get("color_rest")
    if coefficients is None or coefficients.ndim != 3 or coefficients.shape[1]:
        return space
    is_features = keys["color"].rpartition(".")[2] == "features_dc"
    if is_features and tensors["color"].ndim == 2:
        return "rgb_logit"
    return space


def _stored_degree(tensors: Tensors) -> int:
    """Return the SH degree for which there are coefficients."""
    coefficients = tensors.get("color_rest")
    if coefficients is not None:
        count = coefficients.shape[1]
        if coefficients.ndim == 2:
            count //= 3
        return SH_REST_COUNTS.index(count)
    color = tensors["color"]
    if color.ndim == 3:
        return SH_REST_COUNTS.index(color.shape[1] - 1)
    return 0


# ---- parts that a model's getters give


def _read_getters(
    getters: Getters,
    model: Any,
    keys: dict[str, str],
    raw: Tensors,
    space: str,
) -> tuple[Tensors, Getters]:
    """Return the parts as the model's getters give them, and the getters that work.

    The raw part stays where a getter does not work.
    """
    if _is_capturing(raw["means"]):
        # Work that is queued now would run at each replay of the graph.
        return raw, replace(getters.only(()), postponed=True)
    values: Tensors = {}
    for field in getters.parts:
        try:
            values[field] = _read_getter(getters, field, model)
        except Exception as error:
            _log_failure(model, str(error))
    for is_second_try in (False, True):
        if is_second_try:
            # Together they do not fit: those that fit the raw tensors count.
            values = _fitting(model, keys, values, len(raw["means"]))
        tensors = {**raw, **values}
        if "color" in values:
            tensors.pop("color_rest", None)
        try:
            check_parts(keys, tensors, "sh" if "color" in values else space)
        except ValueError:
            continue
        return tensors, getters.only(values)
    return raw, getters.only(())


def _read_getter(getters: Getters, field: str, model: Any) -> torch.Tensor:
    """Return the part that one getter gives."""
    value = getters.only([field]).read(model)[field]
    tensor = as_tensor(value, f"gaussians: {field} of a getter")
    if field == "color" and tensor.ndim != 3:
        raise ValueError(f"colours of shape {tuple(tensor.shape)}, not (N, K, 3)")
    return tensor


def _fitting(model: Any, keys: dict[str, str], values: Tensors, count: int) -> Tensors:
    """Return those parts of getters that have a legal shape for this many Gaussians."""
    means = torch.empty(count, 3, device="meta")
    fitting: Tensors = {}
    for field, value in values.items():
        try:
            check_shape(field, value, keys, means, has_all_coefficients=True)
        except ValueError as error:
            _log_failure(model, str(error))
        else:
            fitting[field] = value
    return fitting


def _is_capturing(tensor: torch.Tensor) -> bool:
    """Return whether a CUDA graph is being captured on the current stream."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _log_failure(model: Any, reason: str) -> None:
    """Log that a model's getters do not work, once for each type and reason."""
    failure = (type(model), reason[:200])
    if failure in _logged_failures or len(_logged_failures) >= _MAX_LOGGED:
        return
    _logged_failures.add(failure)
    log.warning(
        "splatview: a getter of %s cannot be used, so that its raw tensor is shown: %s",
        type(model).__name__,
        failure[1],
    )
