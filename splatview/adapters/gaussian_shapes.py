"""The expected dtypes, devices and shapes of the parts of a Gaussian scene."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.kinds.gaussians import SH_REST_COUNTS
from splatview_ipc.kinds.rules import FLOAT_DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

_COEFFICIENTS = "|".join(str(count) for count in SH_REST_COUNTS)
_FLAT_COEFFICIENTS = "|".join(str(3 * count) for count in SH_REST_COUNTS)
_ALL_COEFFICIENTS = "|".join(str(count + 1) for count in SH_REST_COUNTS)
_LEGAL_SHAPES = {
    "means": "(N, 3)",
    "scales": "(N, 3|2|1)",
    "quats": "(N, 4)",
    "opacities": "(N,) or (N, 1)",
    "background": "(3,)",
    "color": "(N, 3) or (N, 1, 3)",
    "color_rest": f"(N, {_COEFFICIENTS}, 3) or (N, {_FLAT_COEFFICIENTS})",
    "filter_3D": "(N,) or (N, 1)",
    "sh": f"(N, 3) or (N, {_ALL_COEFFICIENTS}, 3)",
}
"""Shapes of the parts by field; "sh": of colours that hold all coefficients."""


def check_parts(
    keys: Mapping[str, str], tensors: Mapping[str, torch.Tensor], space: str
) -> None:
    """Raise ValueError unless these tensors make a scene.

    Args:
        keys: the caller's names of the parts by field, for errors.
        tensors: the tensors by field.
        space: of the colours: "sh", "rgb" or "rgb_logit".
    """
    means = tensors["means"]
    has_all_coefficients = space == "sh" and "color_rest" not in tensors
    for field, tensor in tensors.items():
        name = keys[field]
        dtype = dtype_name(tensor)
        if dtype not in FLOAT_DTYPES:
            raise ValueError(
                f"gaussians: {name} is {dtype}; expected {', '.join(FLOAT_DTYPES)}"
            )
        if tensor.device != means.device:
            raise ValueError(
                f"gaussians: {name} is on {tensor.device}, {keys['means']} on "
                f"{means.device}; all parts must be on one device"
            )
        check_shape(field, tensor, keys, means, has_all_coefficients)


def check_shape(
    field: str,
    tensor: torch.Tensor,
    keys: Mapping[str, str],
    means: torch.Tensor,
    has_all_coefficients: bool,
) -> None:
    """Raise ValueError for a part of an illegal shape.

    Args:
        has_all_coefficients: colours are (N, K, 3), all in one tensor.
    """
    is_harmonics = field == "color" and has_all_coefficients
    expected = _LEGAL_SHAPES["sh" if is_harmonics else field]
    count = len(means) if means.ndim else -1
    for form in expected.split(" or "):
        extents = form.strip("(,)").replace("N", str(count)).split(", ")
        if _has_extents(tensor, extents):
            return
    known_count = ""
    if count >= 0 and field != "means":
        known_count = f", and {keys['means']} says N = {count}"
    raise ValueError(
        f"gaussians: {keys[field]} has shape {tuple(tensor.shape)}; expected {expected}"
        f"{known_count}"
    )


def _has_extents(tensor: torch.Tensor, extents: list[str]) -> bool:
    """Return whether a tensor has these extents, each one or several numbers, "3|2|1"."""
    if len(extents) != tensor.ndim:
        return False
    pairs = zip(extents, tensor.shape, strict=True)
    return all(str(extent) in expected.split("|") for expected, extent in pairs)
