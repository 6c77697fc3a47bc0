"""Rules for the frames of Gaussian scenes: the tensors and metadata that they hold.

Tensors of N Gaussians, axes as in OpenCV:

means       (N, 3)
quats       (N, 4), w x y z
scales      (N, 3), or (N, 2) for flat Gaussians: the third scale, along the third axis
            of the rotation, is then 0
opacities   (N,)
sh0, shN    (N, 3) and (N, K-1, 3): spherical harmonics of degree 0 and of the others;
rgb         (N, 3): the colour instead of them
background  (3,), optional
filter_3D   (N,), optional, of mip-splatting. With a filter f the scales are
            sqrt(scales^2 + f^2), and opacities fall by the quotient of the volumes

Metadata:

color        "sh", "rgb" or "rgb_logit"
activated    bool; False: scales are logarithms and opacities logits. Or two numbers,
             each 0 or 1, for scales and for opacities
sh_degree    0 to 4, the degree in use
antialiased  bool
step         optional
"""

from __future__ import annotations

from typing import Any, NamedTuple

from splatview_ipc.kinds.rules import (
    FLOAT_DTYPES,
    Meta,
    MetaRules,
    Rules,
    Tensors,
    check_meta,
    check_tensors,
)

SH_REST_COUNTS = (0, 3, 8, 15, 24)
"""Number of harmonics beyond degree 0 for each highest degree, 0 to 4."""
SH_DEGREE: MetaRules = {"sh_degree": (int, len(SH_REST_COUNTS) - 1)}
"""The rule of the metadata "sh_degree": an int, from 0 to the highest degree."""
SCALE_COUNTS = (2, 3)
"""Legal numbers of scales of one Gaussian."""
# Where a model has logarithms and the values that they stand for, the logarithms come
# first: they are stored.
FIELD_NAMES = {
    "means": ("means", "means3d", "means3D", "xyz", "_xyz", "positions"),
    "quats": ("quats", "rotations", "rotation", "_rotation", "unnorm_rotations"),
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
"""Trainers' names of mip-splatting's filter, the smallest size that the photographs
resolve."""

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
"""Shapes by tensor. A letter stands for the same extent wherever it occurs: N Gaussians,
S scales of each, K harmonics beyond degree 0."""
_TENSOR_RULES: Rules = {name: (FLOAT_DTYPES, shape) for name, shape in _SHAPES.items()}
_COLORS = ("sh", "rgb", "rgb_logit")


class Activated(NamedTuple):
    """Say which numbers of a scene are final values, not parameters of a training."""

    scales: bool
    """True: in world units. False: logarithms."""
    opacities: bool
    """True: in [0, 1]. False: logits."""


def parse_activated(value: Any) -> Activated:
    """Parse the metadata "activated": one bool for scales and opacities, or a pair.

    Raises:
        ValueError: it is something else.
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
    """Return whether a value is a bool, or a number that stands for one in messages."""
    return isinstance(value, (bool, int, float)) and value in (0, 1)


def check(tensors: Tensors, meta: Meta) -> None:
    """Check the tensors and metadata of a frame; `check_frame` calls it for this kind.

    Raises:
        ValueError: they do not make a Gaussian scene.
    """
    color = meta.get("color")
    if color not in _COLORS:
        raise ValueError(f"color is {color!r}, not sh, rgb or rgb_logit")
    color_tensor = "sh0" if color == "sh" else "rgb"
    needed = ("means", "quats", "scales", "opacities", color_tensor)
    extents = check_tensors("a Gaussian scene", tensors, _TENSOR_RULES, needed)
    scale_count = extents["S"]
    if scale_count not in SCALE_COUNTS:
        expected = " or ".join(map(str, SCALE_COUNTS))
        raise ValueError(f"scales has {scale_count} columns; expected {expected}")
    rest_count = extents.get("K", 0)
    if rest_count not in SH_REST_COUNTS:
        expected = ", ".join(map(str, SH_REST_COUNTS))
        raise ValueError(f"shN has {rest_count} coefficients; expected {expected}")
    # For its exceptions alone.
    parse_activated(meta.get("activated"))
    check_meta(meta, SH_DEGREE)
