"""Rules of Gaussian scenes.

"means" (N, 3), "quats" (N, 4) w x y z, "scales" (N, 3), "opacities" (N,), and a colour: "sh0" (N, 3) with "shN"
(N, K-1, 3), or "rgb" (N, 3). OpenCV axes. Optional "background" (3,).
meta "color": "sh" | "rgb" | "rgb_logit"; "activated": bool (False: scales are logarithms, opacities logits);
"sh_degree": 0 to 4, the degree in use; "antialiased": bool; optional "step".
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    FLOAT_DTYPES,
    Meta,
    Rules,
    Tensors,
    check_meta,
    check_tensors,
)

SH_REST = (0, 3, 8, 15, 24)
"""Coefficients beyond degree 0, for degrees 0, 1, 2, 3, 4."""
SH_DEGREE = {"sh_degree": (int, len(SH_REST) - 1)}

_TENSORS: Rules = {
    name: (FLOAT_DTYPES, shape)
    for name, shape in {
        "means": ("N", 3),
        "quats": ("N", 4),
        "scales": ("N", 3),
        "opacities": ("N",),
        "sh0": ("N", 3),
        "shN": ("N", "K", 3),
        "rgb": ("N", 3),
        "background": (3,),
    }.items()
}


def check(tensors: Tensors, meta: Meta) -> None:
    color = meta.get("color")
    if color not in ("sh", "rgb", "rgb_logit"):
        raise ValueError(f"color is {color!r}, not sh, rgb or rgb_logit")
    needed = (
        "means",
        "quats",
        "scales",
        "opacities",
        "sh0" if color == "sh" else "rgb",
    )
    extents = check_tensors("a Gaussian scene", tensors, _TENSORS, needed)
    if extents.get("K", 0) not in SH_REST:
        raise ValueError(
            f"shN has {extents['K']} coefficients; legal are {', '.join(map(str, SH_REST))}"
        )
    check_meta(meta, {"activated": (bool, 1), **SH_DEGREE}, needed=("activated",))
