"""The demo's own subject as a signed distance field: a still life on a round table.

Model space has y up and the table's top at y = 0. Formulas of the distances: Inigo Quilez, "distance functions",
https://iquilezles.org/articles/distfunctions. Points are (3, n), one row per axis: every operation then runs along
contiguous memory, several times quicker on a CPU than (n, 3).
"""

from __future__ import annotations

import math

import torch

Vector = tuple[float, float, float]

TABLE_RADIUS, TABLE_THICKNESS = 1.5, 0.12
OBJECTS_CENTRE, OBJECTS_RADIUS = (0.0, 0.35, 0.0), 1.3
"""A ball around everything that stands on the table."""

TEAPOT, BOX, RING, BALL, BLUE, GREEN, VIOLET, TABLE = range(8)
"""The subjects, in the order of `distances`; the table comes after them."""

TEAPOT_AT, TEAPOT_SCALE = (-0.08, 0.0, -0.05), 0.42
BOX_AT, BOX_HALF, BOX_TURN, BOX_ROUNDING = (0.72, 0.27, -0.48), (0.21, 0.27, 0.21), 0.5, 0.02
RING_AT, RING_RADII = (-0.84, 0.085, 0.28), (0.22, 0.085)
BALLS = (((-0.66, 0.24, -0.62), 0.24), ((0.62, 0.19, 0.55), 0.19), ((-0.34, 0.13, 0.72), 0.13),
         ((0.2, 0.09, 0.92), 0.09))
"""(centre, radius) of the beach ball and the blue, green and violet one."""
ALBEDO = ((0.9, 0.86, 0.76), (0.9, 0.9, 0.9), (0.95, 0.68, 0.2), (0.95, 0.95, 0.92), (0.12, 0.3, 0.85),
          (0.2, 0.62, 0.25), (0.55, 0.2, 0.65), (0.5, 0.5, 0.5))
GLOSS = (0.5, 0.05, 0.35, 0.15, 0.5, 0.5, 0.5, 0.03)


def distances(p: torch.Tensor) -> torch.Tensor:
    """(7, n) the distance from points (3, n) to each thing on the table, in the order of the constants above."""
    x, y, z = p
    found = [_teapot((p - column(p, TEAPOT_AT)) / TEAPOT_SCALE) * TEAPOT_SCALE]
    bx, by, bz = (q.abs() - (half - BOX_ROUNDING) for q, half in zip(_in_box(p), BOX_HALF, strict=True))
    inside = torch.maximum(torch.maximum(bx, by), bz).clamp_max(0)
    found.append(_length(bx.clamp_min(0), by.clamp_min(0), bz.clamp_min(0)) + inside - BOX_ROUNDING)
    found.append(_torus(x - RING_AT[0], y - RING_AT[1], z - RING_AT[2], *RING_RADII))
    found += [_sphere(x, y, z, centre, radius) for centre, radius in BALLS]
    return torch.stack(found)


def column(like: torch.Tensor, v: Vector) -> torch.Tensor:
    """(3, 1) of a vector, to be added to points (3, n)."""
    return like.new_tensor(v)[:, None]


def albedo(p: torch.Tensor, subject: torch.Tensor) -> torch.Tensor:
    """(3, n) linear RGB of surface points (3, n) that belong to `subject` (n,)."""
    rgb = p.new_tensor(ALBEDO)[subject].T.contiguous()
    for which, paint, q in ((TABLE, _table, p), (BOX, _stripes, _in_box(p)),
                            (BALL, _beach_ball, p - column(p, BALLS[0][0])),
                            (TEAPOT, _glaze, (p - column(p, TEAPOT_AT)) / TEAPOT_SCALE)):
        where = subject == which
        rgb[:, where] = paint(q[:, where], rgb[:, where])
    return rgb


def _choose(where: torch.Tensor, a: Vector, b: Vector) -> torch.Tensor:
    return torch.where(where, column(torch.zeros(0, device=where.device), a),
                       column(torch.zeros(0, device=where.device), b))


def _table(p: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """A chessboard inside a wooden rim."""
    radius = torch.hypot(p[0], p[2])
    dark = (torch.floor(p[0] / 0.25) + torch.floor(p[2] / 0.25)) % 2 == 0
    squares = _choose(dark, (0.08, 0.1, 0.14), (0.72, 0.68, 0.6))
    rim = column(p, (0.36, 0.16, 0.06)) * (1 + 0.12 * torch.sin(radius * 160))
    return torch.where(radius > TABLE_RADIUS - 0.16, rim, squares)


def _stripes(q: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Slanting red and white, round a box."""
    band = torch.floor((q[1] + 0.5 * (q[0] + q[2])) / 0.09) % 2 == 0
    return _choose(band, (0.75, 0.06, 0.08), (0.9, 0.88, 0.84))


def _beach_ball(q: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Six segments in three colours about a leaning axis, white caps."""
    axis = torch.nn.functional.normalize(q.new_tensor([0.5, 0.8, 0.33]), dim=0)
    right = torch.nn.functional.normalize(torch.linalg.cross(axis, q.new_tensor([0.0, 0.0, 1.0])), dim=0)
    angle = torch.atan2(torch.linalg.cross(axis, right) @ q, right @ q)
    segment = torch.floor((angle / math.tau % 1.0) * 6).long().clamp(0, 5)
    palette = q.new_tensor([[0.95, 0.45, 0.05], [0.95, 0.95, 0.92], [0.05, 0.5, 0.6]])
    return torch.where((axis @ q).abs() > 0.93 * BALLS[0][1], palette[1][:, None], palette[segment % 3].T)


def _glaze(q: torch.Tensor, ground: torch.Tensor) -> torch.Tensor:
    """Cream with a blue zigzag round the belly, blue at the lid's knob and the spout's lip."""
    x, y, z = q
    turn = (torch.atan2(z, x) / math.tau * 14) % 1.0
    zigzag = 0.72 + 0.3 * (turn - 0.5).abs()
    lines = ((y - zigzag).abs() < 0.05) | ((y - 1.08).abs() < 0.025) | ((y - 0.58).abs() < 0.025)
    blue = ((torch.hypot(x, z) < 1.03) & lines) | (y > 1.72) | ((x > 1.45) & (y > 1.2))
    return torch.where(blue, column(q, (0.05, 0.14, 0.5)), ground)


def _in_box(p: torch.Tensor) -> torch.Tensor:
    c, s = math.cos(BOX_TURN), math.sin(BOX_TURN)
    x, y, z = p - column(p, BOX_AT)
    return torch.stack([c * x - s * z, y, s * x + c * z])


def _length(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x * x).addcmul_(y, y).addcmul_(z, z).sqrt_()


def _sphere(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, centre: Vector, radius: float) -> torch.Tensor:
    return _length(x - centre[0], y - centre[1], z - centre[2]) - radius


def _torus(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, major: float, minor: float) -> torch.Tensor:
    ring = (x * x).addcmul_(z, z).sqrt_() - major
    return (ring * ring).addcmul_(y, y).sqrt_() - minor


def _spheroid(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, wide: float, high: float) -> torch.Tensor:
    """An ellipsoid with two equal axes; exact to first order at the surface."""
    flat, y2 = (x * x).addcmul_(z, z), y * y
    k0 = (flat / wide ** 2 + y2 / high ** 2).sqrt_()
    k1 = (flat / wide ** 4 + y2 / high ** 4).sqrt_().clamp_min_(1e-6)
    return k0 * (k0 - 1) / k1


def _tapered(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, a: Vector, b: Vector) -> torch.Tensor:
    """A capsule in the plane z = 0 between two circles (x, y, radius)."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    px, py = x - a[0], y - a[1]
    h = ((px * dx).add_(py, alpha=dy) / (dx * dx + dy * dy)).clamp_(0, 1)
    return _length(px.sub_(h, alpha=dx), py.sub_(h, alpha=dy), z) - (a[2] + h * (b[2] - a[2]))


def _smooth_min(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    h = (k - (a - b).abs_()).clamp_min_(0)
    return torch.minimum(a, b).addcmul_(h, h, value=-0.25 / k)


def _teapot(p: torch.Tensor) -> torch.Tensor:
    """A pot whose belly has radius 1, standing on y = 0, with the spout towards +x."""
    x, y, z = p
    body = _spheroid(x, y - 0.82, z, 1.0, 0.74)
    foot = _torus(x, y - 0.1, z, 0.5, 0.1)
    spout = torch.minimum(_tapered(x, y, z, (0.7, 0.55, 0.26), (1.25, 0.95, 0.16)),
                          _tapered(x, y, z, (1.25, 0.95, 0.16), (1.6, 1.42, 0.1)))
    handle = _torus(x + 1.0, z, y - 0.88, 0.5, 0.095)  # upright, in the plane of the spout
    lid = _spheroid(x, y - 1.5, z, 0.56, 0.17)
    knob = _sphere(x, y, z, (0.0, 1.78, 0.0), 0.15)
    pot = _smooth_min(_smooth_min(body, spout, 0.16), handle, 0.1)
    return torch.minimum(_smooth_min(pot, foot, 0.08), _smooth_min(lid, knob, 0.1))
