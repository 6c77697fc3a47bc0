"""Colour maps: from a number in [0, 1] to a colour.

Viridis, magma and inferno are by Stéfan van der Walt and Nathaniel Smith (matplotlib,
CC0); turbo is by Anton Mikhailov (Google, 2019, Apache-2.0). Each is kept at `KNOTS`
places, with straight lines between them, which is never more than 2 of 255 steps away
from the whole table.
"""

from __future__ import annotations

from functools import cache

import numpy as np

KNOTS = 33
_GREYS = (round(255 * i / (KNOTS - 1)) for i in range(KNOTS))
_TABLES = {
    "turbo": (
        "30123b392a734040a14456c7466be3467ff64293ff37a7fa29bbec1dcdd818dcc3"
        "1ee8b031f2994cf97e6bfd648aff4da3fd3cb8f735cced34dee037edd03af8c03a"
        "fdae35fe982cfb8022f56817ec520fe04009d23105c02302ac1701950d017a0403"
    ),
    "viridis": (
        "440154470d6048186a482374472d7b4536814240863f49893b528b375a8d33638d"
        "2f6a8e2c728e297a8e26818e23898e21908c1f988b1f9f8821a68528ae8031b57b"
        "3ebc744cc26c5dc9636ece5882d34c96d83fabdc32c0df24d5e21aeae51afde725"
    ),
    "magma": (
        "0000040303110a0822130d331d114628115a36106a430f7650127c5d177f691c81"
        "7621818226818f2a819c2e7fa9327db63779c33b75cf4170db486ae65163ee5c5e"
        "f5695cf9785dfb8761fd9668fea571feb47bfec387fed194fde0a2fceeb0fcfdbf"
    ),
    "inferno": (
        "0000040403120b0724150b37210c4a2e0a5a3c09654a0c6b57106d63146e70196e"
        "7d1e6d89226a962766a32b61af315cbb3755c63e4dd14644db4f3be35932eb6528"
        "f1711ef67f14f98d0afb9c06fcab0ffbba1ff9ca32f5d949f2e865f3f586fcffa4"
    ),
    "grey": "".join(f"{grey:02x}" * 3 for grey in _GREYS),
}
NAMES: dict[str, str] = {name: name.capitalize() for name in _TABLES}
"""Labels of colour maps by name."""


SHADER = f"""
const int KNOTS = {KNOTS};
uniform vec3 u_map[KNOTS];  // `table`

// A number in [0, 1] by the colour map, straight between its knots.
vec3 mapped(float x) {{
    float at = clamp(x, 0.0, 1.0) * float(KNOTS - 1);
    int knot = min(int(at), KNOTS - 2);
    return mix(u_map[knot], u_map[knot + 1], at - float(knot));
}}
"""
"""GLSL of a function `mapped`, which does what `colors` does."""


@cache
def table(name: str) -> np.ndarray:
    """Return a map's colours at its knots, (KNOTS, 3) float32 RGB in [0, 1].

    Those of turbo for an unknown name.
    """
    digits = _TABLES.get(name, _TABLES["turbo"])
    colors = np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(KNOTS, 3)
    rgb = colors.astype(np.float32) / 255
    rgb.setflags(write=False)
    return rgb


def colors(name: str, values: np.ndarray) -> np.ndarray:
    """Return RGB (..., 3) float32 of values (...), which are cut to [0, 1]."""
    values = np.clip(values, 0, 1)
    knots = np.linspace(0, 1, KNOTS)
    channels = [np.interp(values, knots, channel) for channel in table(name).T]
    return np.stack(channels, axis=-1).astype(np.float32)
