"""Load scenes to train from: packaged photographs, COLMAP's and nerfstudio's folders.

Pictures are made smaller as they are read, to a number of pixels that the rasteriser in
use trains in minutes; lens distortion is left out, and reported.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from splatview.demo import DemoError
from splatview.demo.colmap import best_model, read_model
from splatview.demo.files import check_memory, open_picture
from splatview.demo.pictures import ViewError
from splatview.demo.transforms import read_transforms
from splatview.demo.views import Capture, DatasetView, UnreadCapture
from splatview_ipc.system.pictures import as_colors, as_stored, stored_size

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PHOTOS", "Capture", "DatasetView", "load"]

PHOTOS = Path(__file__).parent / "photos"
"""A still life in nerfstudio's format; `tools/make_demo_photos.py` made it."""
_HELD_OUT_EVERY = 8
_MIN_VIEWS = 2
_MIN_POINTS = 10
_BYTES_PER_PIXEL = 12
"""Memory for each pixel of a picture that was read."""


def load(
    source: Path,
    *,
    pixels: int,
    max_points: int,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Capture:
    """Read a capture from a COLMAP folder, a folder with transforms.json, or that file.

    Args:
        source: the folder or file.
        pixels: size of the pictures after reading, at most about this many pixels each.
        max_points: a random choice is made of more.
        seed: the seed of random choices.
        progress: called with (pictures read, pictures to read).

    Raises:
        DemoError: names what is wrong and where.
    """
    unread = _read(source)
    view_count = len(unread.views) + unread.left_out.count
    views = _read_pictures(source, unread, pixels, progress)
    left_out_notes = unread.left_out.notes(view_count)
    if len(views) < _MIN_VIEWS:
        reasons = "".join(f"; {note}" for note in left_out_notes)
        raise DemoError(
            f"--data {source}: {len(views)} views; at least {_MIN_VIEWS} are "
            f"needed{reasons}"
        )
    unread.notes += left_out_notes
    if any(view.distorted for view in views):
        unread.notes.append(
            "lens distortion is left out; `colmap image_undistorter` gives a sharper "
            "result"
        )
    train = views
    held_out: list[DatasetView] = []
    if len(views) >= _HELD_OUT_EVERY:
        train = [view for i, view in enumerate(views) if i % _HELD_OUT_EVERY]
        held_out = views[::_HELD_OUT_EVERY]
    points, colors = _choose_points(unread, train, max_points, seed)
    return Capture(
        train=train,
        held_out=held_out,
        points=torch.from_numpy(points.astype(np.float32)),
        colors=torch.from_numpy(colors.astype(np.float32) / 255),
        notes=tuple(unread.notes),
    )


def _read(source: Path) -> UnreadCapture:
    """Read a data set of any known layout, without its pictures. Raises DemoError."""
    try:
        return _read_layout(source)
    except DemoError:
        raise
    except Exception as error:
        # The net below the readers: a damaged file can make any library raise nearly
        # anything.
        raise DemoError(
            f"--data {source}: damaged, or not what its name says "
            f"({type(error).__name__}: {error!s:.200})"
        ) from error


def _read_layout(source: Path) -> UnreadCapture:
    """Read a data set by the reader of its layout."""
    for root in (source / "sparse", source / "colmap" / "sparse"):
        sparse, notes = best_model(root)
        if sparse is not None:
            unread = read_model(sparse, source)
            unread.notes += notes
            return unread
    if source.suffix == ".json":
        paths = [source]
    else:
        paths = [source / "transforms.json", source / "transforms_train.json"]
    for path in paths:
        if path.exists():
            return read_transforms(path)
    raise DemoError(
        f"--data {source}: no such data set: expected a COLMAP folder (images/ and "
        "sparse/0/*.bin, which colmap model_converter makes of *.txt), or a folder with "
        "transforms.json"
    )


def _read_pictures(
    source: Path,
    unread: UnreadCapture,
    pixels: int,
    progress: Callable[[int, int], None],
) -> list[DatasetView]:
    """Return the views with their pictures; others are added to `left_out`."""
    count = len(unread.views)
    check_memory(
        count * pixels * _BYTES_PER_PIXEL,
        f"{source}: {count:,} views of {pixels:,} pixels",
    )
    views = []
    for done, view in enumerate(unread.views, 1):
        try:
            views.append(_with_image(view, pixels))
        except ViewError as error:
            unread.left_out.add(view.path.name, error)
        progress(done, count)
    return views


def _choose_points(
    unread: UnreadCapture, train: list[DatasetView], max_points: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return points (N, 3) to start from, and their colours (N, 3) of 0 to 255.

    Notes of the choice are added to `unread.notes`.
    """
    is_finite = np.isfinite(unread.points).all(1)
    points = unread.points[is_finite]
    colors = unread.colors[is_finite]
    rng = np.random.default_rng(seed)
    if len(points) < _MIN_POINTS:
        unread.notes.append(
            f"{len(points)} points in the data: starting from random ones between the "
            "cameras"
        )
        centres = torch.stack([view.position.double() for view in train]).numpy()
        low = centres.min(0)
        high = centres.max(0)
        margin = 0.1 * float((high - low).max()) + 1e-3
        points = rng.uniform(low - margin, high + margin, (max_points, 3))
        colors = rng.integers(64, 192, (max_points, 3))
    elif len(points) > max_points:
        unread.notes.append(
            f"starting from {max_points:,} of its {len(points):,} points"
        )
        indices = rng.choice(len(points), max_points, replace=False)
        points = points[indices]
        colors = colors[indices]
    return points, colors


def _with_image(view: DatasetView, pixels: int) -> DatasetView:
    """Return a view with its picture, of no more than about this many pixels.

    The intrinsics follow. Raises ViewError.
    """
    from PIL import Image

    with open_picture(view.path) as opened:
        width, height = stored_size(opened)
        scale = min(1.0, math.sqrt(pixels / (width * height)))
        width = max(1, round(width * scale))
        height = max(1, round(height * scale))
        # JPEG decodes to half or a quarter by itself.
        opened.draft("RGB", (width, height))
        colors = as_colors(as_stored(opened))
        resized = colors.resize((width, height), Image.Resampling.BOX)
        image = np.asarray(resized, np.float32) / 255
    has_alpha = image.shape[2] == 4
    if has_alpha:
        # Over black.
        image = image[..., :3] * image[..., 3:]
    K = view.K * torch.tensor([[width / view.width], [height / view.height], [1]])
    values = torch.cat([K.flatten(), view.viewmat.flatten(), view.position])
    if not torch.isfinite(values).all():
        raise ViewError(f"{view.path}: its camera has numbers that are not finite")
    return replace(
        view,
        K=K,
        width=width,
        height=height,
        image=torch.from_numpy(np.ascontiguousarray(image)),
    )
