"""Rules of Gaussian scenes.

"means" (N, 3), "quats" (N, 4) w x y z, "scales" (N, 3) or (N, 2), "opacities" (N,), and
a colour: "sh0" (N, 3) with "shN" (N, K-1, 3), or "rgb" (N, 3). OpenCV axes. Optional
"background" (3,) and "filter_3D" (N,).

Two scales: flat Gaussians, whose third scale is 0, along the third axis of their
rotation. "filter_3D" f, of mip-splatting: scales are sqrt(scales^2 + f^2), opacities
fall by the quotient of the volumes.

meta "color": "sh" | "rgb" | "rgb_logit"; "activated": bool (False: scales are
logarithms, opacities logits), or two numbers, 0 or 1, for scales and opacities;
"sh_degree": 0 to 4, the degree in use; "antialiased": bool; optional "step".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from splatview_ipc.kinds.rules import (
    FLOAT_DTYPES,
    Meta,
    Rules,
    Tensors,
    check_meta,
    check_tensors,
)

SH_REST_COUNTS = (0, 3, 8, 15, 24)
"""Coefficients beyond degree 0, for degrees 0, 1, 2, 3, 4."""
SH_DEGREE = {"sh_degree": (int, len(SH_REST_COUNTS) - 1)}
SCALE_COUNTS = (2, 3)
"""Legal numbers of scales of one Gaussian."""
FIELD_NAMES = {
    "means": ("means", "means3d", "means3D", "xyz", "_xyz", "positions"),
    "quats": ("quats", "rotations", "rotation", "_rotation", "unnorm_rotations"),
    # Where a model has logarithms beside what they stand for, the logarithms are
    # stored.
    "scales": ("log_scales", "scales", "scaling", "_scaling", "scale"),
    "opacities": (
        "logit_opacities",
        "opacities",
        "opacity",
        "_opacity",
        "density",
    ),
}
"""Trainers' names of the fields; the first one that a model has counts."""
COLOR_NAMES = (
    ("sh0", "shN"),
    ("features_dc", "features_rest"),
    ("_features_dc", "_features_rest"),
    ("f_dc", "f_rest"),
    ("shs_dc", "shs_rest"),
    ("features_albedo", "features_specular"),
)
"""Trainers' names of the harmonics: of degree 0, and of the others."""
FILTER_NAMES = ("filter_3D", "filter_3d")
"""Names of mip-splatting's filter: the smallest size that the photographs resolve."""

_SHAPES: dict[str, tuple[int | str, ...]] = {
    "means": ("N", 3),
    "quats": ("N", 4),
    "scales": ("N", "S"),
    "opacities": ("N",),
    "sh0": ("N", 3),
    "shN": ("N", "K", 3),
    "rgb": ("N", 3),
    "background": (3,),
    "filter_3D": ("N",),
}
_TENSORS: Rules = {name: (FLOAT_DTYPES, shape) for name, shape in _SHAPES.items()}


class Activated(NamedTuple):
    """True for scales in world units, and for opacities in [0, 1]."""

    scales: bool
    opacities: bool


def parse_activated(value: Any) -> Activated:
    """Return both meanings of `activated`: one bool for both, or a pair.

    Raises ValueError for anything else.
    """
    if isinstance(value, bool):
        return Activated(value, value)
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    if not is_pair or not all(map(_is_flag, value)):
        raise ValueError(
            f"activated is {str(value)[:60]!r}, not True, False or a pair of them: "
            "(scales, opacities)"
        )
    scales, opacities = value
    return Activated(bool(scales), bool(opacities))


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and value in (0, 1)


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless these make a Gaussian scene."""
    color = meta.get("color")
    if color not in ("sh", "rgb", "rgb_logit"):
        raise ValueError(f"color is {color!r}, not sh, rgb or rgb_logit")
    color_tensor = "sh0" if color == "sh" else "rgb"
    needed = ("means", "quats", "scales", "opacities", color_tensor)
    extents = check_tensors("a Gaussian scene", tensors, _TENSORS, needed)
    scale_count = extents["S"]
    if scale_count not in SCALE_COUNTS:
        expected = " or ".join(map(str, SCALE_COUNTS))
        raise ValueError(f"scales has {scale_count} columns; expected {expected}")
    coefficients = extents.get("K", 0)
    if coefficients not in SH_REST_COUNTS:
        expected = ", ".join(map(str, SH_REST_COUNTS))
        raise ValueError(f"shN has {coefficients} coefficients; expected {expected}")
    parse_activated(meta.get("activated"))
    check_meta(meta, SH_DEGREE)
