"""Tensors of scenes in the mappings that trainers save, and their raw fields.

Searched are all mappings within each other, down to a few levels, and names with any
common prefix (`module.splats.`, `_model.gauss_params.`). inria's `capture` is a tuple
without names: its tensors are recognised by their shapes, so that those of others who
save more in it (hustvl/4DGaussians) are read as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.kinds.gaussians import (
    COLOR_NAMES,
    FIELD_NAMES,
    FILTER_NAMES,
    SCALE_COUNTS,
)
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import Fields, clipped
from splatview_viewer.formats.mip_filter import apply_filter
from splatview_viewer.scene.scene import sh0_of_rgb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALIASES: dict[str, tuple[str, ...]] = {
    **FIELD_NAMES,
    "sh0": tuple(first for first, _ in COLOR_NAMES),
    "shN": tuple(higher for _, higher in COLOR_NAMES),
    "shs": ("shs",),
    "colors": ("colors",),
    "rgb": ("rgb_colors",),
    "filter_3D": FILTER_NAMES,
}
"""Trainers' names of the fields. "shs": all coefficients; "colors": logits."""
DEGREES = ("active_sh_degree", "_active_sh_degree", "n_active_features")
"""Trainers' names of the degree in use."""
_LEVELS = 4
"""Mappings within each other that are searched, at most."""
_MAX_MAPPINGS = 10_000
_ACTIVATED = {"scales", "opacities", "opacity"}
_NEEDED = {"means", "scales", "quats", "opacities"}
_COLORS = {"sh0", "shs", "colors", "rgb"}


@dataclass(frozen=True)
class SavedTensors:
    """The tensors of a scene as they were saved."""

    tensors: dict[str, Any]
    """By the fields of `ALIASES`."""
    degree: int | None = None
    """The degree in use; None for that of the coefficients."""
    has_logit_colors: bool = False
    """True if "sh0" holds logits of colours where there are no higher coefficients:
    splatfacto's features_dc."""
    may_be_activated: bool = False
    """True for names of a rasteriser's arguments, whose scales are world units and
    whose opacities lie in [0, 1], if their values do."""


def find_tensors(root: Any, is_tensor: Callable[[Any], bool]) -> SavedTensors:
    """Find the tensors of the Gaussians in the value that a trainer has saved.

    Raises FileError where there are none.
    """
    mappings: list[Mapping[Any, Any]] = []
    for value in itertools.islice(_values(root), _MAX_MAPPINGS):
        if isinstance(value, Mapping):
            mappings.append(value)
            saved = _of_mapping(value, is_tensor)
        else:
            saved = _of_capture(value, is_tensor)
        if saved is not None:
            return saved
    if not mappings:
        if is_tensor(root):
            kind = "tensor"
        else:
            kind = type(root).__name__
        raise FileError(
            f"checkpoint: it holds a {kind}, not a mapping of tensors nor inria's "
            "(capture, iteration)"
        )
    keys: list[Any] = []
    for mapping in mappings[:16]:
        keys += itertools.islice(mapping, 8)
    names = ", ".join(clipped(key) for key in keys[:16] if isinstance(key, str))
    raise FileError(
        "checkpoint: no Gaussians in it. Looked for means, scales, quats, opacities "
        f"and sh0 (or colors); it has {names or 'no names'}"
    )


def _values(root: Any) -> Iterator[Any]:
    """Yield the mappings and tuples of a saved value, the outer ones first."""
    level = [root]
    for _ in range(_LEVELS):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                yield value
                inner.extend(value.values())
            elif isinstance(value, (tuple, list)):
                yield value
                inner.extend(value)
        level = [value for value in inner if isinstance(value, (Mapping, tuple, list))]


def _of_mapping(mapping: Mapping[Any, Any], is_tensor: Any) -> SavedTensors | None:
    """Return the scene among a mapping's tensors; None: there is none."""
    groups: dict[str, dict[str, Any]] = {}
    degree = None
    for key, value in mapping.items():
        if not isinstance(key, str):
            continue
        prefix, _, last = key.rpartition(".")
        groups.setdefault(prefix, {})[last] = value
        if last in DEGREES:
            degree = _degree(value, is_tensor)
    for group in groups.values():
        names = _names_in(group, is_tensor)
        if names.keys() >= _NEEDED and names.keys() & _COLORS:
            return _of_group(group, names, degree)
    return None


def _of_group(
    group: Mapping[str, Any], names: Mapping[str, str], degree: int | None
) -> SavedTensors:
    """Return the scene of tensors under one prefix. `names`: of each field."""
    tensors = {field: group[alias] for field, alias in names.items()}
    # gsplat's appearance optimisation has logits, beside features; its rasteriser takes
    # colours or harmonics.
    if "colors" in tensors and "features" not in group:
        colors = tensors.pop("colors")
        if colors.ndim == 3:
            tensors.setdefault("shs", colors)
        else:
            tensors.setdefault("rgb", colors)
    has_raw_colors = "sh0" in tensors or "colors" in tensors
    has_activated_names = {names["scales"], names["opacities"]} <= _ACTIVATED
    return SavedTensors(
        tensors,
        degree,
        has_logit_colors=names.get("sh0") == "features_dc",
        may_be_activated=has_activated_names and not has_raw_colors,
    )


def _names_in(group: Mapping[str, Any], is_tensor: Any) -> dict[str, str]:
    """Return the trainer's name of each field that the group has."""
    names: dict[str, str] = {}
    for field, aliases in ALIASES.items():
        present = [alias for alias in aliases if is_tensor(group.get(alias))]
        if present:
            names[field] = present[0]
    return names


def _degree(value: Any, is_tensor: Any) -> int | None:
    """Return a degree in use, saved as a number or as a tensor; None for others."""
    is_number = isinstance(value, int) or (is_tensor(value) and value.ndim == 0)
    if not is_number:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _of_capture(value: Any, is_tensor: Any) -> SavedTensors | None:
    """Return the scene of inria's `capture`; None for any other tuple.

    It has the active degree, xyz, and then in order features_dc, features_rest,
    scaling, rotation, opacity.
    """
    if len(value) < 7 or not is_tensor(value[1]):
        return None
    if is_tensor(value[0]) and value[0].ndim:
        return None
    means = value[1]
    count = means.shape[0] if means.ndim else -1
    tensors = [tensor for tensor in value[2:] if is_tensor(tensor)]
    shapes = [tensor.shape for tensor in tensors]
    if (count, 1, 3) not in shapes:
        return None
    first = shapes.index((count, 1, 3))
    if len(tensors) < first + 5:
        return None
    sh0, harmonics, scales, quats, opacities = tensors[first : first + 5]
    has_scales = scales.ndim == 2 and scales.shape[1] in (1, *SCALE_COUNTS)
    if not has_scales or harmonics.ndim != 3 or quats.shape != (count, 4):
        return None
    fields = {
        "means": means,
        "sh0": sh0,
        "shN": harmonics,
        "scales": scales,
        "quats": quats,
        "opacities": opacities,
    }
    return SavedTensors(fields, _degree(value[0], is_tensor))


def fields_from(arrays: Mapping[str, np.ndarray], saved: SavedTensors) -> Fields:
    """Return raw fields from the arrays of a scene, by the names of `ALIASES`.

    `saved` describes them. Raises FileError.
    """
    means = arrays["means"]
    if means.ndim != 2:
        raise FileError(f"means has shape {means.shape}; (N, 3) is needed")
    count = len(means)
    colors = _harmonics(arrays, count, saved.has_logit_colors)
    scales = arrays["scales"]
    opacities = _column(arrays["opacities"], count)
    if saved.may_be_activated and _are_activated(scales, opacities):
        scales, opacities = _as_raw(scales, opacities)
    if "filter_3D" in arrays:
        sizes = _column(arrays["filter_3D"], count)
        shapes = [(count, columns) for columns in (1, *SCALE_COUNTS)]
        is_flat = sizes.shape == opacities.shape == (count,)
        if not is_flat or scales.shape not in shapes:
            raise FileError(
                f"{count} centres, scales of shape {scales.shape}, opacities of "
                f"{opacities.shape} and a filter_3D of {sizes.shape} do not fit "
                "together"
            )
        scales, opacities = apply_filter(scales, opacities, sizes)
    return Fields(
        means=means,
        quats=arrays["quats"],
        scales=scales,
        opacities=opacities,
        sh0=colors.sh0,
        shN=colors.shN,
    )


def _are_activated(scales: np.ndarray, opacities: np.ndarray) -> bool:
    """Return whether values can be world units and opacities.

    Logarithms and logits have numbers below 0.
    """
    if (scales < 0).any() or np.isnan(scales).any():
        return False
    return bool(((opacities >= 0) & (opacities <= 1)).all())


def _as_raw(scales: np.ndarray, opacities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms and logits of activated scales and opacities."""
    tiny = np.finfo(np.float32).tiny
    alpha = np.clip(opacities.astype(np.float64), tiny, 1 - 2.0**-24)
    logits = np.log(alpha) - np.log1p(-alpha)
    return np.log(np.maximum(scales, tiny)), logits.astype(np.float32)


def _column(values: np.ndarray, count: int) -> np.ndarray:
    """Return values (N, 1) as (N,); others as they are."""
    if values.shape == (count, 1):
        return values[:, 0]
    return values


class _Harmonics(NamedTuple):
    """Coefficients of spherical harmonics."""

    sh0: np.ndarray
    """(N, 3), of degree 0."""
    shN: np.ndarray  # noqa: N815  (gsplat's own name for the field)
    """(N, K-1, 3), of the degrees above."""


def _harmonics(
    arrays: Mapping[str, np.ndarray], count: int, has_logit_colors: bool
) -> _Harmonics:
    """Return the coefficients of a scene, from whichever arrays hold its colours."""
    higher = arrays.get("shN", np.zeros((count, 0, 3), np.float32))
    # 3DGRUT saves them flat.
    if higher.ndim == 2 and higher.shape[1] % 3 == 0:
        higher = higher.reshape(len(higher), higher.shape[1] // 3, 3)
    if "sh0" in arrays:
        sh0 = arrays["sh0"]
        if has_logit_colors and sh0.shape == (count, 3) and _is_empty(arrays, "shN"):
            sh0 = sh0_of_rgb(_sigmoid(sh0))
        elif sh0.shape == (count, 1, 3):
            sh0 = sh0[:, 0]
        return _Harmonics(sh0, higher)
    if "shs" in arrays and arrays["shs"].ndim == 3:
        return _Harmonics(arrays["shs"][:, 0], arrays["shs"][:, 1:])
    # gsplat's appearance optimisation: logits of the colour before the network's share.
    rgb = arrays.get("rgb")
    if rgb is None and "colors" in arrays:
        rgb = _sigmoid(arrays["colors"])
    if rgb is None:
        raise FileError(f"shs has shape {arrays['shs'].shape}; (N, K, 3) is needed")
    return _Harmonics(sh0_of_rgb(rgb), higher)


def _is_empty(arrays: Mapping[str, np.ndarray], name: str) -> bool:
    """Return whether a scene has an array of no coefficients."""
    return name in arrays and arrays[name].shape[1:] == (0, 3)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-values.astype(np.float64)))).astype(np.float32)


def joined(ranks: Sequence[Fields]) -> Fields:
    """Return the scenes of several ranks as one.

    Raises FileError where they have different numbers of coefficients.
    """
    if len(ranks) == 1:
        return ranks[0]
    if len({rank.shN.shape[1:] for rank in ranks}) > 1:
        raise FileError("the ranks hold spherical harmonics of different degrees")
    columns = zip(*(rank.arrays for rank in ranks), strict=True)
    return Fields(*(np.concatenate(column) for column in columns))
