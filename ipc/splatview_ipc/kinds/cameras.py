"""Rules for the frames of cameras that a scene is trained with.

Poses are world to camera in OpenCV axes; pixel centres are at +0.5. Three streams
belong together. The second and the third may be missing; they have the first one's name
in `StreamInfo.over`.

1. The cameras.
   viewmats  (N, 4, 4), float32 or float64
   Ks        (N, 3, 3), float32 or float64
   sizes     (N, 2) int32, width and height in pixels
   paths     uint8, for photographs in files: N texts, UTF-8, each ended by a zero byte,
             empty for cameras without a photograph
   Metadata "photos" counts the sets of photographs that can be requested
   (`splatview_ipc.control.messages.Photos`); 0: none.
2. Photographs, sent on request.
   photos    (M, H, W, 3) uint8, RGB, or (M, H, W, 4) with straight alpha; H and W are 0
             where there is no photograph
   Metadata: "camera": the camera of the first photograph; the others follow. "photos":
   the number of the set. "side": 0 for one photograph in its own size; otherwise all
   are resized to that many pixels in width and height. "hint": what looks wrong with
   them.
3. The camera in use.
   current   (1,) int32
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
_PHOTOS_META_RULES: MetaRules = {
    "camera": (int, CAMERA_LIMITS["cameras"] - 1),
    "side": (int, CAMERA_LIMITS["side"]),
    "photos": (int, INT64_MAX),
}


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make a frame of one of the three streams."""
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
    check_meta(meta, _PHOTOS_META_RULES, needed=tuple(_PHOTOS_META_RULES))
