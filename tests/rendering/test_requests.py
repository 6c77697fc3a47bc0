"""Viewers' requests are served in turn, each viewer's newest one."""

from __future__ import annotations

from splatview.rendering.requests import MAX_WAITING, RequestQueue
from splatview_ipc.control.messages import Draw, DrawnCamera

CAMERA = DrawnCamera(
    width=1, height=1, viewmat=tuple(range(16)), K=tuple(map(float, range(9)))
)


def draw(viewer: str, request_number: int) -> Draw:
    return Draw(index=0, viewer=viewer, number=request_number, camera=CAMERA)


def taken_requests(queue: RequestQueue) -> list[tuple[str, int]]:
    requests = []
    while queue:
        request = queue.take()
        assert request is not None
        requests.append((request.viewer, request.number))
    return requests


def test_newer_request_keeps_its_viewers_turn() -> None:
    queue = RequestQueue()
    queue.put(draw("a", 1), 0.0)
    queue.put(draw("b", 7), 0.1)
    queue.put(draw("a", 3), 0.2)
    queue.put(draw("a", 2), 0.3)
    assert taken_requests(queue) == [("a", 3), ("b", 7)]
    assert queue.take() is None
    queue.put(draw("b", 8), 0.4)
    queue.clear()
    assert not queue


def test_what_viewers_do_not_repeat_is_forgotten() -> None:
    queue = RequestQueue()
    queue.put(draw("gone", 1), 0.0)
    queue.put(draw("b", 1), 11.0)
    assert taken_requests(queue) == [("b", 1)]
    for viewer in range(MAX_WAITING + 1):
        queue.put(draw(f"v{viewer}", 1), 12.0)
    assert taken_requests(queue)[0] == ("v1", 1)
