"""The cameras that a scene is trained with, from what callers hold to frames of kind cameras."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.images import guessed_layout
from splatview.adapters.tensors import as_tensor, is_array
from splatview.adapters.values import floats, numbers, texts
from splatview_ipc import kinds
from splatview_ipc.control.limits import MAX_META_TEXT
from splatview_ipc.kinds.cameras import CAMERAS_MOST
from splatview_ipc.kinds.rules import check_extent
from splatview_ipc.shm.slot_layout import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    Tensors = dict[str, torch.Tensor]

_STRAIGHT = 1e-2
"""Largest deviation of a matrix from a rotation: poses are optimised in float32, or written with few digits."""
_SMALL_BYTES = 1 << 23
"""Number of small photographs that come together."""
_SMALL_SIDE = 512


def poses(viewmats: Any, intrinsics: Any, width: Any, height: Any) -> Tensors:
    """Return "viewmats", "Ks" and "sizes" of a frame, on the CPU or a GPU as the caller's. Values on a GPU are not
    looked at. Raises TypeError, ValueError."""
    views, Ks = (floats(value, what, double=True) for value, what in ((viewmats, "viewmats"), (intrinsics, "Ks")))
    views, Ks = (t[(None,) * max(3 - t.ndim, 0)].clone(memory_format=torch.contiguous_format) for t in (views, Ks))
    count = len(views)
    if len(Ks) == 1:
        Ks = Ks.expand(count, *Ks.shape[1:]).contiguous()
    sides = []
    for what, value in (("width", width), ("height", height)):
        if value is None:
            raise ValueError(f"{what} is missing: pixels of the photographs, a number or one for each camera")
        side = numbers([value] if isinstance(value, int) else value, what, 1, CAMERAS_MOST["side"]).reshape(-1)
        if side.device.type != "cpu":
            raise ValueError(f"{what} is on {side.device}; give a number, or numbers on the CPU")
        if len(side) not in (1, count):
            raise ValueError(f"{what} has {len(side)} values, not {count}: one for each camera, or one for all")
        sides.append(side.expand(count))
    found = {"viewmats": views, "Ks": Ks, "sizes": torch.stack(sides, 1)}
    kinds.check_frame("cameras", {name: (dtype_name(t), tuple(t.shape)) for name, t in found.items()}, {})
    if views.device.type == "cpu" and count:
        _check_poses(views.numpy())
    if Ks.device.type == "cpu" and count:
        fine = Ks.isfinite().all(2).all(1) & (Ks[:, 0, 0] > 0) & (Ks[:, 1, 1] > 0)
        if not fine.all():
            i = int(fine.to(torch.uint8).argmin())
            raise ValueError(f"Ks[{i}] is {Ks[i].tolist()}; legal are finite matrices [[fx, 0, cx], [0, fy, cy], "
                             "[0, 0, 1]] in pixels with positive fx and fy")
    return found


def _check_poses(views: np.ndarray) -> None:
    """Raise ValueError unless all are finite, rigid and end in 0 0 0 1."""
    turn = views[:, :3, :3].astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(turn @ turn.transpose(0, 2, 1) - np.eye(3)).max((1, 2))
        straight = (off < _STRAIGHT) & (np.linalg.det(np.nan_to_num(turn)) > 0)
        whole = np.isfinite(views).all((1, 2)) & (views[:, 3] == (0, 0, 0, 1)).all(1)
    if (wrong := np.flatnonzero(~(straight & whole))).size:
        i = int(wrong[0])
        why = ("is not finite" if not np.isfinite(views[i]).all() else "does not end in the row 0 0 0 1: transposed?"
               if not whole[i] else "has no rotation in its upper left 3x3")
        raise ValueError(f"viewmats[{i}] {why}; legal are rigid transforms from world to camera (OpenCV axes), the "
                         "inverse of a camera's pose")


class Photos:
    """The caller's photographs, kept as they are until a viewer requests one."""

    def __init__(self, images: Any, count: int) -> None:
        """`count`: of cameras. Checks shapes only. Raises TypeError, ValueError."""
        self.given = images
        """As the caller gave them, to tell whether the next ones are the same."""
        self.tensors: list[torch.Tensor | None] = [None] * count
        self._ready: dict[torch.device, torch.cuda.Event] = {}
        """Recorded behind the writes of what is on a GPU."""
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        if is_array(images):
            whole = as_tensor(images, "images").detach()
            if whole.ndim != 4:
                raise ValueError(f"images have shape {tuple(whole.shape)}; legal are (N, H, W, 3) and lists of "
                                 "(H, W, 3) or of paths")
            items: Sequence[Any] = list(whole)
        elif isinstance(images, (list, tuple)):
            items = images
        else:
            raise TypeError(f"images is a {type(images).__name__}; legal are a tensor (N, H, W, 3) and lists of "
                            "tensors (H, W, 3) or of paths")
        if len(items) != count:
            raise ValueError(f"images are {len(items)}, not {count}: one for each camera, None where there is none")
        paths = [""] * count
        for i, item in enumerate(items):
            if isinstance(item, (str, os.PathLike)):
                path = paths[i] = os.path.abspath(os.fsdecode(os.fspath(item)))
                if len(path) > MAX_META_TEXT or not path.isprintable():
                    raise ValueError(f"images[{i}] is the path {path[:80]!r}; legal are up to {MAX_META_TEXT} "
                                     "printable characters")
            elif item is not None:
                self.tensors[i] = _photo(item, i)
        self.paths = texts(paths, "images") if any(paths) else None
        """"paths" of a frame; None if there are none."""
        if self.paths is not None:
            check_extent("bytes of paths of images", len(self.paths), CAMERAS_MOST["text"])
        for device in {t.device for t in self.tensors if t is not None and t.is_cuda}:
            event = self._ready[device] = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))

    def read(self, camera: int, side: int) -> torch.Tensor:
        """Return (M, H, W, 3) uint8 in host memory. Waits for a GPU: not for trainers.

        side: 0: the photograph of `camera` in its own size, 0 by 0 if there is none. Otherwise photographs of that
        width and height, from `camera` on, as many as go together; black where there is none.
        """
        side = min(side, _SMALL_SIDE)
        some = self.tensors[camera: camera + (max(_SMALL_BYTES // (3 * side * side), 1) if side else 1)]
        black = torch.zeros(min(side, 1), min(side, 1), 3, dtype=torch.uint8)
        return torch.cat([self._on_host(black if t is None else t, side) for t in some])

    def _on_host(self, photo: torch.Tensor, side: int) -> torch.Tensor:
        device = photo.device
        if device.type != "cuda":
            return _as_bytes(photo, side)
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        with torch.cuda.stream(self._streams[device]):
            self._streams[device].wait_event(self._ready[device])
            return _as_bytes(photo, side).cpu()


def _photo(item: Any, i: int) -> torch.Tensor:
    """Return a photograph as (H, W, 1|3|4)."""
    if not is_array(item):
        raise TypeError(f"images[{i}] is a {type(item).__name__}; legal are a path, a tensor (H, W, 3) and None")
    tensor = as_tensor(item, f"images[{i}]").detach()
    layout, dtype = guessed_layout(tensor), dtype_name(tensor).replace("float64", "float32")
    try:
        kinds.check_frame("image", {"image": (dtype, tuple(tensor.shape))}, {"layout": layout})
    except ValueError as e:
        raise ValueError(f"images[{i}]: {e}") from None
    tensor = tensor[:, :, None] if layout == "HW" else tensor.permute(1, 2, 0) if layout == "CHW" else tensor
    height, width = tensor.shape[:2]
    if max(height, width) > CAMERAS_MOST["side"] or height * width * 3 > CAMERAS_MOST["photo_bytes"]:
        raise ValueError(f"images[{i}] is {width}x{height}; at most {CAMERAS_MOST['side']} pixels along a side and "
                         f"{CAMERAS_MOST['photo_bytes'] // 3} in all")
    return tensor


def _as_bytes(photo: torch.Tensor, side: int) -> torch.Tensor:
    """Return (1, H, W, 3) uint8 of (H, W, 1|3|4). side: its new H and W, as means over areas; 0: as it is."""
    photo = photo.expand(*photo.shape[:2], 3) if photo.shape[2] == 1 else photo[:, :, :3]
    if side:
        rows, columns = (max(n // (4 * side), 1) for n in photo.shape[:2])
        some = photo[::rows, ::columns].permute(2, 0, 1).to(torch.float32)
        if photo.dtype == torch.uint8:
            some = some / 255
        photo = torch.nn.functional.adaptive_avg_pool2d(some, side).permute(1, 2, 0)
    if photo.dtype != torch.uint8:
        photo = (torch.nan_to_num(photo.to(torch.float32)).clamp(0, 1) * 255 + 0.5).to(torch.uint8)
    return photo[None].contiguous()
