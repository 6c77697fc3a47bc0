"""A stream and its outlets: several ways at once, ways that fail, and live streams."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.reading import newest

import splatview
from splatview.api import session as publishing
from splatview_ipc import Subscriber
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import RingRef
from splatview_ipc.publisher.offered import Offered
from splatview_ipc.transports import WAYS
from splatview_ipc.transports.base import Way

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc import RemoteStream, Stream

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
    monkeypatch.setattr("splatview_ipc.publisher.offered.CPU_WAYS", names)
    for name, way in zip(names, ways.values(), strict=True):
        monkeypatch.setitem(WAYS, name, way)


def _no_writer(*args: Any) -> Any:
    raise SharingError("this GPU has no memory to share")


def _no_reader(*args: Any) -> Any:
    raise SharingError("permission denied")


def test_a_way_that_fails_in_the_trainer_is_given_up_and_said_once(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, device_ring=Way(_no_writer, RING.reader, ""), ring=RING)
    with Subscriber(transports=("device-ring", "ring")) as subscriber, caplog.at_level(logging.WARNING, "splatview"):
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
    assert publishing.begun().control.counters()["faults"] == 1  # type: ignore[union-attr]


def test_what_is_offered_is_settled_from_what_another_thread_changes_meanwhile() -> None:
    offered = Offered("image")

    class Short(dict[str, str]):
        def __contains__(self, way: object) -> bool:
            was = super().__contains__(way)
            if was:  # here the helper thread finds that there is memory again
                self.clear()
                offered.order()
            return was

    offered.short = Short(ring="too little")
    offered.order()
    assert offered.ways == ("ring",)


def test_a_way_that_fails_in_the_viewer_is_followed_by_the_next(
        monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    failing = Way(RING.writer, _no_reader, "")
    offer(monkeypatch, device_ring=failing, ring=failing, host=Way(RING.writer, RING.reader, "", aside=True))
    publish(1)
    with Subscriber(transports=tuple(WAYS)) as subscriber:
        stream = shown(subscriber, 1, wait_until)
        assert stream.sharing == "host"
        assert stream.fallback == "device-ring: permission denied; ring: permission denied"
        assert stream.fault is None
        wait_until(lambda: published().ref("ring") is None)
        assert published().readers == 1
        stream.refuse("cannot be drawn")
        assert stream.fault == stream.fallback
        assert "host: cannot be drawn" in stream.fallback


def test_viewers_in_several_ways_at_once(monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    offer(monkeypatch, ring=RING, host=Way(RING.writer, RING.reader, "", aside=True))
    publish(1)
    with Subscriber(transports=("ring",)) as first, Subscriber(transports=("host",)) as second:
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


# ---- live streams, whose tensors change without another publish


@pytest.mark.parametrize("image", [np.full((9, 7), np.nan, np.float32), np.zeros((7, 9), np.float32).T],
                         ids=["nan", "strided"])
def test_a_live_array_is_copied_when_its_bytes_change_and_only_then(image: np.ndarray) -> None:
    """Also by writes that torch does not count."""
    splatview.publish(image, "image", live=True)
    with Subscriber() as subscriber:
        newest(subscriber, "image")
        version = published().version
        for _ in range(3):
            published().catch_up()  # what the helper thread does thirty times a second
        assert published().version == version
        image[-1, -1] = 1
        published().catch_up()
        assert newest(subscriber, "image", after=version)[2]["image"][-1, -1] == 1
        assert published().version == version + 1
