"""Rules for the frames of scenes that a function draws.

Three streams belong together; the second and the third have the first one's name in
`StreamInfo.over`.

1. The scene (kind rendered): what a viewer must know to place a camera.
   points    (P, 3) float32, a sample of the scene's points, at most 4,096; optional.
             Without it the scene is taken to fill a sphere of radius 1 around 0
   Metadata: "function": its name, for users. "trouble": why nothing can be drawn now, for
   users; "" or missing where it can.
2. The tensors that the function is given (kind tensors), where another process draws.
3. Pictures, each sent on request (kind picture).
"""

from __future__ import annotations

import math

from splatview_ipc.kinds.rules import (
    Meta,
    MetaRules,
    Rules,
    Tensors,
    check_extent,
    check_meta,
    check_tensors,
)

MAX_POINTS = 4096
"""Points of the sample."""
_TENSORS: Rules = {"points": (("float32",), ("P", 3))}
_META_RULES: MetaRules = {"function": (str, 0), "trouble": (str, 0)}


def sample_stride(count: int) -> int:
    """Return of how many points one is in the sample, for at most MAX_POINTS in all."""
    return max(1, math.ceil(count / MAX_POINTS))


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make a frame of a drawn scene."""
    extents = check_tensors("a scene that a function draws", tensors, _TENSORS, ())
    check_extent("points of a scene", extents.get("P", 0), MAX_POINTS)
    check_meta(meta, _META_RULES)
