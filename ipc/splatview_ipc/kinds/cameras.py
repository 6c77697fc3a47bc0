"""Rules of the cameras that a scene is trained with: world to camera in OpenCV axes, pixel centres at +0.5.

Three streams, of which two may be missing; these have the first one's name in `StreamInfo.over`.
The cameras: "viewmats" (N, 4, 4) and "Ks" (N, 3, 3), float32 or float64; "sizes" (N, 2) int32, width and height in
pixels; for photographs in files, "paths" uint8, N texts, UTF-8, each ended by a zero byte, empty where there is none.
meta "photos": counts the sets of photographs that can be requested (`splatview_ipc.control.messages.Photos`), 0: none.
Photographs, sent on request: "photos" (M, H, W, 3) uint8, RGB, those of the cameras from meta "camera" on, of the set
with the number meta "photos"; meta "side": 0: one in its own size; otherwise all resized to that many pixels in width
and height. H and W 0: there is none.
The camera in use: "current" (1,) int32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.kinds import Spec

CAMERAS_MOST = {"cameras": 10_000, "text": 1 << 22, "side": 1 << 15, "photo_bytes": 1 << 29}
"""The most of each in a frame of kind cameras: cameras, bytes of paths, pixels along a photograph, bytes of photographs
that come together."""


def check(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    names, most = set(tensors), CAMERAS_MOST
    if names == {"photos"}:
        dtype, shape = tensors["photos"]
        if dtype != "uint8" or len(shape) != 4 or shape[3] != 3 or not 1 <= shape[0] <= most["cameras"] or (
                max(shape[1:3]) > most["side"] or shape[0] * shape[1] * shape[2] * 3 > most["photo_bytes"]):
            raise ValueError(f"photos are {dtype} of shape {shape}, not uint8 of shape (M, H, W, 3) with at most "
                             f"{most['photo_bytes']} bytes")
        for name, top in (("camera", most["cameras"] - 1), ("side", most["side"]), ("photos", 2**63 - 1)):
            if type(value := meta.get(name)) is not int or not 0 <= value <= top:
                raise ValueError(f"{name!r} is {value!r}, not a number from 0 to {top}")
        return
    if names == {"current"}:
        if tensors["current"] != ("int32", (1,)):
            raise ValueError(f"current is {tensors['current'][0]} of shape {tensors['current'][1]}, not int32 (1,)")
        return
    if not {"viewmats", "Ks", "sizes"} <= names <= {"viewmats", "Ks", "sizes", "paths"}:
        raise ValueError(f"cameras have viewmats, Ks, sizes and, if they like, paths, not {', '.join(sorted(names))}")
    n = tensors["viewmats"][1][0] if tensors["viewmats"][1] else -1
    if not 0 <= n <= most["cameras"]:
        raise ValueError(f"{n} cameras; at most {most['cameras']}")
    for name, wanted in (("viewmats", (n, 4, 4)), ("Ks", (n, 3, 3)), ("sizes", (n, 2))):
        dtype, shape = tensors[name]
        legal = ("int32",) if name == "sizes" else ("float32", "float64")
        if dtype not in legal or shape != wanted:
            raise ValueError(f"{name} is {dtype} of shape {shape}, not {' or '.join(legal)} of shape {wanted}")
    dtype, shape = tensors.get("paths", ("uint8", (0,)))
    if dtype != "uint8" or len(shape) != 1 or shape[0] > most["text"]:
        raise ValueError(f"paths are {dtype} of shape {shape}, not uint8 with at most {most['text']} bytes")
    if type(number := meta.get("photos", 0)) is not int or number < 0:
        raise ValueError(f"'photos' is {number!r}, not a number from 0 on")
