"""A stream and its viewer, turned by hand: one write path, transports that fail, short
memory, live streams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.image_stream import image, published, shows
from support.pair import Pair
from support.transports import RING, offer, reader_of
from support.wait import PATIENCE_S

from splatview.adapters.series import MEMORY, SCALARS, Samples, SeriesTable
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.sockets import wait_readable
from splatview_ipc.kinds.memory import MEMORY_COLUMNS
from splatview_ipc.publisher.stream import Stream
from splatview_ipc.shm import segment
from splatview_ipc.subscriber import remote_stream
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.transports import TRANSPORTS, Transport


def fit_all_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every transport fit the viewer."""

    def unfit(*args: Any) -> str:
        return ""

    monkeypatch.setattr(RemoteRun, "unfit", unfit)


def _no_writer(*args: Any) -> Any:
    raise SharingError("this GPU has no memory to share")


def _no_reader(*args: Any) -> Any:
    raise PermissionError("permission denied")


# ---- publishing


def test_versions_that_come_too_fast_are_left_and_the_last_one_is_shown(
    pair: Pair,
) -> None:
    pair.publish(image(0))
    shows(pair, 0)
    copies_before = pair.counted("copies")
    # All of these come at one moment of the pair's clock.
    for value in range(1, 101):
        pair.publish(image(value))
    assert published(pair).is_behind()
    assert shows(pair, 100) == 101
    assert pair.counted("copies") <= copies_before + 20
    assert not published(pair).is_behind()


class SteadyTrainer:
    """Publishes a thousand images a second; its helper turns when it is due."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.helper_calls = 0
        """Turns and looks of the helper."""
        pair.publish(image(0))
        shows(pair, 0)
        self._due = pair.now

    def publish_for(self, seconds: float) -> None:
        ends = self.pair.now + seconds
        while self.pair.now < ends:
            self.pair.now += 0.001
            self.pair.publish(image(1))
            if self.pair.now >= self._due:
                self._turn_helper()

    def _turn_helper(self) -> None:
        due = self.pair.turn_helper()
        assert due is not None
        self._due = due
        self.helper_calls += 1

    def seconds_behind(self) -> float:
        """Turn the helper until the viewer has the last version; return how long."""
        stopped_at = self.pair.now
        stream = published(self.pair)
        assert stream.is_behind()
        while stream.is_behind():
            self.pair.now = self._due
            self._turn_helper()
        return self.pair.now - stopped_at


def test_the_helper_looks_seldom_at_a_steady_trainer_but_sees_it_stop(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = SteadyTrainer(pair)
    turn_times: list[float] = []
    turn = published(pair).turn

    def noted_turn(now: float) -> float | None:
        turn_times.append(now)
        return turn(now)

    monkeypatch.setattr(published(pair), "turn", noted_turn)
    trainer.publish_for(3)
    assert trainer.helper_calls < 12
    assert len(turn_times) < 4
    assert trainer.seconds_behind() < 0.51
    # The end of a burst is not waited for as long.
    trainer.publish_for(0.02)
    assert trainer.seconds_behind() <= 0.1 + 1e-6


@pytest.mark.parametrize("stops_after", [2.9, 3.1, 3.3])
def test_a_viewer_asks_for_the_last_version_of_a_trainer_that_has_stopped(
    pair: Pair, stops_after: float
) -> None:
    trainer = SteadyTrainer(pair)
    trainer.publish_for(stops_after)
    stopped_at = pair.now
    pair.viewer.poll(pair.now)
    while published(pair).is_behind():
        pair.now += 0.01
        pair.viewer.poll(pair.now)
        pair.turn_helper()
    assert pair.now - stopped_at < 0.13
    assert pair.counted("dropped_messages") == 0


def test_an_interrupt_amid_a_write_is_repaired_by_the_next_call(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.publish(image(0))
    shows(pair, 0)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(
            "splatview_ipc.transports.cpu_ring.CpuRingWriter.begin", interrupted
        )
        pair.now += 1
        with pytest.raises(KeyboardInterrupt):
            pair.publish(image(1))
    pair.now += 1
    pair.publish(image(2))
    shows(pair, 2)
    assert not pair.faults


def test_frames_of_a_new_size_take_a_new_ring(pair: Pair) -> None:
    for side in (8, 300, 2, 1000, 16):
        pair.publish(image(side % 251, side))
        _, _, arrays = pair.newest(after=published(pair).version - 1)
        assert arrays["image"].shape == (side, side)
        assert (arrays["image"] == side % 251).all()
    pair.until(lambda: pair.stream().shape == (16, 16))
    assert not pair.faults


def test_a_ring_that_is_too_small_is_replaced_without_a_grace(pair: Pair) -> None:
    """Make the helper sleep, as it does while the trainer is busy."""
    pair.publish(image(0))
    shows(pair, 0)
    for _ in range(20):
        pair.publish(image(1))
    pair.turn_helper()
    assert published(pair).is_behind()
    pair.now += 0.01
    pair.publish(image(2, 300))
    assert wait_readable(pair.publisher.helper.fds(), 0), "it was not woken"
    pair.turn_helper()
    pair.now += 0.01
    pair.publish(image(3, 300))
    assert not published(pair).is_behind()


def test_a_stream_that_is_closed_and_opened_at_once_is_shown_again(pair: Pair) -> None:
    pair.publish(image(5))
    shows(pair, 5)
    pair.stream().release()
    pair.stream().open()
    assert shows(pair, 5) == 1


def test_a_table_that_grows_is_shown_without_a_fault(pair: Pair) -> None:
    """All of its versions have one layout, whatever their size."""
    table = SeriesTable()
    samples = Samples()
    scalars = pair.publisher.stream("scalars", "scalars")
    scalars.describe(SCALARS)
    memory = pair.publisher.stream("memory", "memory")
    memory.describe(MEMORY)
    memory_meta = {"device": "cpu", "gpu": "", "total": 0, "hz": 1.0}
    count = 0
    rings = set()
    for new_rows in (10, 1000, 1000, 2000, 6000):
        table.add({"loss": [(float(i), 1.0, 2.0) for i in range(new_rows)]}, new_rows)
        for i in range(new_rows):
            samples.add([float(i)] * len(MEMORY_COLUMNS))
        count += new_rows
        scalars.publish((table.tensors(), {"step": count}))
        memory.publish((samples.tensors(), {**memory_meta, "count": count}))
        _, meta, arrays = pair.newest("scalars", scalars.version - 1)
        assert (len(arrays["rows"]), meta["step"]) == (count, count)
        _, meta, arrays = pair.newest("memory", memory.version - 1)
        assert arrays["samples"][-1, 0] == new_rows - 1
        assert meta["count"] == count
        rings.add(scalars.offer("ring"))
    assert not pair.faults
    assert len(rings) == 4, "a ring holds more than what it was made for"


# ---- threads that come between


class SlowTransport:
    """A transport whose writer stays amid a write until it may go on."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.may_go_on = threading.Event()
        self.faults: list[str] = []

    def make(self, tensors: Any, growing: bool) -> Any:
        writer = RING.writer(tensors, growing)
        write = writer.write
        close = writer.close

        def waiting(*args: Any, **options: Any) -> bool:
            self.inside.set()
            assert self.may_go_on.wait(PATIENCE_S)
            self.inside.clear()
            return write(*args, **options)

        def closing() -> None:
            if self.inside.is_set():
                self.faults.append("closed amid a write")
            close()

        writer.write = waiting  # type: ignore[method-assign]
        writer.close = closing  # type: ignore[method-assign]
        return writer


@pytest.fixture
def slow(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> SlowTransport:
    transport = SlowTransport()
    offer(monkeypatch, pair, ring=Transport(transport.make, RING.reader, ""))
    return transport


def while_the_helper_writes(
    pair: Pair, slow: SlowTransport, call: Callable[[], object]
) -> Stream:
    """Call `call` while another thread writes a late copy of the stream."""
    pair.publish(image(1))
    stream = published(pair)
    stream.open("ring")
    helper = threading.Thread(target=stream.turn, args=(pair.now + 1,))
    helper.start()
    assert slow.inside.wait(PATIENCE_S)
    try:
        call()
    finally:
        slow.may_go_on.set()
        helper.join()
    return stream


def test_an_interrupt_leaves_alone_what_another_thread_writes(
    pair: Pair, slow: SlowTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def publish() -> None:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(pair.publisher.helper, "wake", interrupted)
            pair.publish(image(2))

    stream = while_the_helper_writes(pair, slow, publish)
    assert not slow.faults
    stream.release("ring")
    pair.now += 1
    pair.publish(image(3))
    shows(pair, 3)
    assert not pair.faults


def test_publishing_another_size_waits_for_no_writer(
    pair: Pair, slow: SlowTransport
) -> None:
    def publish() -> None:
        pair.publish(image(2, 16))
        pair.publish(image(3, 500))

    stream = while_the_helper_writes(pair, slow, publish)
    stream.release("ring")
    assert shows(pair, 3) == 3


def test_releasing_a_value_waits_for_no_writer(pair: Pair, slow: SlowTransport) -> None:
    def clear() -> None:
        published(pair).clear()

    stream = while_the_helper_writes(pair, slow, clear)
    stream.turn(pair.now + 2)
    assert stream.offer("ring") is None
    assert not slow.faults
    assert not pair.faults
    stream.release("ring")
    pair.publish(image(3))
    shows(pair, 3)


def test_a_stream_is_announced_while_transports_fail(pair: Pair) -> None:
    """Another thread reads what the helper thread changes."""
    pair.publish(image(1))
    stream = published(pair)
    stream.open("ring")
    ended = threading.Event()
    infos: list[Any] = []

    def read_infos() -> None:
        while not ended.is_set():
            infos.append(stream.info)
            del infos[:-10]

    reader = threading.Thread(target=read_infos)
    reader.start()
    try:
        for i in range(300):
            stream.turn(pair.now + i)
            pair.publisher.stream(f"other {i % 200}", "image")
    finally:
        ended.set()
        reader.join()
    assert infos[-1].name == "image"


def test_what_is_published_into_a_run_that_has_ended_is_dropped(pair: Pair) -> None:
    """As another thread does that has just looked its stream up."""
    pair.publish(image(1))
    shows(pair, 1)
    stream = published(pair)
    pair.publisher.close()
    stream.publish(((image(2),), {"layout": "HW"}))
    stream.turn(pair.now + 1)
    stream.release("ring")
    stream.clear()
    pair.publisher.fault(OSError("later"))
    assert not stream.is_behind()
    assert stream.offer("ring") is None
    assert not pair.publisher.control.paused


def test_a_signal_that_closes_the_run_amid_a_publish_harms_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler runs in the very thread that is publishing."""
    closed: list[bool] = []

    def make(tensors: Any, growing: bool) -> Any:
        writer = RING.writer(tensors, growing)
        write = writer.write
        close = writer.close

        def interrupted(*args: Any) -> bool:
            if args[3] == 2:
                pair.publisher.close()
                assert not closed, "closed amid a write"
            return write(*args)

        def closing() -> None:
            closed.append(True)
            close()

        writer.write = interrupted  # type: ignore[method-assign]
        writer.close = closing  # type: ignore[method-assign]
        return writer

    offer(monkeypatch, pair, ring=Transport(make, RING.reader, ""))
    pair.publish(image(1))
    shows(pair, 1)
    pair.now += 1
    stream = published(pair)
    pair.publish(image(2))
    assert closed == [True]
    assert stream.offer("ring") is None
    pair.publish(image(3))
    assert not pair.faults


# ---- late viewers


def test_a_late_copy_of_tensors_amid_a_write_is_marked(pair: Pair) -> None:
    picture = image(7)
    pair.publish(picture)
    stream = published(pair)
    stream.open("ring")
    pair.now += 1
    stream.turn(pair.now)
    offered = stream.offer("ring")
    assert offered is not None
    reader = reader_of("ring", offered[0])

    def read() -> tuple[int, int, bool]:
        frame = reader.read()
        assert frame is not None
        return (
            frame.version,
            int(frame.tensors["image"].to_float32().max()),
            frame.confirmed,
        )

    assert read() == (1, 7, True)
    # This operation ends after the copy, and may have begun before it.
    picture.fill_(8)
    stream.turn(pair.now + 1)
    assert read() == (2, 8, False)
    picture.fill_(9)
    stream.turn(pair.now + 2)
    assert read() == (2, 8, False), "what changes without a publish is not followed"
    pair.now += 3
    pair.publish(picture)
    assert read() == (3, 9, True)
    reader.close()


def test_the_first_viewer_of_a_busy_run_waits_for_its_next_publish(pair: Pair) -> None:
    """The tensors may be amid a write until then."""
    pair.publish(image(1))
    stream = published(pair)
    stream.open("ring")
    stream.turn(pair.now + 0.05)
    assert (stream.is_behind(), pair.counted("copies")) == (True, 0)
    pair.publish(image(2))
    assert (stream.is_behind(), pair.counted("copies")) == (False, 1)


# ---- transports that fail


def test_a_transport_that_fails_in_the_trainer_is_given_up_and_said_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(
        monkeypatch, pair, device_ring=Transport(_no_writer, RING.reader, ""), ring=RING
    )
    fit_all_transports(monkeypatch)
    pair.publish(image(1))
    shows(pair, 1)
    for value in range(2, 6):
        pair.publish(image(value))
        pair.pump()
    shows(pair, 5)
    stream = pair.stream()
    assert (stream.sharing, stream.info.transports) == ("ring", ("ring",))
    assert (
        stream.info.reasons
        == stream.fallback
        == "device-ring: this GPU has no memory to share"
    )
    assert stream.fault is None
    assert ["goes by ring instead of device-ring" in str(e) for e in pair.faults] == [
        True
    ]


def _broken_writer(*args: Any) -> Any:
    raise RuntimeError("CUDA error: out of memory\nCompile with ...")


class _BreaksAtWrite:
    def __init__(self, *args: Any) -> None:
        self.writer = RING.writer(*args)
        self.ref = self.writer.ref
        self.note = ""
        self.fits = self.writer.fits
        self.holds = self.writer.holds
        self.close = self.writer.close

    def write(self, *args: Any) -> bool:
        raise RuntimeError("CUDA error: out of memory\nCompile with ...")

    def turn(self, now: float) -> None:
        return None


@pytest.mark.parametrize("breaking", [_broken_writer, _BreaksAtWrite])
def test_a_transport_is_given_up_whatever_its_error_is(
    breaking: Any, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(
        monkeypatch, pair, device_ring=Transport(breaking, RING.reader, ""), ring=RING
    )
    fit_all_transports(monkeypatch)
    for value in range(1, 5):
        pair.publish(image(value))
        shows(pair, value)
    assert pair.stream().sharing == "ring"
    reason = "RuntimeError: CUDA error: out of memory"
    assert pair.stream().info.why == (("device-ring", reason),)
    assert len(pair.faults) == 1
    assert reason in str(pair.faults[0])


def test_a_reason_keeps_its_own_semicolons(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "no memory (12 MB left; 40 are needed); tried; ring: again"

    def no_writer(*args: Any) -> Any:
        raise SharingError(reason)

    offer(monkeypatch, pair, ring=Transport(no_writer, RING.reader, ""))
    pair.publish(image(1))
    stream = pair.stream()
    assert pair.until_fault(stream) == f"ring: {reason}"
    assert stream.fallback == f"ring: {reason}"


def test_a_transport_that_fails_in_the_viewer_is_followed_by_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Transport(RING.writer, _no_reader, "")
    offer(monkeypatch, pair, device_ring=failing, ring=failing, host=RING)
    monkeypatch.setattr(remote_stream, "TRANSPORTS", TRANSPORTS)
    fit_all_transports(monkeypatch)
    pair.publish(image(1))
    shows(pair, 1)
    stream = pair.stream()
    assert stream.sharing == "host"
    assert stream.fallback == (
        "device-ring: PermissionError: permission denied; "
        "ring: PermissionError: permission denied"
    )
    assert stream.fault is None
    pair.until(lambda: published(pair).offer("ring") is None)
    assert published(pair).readers == 1
    stream.refuse("cannot be drawn")
    assert stream.fault == stream.fallback
    assert "host: cannot be drawn" in stream.fallback


def test_viewers_by_several_transports_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, pair, ring=RING, host=RING)
    second_viewer = pair.attach(transports=("host",))
    for value in range(1, 5):
        pair.publish(image(value))
        shows(pair, value)
        shows(pair, value, viewer=second_viewer)
    stream = published(pair)
    assert stream.readers == 2
    host_offer = stream.offer("host")
    pair.stream().release()
    pair.until_read(stream)
    assert stream.offer("ring") is None
    assert stream.offer("host") == host_offer, "the other goes on undisturbed"
    pair.publish(image(9))
    shows(pair, 9, viewer=second_viewer)


def test_memory_that_is_short_is_said_and_comes_when_it_is_free(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes = 1 << 20

    def available_bytes() -> int:
        return free_bytes

    monkeypatch.setattr(segment.free_memory, "available_bytes", available_bytes)
    pair.publish(image(3, 2000))
    stream = pair.stream()
    assert "not enough memory" in pair.until_fault(stream)
    for _ in range(30):
        pair.pump()
    assert len(pair.faults) == 1, "said once, however often it is tried"
    free_bytes = 1 << 40
    shows(pair, 3)
    assert stream.fault is None


# ---- live streams, whose tensors change without another publish


@pytest.mark.parametrize(
    "picture", [torch.zeros(9, 7), torch.zeros(7, 9).t()], ids=["plain", "strided"]
)
def test_a_live_tensor_is_copied_when_its_values_change_and_only_then(
    pair: Pair, picture: torch.Tensor
) -> None:
    stream = pair.publisher.stream("image", "image")
    pair.publish(picture)
    stream.describe(stream.layout, live=True)  # type: ignore[arg-type]
    pair.newest()
    version = stream.version
    for _ in range(5):
        due = pair.turn_helper()
        assert due is not None, "it is looked at again"
        pair.now = due
    assert stream.version == version
    picture.numpy()[-1, -1] = 1  # which torch does not count
    assert pair.newest(after=version)[2]["image"][-1, -1] == 1
