"""Choosing Gaussians in the picture with a box, a lasso and a brush."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.selection import EVERYTHING, Selection
from splatview_viewer.formats import open_file
from splatview_viewer.geometry.cameras import (
    Camera,
    CameraModel,
    intrinsics,
    look_at,
    project,
)
from splatview_viewer.kinds.gaussians.chosen_dots import (
    is_other_order,
    places_later,
    space_out,
    thinned,
)
from splatview_viewer.kinds.gaussians.region_tools import RegionKind, region_of
from splatview_viewer.kinds.gaussians.select import SelectMode, combine
from splatview_viewer.render.region import SeenCentres
from splatview_viewer.scene import HIDDEN, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene
from splatview_viewer.scene.selecting import array_of, mask_of
from splatview_viewer.ui.legend import place_legend

W = 320
H = 240
SHIFT: Mods = frozenset({"shift"})
CTRL: Mods = frozenset({"ctrl"})


def scene_of(means: np.ndarray, opacity: float = 0.9) -> GaussianScene:
    count = len(means)
    return GaussianScene(
        torch.tensor(means, dtype=torch.float64),
        torch.tensor([[1.0, 0, 0, 0]]).repeat(count, 1),
        torch.full((count, 3), 0.01),
        torch.full((count,), opacity),
        torch.zeros(count, 3),
        torch.zeros(count, 0, 3),
        activated=True,
    )


def camera_of(model: CameraModel = "pinhole") -> Camera:
    return Camera(look_at((0, 0, -5), (0, 0, 0)), intrinsics(50, W, H), W, H, model)


def seen_in(
    region: np.ndarray,
    scene: GaussianScene,
    camera: Camera | None = None,
    selection: Selection = EVERYTHING,
    through: bool = False,
) -> np.ndarray:
    seen_centres = SeenCentres(scene, camera or camera_of(), selection, through=through)
    return seen_centres.inside(region)


def test_mask_keeps_what_is_chosen() -> None:
    flagged = np.random.default_rng(0).random(1003) < 0.3
    mask = mask_of(flagged)
    np.testing.assert_array_equal(array_of(mask), flagged)
    assert mask.count == flagged.sum()
    scene = scene_of(np.zeros((1003, 3)))
    bits = flags(scene, replace(EVERYTHING, hidden=mask_of(~flagged)))
    np.testing.assert_array_equal((bits & HIDDEN).numpy() > 0, ~flagged)
    # A piece of the scene is told apart, and a longer version is not cut.
    piece_flags = flags(scene[100:200], replace(EVERYTHING, hidden=mask), 100)
    np.testing.assert_array_equal((piece_flags & HIDDEN).numpy() > 0, flagged[100:200])
    longer = flags(scene_of(np.zeros((1100, 3))), replace(EVERYTHING, hidden=mask))
    assert int((longer & HIDDEN).sum()) == mask.count


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_region_takes_the_centres_that_are_seen_in_it(model: CameraModel) -> None:
    rng = np.random.default_rng(1)
    # Some are behind the camera, and one is nowhere.
    means = rng.normal(size=(5000, 3)) * [2, 2, 4] + [1e5, 0, 0]
    means[7] = np.nan
    camera = Camera(
        look_at((1e5, 0, -5), (1e5, 0, 0)), intrinsics(50, W, H), W, H, model
    )
    corners = [(40.0, 30.0), (200.0, 60.0), (150.0, 200.0)]
    region = region_of("lasso", corners, (W, H), 1.0)
    selected = seen_in(region, scene_of(means), camera, through=True)
    pixels = project(camera, means)
    with np.errstate(invalid="ignore"):
        inside = np.all((pixels >= 0) & (pixels < (W, H)), axis=1)
        indices = np.where(inside[:, None], pixels, 0).astype(int)
    expected = inside & region[indices[:, 1], indices[:, 0]]
    # One on the border may fall to either side.
    assert (selected != expected).sum() <= 2
    assert selected.sum() > 20


def test_what_is_in_front_hides_what_is_behind() -> None:
    side = np.linspace(-1, 1, 60)
    x, y = np.meshgrid(side, side)
    wall = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], 1)
    means = np.concatenate([wall, wall * 0.8 + [0, 0, 2.0]])
    region = np.ones((H, W), bool)
    scene = scene_of(means)
    in_front = seen_in(region, scene)
    through = seen_in(region, scene, through=True)
    assert through.all()
    assert in_front[: len(wall)].all()
    assert in_front[len(wall) :].mean() < 0.02
    # What is hidden hides nothing, and is not chosen itself.
    hidden = mask_of(np.arange(len(means)) < len(wall))
    selection = replace(EVERYTHING, hidden=hidden)
    selected = seen_in(region, scene, selection=selection)
    np.testing.assert_array_equal(selected, np.arange(len(means)) >= len(wall))


@pytest.mark.cuda
def test_region_is_searched_on_the_gpu() -> None:
    rng = np.random.default_rng(7)
    scene = scene_of(rng.normal(size=(20_000, 3)))
    scene.scales[:200] = 0.3
    tensors = {name: getattr(scene, name).cuda() for name in FIELDS}
    on_gpu = replace(scene, **tensors)
    corners = [(40.0, 30.0), (300.0, 60.0), (150.0, 230.0)]
    region = region_of("lasso", corners, (W, H), 1.0)
    for through in (True, False):
        expected = seen_in(region, scene, through=through)
        assert expected.sum() > 100
        selected = seen_in(region, on_gpu, through=through)
        # Those at the limit may fall to either side.
        assert (selected != expected).mean() < 0.005
        mask = mask_of(expected)
        places = places_later(on_gpu, mask, EVERYTHING, None)()
        on_host = places_later(scene, mask, EVERYTHING, None)()
        np.testing.assert_allclose(places, on_host)


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_one_large_gaussian_is_a_wall(model: CameraModel) -> None:
    rng = np.random.default_rng(2)
    ball = rng.normal(size=(30, 3)) * 0.4 + [0, 0, 1]
    # The centre of the wall is far from the ball, on the screen too.
    wall = scene_of(np.concatenate([[[0.9, 0.6, -1.0]], ball]), opacity=0.99)
    wall.scales[0] = torch.tensor([4.0, 4.0, 0.01])
    camera = camera_of(model)
    if model == "ortho":
        camera = replace(camera, K=camera.K * [[0.2, 0, 1], [0, 0.2, 1], [0, 0, 1]])
    region = np.ones((H, W), bool)
    in_front = seen_in(region, wall, camera)
    assert in_front[0]
    assert not in_front[1:].any()
    # A faint one hides nothing.
    wall.opacities[0] = 0.2
    assert seen_in(region, wall, camera).mean() > 0.9


def test_many_faint_gaussians_hide_what_is_behind() -> None:
    rng = np.random.default_rng(3)
    fog = rng.uniform(-1, 1, size=(4000, 3)) * [1, 1, 0.1]
    hidden_centres = rng.uniform(-0.7, 0.7, size=(300, 3)) * [1, 1, 0] + [0, 0, 2]
    scene = scene_of(np.concatenate([fog, hidden_centres]), opacity=0.3)
    scene.scales[: len(fog)] = 0.1
    in_front = seen_in(np.ones((H, W), bool), scene)
    assert in_front[len(fog) :].mean() < 0.02


def test_odd_gaussians_are_not_chosen_and_hide_nothing() -> None:
    rng = np.random.default_rng(6)
    scene = scene_of(rng.normal(size=(60, 3)) * [1, 1, 0])
    scene.means[0] = np.inf
    scene.means[1] = np.nan
    scene.scales[2] = np.nan
    scene.scales[3] = np.inf
    # The others are larger than the picture by far.
    scene.scales[4:] = 1e7
    selected = seen_in(np.ones((H, W), bool), scene)
    assert not selected[:4].any()
    assert selected[4:].sum() > 40


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("new", "0110"),
        ("add", "1110"),
        ("remove", "1000"),
        ("intersect", "0100"),
    ],
)
def test_choice_and_the_one_before(mode: SelectMode, expected: str) -> None:
    previous = mask_of(np.array([True, True, False, False]))
    inside = np.array([False, True, True, False])
    mask = combine(previous, inside, mode)
    assert mask is not None
    assert array_of(mask).tolist() == [digit == "1" for digit in expected]
    # Of another version of the scene, the choice before does not count.
    longer = np.array([True, False, False, False, False])
    mask = combine(previous, longer, mode)
    assert (mask is None) == (mode in ("remove", "intersect"))


def test_dots_of_many_are_few_and_stay() -> None:
    flagged = np.random.default_rng(4).random(50_000) < 0.5
    indices = thinned(mask_of(flagged), 1000)
    assert 900 < len(set(indices.tolist())) <= 1000
    assert flagged[indices].all()
    # More chosen ones leave most of them where they are.
    flagged[:5000] = True
    assert len(np.intersect1d(indices, thinned(mask_of(flagged), 1000))) > 850
    pixels = np.array([[1.0, 1.0], [2.0, 3.0], [np.nan, 1.0], [6.0, 1.0], [-1.0, 1.0]])
    assert sorted(space_out(pixels, (20, 20), 5.0)) == [0, 3]


def test_order_of_gaussians_is_compared_by_their_places() -> None:
    centres = np.random.default_rng(5).normal(size=(500, 3))
    assert not is_other_order(centres, centres * 1.02 + 0.01)
    assert is_other_order(centres, centres[::-1])
    assert not is_other_order(centres, centres[:100])


@pytest.mark.parametrize("kind", ["box", "lasso", "brush"])
def test_region_may_reach_beyond_the_picture(kind: RegionKind) -> None:
    points = [(-50.0, -20.0), (W + 400.0, -20.0), (W + 10.0, H + 900.0)]
    region = region_of(kind, points, (W, H), 12.0)
    assert region.shape == (H, W)
    assert region.dtype == bool
    assert region_of(kind, [(5.0, 5.0)] * 3, (W, H), 12.0)[5, 5]


# -- in the viewer ---------------------------------------------------------------------


@pytest.fixture
def viewer(
    open_viewer: Callable[..., Viewer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Viewer:
    monkeypatch.chdir(tmp_path)
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(2000)))
    app = open_viewer((940, 720), files=(scene,))
    app.until(app.loaded)
    return app


def select_of(viewer: Viewer) -> Any:
    view: Any = viewer.user.view
    return view.view.tools["select"]


def count(viewer: Viewer) -> int:
    mask = select_of(viewer).mask
    return 0 if mask is None else mask.count


def drag(
    viewer: Viewer, *corners: tuple[float, float], mods: Mods = frozenset()
) -> None:
    """Drag through places, in shares of the picture."""
    rect = viewer.user.layout.active.rect
    points = [(rect.x + rect.width * x, rect.y + rect.height * y) for x, y in corners]
    viewer.do(PointerMove(*points[0]), PointerPress(*points[0], mods=mods))
    for point in points[1:]:
        viewer.do(PointerMove(*point, mods=mods))
    viewer.do(PointerRelease(*points[-1], mods=mods))


def test_box_chooses_adds_and_takes_away(viewer: Viewer) -> None:
    select_of(viewer).through = True
    view: Any = viewer.user.view
    rotation = view.view.rig.orbit.rotation.copy()
    viewer.do(Key("b"))
    drag(viewer, (0.3, 0.3), (0.5, 0.7))
    left = count(viewer)
    assert left > 0
    drag(viewer, (0.5, 0.3), (0.7, 0.7), mods=SHIFT)
    both = count(viewer)
    assert both > left
    drag(viewer, (0.3, 0.3), (0.5, 0.7), mods=CTRL)
    assert 0 < count(viewer) <= both - left + 2
    # The camera did not take the drags.
    np.testing.assert_array_equal(view.view.rig.orbit.rotation, rotation)
    viewer.do(Key("escape"))
    assert count(viewer) == 0


def test_bar_of_the_chosen_keeps_off_legends_and_other_panes(viewer: Viewer) -> None:
    select = select_of(viewer)
    select.choose(np.arange(2000) < 30, "new")
    view = select.view
    rect = viewer.user.layout.active.rect

    def bars() -> list[Rect]:
        viewer.do()
        return select.covered(rect)

    (low_bar,) = bars()
    view.change(show="depth")

    def has_legend() -> bool:
        return view.tools["look"].has_legend

    viewer.until(has_legend)
    legend = place_legend(rect, 1.0)
    assert legend is not None
    (bar,) = bars()
    assert low_bar.y + low_bar.height > legend.y
    assert bar.y + bar.height < legend.y
    first = viewer.user.layout.active
    second = viewer.user.layout.add(first.key)
    viewer.user.layout.activate(second)
    assert not bars()
    viewer.user.layout.activate(first)
    assert bars()


@pytest.mark.parametrize("key", ["b", "l", "n"])
def test_chosen_gaussians_are_counted_hidden_and_saved(
    viewer: Viewer, tmp_path: Path, key: str
) -> None:
    select = select_of(viewer)
    select.through = True
    viewer.do(Key(key))
    drag(viewer, (0.3, 0.3), (0.7, 0.35), (0.65, 0.7), (0.35, 0.7))
    selected_count = count(viewer)
    assert 0 < selected_count < 2000
    viewer.click("Save them")

    def is_saved() -> bool:
        return len(list(tmp_path.glob("*.ply"))) == 2

    viewer.until(is_saved)
    viewer.until(lambda: viewer.state.toasts)
    (saved,) = [p for p in tmp_path.glob("*.ply") if p.name != "scene.ply"]
    assert len(open_file(saved)) == selected_count
    viewer.click("Only these")
    assert count(viewer) == 0
    selection = select.view.state.selection
    assert selection.hidden.count == 2000 - selected_count
    select.invert()
    viewer.click("Hide")
    assert select.view.state.selection.hidden.count == 2000
    view: Any = viewer.user.view
    view.view.tools["filter"].reset()
    assert select.view.state.selection == EVERYTHING


def test_click_beside_everything_chooses_none(viewer: Viewer) -> None:
    select_of(viewer).invert()
    assert count(viewer) == 2000
    viewer.do(Key("l"))
    drag(viewer, (0.9, 0.5))
    assert count(viewer) == 0


def test_brush_chooses_while_it_is_drawn(viewer: Viewer) -> None:
    select = select_of(viewer)
    select.through = True
    viewer.do(Key("n"))
    rect = viewer.user.layout.active.rect
    x = rect.x + rect.width * 0.4
    y = rect.y + rect.height * 0.5
    viewer.do(PointerMove(x, y), PointerPress(x, y))
    first = count(viewer)
    viewer.do(PointerMove(x + rect.width * 0.2, y))
    second = count(viewer)
    assert 0 < first < second
    assert select.view.state.chosen is None
    # Escape gives the stroke up.
    viewer.do(Key("escape"))
    assert count(viewer) == 0
    drag(viewer, (0.4, 0.5), (0.6, 0.5))
    assert count(viewer) == second
    # Shift and Ctrl keep what is within; undo takes each stroke back.
    drag(viewer, (0.4, 0.5), (0.4, 0.5), mods=SHIFT | CTRL)
    assert count(viewer) == first
    viewer.do(Key("z", mods=CTRL))
    assert count(viewer) == second


def test_chosen_gaussians_have_yellow_dots(viewer: Viewer) -> None:
    select = select_of(viewer)

    def yellow_pixels() -> int:
        viewer.until(lambda: select.dots.mask is select.mask)
        red, green, blue = np.moveaxis(viewer.picture(), -1, 0)
        return int(((red > 180) & (green > 140) & (blue < 100)).sum())

    count_before = yellow_pixels()
    select.invert()
    assert yellow_pixels() > count_before + 1000
    # What is hidden has none.
    select.hide()
    select.invert()
    assert yellow_pixels() == 0


def test_choice_ends_with_another_number_of_gaussians(viewer: Viewer) -> None:
    select = select_of(viewer)
    data = select.view.data
    means = data.renderer.scene().means.numpy()
    select.choose(np.arange(2000) < 500, "new")
    select.hide()
    select.choose(np.arange(2000) < 900, "new")
    viewer.until(partial(data.put, scene_of(means * 1.001)))
    assert (count(viewer), select.view.state.selection.hidden.count) == (900, 500)
    viewer.until(partial(data.put, scene_of(means[:1990])))
    viewer.until(lambda: select.mask is None)
    assert select.view.state.selection == EVERYTHING
    assert "1,990 Gaussians now, not 2,000" in viewer.state.toasts[-1].text
    # Undo does not bring back what is of other Gaussians.
    viewer.do(Key("z", mods=CTRL))
    assert count(viewer) == 0
