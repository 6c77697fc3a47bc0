"""Rules for pictures that a function has drawn on a viewer's request (`messages.Draw`).

The camera is that of the request: world to camera in OpenCV axes (x right, y down, z
forward), pixel centres at +0.5.

color     (H, W, 3) uint8, top row first, over the function's own background, or
          premultiplied over black where there is an alpha; optional: a picture without
          it tells why there is none. On a GPU (H, W, 4), with alpha: textures have no
          pixels of 3 bytes
alpha     (H, W) uint8, 255 where nothing behind can be seen; optional, only beside
          (H, W, 3)
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
    "color": (("uint8",), ("H", "W", "C")),
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
    channels = extents.get("C", 3)
    if channels not in (3, 4):
        raise ValueError(f"color has {channels} channels; expected 3, or 4 with alpha")
    if channels == 4 and "alpha" in tensors:
        raise ValueError("color has 4 channels, and there is alpha; expected one alpha")
    check_meta(meta, _META_RULES, needed=("viewer", "request"))
