"""A stream and its outlets: several ways at once, ways that fail, versions that come later than their publish."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.wait import PATIENCE

import splatview
from splatview import publishing
from splatview.ipc import Subscriber
from splatview.ipc.errors import SharingError
from splatview.ipc.messages import RingRef
from splatview.ipc.ways import WAYS
from splatview.ipc.ways.base import NotYet, Way
from splatview.ipc.ways.ring import RingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.ipc import RemoteStream, Stream

RING = WAYS["ring"]


def published(name: str = "image") -> Stream:
    publisher = publishing.begun()
    assert publisher is not None
    return publisher.streams[name]


def shown(subscriber: Subscriber, value: int, wait_until: Callable[..., Any]) -> RemoteStream:
    """The stream, once a viewer sees this value of it."""
    last: list[Any] = []

    def sees() -> RemoteStream | None:
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            frame = stream.read()
            if frame is not None:
                with frame:
                    last[:] = [int(frame.tensors["image"].to_float32().max())]
                    if last == [value] and frame.intact():
                        return stream
        return None

    return wait_until(sees, what=f"{value}, not {last}")


def publish(value: int) -> None:
    splatview.publish(torch.full((8, 8), value, dtype=torch.uint8), "image")


def offer(monkeypatch: pytest.MonkeyPatch, **ways: Way) -> None:
    """Let CPU tensors go by these ways, the best first."""
    names = tuple(name.replace("_", "-") for name in ways)
    monkeypatch.setattr("splatview.ipc.offered.CPU_WAYS", names)
    for name, way in zip(names, ways.values(), strict=True):
        monkeypatch.setitem(WAYS, name, way)


class Busy(RingWriter):
    """Takes nothing until the helper thread has tried as well, and the test lets it."""

    free = threading.Event()
    tried = threading.Event()
    """Set when the helper thread has tried."""

    def write(self, *args: Any, **more: Any) -> bool:
        return self._may() and super().write(*args, **more)

    def again(self, *args: Any, **more: Any) -> bool:
        return self._may() and super().again(*args, **more)

    def _may(self) -> bool:
        if not self.free.is_set() and threading.current_thread() is not threading.main_thread():
            self.tried.set()
        return self.free.is_set()


def test_a_version_that_found_no_slot_comes_later(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, ring=Way(Busy.make, RING.reader, "", aside=True))
    Busy.free.set()
    publish(1)
    with Subscriber() as subscriber:
        shown(subscriber, 1, wait_until)
        Busy.free.clear()
        Busy.tried.clear()
        for value in range(2, 6):
            publish(value)
        assert Busy.tried.wait(PATIENCE)
        assert shown(subscriber, 1, wait_until).version == 5
        Busy.free.set()
        shown(subscriber, 5, wait_until)
        assert not published().behind()


def test_a_version_published_while_the_helper_thread_is_at_it_comes_later(wait_until: Callable[..., Any]) -> None:
    publish(1)
    with Subscriber() as subscriber:
        shown(subscriber, 1, wait_until)
        with published().lock:
            publish(2)  # if it waited, it would do so for ever
        shown(subscriber, 2, wait_until)


def _no_writer(*args: Any) -> Any:
    raise SharingError("this GPU has no memory to share")


def _no_reader(*args: Any) -> Any:
    raise SharingError("permission denied")


def _never(*args: Any) -> Any:
    raise NotYet


def test_a_way_that_fails_in_the_trainer_is_given_up_and_said_once(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, device_ring=Way(_no_writer, RING.reader, ""), ring=RING)
    with Subscriber(ways=("device-ring", "ring")) as subscriber, caplog.at_level(logging.WARNING, "splatview"):
        publish(1)
        stream = shown(subscriber, 1, wait_until)
        for value in range(2, 20):
            publish(value)
        shown(subscriber, 19, wait_until)
        assert stream.sharing == "ring"
        assert stream.info.ways == ("ring",)
        assert stream.info.why == stream.fallback == "device-ring: this GPU has no memory to share"
        assert stream.fault is None
    assert len(caplog.records) == 1
    assert "cannot be shared by device-ring, and goes by ring" in caplog.text
    assert publishing.begun().board.counters()["faults"] == 1  # type: ignore[union-attr]


def test_a_way_that_fails_in_the_viewer_is_followed_by_the_next(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    failing = Way(RING.writer, _no_reader, "")
    offer(monkeypatch, device_ring=failing, ring=failing, host=Way(RING.writer, RING.reader, "", aside=True))
    publish(1)
    with Subscriber(ways=tuple(WAYS)) as subscriber:
        stream = shown(subscriber, 1, wait_until)
        assert stream.sharing == "host"
        assert stream.fallback == "device-ring: permission denied; ring: permission denied"
        assert stream.fault is None
        wait_until(lambda: published().ref("ring") is None)
        assert published().readers == 1
        stream.refuse("cannot be drawn")
        assert stream.fault == stream.fallback
        assert "host: cannot be drawn" in stream.fallback


def test_a_way_that_a_viewer_cannot_take_is_not_asked_for(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, device_ring=Way(_no_writer, _no_reader, ""), ring=RING)
    publish(1)
    with Subscriber(ways=lambda way, gpu: way == "ring") as subscriber:
        stream = shown(subscriber, 1, wait_until)
        assert stream.sharing == "ring"
        assert "cannot open memory of GPU" in stream.fallback
        assert published().ref("device-ring") is None
    with Subscriber(ways=()) as subscriber:
        def refused() -> str | None:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                return stream.fault
            return None

        assert "ring: " in wait_until(refused)


def test_viewers_in_several_ways_at_once(monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, ring=RING, host=Way(RING.writer, RING.reader, "", aside=True))
    publish(1)
    with Subscriber(ways=("ring",)) as first, Subscriber(ways=("host",)) as second:
        a = b = None
        for value in range(1, 20):
            publish(value)
            a, b = shown(first, value, wait_until), shown(second, value, wait_until)
            assert (a.sharing, b.sharing) == ("ring", "host")
        assert a is not None and b is not None
        stream = published()
        assert stream.readers == 2
        refs = {way: stream.ref(way) for way in ("ring", "host")}
        assert all(isinstance(ref, RingRef) for ref in refs.values())
        a.release()
        wait_until(lambda: stream.readers == 1)
        assert stream.ref("ring") is None
        assert stream.ref("host") is refs["host"], "the other goes on undisturbed"
        publish(20)
        shown(second, 20, wait_until)
        b.release()
        wait_until(lambda: stream.readers == 0)
        assert stream.ref("host") is None


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_training_and_its_helper_take_turns_anywhere(hasty: None, wait_until: Callable[..., Any]) -> None:
    """Publishing, describing anew, viewers that come and go, late copies, growing rings, `log` and `close`: whatever
    the helper thread is at, each frame shows what its version was given, and the newest arrives."""
    wrong: list[Any] = []
    stop = threading.Event()

    def view() -> None:
        try:
            while not stop.is_set():
                with Subscriber(client="threads") as subscriber:
                    for _ in range(30):
                        subscriber.poll()
                        for stream in subscriber.streams:
                            stream.open()
                            frame = stream.read()
                            if frame is None or stream.info.kind != "image":
                                continue
                            with frame:
                                values = frame.tensors["image"].to_float32()
                                if frame.intact() and not (values == frame.meta["step"] % 200).all():
                                    wrong.append((frame.version, frame.meta["step"], values.min(), values.max()))
        except Exception as e:
            wrong.append(e)

    viewer = threading.Thread(target=view)
    viewer.start()
    try:
        for step in range(1, 211):
            size = 8 + step // 50 % 4 * 8
            splatview.publish(torch.full((size, size, 3), step % 200, dtype=torch.uint8), "image", step=step)
            splatview.log(step, loss=1 / step)
            if step == 150:
                splatview.close()
    finally:
        stop.set()
        viewer.join()
    assert not wrong
    splatview.log(211, loss=1)
    publish(77)
    with Subscriber() as subscriber:
        def newest() -> bool:
            subscriber.poll()
            for stream in subscriber.streams:
                if stream.name == "image" and stream.run.alive:
                    stream.open()
                    if (frame := stream.read()) is not None:
                        with frame:
                            return int(frame.tensors["image"].to_float32().max()) == 77 and frame.intact()
            return False

        wait_until(newest)
