"""Scenes to train from: the packaged photographs, a COLMAP folder, or a nerfstudio `transforms.json`.

Pictures are made smaller as they are read, to a number of pixels that the rasteriser in use trains in minutes; lens
distortion is left out, and said to be.
"""

from __future__ import annotations

import json
import math
from collections import ChainMap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.demo import DemoError, colmap
from splatview.demo.files import check_memory, open_picture, read_bytes, read_points
from splatview.demo.views import Capture, View

if TYPE_CHECKING:
    from collections.abc import Callable

PHOTOS = Path(__file__).parent / "photos"
"""A still life in nerfstudio's format; `tools/make_demo_photos.py` made it."""
_JSON_GROWTH = 40
"""Bytes of Python objects for each byte of JSON, at most."""
_HELD_OUT_EVERY = 8


def load(source: Path, *, pixels: int, max_points: int, seed: int = 0,
         progress: Callable[[int, int], None] = lambda done, total: None) -> Capture:
    """Read a capture from a COLMAP folder, a folder with transforms.json, or that file.

    Args:
        pixels: size of the pictures after reading, at most about this many pixels each.
        max_points: a random choice is made of more.
        progress: called with (pictures read, pictures to read).

    Raises:
        DemoError: names what is wrong and where.
    """
    try:
        found, points, colors = _read(source)
    except DemoError:
        raise
    except Exception as e:  # the net below the readers: a damaged file can make any library raise nearly anything
        raise DemoError(f"--data {source}: damaged, or not what its name says ({type(e).__name__}: {e!s:.200})") from e
    if len(found) < 2:
        raise DemoError(f"--data {source}: {len(found)} views; at least 2 are needed")
    check_memory(len(found) * pixels * 12, f"{source}: {len(found):,} views of {pixels:,} pixels")
    views = []
    for view in found:
        views.append(_with_image(view, pixels))
        progress(len(views), len(found))
    held_out = views[::_HELD_OUT_EVERY] if len(views) >= _HELD_OUT_EVERY else []
    train = [view for i, view in enumerate(views) if i % _HELD_OUT_EVERY] if held_out else views
    notes = ["lens distortion is left out; `colmap image_undistorter` gives a sharper result"] \
        if any(view.distorted for view in views) else []
    finite = np.isfinite(points).all(1)
    points, colors = points[finite], colors[finite]
    rng = np.random.default_rng(seed)
    if len(points) < 10:
        notes.append(f"{len(points)} points in the data: starting from random ones between the cameras")
        centres = torch.stack([view.position.double() for view in train]).numpy()
        low, high = centres.min(0), centres.max(0)
        margin = 0.1 * float((high - low).max()) + 1e-3
        points = rng.uniform(low - margin, high + margin, (max_points, 3))
        colors = rng.integers(64, 192, (max_points, 3))
    elif len(points) > max_points:
        notes.append(f"starting from {max_points:,} of its {len(points):,} points")
        chosen = rng.choice(len(points), max_points, replace=False)
        points, colors = points[chosen], colors[chosen]
    return Capture(train, held_out, torch.from_numpy(points.astype(np.float32)),
                   torch.from_numpy(colors.astype(np.float32) / 255), tuple(notes))


def _read(source: Path) -> tuple[list[View], np.ndarray, np.ndarray]:
    """Return views by name, without pictures, points (N, 3) and their colours (N, 3) of 0 to 255."""
    for sparse in ("sparse/0", "sparse", "colmap/sparse/0"):
        if (source / sparse / "cameras.bin").exists():
            return colmap.read_model(source / sparse, source / "images")
        if (source / sparse / "cameras.txt").exists():
            raise DemoError(f"{source / sparse}: a model as text; make it binary: colmap model_converter --input_path "
                            "FOLDER --output_path FOLDER --output_type BIN")
    names = [source] if source.suffix == ".json" else [source / "transforms.json", source / "transforms_train.json"]
    for path in names:
        if path.exists():
            return _read_transforms(path)
    raise DemoError(f"--data {source}: no such data set: expected a COLMAP folder (images/ and sparse/0/*.bin), or a "
                    "folder with transforms.json")


def _read_transforms(path: Path) -> tuple[list[View], np.ndarray, np.ndarray]:
    """nerfstudio's format (docs.nerf.studio/quickstart/data_conventions.html), of which Blender's NeRF sets are one."""
    try:
        meta = json.loads(read_bytes(path, _JSON_GROWTH).decode("utf-8"))
        frames = sorted(meta["frames"], key=lambda frame: frame["file_path"])
        views = [_view(path, ChainMap(frame, meta)) for frame in frames]  # no copy for each frame
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise DemoError(f"{path}: {type(e).__name__}: {e!s:.200}; expected a list of frames, each with file_path and a "
                        "4x4 transform_matrix, and fl_x or camera_angle_x, there or for all frames") from None
    if meta.get("ply_file_path"):
        return views, *read_points(path.parent / str(meta["ply_file_path"]))
    return views, np.zeros((0, 3), np.float32), np.zeros((0, 3), np.uint8)


def _view(path: Path, values: ChainMap[str, Any]) -> View:
    """One frame of a transforms.json. Raises DemoError, ValueError, KeyError, TypeError, OverflowError."""
    if (model := values.get("camera_model", "OPENCV")) not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise DemoError(f"{path}: camera_model {model!r:.60} is not 'OPENCV', 'PINHOLE' or 'SIMPLE_PINHOLE'")
    named = path.parent / values["file_path"]
    picture = next((p for ending in ("", ".png", ".jpg", ".jpeg")  # Blender's sets leave it out
                    if (p := named.with_name(named.name + ending)).is_file()), None)
    if picture is None:
        raise DemoError(f"{named}: no such picture (named by {path.name})")
    camera_to_world = np.array(values["transform_matrix"], np.float64)
    # OpenGL's camera looks along -z with y up.
    viewmat = np.linalg.inv(np.vstack([camera_to_world[:3], [0, 0, 0, 1]]) * [1, -1, -1, 1])
    if "w" in values and "h" in values:
        width, height = int(values["w"]), int(values["h"])
    else:
        with open_picture(picture) as opened:
            width, height = opened.size
    fx = float(values["fl_x"]) if "fl_x" in values else width / 2 / math.tan(float(values["camera_angle_x"]) / 2)
    fy = float(values.get("fl_y", fx))
    if width <= 0 or height <= 0 or not (fx > 0 and fy > 0):
        raise ValueError(f"size {width}x{height} and focal lengths {fx}, {fy} must be positive")
    cx, cy = float(values.get("cx", width / 2)), float(values.get("cy", height / 2))
    K = torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    distorted = any(values.get(k) for k in ("k1", "k2", "k3", "p1", "p2"))
    return View(torch.from_numpy(viewmat).float(), K, width, height, path=picture, distorted=distorted)


def _with_image(view: View, pixels: int) -> View:
    """Read a view's picture at no more than about so many pixels; the intrinsics follow."""
    from PIL import Image

    with open_picture(view.path) as opened:
        scale = min(1.0, math.sqrt(pixels / (opened.width * opened.height)))
        width, height = max(1, round(opened.width * scale)), max(1, round(opened.height * scale))
        opened.draft("RGB", (width, height))  # JPEG decodes to half or a quarter by itself
        whole = opened.convert("RGBA" if "A" in opened.getbands() or "transparency" in opened.info else "RGB")
        image = np.asarray(whole.resize((width, height), Image.Resampling.BOX), np.float32) / 255
    if image.shape[2] == 4:
        image = image[..., :3] * image[..., 3:]  # on black
    K = view.K * torch.tensor([[width / view.width], [height / view.height], [1]])
    if not all(torch.isfinite(values).all() for values in (K, view.viewmat, view.position)):
        raise DemoError(f"{view.path}: its camera has numbers that are not finite")
    return replace(view, K=K, width=width, height=height, image=torch.from_numpy(np.ascontiguousarray(image)))
