"""Rules for pictures that a function has drawn on a viewer's request (`messages.Draw`).

The camera is that of the request: world to camera in OpenCV axes (x right, y down, z
forward), pixel centres at +0.5.

color     (H, W, 3) uint8, top row first, over the function's own background, or
          premultiplied over black where there is an alpha; optional: a picture without
          it tells why there is none
alpha     (H, W) uint8, 255 where nothing behind can be seen; optional
depth     (H, W) float32, camera z in world units, expected where several surfaces
          show; not over 0, or not finite: nothing is there; optional

Metadata:

viewer    who asked for it
request   the number of the request
ms        milliseconds that the function took
gpu_ms    optional: milliseconds that a GPU worked for it, pauses between works included
step      optional: of the tensors that were drawn
trouble   why there is no picture, for users: the end of a traceback, in lines
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    INT64_MAX,
    Meta,
    MetaRules,
    Rules,
    Tensors,
    check_extent,
    check_meta,
    check_tensors,
)

MAX_SIDE = 16384
"""Pixels along a picture."""
_TENSORS: Rules = {
    "color": (("uint8",), ("H", "W", 3)),
    "alpha": (("uint8",), ("H", "W")),
    "depth": (("float32",), ("H", "W")),
}
_META_RULES: MetaRules = {
    "viewer": (str, 0),
    "request": (int, INT64_MAX),
    "ms": (float, 1e9),
    "gpu_ms": (float, 1e9),
    "trouble": (str, 0),
}


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make a picture, or tell of trouble."""
    extents = check_tensors("a drawn picture", tensors, _TENSORS, ())
    for letter in ("H", "W"):
        check_extent("pixels along a picture", extents.get(letter, 0), MAX_SIDE)
    if "color" not in tensors and (tensors or not meta.get("trouble")):
        raise ValueError("a drawn picture needs color, or the trouble that there is")
    check_meta(meta, _META_RULES, needed=("viewer", "request"))
