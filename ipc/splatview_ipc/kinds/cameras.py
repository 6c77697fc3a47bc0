"""Rules of the cameras that a scene is trained with: world to camera in OpenCV axes, pixel centres at +0.5.

Three streams, of which two may be missing; these have the first one's name in `StreamInfo.over`.
The cameras: "viewmats" (N, 4, 4) and "Ks" (N, 3, 3), float32 or float64; "sizes" (N, 2) int32, width and height in
pixels; for photographs in files, "paths" uint8, N texts, UTF-8, each ended by a zero byte, empty where there is none.
meta "photos": counts the sets of photographs that can be requested (`splatview_ipc.control.messages.Photos`), 0: none.
Photographs, sent on request: "photos" (M, H, W, 3) uint8, RGB, or (M, H, W, 4) with straight alpha, those of the
cameras from meta "camera" on, of the set with the number meta "photos"; meta "side": 0: one in its own size; otherwise
all resized to that many pixels in width and height. H and W 0: there is none. meta "hint": what looks wrong with them.
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
"""The most of each in a frame of kind cameras: cameras, bytes of paths, pixels along a photograph, bytes of photographs
that come together."""
_REAL = ("float32", "float64")
_TENSORS: Rules = {
    "viewmats": (_REAL, ("N", 4, 4)),
    "Ks": (_REAL, ("N", 3, 3)),
    "sizes": (("int32",), ("N", 2)),
    "paths": (("uint8",), ("text",)),
}
_PHOTOS: Rules = {"photos": (("uint8",), ("M", "H", "W", "C"))}
_CURRENT: Rules = {"current": (("int32",), (1,))}


def check(tensors: Tensors, meta: Meta) -> None:
    most = CAMERA_LIMITS
    if "photos" in tensors:
        found = check_tensors("a frame of photographs", tensors, _PHOTOS, ())
        check_extent("photographs", found["M"], most["cameras"], 1)
        check_extent("channels of a photograph", found["C"], 4, 3)
        check_extent(
            "pixels along a photograph", max(found["H"], found["W"]), most["side"]
        )
        check_extent(
            "bytes of photographs",
            found["M"] * found["H"] * found["W"] * found["C"],
            most["photo_bytes"],
        )
        check_meta(
            meta,
            {
                "camera": (int, most["cameras"] - 1),
                "side": (int, most["side"]),
                "photos": (int, INT64_MAX),
            },
            needed=("camera", "side", "photos"),
        )
    elif "current" in tensors:
        check_tensors("the camera in use", tensors, _CURRENT, ())
    else:
        found = check_tensors(
            "a frame of cameras", tensors, _TENSORS, ("viewmats", "Ks", "sizes")
        )
        check_extent("cameras", found["N"], most["cameras"])
        check_extent("bytes of paths", found.get("text", 0), most["text"])
        check_meta(meta, {"photos": (int, INT64_MAX)})
