"""Rules of the cameras that a scene is trained with.

World to camera in OpenCV axes, pixel centres at +0.5. There are three streams, of which
two may be missing; these have the first one's name in `StreamInfo.over`.

The cameras: "viewmats" (N, 4, 4) and "Ks" (N, 3, 3), float32 or float64; "sizes" (N, 2)
int32, width and height in pixels; for photographs in files, "paths" uint8, N texts,
UTF-8, each ended by a zero byte, empty for cameras without one. meta "photos": counts
the sets of photographs that can be requested (`splatview_ipc.control.messages.Photos`),
0: none.

Photographs, sent on request: "photos" (M, H, W, 3) uint8, RGB, or (M, H, W, 4) with
straight alpha, those of the cameras from meta "camera" on, of the set with the number
meta "photos"; meta "side": 0: one in its own size; otherwise all resized to that many
pixels in width and height. H and W 0: there is none. meta "hint": what looks wrong with
them.

The camera in use: "current" (1,) int32.
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    INT64_MAX,
    Meta,
    Rules,
    Tensors,
    check_extent,
    check_meta,
    check_tensors,
)

CAMERA_LIMITS = {
    "cameras": 10_000,
    "text": 1 << 22,
    "side": 1 << 15,
    "photo_bytes": 1 << 29,
}
"""Limits of a frame of kind cameras: cameras, bytes of paths, pixels along a
photograph, bytes of photographs that come together."""
_FLOATS = ("float32", "float64")
_CAMERAS: Rules = {
    "viewmats": (_FLOATS, ("N", 4, 4)),
    "Ks": (_FLOATS, ("N", 3, 3)),
    "sizes": (("int32",), ("N", 2)),
    "paths": (("uint8",), ("text",)),
}
_PHOTOS: Rules = {"photos": (("uint8",), ("M", "H", "W", "C"))}
_CURRENT: Rules = {"current": (("int32",), (1,))}
_PHOTOS_META = {
    "camera": (int, CAMERA_LIMITS["cameras"] - 1),
    "side": (int, CAMERA_LIMITS["side"]),
    "photos": (int, INT64_MAX),
}


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless these make a frame of one of the three streams."""
    if "photos" in tensors:
        _check_photos(tensors, meta)
    elif "current" in tensors:
        check_tensors("the camera in use", tensors, _CURRENT, ())
    else:
        _check_cameras(tensors, meta)


def _check_cameras(tensors: Tensors, meta: Meta) -> None:
    needed = ("viewmats", "Ks", "sizes")
    extents = check_tensors("a frame of cameras", tensors, _CAMERAS, needed)
    check_extent("cameras", extents["N"], CAMERA_LIMITS["cameras"])
    check_extent("bytes of paths", extents.get("text", 0), CAMERA_LIMITS["text"])
    check_meta(meta, {"photos": (int, INT64_MAX)})


def _check_photos(tensors: Tensors, meta: Meta) -> None:
    extents = check_tensors("a frame of photographs", tensors, _PHOTOS, ())
    count = extents["M"]
    height = extents["H"]
    width = extents["W"]
    channels = extents["C"]
    side = max(height, width)
    size = count * height * width * channels
    check_extent("photographs", count, CAMERA_LIMITS["cameras"], 1)
    check_extent("channels of a photograph", channels, 4, 3)
    check_extent("pixels along a photograph", side, CAMERA_LIMITS["side"])
    check_extent("bytes of photographs", size, CAMERA_LIMITS["photo_bytes"])
    check_meta(meta, _PHOTOS_META, needed=tuple(_PHOTOS_META))
