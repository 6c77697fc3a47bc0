"""The share of the GPU that the viewer takes, and whether a scene's last picture is moved along, by a clock that the
test turns.
"""

from __future__ import annotations

from collections import Counter

import pytest

from splatview_viewer.gpu.costs import SCALES, scaled_size
from splatview_viewer.gpu.governor import SWITCH, WITH_DEPTH, Governor

SIZE = (1280, 720)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def needed_by_others(clock: Clock, share: float = 0.1) -> Governor:
    """A governor of a GPU that another process needs as well."""
    made = Governor(share, clock=clock)
    made.shared = True
    return made


@pytest.fixture
def governor(clock: Clock) -> Governor:
    return needed_by_others(clock)


def draw(
    governor: Governor,
    clock: Clock,
    seconds: float,
    cost: float,
    *,
    every: float = 0.001,
) -> list[float]:
    """The times of the pictures of a viewer that wants one every `every` seconds; each costs `cost` ms."""
    end = clock.now + seconds
    drawn = []
    while clock.now < end:
        if clock.now >= governor.next_picture():
            governor.begin_picture()
            governor.charge(("scene", *SIZE))
            governor.record(("scene", *SIZE), cost)
            drawn.append(clock.now)
        clock.now += every
    return drawn


@pytest.mark.parametrize(("share", "cost"), [(0.02, 40.0), (0.1, 1.35), (0.5, 0.15)])
def test_the_share_holds(clock: Clock, share: float, cost: float) -> None:
    governor = needed_by_others(clock, share)
    drawn = draw(governor, clock, 20.0, cost)
    busy = len(drawn) * cost * 1e-3 / 20.0
    possible = min(share, cost)  # not more than one picture every ms
    assert busy <= share * 1.02 + cost * 1e-3 / 20
    assert busy >= possible * 0.85 - cost * 1e-3 / 20


def test_nothing_is_held_back_while_the_gpu_is_not_shared(
    governor: Governor, clock: Clock
) -> None:
    governor.shared = False
    drawn = draw(governor, clock, 1.0, 30.0)
    assert len(drawn) > 990
    assert governor.scale("scene", SIZE) == 1.0
    assert governor.next_version(1000.0) <= clock.now
    governor.shared = True  # and what was spent until then is not held against it
    assert governor.next_picture() <= clock.now


def test_an_impossible_share_is_told() -> None:
    for share in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="over 0 up to 1"):
            Governor(share)


@pytest.mark.parametrize(("fixed", "full"), [(0.2, 1.2), (0.3, 4.0), (3.0, 20.0)])
def test_the_resolution_while_moving_lets_it_run_smoothly(
    governor: Governor, clock: Clock, fixed: float, full: float
) -> None:
    """A camera that moves for 4 s: at least 50 pictures a second, unless the least resolution is too much."""
    scale = 1.0
    times = []
    used = []
    end = clock.now + 4
    while clock.now < end:
        if clock.now >= governor.next_picture():
            scale = governor.scale("scene", SIZE)
            w, h = scaled_size(SIZE, scale)
            cost = fixed + (full - fixed) * w * h / (SIZE[0] * SIZE[1])
            governor.begin_picture()
            governor.charge(("scene", w, h))
            governor.record(("scene", w, h), cost)
            times.append(clock.now)
            used.append(scale)
        clock.now += 0.001
    rate = sum(t > end - 2 for t in times) / 2
    possible = 100.0 / (
        fixed + (full - fixed) * SCALES[-1] ** 2
    )  # ms of the share in a second, by those of a picture
    assert rate >= min(50.0, possible * 0.9)
    late = used[len(used) // 2 :]
    assert Counter(late).most_common(1)[0][1] >= 0.97 * len(late), (
        "the resolution does not waver"
    )
    if full <= 100 / 60:
        assert set(used) == {1.0}


@pytest.mark.parametrize("brought", [False, True])
def test_a_cost_that_was_once_too_much_is_forgotten(
    governor: Governor, clock: Clock, brought: bool
) -> None:
    """The other process got in between while the first picture was measured."""
    words = (WITH_DEPTH,) if brought else ()
    scales = list[float]()
    governor.record(("scene", *SIZE, *words), 8.0)
    for _ in range(60 * 10):
        if brought:
            scale = governor.scale_with_depth("scene", SIZE)[0]
        else:
            scale = governor.scale("scene", SIZE)
        governor.record(("scene", *scaled_size(SIZE, scale), *words), 0.2 + scale**2)
        scales.append(scale)
        clock.now += 1 / 60
    assert scales[0] < 1.0 == scales[-1]


@pytest.mark.parametrize(
    ("full", "least"), [(40.0, 1.0), (170.0, 0.5), (5000.0, SCALES[-1])]
)
def test_pictures_that_take_long_are_coarser_while_moving_where_nothing_is_shared(
    clock: Clock, full: float, least: float
) -> None:
    governor = Governor(0.1, clock=clock)
    scales = Counter[float]()
    for _ in range(100):
        scale = governor.scale("scene", SIZE)
        took = full * scale**2
        governor.record(("scene", *scaled_size(SIZE, scale)), took)
        clock.now += took / 1e3
        scales[scale] += 1
    assert scales.most_common(1)[0][0] == least


def test_versions_that_come_fast_are_shown_at_a_pace_of_their_own(
    governor: Governor, clock: Clock
) -> None:
    governor.record(("scene", *SIZE), 5.0)
    governor.record(("load",), 0.0)
    loaded = 0
    for _ in range(4000):
        if clock.now >= governor.next_version(180.0):
            governor.begin_picture()
            governor.loads_version()
            governor.charge(("load",), "cuda")
            governor.charge(("scene", *SIZE), "cuda")
            governor.charge(("compose",), "opengl")
            loaded += 1
        clock.now += 0.001
    assert 9.5 <= loaded / 4 <= 10.5


# -- pictures on the screen that show a scene's last one moved --------------------------------------------------

WARP = "warp", *SIZE


def motion(
    governor: Governor,
    clock: Clock,
    seconds: float,
    costs: dict[str, float],
    pace: float = 60.0,
) -> tuple[int, int]:
    """How many pictures on the screen, and how many of the scene, a viewer draws that wants `pace` of them a second."""
    displays = 0
    scenes = 0
    for name, ms in costs.items():
        governor.record((name, *SIZE), ms)
    end = clock.now + seconds
    due = clock.now
    while clock.now < end:
        for name, ms in costs.items():
            governor.record((name, *SIZE), ms)
        if clock.now >= max(due, governor.next_picture()):
            governor.begin_picture()
            due = max(due + 1 / pace, clock.now - 1 / pace)
            governor.moves_along("scene", SIZE, WARP)
            if governor.has_saved(costs["scene"]):
                governor.charge(("scene", *SIZE), "cuda")
                scenes += 1
            for name in costs:
                if name != "scene":
                    governor.charge((name, *SIZE), "opengl")
            displays += 1
        clock.now += 0.001
    return displays, scenes


@pytest.mark.parametrize("scene", [1.5, 20.0])
def test_what_a_scene_costs_does_not_hold_back_the_screen(
    governor: Governor, clock: Clock, scene: float
) -> None:
    costs = {"scene": scene, "warp": 0.3, "panel": 0.1}
    motion(governor, clock, 2.0, costs)
    displays, scenes = motion(governor, clock, 20.0, costs)
    assert displays >= 59 * 20
    left = 100.0 * 20 - displays * (0.4 + SWITCH)
    assert scenes * (scene + SWITCH) == pytest.approx(
        left, rel=0.15, abs=1.2 * scene
    )  # all of the share is used


def seen(governor: Governor, *, scene: float, panel: float = 0.25) -> None:
    """A picture of the scene was shown, and is measured."""
    governor.begin_picture()
    for work, ms, by in (
        (("scene", *SIZE), scene, "cuda"),
        (("compose", *SIZE), panel, "opengl"),
    ):
        governor.record(work, ms)
        governor.charge(work, by)


@pytest.mark.parametrize(
    ("scene", "warp", "expected"),
    [
        (0.5, 0.1, False),
        (1.0, 0.1, False),
        (20.0, 0.1, True),
        (20.0, 3.0, False),
        (2.0, 0.9, False),
    ],
)
def test_a_picture_is_moved_only_where_that_is_clearly_cheaper(
    governor: Governor, clock: Clock, scene: float, warp: float, expected: bool
) -> None:
    seen(governor, scene=scene, panel=0.05)
    if scene > 1:
        assert governor.moves_along("scene", SIZE, WARP), "what is not known is tried"
    for _ in range(3):
        governor.record(WARP, warp)
        clock.now += 0.02
        governor.moves_along("scene", SIZE, WARP)
    assert governor.moves_along("scene", SIZE, WARP) is expected
    governor.shared = False
    assert not governor.moves_along("scene", SIZE, WARP)
