"""Photographs of training cameras, kept as the caller passed them.

They are converted and copied when a viewer requests one.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.images import guessed_layout
from splatview.adapters.tensors import as_tensor, is_array
from splatview.adapters.value_texts import short_repr, type_text
from splatview.adapters.values import texts
from splatview_ipc import kinds
from splatview_ipc.control.dtypes import dtype_name
from splatview_ipc.control.limits import MAX_META_TEXT
from splatview_ipc.kinds.camera_hints import photo_range_hint, photo_sides_hint
from splatview_ipc.kinds.cameras import CAMERA_LIMITS
from splatview_ipc.kinds.image import IMAGE_AXES
from splatview_ipc.kinds.rules import check_extent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.kinds.camera_hints import CameraHint

PHOTO_DTYPES = ("uint8", "float16", "bfloat16", "float32", "float64")
"""Not those of images: a photograph has no measurements, and uint16 would be white."""
_DTYPE_ADVICE = {"uint16": ": use .float() / 65535", "bool": ": use .byte() * 255"}
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that names of photographs do not hold.

Narrow spaces and joiners, which macOS and emoji have, are fine.
"""
_THUMBNAIL_BATCH_BYTES = 1 << 23
_MAX_THUMBNAIL_SIDE = 512
_MAX_SAMPLED_PHOTOS = 16
"""Photographs whose numbers are read for hints."""
_SAMPLED_SIDE = 24
"""Pixels along a photograph that are read for hints."""


def check_layout(layout: Any) -> None:
    """Raise ValueError for a value that is no layout of an image."""
    is_known = isinstance(layout, str) and layout in IMAGE_AXES
    if layout is not None and not is_known:
        legal = ", ".join(map(repr, IMAGE_AXES))
        raise ValueError(f"layout is {short_repr(layout)}, not one of {legal}")


class CallerPhotos:
    """The caller's photographs, kept as they are until a viewer requests one."""

    def __init__(
        self, images: Any, sizes: torch.Tensor, layout: str | None = None
    ) -> None:
        """Check the shapes of the photographs; their numbers are not read.

        Args:
            images: the photographs that the caller of `publish_cameras` gave.
            sizes: (N, 2) width and height of the cameras, on the CPU.
            layout: "HW", "HWC", "CHW" or "BGR"; None: by the shapes.

        Raises:
            TypeError: an image is neither a tensor, a path nor None.
            ValueError: photographs that cannot be shown.
        """
        self._source = images
        self._source_layout = layout
        count = len(sizes)
        self.tensors: list[torch.Tensor | None] = [None] * count
        """Photographs (H, W, 1|3|4) by camera; None for paths and where there is none."""
        self._sizes = sizes.tolist()
        self._host_hints: list[CameraHint] | None = None
        """Hints about those in host memory; None: they were not read yet."""
        self._gpu_hint: CameraHint | None = None
        """A hint about those on a GPU that were read."""
        self._is_bgr = layout == "BGR"
        self._written: dict[torch.device, torch.cuda.Event] = {}
        """Events after the trainer's work, which may still write photographs."""
        self._read_streams: dict[torch.device, torch.cuda.Stream] = {}
        paths = [""] * count
        for i, item in enumerate(_image_items(images, count)):
            if isinstance(item, (str, os.PathLike)):
                paths[i] = _photo_path(item, i)
            elif item is not None:
                self.tensors[i] = _photo_tensor(item, i, layout)
        self.paths = texts(paths, "images") if any(paths) else None
        """The tensor "paths" of a frame; None if all images are tensors."""
        if self.paths is not None:
            check_extent(
                "bytes of paths of images", len(self.paths), CAMERA_LIMITS["text"]
            )
        for tensor in self.tensors:
            if tensor is not None and tensor.is_cuda:
                self._note_write(tensor.device)

    def _note_write(self, device: torch.device) -> None:
        """Record an event after the work of a GPU, once for each GPU."""
        if device in self._written:
            return
        event = torch.cuda.Event()
        self._written[device] = event
        event.record(torch.cuda.current_stream(device))

    def is_of(self, images: Any, layout: str | None) -> bool:
        """Return whether a caller gives these photographs again, the same objects."""
        return self._source is images and self._source_layout == layout

    def read(self, camera: int, side: int) -> torch.Tensor:
        """Return photographs as (M, H, W, 3|4) uint8 in host memory.

        Waits for the GPU, and is therefore not called on the trainer's thread.

        Args:
            camera: index of the first camera.
            side: 0 for the photograph of `camera` alone, in its own size; it is 0 by 0
                if there is none. Otherwise the width and height of thumbnails, of which
                as many are returned as fit in one message; black where there is none.
        """
        side = min(side, _MAX_THUMBNAIL_SIDE)
        count = 1
        black = torch.zeros(1, 0, 0, 3, dtype=torch.uint8)
        if side:
            count = max(_THUMBNAIL_BATCH_BYTES // (4 * side * side), 1)
            black = torch.zeros(1, 1, 1, 3, dtype=torch.uint8)
            black = black.expand(1, side, side, 3)
        photos = [
            black if photo is None else self._read_one(photo, side)
            for photo in self.tensors[camera : camera + count]
        ]
        channels = max(photo.shape[3] for photo in photos)
        return torch.cat([_with_channels(photo, channels) for photo in photos])

    def _read_one(self, photo: torch.Tensor, side: int) -> torch.Tensor:
        """Return one photograph as (1, H, W, 3|4) uint8 in host memory."""
        device = photo.device
        if device.type != "cuda":
            return _as_bytes(photo, side, self._is_bgr)
        if device not in self._read_streams:
            self._read_streams[device] = torch.cuda.Stream(device)
        stream = self._read_streams[device]
        with torch.cuda.stream(stream):
            stream.wait_event(self._written[device])
            if self._gpu_hint is None and photo.is_floating_point():
                self._gpu_hint = photo_range_hint(_sample(photo))
            return _as_bytes(photo, side, self._is_bgr).cpu()

    def hints(self) -> list[CameraHint]:
        """Return hints about photographs that may be wrong.

        They are about those in host memory, samples of which the first call reads, and
        about those on a GPU that were read. Not called on the trainer's thread.
        """
        if self._host_hints is None:
            self._host_hints = self._sampled_hints()
        if self._gpu_hint is None:
            return [*self._host_hints]
        return [*self._host_hints, self._gpu_hint]

    def _sampled_hints(self) -> list[CameraHint]:
        """Return hints about some of the photographs in host memory."""
        on_host: list[tuple[int, torch.Tensor]] = []
        for i, photo in enumerate(self.tensors):
            if photo is not None and photo.device.type == "cpu":
                on_host.append((i, photo))
        selected = on_host[:: len(on_host) // _MAX_SAMPLED_PHOTOS + 1]
        hints: list[CameraHint | None] = []
        samples = [_sample(t) for _, t in selected if t.is_floating_point()]
        if samples:
            hints.append(photo_range_hint(np.concatenate(samples)))
        side_hints: list[CameraHint | None] = []
        for i, photo in selected:
            height, width = photo.shape[:2]
            hint = photo_sides_hint((width, height), tuple(self._sizes[i]), i)
            side_hints.append(hint)
        # One picture held upright among others may be right.
        if side_hints and all(side_hints):
            hints.append(side_hints[0])
        return [hint for hint in hints if hint is not None]


# ---- what callers give


def _image_items(images: Any, count: int) -> Sequence[Any]:
    """Return the images one by one: tensors, paths or None."""
    if isinstance(images, np.ndarray) and images.dtype.kind in "OU":
        # Loaders keep names in arrays, to sort and choose them.
        items: Sequence[Any] = images.reshape(-1).tolist()
    elif is_array(images):
        batch = as_tensor(images, "images").detach()
        if batch.ndim != 4:
            raise ValueError(
                f"images have shape {tuple(batch.shape)}; expected (N, H, W, 3) or "
                "lists of (H, W, 3) or of paths"
            )
        items = list(batch)
    elif isinstance(images, (list, tuple)):
        items = images
    else:
        raise TypeError(
            f"images is {type_text(images)}; expected a tensor (N, H, W, 3) or "
            "lists of tensors (H, W, 3) or of paths"
        )
    if len(items) != count:
        raise ValueError(
            f"images are {len(items)}, not {count}: one for each camera, None where "
            "there is none"
        )
    return items


def _photo_path(path: str | os.PathLike[str], index: int) -> str:
    """Return the absolute path of `images[index]`."""
    absolute = os.path.abspath(os.fsdecode(os.fspath(path)))
    is_utf8 = absolute.encode(errors="ignore").decode() == absolute
    has_control_characters = _CONTROL_CHARACTERS.search(absolute) is not None
    if len(absolute) > MAX_META_TEXT or not is_utf8 or has_control_characters:
        raise ValueError(
            f"images[{index}] is the path {absolute[:80]!r}; expected up to "
            f"{MAX_META_TEXT} characters of UTF-8 without control characters"
        )
    return absolute


def _photo_tensor(image: Any, index: int, layout: str | None) -> torch.Tensor:
    """Return `images[index]` as (H, W, 1|3|4); it shares the caller's memory."""
    if not is_array(image):
        raise TypeError(
            f"images[{index}] is {type_text(image)}; expected a path, a tensor "
            "(H, W, 3) or None"
        )
    tensor = as_tensor(image, f"images[{index}]").detach()
    # Grey pictures may be among others, whatever their order of colours is.
    if tensor.ndim == 2:
        layout = "HW"
    elif layout is None:
        layout = guessed_layout(tensor)
    dtype = dtype_name(tensor)
    if dtype not in PHOTO_DTYPES:
        raise ValueError(
            f"images[{index}] is {dtype}; expected uint8 (0 to 255) or floating point "
            f"(0 to 1){_DTYPE_ADVICE.get(dtype, '')}"
        )
    # It is converted when the photograph is read.
    shapes = {"image": ("uint8", tuple(tensor.shape))}
    try:
        kinds.check_frame("image", shapes, {"layout": layout})
    except ValueError as error:
        raise ValueError(f"images[{index}]: {error}") from None
    if layout == "HW":
        tensor = tensor[:, :, None]
    elif layout == "CHW":
        tensor = tensor.permute(1, 2, 0)
    height, width = tensor.shape[:2]
    channels = max(tensor.shape[2], 3)
    max_side = CAMERA_LIMITS["side"]
    max_bytes = CAMERA_LIMITS["photo_bytes"]
    is_too_long = max(height, width) > max_side
    if is_too_long or height * width * channels > max_bytes:
        raise ValueError(
            f"images[{index}] is {width}x{height}; at most {max_side} pixels along a side "
            f"and {max_bytes // channels} in all"
        )
    return tensor


# ---- what viewers get


def _sample(photo: torch.Tensor) -> np.ndarray:
    """Return some numbers of a photograph (H, W, C), without alpha. Waits for a GPU."""
    row_step, column_step = (n // _SAMPLED_SIDE + 1 for n in photo.shape[:2])
    samples = photo[::row_step, ::column_step, :3].to(torch.float32)
    return samples.reshape(-1).cpu().numpy()


def _as_bytes(photo: torch.Tensor, side: int, is_bgr: bool) -> torch.Tensor:
    """Return (1, H, W, 3|4) uint8 of a photograph (H, W, 1|3|4).

    Args:
        photo: its alpha is straight.
        side: width and height to resize to; 0 keeps the size.
        is_bgr: blue comes first.
    """
    channels = photo.shape[2]
    if channels == 1:
        photo = photo.expand(*photo.shape[:2], 3)
    elif is_bgr:
        photo = photo[:, :, [2, 1, 0, 3][:channels]]
    if side:
        photo = _resized(photo, side)
    if photo.dtype != torch.uint8:
        unit_range = torch.nan_to_num(photo.to(torch.float32)).clamp(0, 1)
        photo = (unit_range * 255 + 0.5).to(torch.uint8)
    return photo[None].contiguous()


def _resized(photo: torch.Tensor, side: int) -> torch.Tensor:
    """Return a photograph (H, W, C) as (side, side, C) float32 in [0, 1].

    Every pixel is the mean of up to 4x4 samples of the area that it covers, in which
    colours count as much as they are opaque.
    """
    row_step, column_step = (max(n // (4 * side), 1) for n in photo.shape[:2])
    samples = photo[::row_step, ::column_step].permute(2, 0, 1).to(torch.float32)
    if photo.dtype == torch.uint8:
        samples = samples / 255
    pool = torch.nn.functional.adaptive_avg_pool2d
    if len(samples) < 4:
        return pool(samples, side).permute(1, 2, 0)
    alpha = samples[3:]
    weighted = torch.cat([samples[:3] * alpha, alpha])
    pooled = pool(weighted, side)
    straight = pooled[:3] / pooled[3:].clamp(min=1e-6)
    return torch.cat([straight, pooled[3:]]).permute(1, 2, 0)


def _with_channels(photo: torch.Tensor, channels: int) -> torch.Tensor:
    """Return (1, H, W, 3|4) uint8 with this many channels, opaque without an alpha."""
    if photo.shape[3] == channels:
        return photo
    opaque = torch.full_like(photo[..., :1], 255)
    return torch.cat([photo, opaque], dim=3)
