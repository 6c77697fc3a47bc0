"""Whether the governor has a scene's last picture moved along, by a clock that the test turns."""

from __future__ import annotations

import pytest

from splatview.viewer_app.governor import BROUGHT, Governor

SIZE = (1280, 720)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def governor(clock: Clock) -> Governor:
    g = Governor(0.1, clock=clock)
    g.shared = True
    return g


WARP = "warp", *SIZE


def costs(governor: Governor, *, scene: float, warp: float | None = None, panel: float = 0.25) -> None:
    """A picture of the scene was shown, and all is measured but perhaps the moving of one."""
    governor._samples.clear()
    governor.begin_picture()
    for work, ms, who in ((("scene", *SIZE), scene, "cuda"), (("compose", *SIZE), panel, "opengl")):
        governor.took(work, ms)
        governor.gives(work, who)
    if warp is not None:
        governor.took(WARP, warp)
        governor._moving_tried_at = governor._clock()


@pytest.mark.parametrize(("share", "scene", "warp", "along"), [
    (0.1, 1.2, 1.7, False),  # to move it costs more than to draw it
    (0.1, 6.0, 0.1, True),
    (0.1, 6.0, 1.7, False),  # it is cheaper, and yet there is no time for so many
    (0.3, 12.0, 1.7, True),
    (0.03, 1.2, 0.1, False),  # not even for the turns to OpenGL
    (0.03, 20.0, 0.1, False),
    (0.1, 0.2, 0.1, False),  # each picture can be drawn
    (1.0, 50.0, 0.1, False),  # no limit
])
def test_a_picture_is_moved_only_where_that_is_better(clock: Clock, share: float, scene: float, warp: float,
                                                      along: bool) -> None:
    governor = Governor(share, clock=clock)
    governor.shared = True
    costs(governor, scene=scene, warp=warp)
    assert governor.moves_along("scene", SIZE, WARP) is along
    clock.now += 0.5
    if warp < scene / 4:  # otherwise it may be measured again
        assert governor.moves_along("scene", SIZE, WARP) is along


def test_what_it_costs_to_move_a_picture_is_tried_one_at_a_time(governor: Governor, clock: Clock) -> None:
    costs(governor, scene=6.0)
    assert governor.moves_along("scene", SIZE, WARP)
    governor.gives(WARP, "opengl")
    for _ in range(5):
        assert not governor.moves_along("scene", SIZE, WARP)  # how long it took is not known yet
    governor.took(WARP, 3.0)
    for _ in range(5):
        assert not governor.moves_along("scene", SIZE, WARP)
    clock.now += 6.0
    assert governor.moves_along("scene", SIZE, WARP)  # another process may have been in between
    governor.gives(WARP, "opengl")
    governor.took(WARP, 0.2)
    for _ in range(5):
        assert governor.moves_along("scene", SIZE, WARP)


def test_where_it_can_never_be_better_nothing_is_tried(clock: Clock) -> None:
    governor = Governor(0.03, clock=clock)
    governor.shared = True
    costs(governor, scene=1.2)
    for _ in range(100):
        clock.now += 1.0
        assert not governor.moves_along("scene", SIZE, WARP)


def test_who_moves_pictures_with_cuda_pays_for_turning_to_it(governor: Governor) -> None:
    costs(governor, scene=5.0, warp=0.55)
    assert governor.moves_along("scene", SIZE, WARP, "opengl")
    costs(governor, scene=5.0, warp=0.55)
    governor._moves = False
    assert not governor.moves_along("scene", SIZE, WARP, "cuda")


@pytest.mark.parametrize("share", [0.03, 0.1])
@pytest.mark.parametrize("warp", [0.1, 1.7, 20.0])
def test_the_screen_never_waits_longer_than_for_the_scene_itself(clock: Clock, share: float, warp: float) -> None:
    governor = Governor(share, clock=clock)
    governor.shared = True
    for _ in range(4):
        governor.gives(WARP, "opengl")
    governor.took(WARP, warp)  # all of them at once
    assert governor.next_display() <= governor.next_picture()


def test_pictures_with_depth_are_paid_for_as_such(governor: Governor) -> None:
    costs(governor, scene=4.0, warp=0.1)
    assert governor.moves_along("scene", SIZE, WARP, "cuda")
    plain = governor.scale_later("scene", SIZE)
    governor.took(("scene", *SIZE, BROUGHT), 1.0)
    assert governor.scale_later("scene", SIZE) > plain
