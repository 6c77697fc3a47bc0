"""A stream and its outlets: several ways at once, ways that fail, versions that come later than their publish."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import torch

import splatview
from splatview import publishing
from splatview.ipc import Subscriber
from splatview.ipc.errors import SharingError
from splatview.ipc.messages import RingRef
from splatview.ipc.ways import WAYS, ring
from splatview.ipc.ways.base import NotYet, Way
from splatview.ipc.ways.ring import RingReader, RingWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from splatview.ipc import RemoteStream, Stream

RING = WAYS["ring"]


def published(name: str = "image") -> Stream:
    assert publishing._publisher is not None
    return publishing._publisher.streams[name]


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


class Moody(RingWriter):
    """Takes nothing while it is busy."""

    busy = False

    def write(self, *args: Any, **more: Any) -> bool:
        return not type(self).busy and super().write(*args, **more)

    def again(self, *args: Any, **more: Any) -> bool:
        return not type(self).busy and super().again(*args, **more)


def test_a_version_that_found_no_slot_comes_later(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, ring=Way(Moody.make, RING.reader, "", aside=True))
    publish(1)
    with Subscriber() as subscriber:
        shown(subscriber, 1, wait_until)
        monkeypatch.setattr(Moody, "busy", True)
        for value in range(2, 6):
            publish(value)
        time.sleep(0.3)
        assert shown(subscriber, 1, wait_until).version == 5
        monkeypatch.setattr(Moody, "busy", False)
        shown(subscriber, 5, wait_until)
        assert not published().behind()
        wait_until(lambda: not published().late)


def test_a_version_published_while_the_helper_thread_is_at_it_comes_later(wait_until: Callable[..., Any]) -> None:
    publish(1)
    with Subscriber() as subscriber:
        shown(subscriber, 1, wait_until)
        with published()._lock:
            publish(2)  # if it waited, it would do so for ever
        shown(subscriber, 2, wait_until)


class Staying(RingWriter):
    """As those that share in place."""

    due = None

    def forget(self, before: int) -> None:
        pass


class Asking(RingReader):
    """As those that read in place: it says when it would take a version, not what it reads."""

    @classmethod
    def make(cls, ref: Any, source: Any, lease: Callable[[int], None], writable: bool = False) -> Asking:
        return cls(ref, source, lease)

    def __init__(self, ref: Any, source: Any, lease: Callable[[int], None]):
        super().__init__(ref.segment, source, lambda slot: None)
        self.say, self.asks = lease, False

    def ask(self) -> None:
        self.asks = True
        self.say(0)

    def read(self, after: int = 0, attempts: int = 4) -> Any:
        frame = super().read(after, attempts)
        if frame is None:
            self.ask()
        else:
            self.asks = False
            self.say(-1)
        return frame


def test_a_version_that_nobody_asked_for_comes_when_somebody_does(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, in_place=Way(Staying.make, Asking.make, ""))
    monkeypatch.setattr("splatview.ipc.publisher.is_own", lambda run_id: False)
    image = torch.zeros(8, 8, dtype=torch.uint8)
    splatview.publish(image, "image")
    with Subscriber(ways=("in-place",)) as subscriber:
        stream = shown(subscriber, 0, wait_until)
        for value in range(1, 6):  # nothing was read since, so nothing is asked for
            splatview.publish(image.fill_(value), "image")
        assert published()._outlets["in-place"].version <= 3, "the first two prepare it"
        time.sleep(0.3)
        subscriber.poll()
        assert published()._outlets["in-place"].version <= 3, "the helper thread leaves it alone"
        wait_until(lambda: (subscriber.poll(), stream.read(stream.version - 1))[1])
        assert shown(subscriber, 5, wait_until) is stream
        with published().lock:  # the helper thread has gone
            stream.ask()
        image.fill_(6)
        splatview.publish(image, "image")
        frame = stream.read(stream.version - 1)
        assert frame is not None, "who asks before gets the next version at once"
        frame.close()
        assert publishing._publisher is not None
        assert publishing._publisher.board.counters()["dropped_messages"] == 0


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
    publisher = publishing._publisher
    assert publisher is not None
    assert publisher.board.counters()["faults"] == 1


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
        wait_until(lambda: set(published()._outlets) == {"host"})
        assert published().readers == 1
        stream.refuse("cannot be drawn")
        assert stream.fault == stream.fallback
        assert "host: cannot be drawn" in stream.fallback


def test_memory_that_never_comes_is_not_waited_for(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    monkeypatch.setattr("splatview.ipc.remote_stream._PATIENCE", 0.3)
    offer(monkeypatch, device_ring=Way(RING.writer, _never, ""), ring=RING)
    publish(1)
    with Subscriber(ways=tuple(WAYS)) as subscriber:
        stream = shown(subscriber, 1, wait_until)
        assert stream.sharing == "ring"
        assert "device-ring: its memory did not come" in stream.fallback


def test_a_way_that_a_viewer_cannot_take_is_not_asked_for(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, device_ring=Way(_no_writer, _no_reader, ""), ring=RING)
    publish(1)
    with Subscriber(ways=lambda way, gpu: way == "ring") as subscriber:
        stream = shown(subscriber, 1, wait_until)
        assert stream.sharing == "ring"
        assert "cannot open memory of GPU" in stream.fallback
        assert set(published()._outlets) == {"ring"}
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
        assert stream._outlets == {}


def test_the_sum_of_all_viewers_is_kept_when_one_changes_its_way(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, device_ring=Way(RingWriter.make, RingReader.make, "", aside=True), ring=RING)
    publish(1)
    with Subscriber(ways=("device-ring", "ring")) as subscriber:
        stream = shown(subscriber, 1, wait_until)
        assert stream.sharing == "device-ring"
        stream.refuse("no more")
        wait_until(lambda: (subscriber.poll(), stream.sharing == "ring")[-1])
        shown(subscriber, 1, wait_until)
        assert published().readers == 1
        assert set(published()._outlets) == {"ring"}
        publish(2)
        shown(subscriber, 2, wait_until)
    wait_until(lambda: published().readers == 0)


def test_a_viewer_leaves_where_ctrl_c_came_twice_amid_a_publish(wait_until: Callable[..., Any]) -> None:
    with Subscriber() as subscriber:
        publish(1)
        remote, stream = shown(subscriber, 1, wait_until), published()
        stream._lock.acquire()
        stream._broken_off = True  # as the second leaves it, which came while the first was seen to
        remote.release()
        wait_until(lambda: not any(v.opened for v in publishing._publisher._helper._viewers.values()))  # type: ignore
        time.sleep(0.05)  # it gets to the lock
        publish(2)
        wait_until(lambda: stream.readers == 0)
        wait_until(lambda: stream.ref("ring") is None)
        publish(3)
        shown(subscriber, 3, wait_until)


def test_what_is_published_while_the_program_ends_is_no_fault(
        wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with Subscriber() as subscriber:
        publish(1)
        wait_until(lambda: subscriber.poll() and subscriber.streams)
        monkeypatch.setattr(ring, "_PIECE", 16)  # of bytes: this is large
        monkeypatch.setattr(ring, "ending", True)
        subscriber.streams[0].open()
        wait_until(lambda: published().readers)
        publish(2)
        assert publishing._publisher.board.counters()["faults"] == 0  # type: ignore[union-attr]
        monkeypatch.setattr(ring, "ending", False)
        shown(subscriber, 2, wait_until)
