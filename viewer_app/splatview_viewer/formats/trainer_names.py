"""Tensors of scenes in the mappings that trainers save, and how their numbers become
raw fields.

Searched are all mappings within each other, down to a few levels, and names with any
common prefix (`module.splats.`, `_model.gauss_params.`). inria's `capture` is a tuple
without names: its tensors are told by their shapes, so that those of others who save
more in it (hustvl/4DGaussians) are read as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import (
    COLOR_NAMES,
    FILTER_NAMES,
    NAMES,
    SCALE_COUNTS,
)
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import Fields, clipped
from splatview_viewer.formats.mip_filter import apply_filter
from splatview_viewer.scene.scene import sh0_of_rgb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALIASES: dict[str, tuple[str, ...]] = {
    **NAMES,
    "sh0": tuple(first for first, _ in COLOR_NAMES),
    "shN": tuple(rest for _, rest in COLOR_NAMES),
    "shs": ("shs",),
    "colors": ("colors",),
    "rgb": ("rgb_colors",),
    "filter_3D": FILTER_NAMES,
}
"""Trainers' names of the fields. "shs": all coefficients; "colors": logits."""
DEGREES = ("active_sh_degree", "_active_sh_degree", "n_active_features")
"""Their names of the degree in use."""
_LEVELS = 4
"""Mappings within each other that are searched, at most."""
_MOST_MAPPINGS = 10_000
_ACTIVATED = {"scales", "opacities", "opacity"}
_NEEDED = {"means", "scales", "quats", "opacities"}
_COLORS = {"sh0", "shs", "colors", "rgb"}


@dataclass(frozen=True)
class SavedTensors:
    """The tensors of a scene as they were saved."""

    tensors: dict[str, Any]
    """By the fields of `ALIASES`."""
    degree: int | None = None
    """The degree in use; None: that of the coefficients."""
    has_logit_colors: bool = False
    """True if "sh0" holds logits of colours where there are no higher coefficients:
    splatfacto's features_dc."""
    may_be_activated: bool = False
    """True for names of a rasteriser's arguments, whose scales are world units and
    whose opacities lie in [0, 1], if their values do."""


def find_tensors(root: Any, is_tensor: Callable[[Any], bool]) -> SavedTensors:
    """Return the tensors of the Gaussians in whatever a trainer has saved.

    Raises FileError where there are none.
    """
    mappings: list[Mapping[Any, Any]] = []
    for value in itertools.islice(_values(root), _MOST_MAPPINGS):
        parts = None
        if isinstance(value, Mapping):
            mappings.append(value)
            parts = _of_mapping(value, is_tensor)
        else:
            parts = _of_capture(value, is_tensor)
        if parts is not None:
            return parts
    if not mappings:
        kind = "tensor" if is_tensor(root) else type(root).__name__
        raise FileError(
            f"checkpoint: it holds a {kind}, not a mapping of tensors nor inria's "
            "(capture, iteration)"
        )
    keys = [key for value in mappings[:16] for key in itertools.islice(value, 8)]
    names = ", ".join(clipped(key) for key in keys[:16] if isinstance(key, str))
    raise FileError(
        "checkpoint: no Gaussians in it. Looked for means, scales, quats, opacities "
        "and sh0 (or colors); it has "
        f"{names or 'no names'}"
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
            tensors = {field: group[alias] for field, alias in names.items()}
            has_logits = names.get("sh0") == "features_dc"
            # gsplat's appearance optimisation has logits, beside features; its
            # rasteriser takes colours or harmonics.
            if "colors" in tensors and "features" not in group:
                colors = tensors.pop("colors")
                tensors.setdefault("shs" if colors.ndim == 3 else "rgb", colors)
            is_of_rasteriser = "sh0" not in tensors and "colors" not in tensors
            is_of_rasteriser &= {names["scales"], names["opacities"]} <= _ACTIVATED
            return SavedTensors(tensors, degree, has_logits, is_of_rasteriser)
    return None


def _names_in(group: Mapping[str, Any], is_tensor: Any) -> dict[str, str]:
    """Return the name of each field that is there."""
    names: dict[str, str] = {}
    for field, aliases in ALIASES.items():
        present = [alias for alias in aliases if is_tensor(group.get(alias))]
        if present:
            names[field] = present[0]
    return names


def _degree(value: Any, is_tensor: Any) -> int | None:
    """Return a degree in use that was saved as a number or as a tensor; None for
    anything else.
    """
    is_number = isinstance(value, int) or (is_tensor(value) and value.ndim == 0)
    if not is_number:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _of_capture(value: Any, is_tensor: Any) -> SavedTensors | None:
    """Return the scene of inria's `capture`: the active degree, xyz, and then in order
    features_dc, features_rest, scaling, rotation, opacity; None for any other tuple.
    """
    if len(value) < 7 or not is_tensor(value[1]):
        return None
    if is_tensor(value[0]) and value[0].ndim:
        return None
    means = value[1]
    count = means.shape[0] if means.ndim else -1
    later = [each for each in value[2:] if is_tensor(each)]
    first = next((i for i, t in enumerate(later) if t.shape == (count, 1, 3)), None)
    if first is None or len(later) < first + 5:
        return None
    sh0, rest, scales, quats, opacities = later[first : first + 5]
    is_capture = (
        rest.ndim == 3
        and scales.ndim == 2
        and scales.shape[1] in (1, *SCALE_COUNTS)
        and quats.shape == (count, 4)
    )
    if not is_capture:
        return None
    return SavedTensors(
        {
            "means": means,
            "sh0": sh0,
            "shN": rest,
            "scales": scales,
            "quats": quats,
            "opacities": opacities,
        },
        _degree(value[0], is_tensor),
    )


def fields_from(arrays: Mapping[str, np.ndarray], parts: SavedTensors) -> Fields:
    """Return raw fields from the arrays of a scene by the fields of `ALIASES`.

    `parts` describes them. Raises FileError.
    """
    has_logit_colors = parts.has_logit_colors
    means = arrays["means"]
    if means.ndim != 2:
        raise FileError(f"means has shape {means.shape}; (N, 3) is needed")
    count = len(means)
    sh0, rest = _harmonics(arrays, count, has_logit_colors)
    scales = arrays["scales"]
    opacities = _column(arrays["opacities"], count)
    if parts.may_be_activated and _are_activated(scales, opacities):
        scales, opacities = _as_raw(scales, opacities)
    if "filter_3D" in arrays:
        sizes = _column(arrays["filter_3D"], count)
        fits = (
            sizes.shape == (count,)
            and opacities.shape == (count,)
            and scales.shape in [(count, columns) for columns in (1, *SCALE_COUNTS)]
        )
        if not fits:
            raise FileError(
                f"{count} centres, scales of shape {scales.shape}, opacities of "
                f"{opacities.shape} and a filter_3D of "
                f"{sizes.shape} do not fit together"
            )
        scales, opacities = apply_filter(scales, opacities, sizes)
    return Fields(
        means=means,
        quats=arrays["quats"],
        scales=scales,
        opacities=opacities,
        sh0=sh0,
        shN=rest,
    )


def _are_activated(scales: np.ndarray, opacities: np.ndarray) -> bool:
    """Return whether values can be world units and opacities.

    Logarithms and logits have numbers below 0.
    """
    return bool(
        (scales >= 0).all() and (opacities >= 0).all() and (opacities <= 1).all()
    )


def _as_raw(scales: np.ndarray, opacities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tiny = np.finfo(np.float32).tiny
    alpha = np.clip(opacities.astype(np.float64), tiny, 1 - 2.0**-24)
    logits = np.log(alpha) - np.log1p(-alpha)
    return np.log(np.maximum(scales, tiny)), logits.astype(np.float32)


def _column(values: np.ndarray, count: int) -> np.ndarray:
    return values[:, 0] if values.shape == (count, 1) else values


def _harmonics(
    arrays: Mapping[str, np.ndarray], count: int, has_logit_colors: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients of degree 0, and of the degrees above."""
    rest = arrays.get("shN", np.zeros((count, 0, 3), np.float32))
    if rest.ndim == 2 and rest.shape[1] % 3 == 0:  # 3DGRUT
        rest = rest.reshape(len(rest), rest.shape[1] // 3, 3)
    if "sh0" in arrays:
        sh0 = arrays["sh0"]
        if has_logit_colors and sh0.shape == (count, 3) and _is_empty(arrays, "shN"):
            return sh0_of_rgb(_sigmoid(sh0)), rest
        return (sh0[:, 0] if sh0.shape == (count, 1, 3) else sh0), rest
    if "shs" in arrays and arrays["shs"].ndim == 3:
        return arrays["shs"][:, 0], arrays["shs"][:, 1:]
    # gsplat's appearance optimisation: logits of the colour before the network's share.
    rgb = arrays["rgb"] if "rgb" in arrays else None
    if rgb is None and "colors" in arrays:
        rgb = _sigmoid(arrays["colors"])
    if rgb is None:
        raise FileError(f"shs has shape {arrays['shs'].shape}; (N, K, 3) is needed")
    return sh0_of_rgb(rgb), rest


def _is_empty(arrays: Mapping[str, np.ndarray], name: str) -> bool:
    return name in arrays and arrays[name].shape[1:] == (0, 3)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-values.astype(np.float64)))).astype(np.float32)


def joined(parts: Sequence[Fields]) -> Fields:
    """Return the scenes of several ranks as one, which must have as many coefficients
    each. Raises FileError.
    """
    if len(parts) == 1:
        return parts[0]
    if len({part.shN.shape[1:] for part in parts}) > 1:
        raise FileError("the ranks hold spherical harmonics of different degrees")
    columns = zip(*(part.arrays for part in parts), strict=True)
    return Fields(*(np.concatenate(column) for column in columns))
