"""Rules of Gaussian scenes.

"means" (N, 3), "quats" (N, 4) w x y z, "scales" (N, 3), "opacities" (N,), and a colour: "sh0" (N, 3) with "shN"
(N, K-1, 3), or "rgb" (N, 3). OpenCV axes. Optional "background" (3,).
meta "color": "sh" | "rgb" | "rgb_logit"; "activated": bool (False: scales are logarithms, opacities logits);
"sh_degree": 0 to 4, the degree in use; "antialiased": bool; optional "step".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.kinds import Spec

SH_REST = (0, 3, 8, 15, 24)
"""Coefficients beyond degree 0, for degrees 0, 1, 2, 3, 4."""
COLOR_SPACES = ("sh", "rgb", "rgb_logit")
FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")


def check_degree(degree: Any) -> None:
    """Raise ValueError unless this is a degree of spherical harmonics."""
    if type(degree) is not int or not 0 <= degree < len(SH_REST):
        raise ValueError(f"sh_degree is {degree!r}, not 0, 1, 2, 3 or 4")


def check(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    known = {"means", "quats", "scales", "opacities", "sh0", "shN", "rgb", "background"}
    if unknown := set(tensors) - known:
        raise ValueError(f"gaussians do not have {sorted(unknown)}")
    color = meta.get("color")
    if color not in COLOR_SPACES:
        raise ValueError(f"color is {color!r}, not one of {', '.join(COLOR_SPACES)}")
    needed = ["means", "quats", "scales", "opacities", "sh0" if color == "sh" else "rgb"]
    if missing := [name for name in needed if name not in tensors]:
        raise ValueError(f"gaussians need {', '.join(missing)}")
    n = tensors["means"][1][0] if tensors["means"][1] else -1
    wanted = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 3), "rgb": (n, 3),
              "background": (3,)}
    for name, (dtype, shape) in tensors.items():
        if dtype not in FLOAT_DTYPES:
            raise ValueError(f"{name} is {dtype}; legal are {', '.join(FLOAT_DTYPES)}")
        if name == "shN":
            if len(shape) != 3 or shape[0] != n or shape[1] not in SH_REST or shape[2] != 3:
                raise ValueError(f"shN has shape {shape}, not ({n}, {' | '.join(map(str, SH_REST))}, 3)")
        elif shape != wanted[name]:
            raise ValueError(f"{name} has shape {shape}, not {wanted[name]}")
    if not isinstance(meta.get("activated"), bool):
        raise ValueError("'activated' must be true or false")
    check_degree(meta.get("sh_degree", 0))
