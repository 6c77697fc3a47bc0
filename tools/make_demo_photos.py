"""Make the demo's photographs: a still life, traced from posed cameras around it.

    python tools/make_demo_photos.py [--folder FOLDER] [--size 800x600] [--points 10000]

The folder is one of nerfstudio's. It gets `00.webp` to `34.webp`, `transforms.json` and
`points.ply`, the coloured points of the surfaces with the errors of a reconstruction.
Every eighth view is one that the demo keeps back. Takes a few minutes.

Rays are marched through a signed distance field (Hart 1996, "Sphere tracing"; formulas
of the distances: Inigo Quilez, https://iquilezles.org/articles/distfunctions); soft
shadows come from the narrowest pass of the ray to the light
(https://iquilezles.org/articles/rmshadows). No randomness enters a picture, so that
neighbouring views agree and what is left of the error belongs to the Gaussians. Points
are (3, n), one row per axis: every operation then runs along contiguous memory, several
times quicker on a CPU than (n, 3).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from PIL import Image
from torch.nn import functional

from splatview.demo.datasets import DatasetView

PHOTOS = Path(__file__).parent.parent / "splatview" / "demo" / "photos"
QUALITY = 75
"""Of the WebP files: about 23 kB each at 800x600, so that the folder stays below 1
MB."""

# ---- the views

TO_WORLD = (1.0, -1.0, 1.0)
"""Model space has y up, the world y down."""
LIFT = 0.3
"""The world's origin is this far above the table's top: in the middle of what is to be
seen."""
FOV = 40.0
"""Vertical, degrees."""
LIGHT = (1.5, 3.4, 1.9)
LIGHT_RGB = (1.15, 1.07, 0.95)
SKY_RGB = (0.30, 0.33, 0.40)
BOUNCE_RGB = (0.16, 0.13, 0.11)
RINGS = ((17.0, 10), (35.0, 12), (60.0, 8))
"""(elevation in degrees, number of cameras) of the training views."""
HELD_OUT = ((26.0, 20.0), (26.0, 200.0), (44.0, 110.0), (44.0, 290.0), (52.0, 65.0))
"""(elevation, azimuth) of the views that are kept back."""
HELD_OUT_EVERY = 8
DISTANCE = 3.9
TARGET = (0.0, 0.16, 0.0)
POINT_ERROR = 0.008
"""Standard deviation of the points' errors, world."""
EDGE_CONTRAST = 0.06
SUPERSAMPLE = 2
"""Rays per side of a pixel at edges."""


@dataclass(frozen=True)
class _Hits:
    """Holds what rays hit."""

    rgb: torch.Tensor
    """(3, n) display RGB in [0, 1]; black where nothing is hit."""
    position: torch.Tensor
    """(3, n) model space."""
    subject: torch.Tensor
    """(n,) int64, -1 where nothing is hit."""


def make(
    folder: Path = PHOTOS,
    size: str = "800x600",
    points: int = 10_000,
    views: int = 35,
    seed: int = 0,
) -> None:
    """Photograph the still life.

    Args:
        folder: where the files go.
        size: width and height of the photographs.
        points: number of coloured points, chosen from all that the training views see.
        views: number of photographs; all 35 are the demo's.
        seed: the seed of that choice, and of the points' errors.
    """
    width, height = map(int, size.split("x"))
    folder.mkdir(parents=True, exist_ok=True)
    angles = _view_angles()[:views]
    frames = []
    positions = []
    colors = []
    for index, (elevation, azimuth) in enumerate(angles):
        view = _camera(elevation, azimuth, width, height)
        image, hits = _photograph(view)
        name = f"{index:02}.webp"
        pixels = (image * 255).round().byte().numpy()
        Image.fromarray(pixels).save(folder / name, quality=QUALITY, method=6)
        # nerfstudio has OpenGL's axes.
        pose = torch.linalg.inv(view.viewmat.double()) * torch.tensor([1, -1, -1, 1])
        matrix = pose.numpy().round(6).tolist()
        frames.append({"file_path": name, "transform_matrix": matrix})
        # The points know nothing of the held-out views.
        if index % HELD_OUT_EVERY:
            is_hit = hits.subject >= 0
            positions.append(hits.position[:, is_hit].T)
            colors.append(hits.rgb[:, is_hit].T)
        print(f"{index + 1}/{len(angles)}", flush=True)
    _write_transforms(folder, frames, _camera(0, 0, width, height))
    _write_points(folder, torch.cat(positions), torch.cat(colors), points, seed)


def _view_angles() -> list[tuple[float, float]]:
    """Return the elevations and azimuths of all views in degrees."""
    angles = []
    for ring, (elevation, count) in enumerate(RINGS):
        for index in range(count):
            azimuth = 360.0 * (index + 0.5 * (ring % 2)) / count
            angles.append((elevation, azimuth))
    for index, angle in enumerate(HELD_OUT):
        angles.insert(HELD_OUT_EVERY * index, angle)
    return angles


def _write_transforms(
    folder: Path, frames: list[dict[str, Any]], view: DatasetView
) -> None:
    """Write transforms.json; `view` has the intrinsics of all frames."""
    content = {
        "fl_x": float(view.K[0, 0]),
        "fl_y": float(view.K[1, 1]),
        "cx": float(view.K[0, 2]),
        "cy": float(view.K[1, 2]),
        "w": view.width,
        "h": view.height,
        "ply_file_path": "points.ply",
        "frames": frames,
    }
    text = json.dumps(content)
    # A line a frame.
    text = text.replace('{"file_path"', '\n{"file_path"')
    (folder / "transforms.json").write_text(text + "\n")


def _write_points(
    folder: Path, positions: torch.Tensor, colors: torch.Tensor, count: int, seed: int
) -> None:
    """Write a random choice of points, with the errors of a reconstruction.

    Args:
        folder: where points.ply goes.
        positions: (N, 3), model space.
        colors: (N, 3) RGB in [0, 1].
        count: number of points to choose.
        seed: the seed of the choice and of the errors.
    """
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randperm(len(positions), generator=generator)[:count]
    errors = POINT_ERROR * torch.randn(len(indices), 3, generator=generator)
    vertices = np.zeros(len(indices), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    vertices["xyz"] = (_to_world(positions[indices]) + errors).numpy()
    vertices["rgb"] = (colors[indices] * 255).round().byte().numpy()
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(indices)}",
        *(f"property float {name}" for name in "xyz"),
        *(f"property uchar {name}" for name in ("red", "green", "blue")),
        "end_header",
        "",
    ]
    (folder / "points.ply").write_bytes("\n".join(header).encode() + vertices.tobytes())


def _camera(elevation: float, azimuth: float, width: int, height: int) -> DatasetView:
    """Return a view of the still life at two angles in degrees."""
    e = math.radians(elevation)
    a = math.radians(azimuth)
    x = math.cos(e) * math.sin(a)
    y = -math.sin(e)
    z = math.cos(e) * math.cos(a)
    target = torch.tensor(TARGET)
    position = target + DISTANCE * torch.tensor([x, y, z])
    focal = height / 2 / math.tan(math.radians(FOV) / 2)
    K = torch.eye(3)
    K[0, 0] = focal
    K[1, 1] = focal
    K[0, 2] = width / 2
    K[1, 2] = height / 2
    return DatasetView(_viewmat_towards(position, target), K, width, height)


def _viewmat_towards(position: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the world-to-camera matrix (4, 4) of an upright camera.

    The world's y axis points down.
    """
    forward = functional.normalize(target - position, dim=0)
    down = torch.tensor([0.0, 1.0, 0.0])
    right = functional.normalize(torch.linalg.cross(down, forward), dim=0)
    rotation = torch.stack([right, torch.linalg.cross(forward, right), forward])
    viewmat = torch.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = -rotation @ position
    return viewmat


def _to_world(p: torch.Tensor) -> torch.Tensor:
    """Return points (n, 3) of model space in the world."""
    return (p - p.new_tensor([0.0, LIFT, 0.0])) * p.new_tensor(TO_WORLD)


def _photograph(view: DatasetView) -> tuple[torch.Tensor, _Hits]:
    """Return the picture (H, W, 3) in [0, 1], and the hit of each pixel, row by row."""
    size = (view.height, view.width)
    x = torch.arange(view.width)
    y = torch.arange(view.height)
    columns, rows = torch.meshgrid(x, y, indexing="xy")
    corners = torch.stack([columns, rows], -1).reshape(-1, 2).float()
    hits = _shade(*_rays(view, corners + 0.5))
    image = hits.rgb.T.reshape(*size, 3).clone()
    is_edge = _edges(image, hits.subject.reshape(size))
    step = (torch.arange(SUPERSAMPLE) + 0.5) / SUPERSAMPLE
    offsets = torch.cartesian_prod(step, step)
    samples = corners[is_edge.reshape(-1)][:, None] + offsets
    sampled = _shade(*_rays(view, samples.reshape(-1, 2))).rgb
    image[is_edge] = sampled.reshape(3, -1, len(offsets)).mean(2).T
    return image, hits


def _edges(image: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
    """Return which pixels differ from a neighbour, (H, W) bool.

    They are the only ones that need more than one ray.
    """
    is_edge = torch.zeros_like(subject, dtype=torch.bool)
    for first, second in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        contrast = (image[first] - image[second]).abs().amax(-1)
        differs = (contrast > EDGE_CONTRAST) | (subject[first] != subject[second])
        is_edge[first] |= differs
        is_edge[second] |= differs
    return is_edge


def _rays(view: DatasetView, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return origins and directions of the rays through pixels (n, 2).

    (3, n) each, in model space.
    """
    K = view.K
    flip = column(pixels, TO_WORLD)
    in_plane = (pixels - K[:2, 2]) / K[[0, 1], [0, 1]]
    in_camera = functional.pad(in_plane, (0, 1), value=1.0).T
    direction = (view.viewmat[:3, :3].T @ in_camera) * flip
    origin = view.position[:, None] * flip + column(pixels, (0.0, LIFT, 0.0))
    return origin.expand_as(direction), _unit(direction)


def _unit(v: torch.Tensor) -> torch.Tensor:
    """Return vectors (3, n) at length 1.

    torch's own normalize is slow along the first axis.
    """
    return v / (v * v).sum(0).sqrt().clamp_min(1e-12)


def _shade(origin: torch.Tensor, direction: torch.Tensor) -> _Hits:
    """Return what rays hit, with its colours in the light."""
    depth, subject = _march(origin, direction)
    position = origin + depth * direction
    hit = torch.nonzero(subject >= 0)[:, 0]
    p = position[:, hit]
    hit_subject = subject[hit]
    normal = _normals(p, hit_subject)
    to_light = _unit(column(p, LIGHT) - p)
    shadow = _shadow(p + 0.01 * normal, to_light)
    facing = (normal * to_light).sum(0).clamp_min(0)
    up = normal[1] * 0.5 + 0.5
    surroundings = column(p, SKY_RGB) * up + column(p, BOUNCE_RGB) * (1 - up)
    ambient = surroundings * _openness(p, normal)
    direct = facing * shadow * column(p, LIGHT_RGB)
    half_way = _unit(to_light - direction[:, hit])
    highlight = (normal * half_way).sum(0).clamp_min(0) ** 48
    gloss = p.new_tensor(GLOSS)[hit_subject] * highlight * shadow
    linear = albedo(p, hit_subject) * (ambient + direct) + 0.6 * gloss
    rgb = torch.zeros_like(direction)
    rgb[:, hit] = linear.clamp(0, 1) ** (1 / 2.2)
    return _Hits(rgb, position, subject)


def _march(
    origin: torch.Tensor, direction: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return depth and subject of the first thing that each ray meets.

    The subject is -1 where there is none.
    """
    depth, subject = _meet_table(origin, direction)
    enter, leave = _meet_ball(origin, direction)
    active = torch.nonzero((leave > enter) & (leave > 0) & (enter < depth))[:, 0]
    t = enter[active].clamp_min(0)
    end = torch.minimum(leave, depth)[active]
    start = origin[:, active]
    heading = direction[:, active]
    for _ in range(72):
        if len(active) == 0:
            break
        nearest, nearest_subject = distances(start + t * heading).min(0)
        # A tenth of a pixel.
        is_met = nearest < 0.0015
        depth[active[is_met]] = t[is_met]
        subject[active[is_met]] = nearest_subject[is_met]
        # The spheroids' distance is a bound only near them.
        t = t + nearest * 0.95
        remaining = torch.nonzero(~is_met & (t < end))[:, 0]
        active = active[remaining]
        t = t[remaining]
        end = end[remaining]
        start = start[:, remaining]
        heading = heading[:, remaining]
    return depth, subject


def _meet_table(
    origin: torch.Tensor, direction: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return depth and subject where rays meet the table's round top or its edge."""
    dx, dy, dz = direction
    ox, oy, oz = origin
    top = -oy / torch.where(dy.abs() < 1e-6, -1e-6, dy)
    radius = torch.hypot(ox + top * dx, oz + top * dz)
    on_top = (radius <= TABLE_RADIUS) & (top > 0)
    a = dx * dx + dz * dz
    b = ox * dx + oz * dz
    c = ox**2 + oz**2 - TABLE_RADIUS**2
    discriminant = b * b - a * c
    side = (-b - discriminant.clamp_min(0).sqrt()) / a.clamp_min(1e-9)
    height = oy + side * dy
    in_edge = (height <= 0) & (height >= -TABLE_THICKNESS)
    on_side = (b * b > a * c) & in_edge & (side > 0)
    side_depth = torch.where(on_side, side, 1e9)
    depth = torch.where(on_top, top, side_depth)
    return depth, torch.where(on_top | on_side, TABLE, -1)


def _meet_ball(
    origin: torch.Tensor, direction: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where rays enter and leave the ball around everything on the table."""
    towards = column(direction, OBJECTS_CENTRE) - origin
    middle = (direction * towards).sum(0)
    squared = OBJECTS_RADIUS**2 - (towards * towards).sum(0) + middle * middle
    half = squared.clamp_min(0).sqrt()
    enter = torch.where(squared > 0, middle - half, 1e9)
    leave = torch.where(squared > 0, middle + half, -1e9)
    return enter, leave


def _normals(p: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
    """Return the normals (3, n) at surface points.

    By differences over a tetrahedron's corners; the table's by its shape.
    """
    side = _unit(p * column(p, (1.0, 0.0, 1.0)))
    normal = torch.where(p[1] < -1e-3, side, column(p, (0.0, 1.0, 0.0)))
    on_object = torch.nonzero(subject != TABLE)[:, 0]
    q = p[:, on_object]
    rows = subject[None, on_object]
    gradient = torch.zeros_like(q)
    for corner in (
        (1.0, -1.0, -1.0),
        (-1.0, -1.0, 1.0),
        (-1.0, 1.0, -1.0),
        (1.0, 1.0, 1.0),
    ):
        step = column(q, corner)
        gradient += step * distances(q + 0.002 * step).gather(0, rows)
    normal[:, on_object] = _unit(gradient)
    return normal


def _shadow(p: torch.Tensor, to_light: torch.Tensor) -> torch.Tensor:
    """Return the share of the light that arrives at points, (n,).

    It is soft by how narrowly the ray passes things.
    """
    share = torch.ones_like(p[0])
    enter, leave = _meet_ball(p, to_light)
    active = torch.nonzero(leave > enter.clamp_min(0))[:, 0]
    t = enter[active].clamp_min(0.02)
    end = leave[active]
    start = p[:, active]
    heading = to_light[:, active]
    for _ in range(48):
        if len(active) == 0:
            break
        nearest = distances(start + t * heading).amin(0)
        lit_share = torch.minimum(share[active], (9.0 * nearest / t).clamp_min(0))
        share[active] = lit_share
        t = t + nearest.clamp(0.02, 0.3)
        remaining = torch.nonzero((lit_share > 0.005) & (t < end))[:, 0]
        active = active[remaining]
        t = t[remaining]
        end = end[remaining]
        start = start[:, remaining]
        heading = heading[:, remaining]
    return share * share * (3 - 2 * share)


def _openness(p: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """Return the share of the surroundings that is open at points, (n,).

    It is less where things stand close.
    """
    closed = torch.zeros_like(p[0])
    for step, weight in ((0.05, 0.55), (0.15, 0.35)):
        q = p + step * normal
        nearest = torch.minimum(distances(q).amin(0), q[1].clamp_min(0))
        closed += weight * ((step - nearest) / step).clamp(0, 1)
    return 1 - closed


# ---- the still life: model space has y up and the table's top at y = 0

Vector = tuple[float, float, float]

TABLE_RADIUS = 1.5
TABLE_THICKNESS = 0.12
OBJECTS_CENTRE = (0.0, 0.35, 0.0)
OBJECTS_RADIUS = 1.3
"""A ball around everything that stands on the table."""

TEAPOT, BOX, RING, BALL, BLUE, GREEN, VIOLET, TABLE = range(8)
"""The subjects, in the order of `distances`; the table comes after them."""

TEAPOT_AT = (-0.08, 0.0, -0.05)
TEAPOT_SCALE = 0.42
BOX_AT = (0.72, 0.27, -0.48)
BOX_HALF = (0.21, 0.27, 0.21)
BOX_TURN = 0.5
BOX_ROUNDING = 0.02
RING_AT = (-0.84, 0.085, 0.28)
RING_RADII = (0.22, 0.085)
BALLS = (
    ((-0.66, 0.24, -0.62), 0.24),
    ((0.62, 0.19, 0.55), 0.19),
    ((-0.34, 0.13, 0.72), 0.13),
    ((0.2, 0.09, 0.92), 0.09),
)
"""(centre, radius) of the beach ball and the blue, green and violet one."""
ALBEDO = (
    (0.9, 0.86, 0.76),
    (0.9, 0.9, 0.9),
    (0.95, 0.68, 0.2),
    (0.95, 0.95, 0.92),
    (0.12, 0.3, 0.85),
    (0.2, 0.62, 0.25),
    (0.55, 0.2, 0.65),
    (0.5, 0.5, 0.5),
)
GLOSS = (0.5, 0.05, 0.35, 0.15, 0.5, 0.5, 0.5, 0.03)


def distances(p: torch.Tensor) -> torch.Tensor:
    """Return the distance from points (3, n) to each thing on the table, (7, n).

    In the order of the constants above.
    """
    x, y, z = p
    in_pot = (p - column(p, TEAPOT_AT)) / TEAPOT_SCALE
    teapot = _teapot(in_pot) * TEAPOT_SCALE
    ring = _torus(x - RING_AT[0], y - RING_AT[1], z - RING_AT[2], *RING_RADII)
    balls = [_sphere(x, y, z, centre, radius) for centre, radius in BALLS]
    return torch.stack([teapot, _box(p), ring, *balls])


def _box(p: torch.Tensor) -> torch.Tensor:
    """Return the distance to the box with its rounded edges."""
    qx, qy, qz = _in_box(p)
    x = qx.abs() - (BOX_HALF[0] - BOX_ROUNDING)
    y = qy.abs() - (BOX_HALF[1] - BOX_ROUNDING)
    z = qz.abs() - (BOX_HALF[2] - BOX_ROUNDING)
    inside = torch.maximum(torch.maximum(x, y), z).clamp_max(0)
    outside = _length(x.clamp_min(0), y.clamp_min(0), z.clamp_min(0))
    return outside + inside - BOX_ROUNDING


def column(like: torch.Tensor, v: Vector) -> torch.Tensor:
    """Return a vector as (3, 1), to be added to points (3, n)."""
    return like.new_tensor(v)[:, None]


def albedo(p: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
    """Return the linear RGB (3, n) of surface points (3, n) of subjects (n,)."""
    rgb = p.new_tensor(ALBEDO)[subject].T.contiguous()
    for painted, paint, q in (
        (TABLE, _table, p),
        (BOX, _stripes, _in_box(p)),
        (BALL, _beach_ball, p - column(p, BALLS[0][0])),
        (TEAPOT, _glaze, (p - column(p, TEAPOT_AT)) / TEAPOT_SCALE),
    ):
        is_painted = subject == painted
        rgb[:, is_painted] = paint(q[:, is_painted], rgb[:, is_painted])
    return rgb


def _choose(condition: torch.Tensor, a: Vector, b: Vector) -> torch.Tensor:
    """Return one of two colours for each point, (3, n)."""
    return torch.where(condition, torch.tensor(a)[:, None], torch.tensor(b)[:, None])


def _table(p: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Paint a chessboard inside a wooden rim."""
    radius = torch.hypot(p[0], p[2])
    column_number = torch.floor(p[0] / 0.25)
    row_number = torch.floor(p[2] / 0.25)
    dark = (column_number + row_number) % 2 == 0
    squares = _choose(dark, (0.08, 0.1, 0.14), (0.72, 0.68, 0.6))
    rim = column(p, (0.36, 0.16, 0.06)) * (1 + 0.12 * torch.sin(radius * 160))
    return torch.where(radius > TABLE_RADIUS - 0.16, rim, squares)


def _stripes(q: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Paint slanting red and white stripes round a box."""
    height = q[1] + 0.5 * (q[0] + q[2])
    is_red = torch.floor(height / 0.09) % 2 == 0
    return _choose(is_red, (0.75, 0.06, 0.08), (0.9, 0.88, 0.84))


def _beach_ball(q: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Paint six segments in three colours about a leaning axis, and white caps."""
    axis = functional.normalize(q.new_tensor([0.5, 0.8, 0.33]), dim=0)
    forward = q.new_tensor([0.0, 0.0, 1.0])
    right = functional.normalize(torch.linalg.cross(axis, forward), dim=0)
    angle = torch.atan2(torch.linalg.cross(axis, right) @ q, right @ q)
    segment = torch.floor((angle / math.tau % 1.0) * 6).long().clamp(0, 5)
    palette = q.new_tensor([[0.95, 0.45, 0.05], [0.95, 0.95, 0.92], [0.05, 0.5, 0.6]])
    radius = BALLS[0][1]
    is_cap = (axis @ q).abs() > 0.93 * radius
    return torch.where(is_cap, palette[1][:, None], palette[segment % 3].T)


def _glaze(q: torch.Tensor, ground: torch.Tensor) -> torch.Tensor:
    """Paint a blue zigzag round the pot's belly.

    The lid's knob and the spout's lip are blue as well.
    """
    x, y, z = q
    phase = (torch.atan2(z, x) / math.tau * 14) % 1.0
    zigzag = (y - 0.72 - 0.3 * (phase - 0.5).abs()).abs() < 0.05
    upper_line = (y - 1.08).abs() < 0.025
    lower_line = (y - 0.58).abs() < 0.025
    on_belly = torch.hypot(x, z) < 1.03
    pattern = on_belly & (zigzag | upper_line | lower_line)
    knob = y > 1.72
    lip = (x > 1.45) & (y > 1.2)
    return torch.where(pattern | knob | lip, column(q, (0.05, 0.14, 0.5)), ground)


def _in_box(p: torch.Tensor) -> torch.Tensor:
    """Return points (3, n) in the coordinates of the box."""
    c = math.cos(BOX_TURN)
    s = math.sin(BOX_TURN)
    x, y, z = p - column(p, BOX_AT)
    return torch.stack([c * x - s * z, y, s * x + c * z])


def _length(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Return the lengths of vectors."""
    return (x * x).addcmul_(y, y).addcmul_(z, z).sqrt_()


def _sphere(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, centre: Vector, radius: float
) -> torch.Tensor:
    """Return the distance to a sphere."""
    return _length(x - centre[0], y - centre[1], z - centre[2]) - radius


def _torus(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, major: float, minor: float
) -> torch.Tensor:
    """Return the distance to a torus about the y axis."""
    ring = (x * x).addcmul_(z, z).sqrt_() - major
    return (ring * ring).addcmul_(y, y).sqrt_() - minor


def _spheroid(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, wide: float, high: float
) -> torch.Tensor:
    """Return the distance to an ellipsoid with two equal axes.

    It is exact to first order at the surface.
    """
    flat = (x * x).addcmul_(z, z)
    y2 = y * y
    k0 = (flat / wide**2 + y2 / high**2).sqrt_()
    k1 = (flat / wide**4 + y2 / high**4).sqrt_().clamp_min_(1e-6)
    return k0 * (k0 - 1) / k1


def _tapered(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, a: Vector, b: Vector
) -> torch.Tensor:
    """Return the distance to a capsule in the plane z = 0.

    It lies between two circles (x, y, radius).
    """
    dx = b[0] - a[0]
    dy = b[1] - a[1]
    px = x - a[0]
    py = y - a[1]
    h = ((px * dx).add_(py, alpha=dy) / (dx * dx + dy * dy)).clamp_(0, 1)
    radius = a[2] + h * (b[2] - a[2])
    return _length(px.sub_(h, alpha=dx), py.sub_(h, alpha=dy), z) - radius


def _smooth_min(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    """Return the smaller of two distances, blended over a width `k`."""
    h = (k - (a - b).abs_()).clamp_min_(0)
    return torch.minimum(a, b).addcmul_(h, h, value=-0.25 / k)


def _teapot(p: torch.Tensor) -> torch.Tensor:
    """Return the distance to a pot whose belly has radius 1.

    It stands on y = 0, with the spout towards +x.
    """
    x, y, z = p
    body = _spheroid(x, y - 0.82, z, 1.0, 0.74)
    foot = _torus(x, y - 0.1, z, 0.5, 0.1)
    spout = torch.minimum(
        _tapered(x, y, z, (0.7, 0.55, 0.26), (1.25, 0.95, 0.16)),
        _tapered(x, y, z, (1.25, 0.95, 0.16), (1.6, 1.42, 0.1)),
    )
    # Upright, in the plane of the spout.
    handle = _torus(x + 1.0, z, y - 0.88, 0.5, 0.095)
    lid = _spheroid(x, y - 1.5, z, 0.56, 0.17)
    knob = _sphere(x, y, z, (0.0, 1.78, 0.0), 0.15)
    pot = _smooth_min(_smooth_min(body, spout, 0.16), handle, 0.1)
    return torch.minimum(_smooth_min(pot, foot, 0.08), _smooth_min(lid, knob, 0.1))


if __name__ == "__main__":
    tyro.cli(make)
