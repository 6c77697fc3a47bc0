"""The demo's own photographs: the still life, traced from posed cameras around it, with the points of its surfaces.

Rays are marched through the distance field (Hart 1996, "Sphere tracing"); soft shadows come from the narrowest pass of
the ray to the light (https://iquilezles.org/articles/rmshadows). No randomness enters a picture, so that neighbouring
views agree and what is left of the error belongs to the Gaussians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from splatview.demo import stilllife
from splatview.demo.capture import Capture, View, look_at
from splatview.demo.stilllife import column

if TYPE_CHECKING:
    from collections.abc import Callable

TO_WORLD = (1.0, -1.0, 1.0)
"""Model space has y up, the world y down."""
LIFT = 0.3
"""The world's origin is this far above the table's top: in the middle of what is to be seen."""
FOV = 40.0
"""Vertical, degrees."""
LIGHT = (1.5, 3.4, 1.9)
LIGHT_RGB, SKY_RGB, BOUNCE_RGB = (1.15, 1.07, 0.95), (0.30, 0.33, 0.40), (0.16, 0.13, 0.11)
RINGS = ((17.0, 10), (35.0, 12), (60.0, 8))
"""(elevation in degrees, number of cameras) of the training views."""
HELD_OUT = ((26.0, 20.0), (26.0, 200.0), (44.0, 110.0), (44.0, 290.0))
"""(elevation, azimuth) of the views that are kept back."""
DISTANCE = 3.9
TARGET = (0.0, 0.16, 0.0)
PICTURE_CAMERA = {"position": [1.62, -1.82, 2.95], "look_at": [0.0, 0.22, 0.0], "fov": FOV}
SUPERSAMPLE = 2
"""Rays per side of a pixel at edges."""
RAYS_AT_ONCE = 150_000
"""As many views are traced together as have about this many pixels."""


@dataclass(frozen=True)
class _Hits:
    rgb: torch.Tensor
    """(3, n) display RGB in [0, 1]; black where nothing is hit."""
    position: torch.Tensor
    """(3, n) model space."""
    subject: torch.Tensor
    """(n,) int64, -1 where nothing is hit."""


def still_life(width: int, height: int, *, n_points: int = 4000, seed: int = 0, device: str = "cpu",
               progress: Callable[[int, int], None] = lambda done, total: None) -> Capture:
    """Photograph the still life: 30 training views, 4 held-out ones, and points with the errors of reconstruction.

    progress: called with (pictures made, pictures to make).
    """
    angles = [(e, 360.0 * (i + 0.5 * (ring % 2)) / n) for ring, (e, n) in enumerate(RINGS) for i in range(n)]
    angles += HELD_OUT
    cameras = [_camera(*angle, width, height) for angle in angles]
    views: list[View] = []
    seen_at, seen_rgb = [], []
    n_train = len(cameras) - len(HELD_OUT)
    at_once = max(1, RAYS_AT_ONCE // (width * height))
    starts = [*range(0, n_train, at_once), *range(n_train, len(cameras), at_once)]
    for first, end in zip(starts, [*starts[1:], len(cameras)], strict=True):
        pictures, hits = _photograph(cameras[first:end], device)
        views += pictures
        if first < n_train:  # the points know nothing of the held-out views
            kept = hits.subject >= 0
            seen_at.append(hits.position[:, kept].T.cpu())
            seen_rgb.append(hits.rgb[:, kept].T.cpu())
        progress(len(views), len(cameras))
    points, rgb = torch.cat(seen_at), torch.cat(seen_rgb)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(points), generator=generator)[:n_points]
    points = _to_world(points[chosen]) + 0.008 * torch.randn(len(chosen), 3, generator=generator)
    return Capture(views[:n_train], views[n_train:], points, rgb[chosen], PICTURE_CAMERA)


def _camera(elevation: float, azimuth: float, width: int, height: int) -> View:
    e, a = math.radians(elevation), math.radians(azimuth)
    target = torch.tensor(TARGET)
    offset = torch.tensor([math.cos(e) * math.sin(a), -math.sin(e), math.cos(e) * math.cos(a)])
    focal = height / 2 / math.tan(math.radians(FOV) / 2)
    K = torch.tensor([[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]])
    return View(look_at(target + DISTANCE * offset, target), K, width, height)


def _to_world(p: torch.Tensor) -> torch.Tensor:
    return (p - p.new_tensor([0.0, LIFT, 0.0])) * p.new_tensor(TO_WORLD)


def _photograph(views: list[View], device: str) -> tuple[list[View], _Hits]:
    """The views with their pictures, and what the middle of each pixel hit, view after view.

    Views of one size; several at once, since a step of the march costs some hundred calls however few its rays are.
    """
    width, height = views[0].width, views[0].height
    columns, rows = torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy")
    at = torch.stack([columns, rows], -1).reshape(-1, 2).to(device, torch.float32)
    hits = _shade(*_rays([(view, at + 0.5) for view in views]))
    images = hits.rgb.T.reshape(len(views), height, width, 3).clone()
    edges = _edges(images, hits.subject.reshape(len(views), height, width))
    step = (torch.arange(SUPERSAMPLE, device=device) + 0.5) / SUPERSAMPLE
    offsets = torch.cartesian_prod(step, step)
    fine = [(view, (at[edge.reshape(-1)][:, None] + offsets).reshape(-1, 2))
            for view, edge in zip(views, edges, strict=True)]
    again = _shade(*_rays(fine)).rgb
    images[edges] = again.reshape(3, -1, len(offsets)).mean(2).T
    pictures = [View(v.viewmat, v.K, width, height, image) for v, image in zip(views, images.cpu(), strict=True)]
    return pictures, hits


def _edges(images: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
    """(C, H, W) bool: pixels that differ from a neighbour, the only ones that need more than one ray."""
    found = torch.zeros_like(subject, dtype=torch.bool)
    for axis in (1, 2):
        n = subject.shape[axis] - 1
        first, second = (slice(None),) * axis + (slice(0, n),), (slice(None),) * axis + (slice(1, n + 1),)
        differ = ((images[first] - images[second]).abs().amax(-1) > 0.06) | (subject[first] != subject[second])
        found[first] |= differ
        found[second] |= differ
    return found


def _rays(aimed: list[tuple[View, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Origins and directions (3, n) in model space of the rays through each view's pixels (m, 2)."""
    origins, directions = [], []
    for view, pixels in aimed:
        viewmat, K = view.viewmat.to(pixels.device), view.K.to(pixels.device)
        flip = column(pixels, TO_WORLD)
        origin = view.position.to(pixels.device)[:, None] * flip + column(pixels, (0.0, LIFT, 0.0))
        in_camera = functional.pad((pixels - K[:2, 2]) / K[[0, 1], [0, 1]], (0, 1), value=1.0).T
        direction = (viewmat[:3, :3].T @ in_camera) * flip
        directions.append(direction / (direction * direction).sum(0).sqrt())
        origins.append(origin.expand_as(direction))
    return torch.cat(origins, 1), torch.cat(directions, 1)


def _unit(v: torch.Tensor) -> torch.Tensor:
    """Vectors (3, n) at length 1. (torch's own normalize is slow along the first axis.)"""
    return v / (v * v).sum(0).sqrt().clamp_min(1e-12)


def _shade(origin: torch.Tensor, direction: torch.Tensor) -> _Hits:
    depth, subject = _march(origin, direction)
    position = origin + depth * direction
    rgb = torch.zeros_like(direction)
    lit = torch.nonzero(subject >= 0)[:, 0]
    p, d, what = position[:, lit], direction[:, lit], subject[lit]
    normal = _normals(p, what)
    to_light = _unit(column(p, LIGHT) - p)
    shadow = _shadow(p + 0.01 * normal, to_light)
    facing = (normal * to_light).sum(0).clamp_min(0)
    up = normal[1] * 0.5 + 0.5
    ambient = (column(p, SKY_RGB) * up + column(p, BOUNCE_RGB) * (1 - up)) * _openness(p, normal)
    gloss = p.new_tensor(stilllife.GLOSS)[what] * (normal * _unit(to_light - d)).sum(0).clamp_min(0) ** 48 * shadow
    linear = stilllife.albedo(p, what) * (ambient + facing * shadow * column(p, LIGHT_RGB)) + 0.6 * gloss
    rgb[:, lit] = linear.clamp(0, 1) ** (1 / 2.2)
    return _Hits(rgb, position, subject)


def _march(origin: torch.Tensor, direction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(depth, subject) of the first thing that each ray meets; subject -1 where there is none."""
    depth, subject = _meet_table(origin, direction)
    enter, leave = _meet_ball(origin, direction)
    active = torch.nonzero((leave > enter) & (leave > 0) & (enter < depth))[:, 0]
    t, end = enter[active].clamp_min(0), torch.minimum(leave, depth)[active]
    start, along = origin[:, active], direction[:, active]
    for _ in range(72):
        if len(active) == 0:
            break
        nearest, which = stilllife.distances(start + t * along).min(0)
        met = nearest < 0.0015  # a tenth of a pixel
        depth[active[met]], subject[active[met]] = t[met], which[met]
        t = t + nearest * 0.95  # the spheroids' distance is a bound only near them
        going = torch.nonzero(~met & (t < end))[:, 0]
        active, t, end, start, along = active[going], t[going], end[going], start[:, going], along[:, going]
    return depth, subject


def _meet_table(origin: torch.Tensor, direction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The table's round top and its edge."""
    dx, dy, dz = direction
    ox, oy, oz = origin
    top = -oy / torch.where(dy.abs() < 1e-6, -1e-6, dy)
    on_top = (torch.hypot(ox + top * dx, oz + top * dz) <= stilllife.TABLE_RADIUS) & (top > 0)
    a, b = dx * dx + dz * dz, ox * dx + oz * dz
    c = ox ** 2 + oz ** 2 - stilllife.TABLE_RADIUS ** 2
    side = (-b - (b * b - a * c).clamp_min(0).sqrt()) / a.clamp_min(1e-9)
    height = oy + side * dy
    on_side = (b * b > a * c) & (height <= 0) & (height >= -stilllife.TABLE_THICKNESS) & (side > 0)
    depth = torch.where(on_top, top, torch.where(on_side, side, 1e9))
    return depth, torch.where(on_top | on_side, stilllife.TABLE, -1)


def _meet_ball(origin: torch.Tensor, direction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where rays enter and leave the ball that holds everything on the table."""
    towards = column(direction, stilllife.OBJECTS_CENTRE) - origin
    middle = (direction * towards).sum(0)
    squared = stilllife.OBJECTS_RADIUS ** 2 - (towards * towards).sum(0) + middle * middle
    half = squared.clamp_min(0).sqrt()
    return torch.where(squared > 0, middle - half, 1e9), torch.where(squared > 0, middle + half, -1e9)


def _normals(p: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
    """(3, n): differences over a tetrahedron's corners; the table's by its shape."""
    side = _unit(p * column(p, (1.0, 0.0, 1.0)))
    normal = torch.where(p[1] < -1e-3, side, column(p, (0.0, 1.0, 0.0)))
    on_it = torch.nonzero(subject != stilllife.TABLE)[:, 0]
    q, which = p[:, on_it], subject[None, on_it]
    gradient = torch.zeros_like(q)
    for corner in ((1.0, -1.0, -1.0), (-1.0, -1.0, 1.0), (-1.0, 1.0, -1.0), (1.0, 1.0, 1.0)):
        step = column(q, corner)
        gradient += step * stilllife.distances(q + 0.002 * step).gather(0, which)
    normal[:, on_it] = _unit(gradient)
    return normal


def _shadow(p: torch.Tensor, to_light: torch.Tensor) -> torch.Tensor:
    """(n,) the share of the light that arrives, soft by how narrowly the ray passes things."""
    share = torch.ones_like(p[0])
    enter, leave = _meet_ball(p, to_light)
    active = torch.nonzero(leave > enter.clamp_min(0))[:, 0]
    t, end, start, along = enter[active].clamp_min(0.02), leave[active], p[:, active], to_light[:, active]
    for _ in range(48):
        if len(active) == 0:
            break
        nearest = stilllife.distances(start + t * along).amin(0)
        still = torch.minimum(share[active], (9.0 * nearest / t).clamp_min(0))
        share[active] = still
        t = t + nearest.clamp(0.02, 0.3)
        going = torch.nonzero((still > 0.005) & (t < end))[:, 0]
        active, t, end, start, along = active[going], t[going], end[going], start[:, going], along[:, going]
    return share * share * (3 - 2 * share)


def _openness(p: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """(n,) how much of the surroundings is open: less where things stand close."""
    closed = torch.zeros_like(p[0])
    for step, weight in ((0.05, 0.55), (0.15, 0.35)):
        q = p + step * normal
        nearest = torch.minimum(stilllife.distances(q).amin(0), q[1].clamp_min(0))
        closed += weight * ((step - nearest) / step).clamp(0, 1)
    return 1 - closed
