"""What `splatview.frames` decides without a GPU: which way to read, and when a frame that one still reads is let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from splatview.follower import _PENDING, Follower
from splatview.frame import Held
from splatview.ipc.messages import StreamInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

STAYS, NEW = ("in-place", "device-ring", "host"), ("device-ring", "in-place", "host")
COPIED, SHARED, CPU = ("device-ring", "host"), ("in-place", "host"), ("ring",)


@pytest.mark.parametrize(("kind", "offered", "in_place", "taken"), [
    ("image", CPU, None, ("ring",)), ("gaussians", CPU, None, ("ring",)), ("image", CPU, False, ("ring",)),
    ("image", STAYS, None, ("device-ring", "in-place", "host")), ("image", NEW, None, NEW),
    ("overlay", STAYS, None, ("device-ring", "in-place", "host")),
    ("image", COPIED, None, COPIED), ("image", SHARED, None, SHARED), ("gaussians", STAYS, None, STAYS),
    ("gaussians", COPIED, None, COPIED), ("image", STAYS, True, ("in-place",)), ("gaussians", NEW, True, ("in-place",)),
    ("gaussians", STAYS, False, COPIED), ("image", NEW, False, COPIED), ("image", SHARED, False, ("host",)),
])
def test_the_way_that_is_taken(kind: Any, offered: Any, in_place: bool | None, taken: tuple[str, ...]) -> None:
    follower = Follower("it", None, in_place)
    info = StreamInfo(0, "it", kind, (4, 4), "uint8", "cpu", offered)
    assert follower._order(info) == taken
    follower.close()


class Mark:
    """An event of a GPU."""

    def __init__(self) -> None:
        self.come = False

    def query(self) -> bool:
        return self.come

    def synchronize(self) -> None:
        self.come = True


class Lent:
    """A frame of `splatview.ipc`."""

    def __init__(self) -> None:
        self.closed = False

    def intact(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class Used(Held):
    """A frame on which the GPU is at work."""

    def __init__(self) -> None:
        self.lent, self.marks = Lent(), [Mark(), Mark()]
        super().__init__(self.lent, 0, "a-run")  # type: ignore[arg-type]
        self.streams.add(0)

    def _marks(self) -> Any:
        return self.marks


@pytest.fixture
def follower() -> Iterator[Follower]:
    made = Follower("it", None, None)
    yield made
    made.close()


def test_a_frame_is_let_go_when_all_work_on_it_has_ended(follower: Follower) -> None:
    used = follower._current = Used()
    follower.give_back()
    assert used.closed, "the caller has it no more"
    assert not used.lent.closed, "the GPU has"
    used.marks[0].come = True
    follower.give_back()
    assert not used.lent.closed
    used.marks[1].come = True
    follower.give_back()
    assert used.lent.closed


def test_no_frame_is_taken_while_the_gpu_is_at_work_on_too_many(follower: Follower) -> None:
    first = follower._current = Used()
    follower.give_back()
    follower._look = lambda now: pytest.fail("it went on")  # type: ignore[method-assign]
    follower._polled = 1e18
    for _ in range(_PENDING - 1):
        follower._current = Used()
        follower.give_back()
    follower.stream = object()  # type: ignore[assignment]
    assert follower._take() is None, "and asks no stream"
    follower.stream = None
    for mark in first.marks:
        mark.come = True
    assert follower._take() is None
    assert len(follower._pending) == _PENDING - 1
    assert first.lent.closed


def test_closing_waits_for_the_work_that_is_queued() -> None:
    follower = Follower("it", None, None)
    used = follower._current = Used()
    follower.close()
    assert used.lent.closed
    assert all(mark.come for mark in used.marks)
    follower.close()
