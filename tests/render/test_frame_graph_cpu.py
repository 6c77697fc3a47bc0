"""The viewer's CUDA kernels between gsplat's projection and its rasteriser, run on the CPU (`kernels_on_cpu.h`).

gsplat's two kernels are stood in for by their rules in torch; that the whole agrees with gsplat itself is what
`tests/cuda/test_frame_graph.py` shows.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.on_cpu import OnCpu
from support.renderer_cases import Chance, camera, looking_at_origin, random_scene
from support.repetitions import one_at_a_time

from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.kernels import frame
from splatview.viewer_app.renderers.kernels.capacity import Capacity
from splatview.viewer_app.renderers.kernels.frame import TILE, Kind, Parameters, Scene, draw
from splatview.viewer_app.renderers.reference import ReferenceRenderer
from splatview.viewer_app.renderers.work import PAIRS_MAX
from splatview.viewer_app.selecting import EVERYTHING

if TYPE_CHECKING:
    from splatview.viewer_app.cameras import Camera
    from splatview.viewer_app.scene import GaussianScene

KERNELS = {"set_frame": False, "choose": False, "shade": True, "shade_as": True, "bodies": False, "fill": False,
           "gather": False, "pack": False, "blend": True, "blend_bodies": True, "blend_rings": True,
           "blend_points": True, "blend_overdraw": True}
ALPHA_MIN = 1 / 255


@pytest.fixture(scope="module", params=["short", "int"])
def own(request: pytest.FixtureRequest) -> OnCpu:
    return OnCpu("frame.cu", KERNELS, {"KEY": request.param})


class GsplatRules:
    """Projection and rasteriser of gsplat 1.5.3 for one pinhole camera, and what they were last given."""

    CameraModelType = SimpleNamespace(PINHOLE="pinhole")

    def projection_ewa_3dgs_fused_fwd(self, *args: Any) -> tuple[torch.Tensor, ...]:
        means, _, quats, scales, opacities, viewmats, Ks, width, height, eps, near, far, _, antialiased, _ = args
        R, t, K = viewmats[0, :3, :3].double(), viewmats[0, :3, 3].double(), Ks[0].double()
        w, x, y, z = torch.nn.functional.normalize(quats.double(), dim=-1).unbind(-1)
        Q = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                         2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                         2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1).view(-1, 3, 3)
        M = R @ Q * scales.double()[:, None]
        p = means.double() @ R.T + t
        f, c, size = K.diagonal()[:2], K[:2, 2], torch.tensor([width, height], dtype=torch.float64)
        beyond = 0.15 * size / f
        slope = torch.minimum(torch.maximum(p[:, :2] / p[:, 2:], -(c / f + beyond)), (size - c) / f + beyond)
        J = torch.zeros(len(p), 2, 3, dtype=torch.float64)
        J[:, 0, 0], J[:, 1, 1] = f[0] / p[:, 2], f[1] / p[:, 2]
        J[:, :, 2] = -f * slope / p[:, 2:]
        half = J @ M
        cov = half @ half.mT
        before = torch.linalg.det(cov)
        cov = cov + eps * torch.eye(2, dtype=torch.float64)
        after = torch.linalg.det(cov)
        compensations = (before / after).clamp_min(0).sqrt()
        opacity = opacities.double() * (compensations if antialiased else 1)
        extend = (2 * (opacity * 255).log()).clamp_min(0).sqrt().clamp_max(3.33)
        radii = (extend[:, None] * cov.diagonal(dim1=1, dim2=2).sqrt()).ceil()
        means2d = p[:, :2] / p[:, 2:] * f + c
        seen = (p[:, 2] >= near) & (p[:, 2] <= far) & (opacity >= ALPHA_MIN) & (after > 0)
        seen &= ((means2d + radii > 0) & (means2d - radii < size)).all(-1)
        inverse = torch.linalg.inv(cov)
        conics = torch.stack([inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]], -1)
        self.radii = torch.where(seen[:, None], radii, torch.zeros(())).to(torch.int32)[None]
        self.means2d, self.depths, self.conics = means2d.float()[None], p[:, 2].float()[None], conics.float()[None]
        self.depths[0, ~seen] = torch.nan  # gsplat leaves what was there
        self.opacities = opacity.float()
        return self.radii, self.means2d, self.depths, self.conics, compensations.float()[None]

    def rasterize_to_pixels_3dgs_fwd(self, *args: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
        _, _, colors, opacities, _, _, width, height, _, starts, ids = args
        columns = -(-width // TILE)
        self.lists = [ids[a:b].tolist() for a, b in zip(starts.flatten(), starts.flatten()[1:], strict=False)]
        self.lists = self.lists[:columns * -(-height // TILE)]
        picture, alphas = torch.zeros(1, height, width, colors.shape[-1]), torch.zeros(1, height, width, 1)
        for tile, members in enumerate(self.lists):
            rows, cols = tile // columns * TILE, tile % columns * TILE
            box = (0, slice(rows, rows + TILE), slice(cols, cols + TILE))
            T, done = torch.ones_like(alphas[box][..., 0]), torch.zeros_like(alphas[box][..., 0], dtype=torch.bool)
            for g in members:
                assert abs(opacities[0, g] - self.opacities[g]) < 1e-6
                alpha = self.alpha(g, tile, columns)[:T.shape[0], :T.shape[1]]
                left = T * (1 - alpha)
                done |= (alpha >= ALPHA_MIN) & (left <= 1e-4)
                adds = (alpha >= ALPHA_MIN) & ~done
                picture[box] += torch.where(adds, alpha * T, torch.zeros(()))[..., None] * colors[0, g]
                T = torch.where(adds, left, T)
            alphas[box] = 1 - T[..., None]
        return picture, alphas, None

    def alpha(self, g: int, tile: int, columns: int) -> torch.Tensor:
        """(TILE, TILE): of one Gaussian at the pixels of one tile."""
        x, y = self.means2d[0, g]
        a, b, c = self.conics[0, g]
        dy, dx = torch.meshgrid(y - (tile // columns * TILE + torch.arange(TILE) + 0.5),
                                x - (tile % columns * TILE + torch.arange(TILE) + 0.5), indexing="ij")
        sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
        return torch.where(sigma < 0, torch.zeros(()), self.opacities[g] * torch.exp(-sigma)).clamp_max(0.999)

    def expected_lists(self, columns: int, rows: int) -> list[list[int]]:
        """gsplat's own: every tile of the box, by depth and then by number."""
        lists: list[list[int]] = [[] for _ in range(columns * rows)]
        for g in np.argsort(self.depths[0].numpy(), kind="stable").tolist():
            if (self.radii[0, g] > 0).all():
                low = ((self.means2d[0, g] - self.radii[0, g]) / TILE).floor().int().tolist()
                high = ((self.means2d[0, g] + self.radii[0, g]) / TILE).ceil().int().tolist()
                for row in range(max(low[1], 0), min(high[1], rows)):
                    for column in range(max(low[0], 0), min(high[0], columns)):
                        lists[row * columns + column].append(g)
        return lists


@dataclass
class Drawn:
    rgba: torch.Tensor
    depth: torch.Tensor | None
    needed: int
    rules: GsplatRules
    kind: Kind


def drawn(own: OnCpu, scene: GaussianScene, camera: Camera, options: RenderOptions, *, slots: int = 4096,
          dtype: torch.dtype = torch.float32, exact: bool = True) -> Drawn:
    """`exact`: the rasteriser is the stand-in for gsplat's, otherwise the viewer's. The scene is activated if anything
    is selected."""
    t = {k: torch.from_numpy(np.array(getattr(scene, k))) for k in ("means", "quats", "scales", "opacities")}
    if not scene.activated:
        t["scales"], t["opacities"] = t["scales"].exp(), t["opacities"].sigmoid()
    sh = torch.cat([torch.from_numpy(scene.sh0)[:, None], torch.from_numpy(scene.shN)], 1).contiguous()
    flags = None if options.selection == EVERYTHING else torch.from_numpy(np.asarray(options.selection.flags(scene)))
    tensors = Scene(**t, sh0=sh[:, 0], shN=sh[:, 1:], flags=flags)
    tensors.check(torch.device("cpu"))
    rgba = torch.full((camera.height, camera.width, 4), 7, dtype=dtype)
    depth = torch.full((camera.height, camera.width), 7.0) if options.depth else None
    needed, parameters = torch.full((1,), -1), torch.zeros(ctypes.sizeof(Parameters) // 4)
    settings = Parameters.of(camera, rgba, depth, needed.data_ptr())
    settings.draw_as(options)
    own.launch("set_frame", 1, 64, settings, parameters)
    degree = tensors.degree if options.sh_degree is None else options.sh_degree
    kind = Kind(camera.width, camera.height, camera.model, camera.near, camera.far, options.mode == "antialiased",
                options.depth, degree, rgba.element_size(), slots, exact, options.paint, flags is not None,
                options.scale != 1.0)
    rules = GsplatRules()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kind, "key_type", own.defines["KEY"])  # both kinds are tried with small pictures
        draw(kind, tensors, parameters, rules, own)
    return Drawn(rgba, depth, int(needed), rules, kind)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(max(float(np.mean((a.astype(np.float64) - b) ** 2)), 1e-20)))


SCENES = {
    "usual": Chance(n=200),
    "needles": Chance(n=60, log_scale=(-2.5, 2.0)),
    "faint": Chance(n=200, logit=(-4.5, 1.0)),
    "large": Chance(n=40, log_scale=(0.0, 1.0)),
}


@pytest.mark.parametrize(("name", "mode"), one_at_a_time([*SCENES], ["classic", "antialiased"]))
def test_lists_hold_all_that_can_be_seen_in_gsplat_s_order(own: OnCpu, name: str, mode: Any) -> None:
    view = looking_at_origin(75, 50)
    d = drawn(own, random_scene(3, SCENES[name]), view, RenderOptions(mode=mode))
    columns, rows = d.kind.tiles
    expected = d.rules.expected_lists(columns, rows)
    assert sum(map(len, expected)) >= 50
    for tile, (got, every) in enumerate(zip(d.rules.lists, expected, strict=True)):
        kept = set(got)
        assert got == [g for g in every if g in kept], f"tile {tile}: other Gaussians, or in another order"
        for g in set(every) - kept:
            assert d.rules.alpha(g, tile, columns).max() < ALPHA_MIN, f"Gaussian {g} shows in tile {tile}"
    assert d.needed == sum(map(len, d.rules.lists))


def test_tiles_that_a_slanted_gaussian_misses_are_left_out(own: OnCpu) -> None:
    view = looking_at_origin(160, 160, distance=4.0)
    d = drawn(own, random_scene(5, Chance(n=100, log_scale=(-1.5, 0.7))), view, RenderOptions(), slots=16384)
    assert d.needed < 0.8 * sum(map(len, d.rules.expected_lists(*d.kind.tiles)))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("options", [RenderOptions(), RenderOptions(mode="antialiased", depth=False)],
                         ids=["classic", "antialiased"])
def test_the_picture_is_the_reference_s(own: OnCpu, degree: int, options: RenderOptions, exact: bool) -> None:
    scene, view = random_scene(degree, Chance(n=150, sh_degree=degree)), looking_at_origin(70, 45)
    d = drawn(own, scene, view, options, exact=exact)
    reference = ReferenceRenderer()
    reference.load(scene)
    expected = reference.render(view, options).pixels()
    assert psnr(d.rgba[..., :3].numpy(), expected.color) > 80
    assert psnr(d.rgba[..., 3].numpy(), expected.alpha) > 80
    if d.depth is not None and expected.depth is not None:
        assert psnr(d.depth.numpy(), expected.depth) > 70


@pytest.mark.parametrize(("name", "mode"), one_at_a_time([*SCENES], ["classic", "antialiased"]))
def test_both_rasterisers_agree(own: OnCpu, name: str, mode: Any) -> None:
    """What the viewer's leaves out for eight by four pixels shows in none of them."""
    scene, view = random_scene(3, SCENES[name]), looking_at_origin(75, 50)
    exact, quick = (drawn(own, scene, view, RenderOptions(mode=mode), exact=e) for e in (True, False))
    assert (quick.rgba - exact.rgba).abs().max() < 1e-5
    assert quick.depth is not None
    assert exact.depth is not None
    assert (quick.depth - exact.depth).abs().max() < 1e-4


def test_a_lower_degree_than_the_scene_s(own: OnCpu) -> None:
    scene, view = random_scene(1, Chance(n=100)), looking_at_origin(40, 40)
    options = RenderOptions(sh_degree=1)
    reference = ReferenceRenderer()
    reference.load(scene)
    assert psnr(drawn(own, scene, view, options).rgba[..., :3].numpy(),
                reference.render(view, options).pixels().color) > 80


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float16, 1e-3), (torch.uint8, 0.51 / 255)])
def test_other_dtypes_of_the_picture(own: OnCpu, dtype: torch.dtype, error: float, exact: bool) -> None:
    scene, view = random_scene(2, Chance(n=100)), looking_at_origin(37, 21)
    whole = drawn(own, scene, view, RenderOptions(), exact=exact).rgba
    got = drawn(own, scene, view, RenderOptions(), dtype=dtype, exact=exact).rgba
    if dtype == torch.uint8:
        whole, got = whole.clamp(0, 1), got.float() / 255
    assert ((got.float() - whole).abs() <= error * whole.abs().clamp_min(1)).all()


@pytest.mark.parametrize("slots", [1, 64, 200])
def test_too_few_slots_are_reported_and_harm_nothing(own: OnCpu, slots: int) -> None:
    scene, view = random_scene(3, SCENES["usual"]), looking_at_origin(75, 50)
    whole, short = drawn(own, scene, view, RenderOptions()), drawn(own, scene, view, RenderOptions(), slots=slots)
    assert short.needed == whole.needed > slots
    assert sum(map(len, short.rules.lists)) == slots
    assert torch.isfinite(short.rgba).all()


def test_exactly_enough_slots(own: OnCpu) -> None:
    scene, view = random_scene(3, SCENES["usual"]), looking_at_origin(75, 50)
    whole = drawn(own, scene, view, RenderOptions())
    exact = drawn(own, scene, view, RenderOptions(), slots=whole.needed)
    assert exact.rules.lists == whole.rules.lists
    assert torch.equal(exact.rgba, whole.rgba)


@pytest.mark.parametrize("part", [64, 128, 700])
@pytest.mark.parametrize("slots", [4096, 4001, 130, 64])
def test_sorted_in_parts(own: OnCpu, monkeypatch: pytest.MonkeyPatch, part: int, slots: int) -> None:
    """The same picture, bit for bit, whether the pairs fill the last part or end long before it."""
    scene, view = random_scene(3, SCENES["usual"]), looking_at_origin(75, 50)
    whole = drawn(own, scene, view, RenderOptions(), slots=slots, exact=False)
    assert whole.rgba.any()
    monkeypatch.setattr(frame, "PART", part)
    parts = drawn(own, scene, view, RenderOptions(), slots=slots, exact=False)
    assert torch.equal(parts.rgba, whole.rgba) and parts.needed == whole.needed
    assert parts.depth is not None and whole.depth is not None and torch.equal(parts.depth, whole.depth)


def test_nothing_in_sight(own: OnCpu) -> None:
    view = camera(20, 20)
    view.viewmat[2, 3] = -50
    d = drawn(own, random_scene(3, Chance(n=33, spread=0.01)), view, RenderOptions())
    assert d.needed == 0
    assert not any(d.rules.lists)
    assert (d.rgba == 0).all()
    assert not drawn(own, random_scene(3, Chance(n=33, spread=0.01)), view, RenderOptions(), exact=False).rgba.any()


def test_equal_depths_stay_in_the_scene_s_order(own: OnCpu) -> None:
    scene = random_scene(4, Chance(n=100, spread=0.3))
    scene.means[:, 2] = 2.0
    d = drawn(own, scene, camera(64, 48), RenderOptions())
    assert any(len(members) > 20 for members in d.rules.lists)
    assert all(members == sorted(members) for members in d.rules.lists)


def test_a_scene_of_wrong_tensors_is_refused() -> None:
    good = {"means": torch.zeros(5, 3), "quats": torch.zeros(5, 4), "scales": torch.zeros(5, 3),
            "opacities": torch.zeros(5), "sh0": torch.zeros(5, 3), "shN": torch.zeros(5, 8, 3)}
    Scene(**good).check(torch.device("cpu"))
    for name, bad, message in [("quats", torch.zeros(5, 3), r"quats is \(5, 3\)"),
                               ("scales", torch.zeros(5, 3, dtype=torch.float16), "float16"),
                               ("means", torch.zeros(3, 5).T, "strides"),
                               ("shN", torch.zeros(5, 7, 3), "shN has 7 coefficients"),
                               ("shN", torch.zeros(5, 3, 8).mT, "strides")]:
        with pytest.raises(ValueError, match=message):
            Scene(**{**good, name: bad}).check(torch.device("cpu"))


def test_capacity_grows_at_once_and_shrinks_late() -> None:
    c = Capacity()
    assert not c.saw(c.FIRST)
    assert c.saw(1_000_000)
    assert 1_250_000 <= c.slots <= 1_250_000 * 1.13
    grown = c.slots
    assert not c.saw(grown)
    assert not any(c.saw(100_000) for _ in range(Capacity.FRAMES - 1))
    assert c.slots == grown, "the large frame is not long ago"
    assert not any(c.saw(100_000) for _ in range(Capacity.FRAMES))
    assert 125_000 <= c.slots < 150_000
    assert not any(c.saw(90_000) for _ in range(3 * Capacity.FRAMES))
    assert 125_000 <= c.slots < 150_000, "no shrinking for little"


def test_capacity_takes_few_values_and_has_an_end() -> None:
    assert len({Capacity.rounded(n) for n in range(1 << 20, 1 << 21, 997)}) <= 9
    assert all(n <= Capacity.rounded(n) <= n * 1.13 for n in range(1 << 17, 1 << 21, 997))
    c = Capacity()
    assert c.saw(10**12) and c.slots == PAIRS_MAX and c.full and not c.saw(10**12), "one more picture, and no other"
    c.at_least(10**9)
    assert c.slots == PAIRS_MAX and not c.saw(PAIRS_MAX) and not c.full


def test_less_memory_gives_less_room_until_another_scene_comes() -> None:
    c = Capacity()
    c.at_least(1_000_000)
    had = c.slots
    assert c.shrink() and c.slots == had // 2 and not c.saw(had) and c.full
    c.at_least(1_000_000)
    assert c.slots == had and not c.saw(had) and not c.full
    while c.shrink():
        pass
    assert c.slots == Capacity.FIRST
