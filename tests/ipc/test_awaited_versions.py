"""Versions that a reader waits for, as `grab` does: written and announced at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Thread

import pytest
from support.image_stream import image, published, shows
from support.pair import Pair

from splatview_ipc.control.sockets import wait_readable
from splatview_ipc.publisher.stream_turns import GRACE_S, RETRY_AWAITED_S
from splatview_ipc.publisher.transport_choice import TransportChoice
from splatview_ipc.shm.slot_writer import SlotWriter


def publish_awaited(pair: Pair, value: int) -> int:
    """Publish an image for a reader that waits; return its version."""
    return published(pair).publish_awaited(((image(value),), {"layout": "HW"}))


def read_version(pair: Pair, version: int) -> int:
    """Return the value of a version or a later one, read without any turn; 0: none."""
    frame = pair.stream().read(version - 1)
    if frame is None:
        return 0
    with frame:
        return int(frame.tensors["image"].to_float32().max())


def test_a_version_that_is_awaited_is_written_whatever_the_rate(pair: Pair) -> None:
    pair.publish(image(1))
    shows(pair, 1)
    # All of these come at one moment of the pair's clock, and no helper takes a turn.
    for value in range(2, 102):
        version = publish_awaited(pair, value)
        assert read_version(pair, version) == value
    pair.publish(image(200))
    assert published(pair).is_behind(), "without a reader that waits the rate holds"
    version = publish_awaited(pair, 201)
    assert read_version(pair, version) == 201


def no_slot(writer: SlotWriter) -> int:
    return -1


def test_an_awaited_version_wakes_the_helper_that_meant_to_sleep(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.publish(image(1))
    shows(pair, 1)
    helper = pair.publisher.helper
    with monkeypatch.context() as patch:
        patch.setattr(SlotWriter, "free_slot", no_slot)
        pair.publish(image(2))
        # The helper knows of it, and sleeps until the grace ends.
        assert pair.turn_helper() == pytest.approx(pair.now + GRACE_S)
        version = publish_awaited(pair, 3)
    woken_by = wait_readable(helper.fds(), 0)
    assert woken_by
    # Not a moment later.
    helper.turn(pair.now, woken_by)
    assert read_version(pair, version) == 3


def test_what_a_publish_left_is_written_now_if_a_reader_waits_for_it(
    pair: Pair,
) -> None:
    pair.publish(image(1))
    shows(pair, 1)
    for value in range(2, 102):
        pair.publish(image(value))
    pair.turn_helper()
    assert published(pair).is_behind()
    version = published(pair).hasten()
    pair.turn_helper()
    assert read_version(pair, version) == 101


def test_an_older_value_never_comes_under_the_number_that_is_awaited(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer publishes while the helper thread is about to write the value before."""
    pair.publish(image(1))
    shows(pair, 1)
    with monkeypatch.context() as patch:
        patch.setattr(SlotWriter, "free_slot", no_slot)
        publish_awaited(pair, 2)
    versions: list[int] = []
    behind_trainer = TransportChoice.behind_trainer

    def publish_meanwhile(
        choice: TransportChoice, device: str
    ) -> AbstractContextManager[bool]:
        if not versions:
            trainer = Thread(target=lambda: versions.append(publish_awaited(pair, 3)))
            trainer.start()
            trainer.join()
        return behind_trainer(choice, device)

    monkeypatch.setattr(TransportChoice, "behind_trainer", publish_meanwhile)
    pair.turn_helper()
    (version,) = versions
    assert read_version(pair, version) in (0, 3)
    pair.turn_helper()
    assert read_version(pair, version) == 3


def test_a_new_stream_is_announced_at_once_to_a_reader_that_waits(pair: Pair) -> None:
    pair.publish(image(1), "first")
    pair.stream("first")

    def names() -> set[str]:
        pair.viewer.poll(pair.now)
        return {stream.name for stream in pair.viewer.streams}

    pair.publish(image(2), "second")
    pair.turn_helper()
    assert "second" in names()
    for name in ("third", "fourth"):
        pair.publish(image(2), name)
        pair.turn_helper()
        assert name not in names(), "manifests are rare"
        pair.publisher.hasten(pair.publisher.streams[name])
        # Not a moment later, and by a wake alone.
        woken_by = wait_readable(pair.publisher.helper.fds(), 0)
        assert woken_by
        pair.publisher.helper.turn(pair.now, woken_by)
        assert name in names()


def test_the_first_reader_that_waits_is_served_at_once(pair: Pair) -> None:
    """Its caller keeps the tensors as they are meanwhile."""
    pair.publish(image(1))
    publish_awaited(pair, 2)
    stream = published(pair)
    stream.open("ring")
    stream.turn(pair.now)
    assert (stream.is_behind(), pair.counted("copies")) == (False, 1)


def test_an_awaited_version_without_a_slot_is_tried_again_ever_more_rarely(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.publish(image(1))
    shows(pair, 1)
    stream = published(pair)
    monkeypatch.setattr(SlotWriter, "free_slot", no_slot)
    publish_awaited(pair, 2)
    published_at = pair.now
    waits = []
    for _ in range(9):
        due = stream.turn(pair.now)
        assert due is not None
        waits.append(due - pair.now)
        pair.now = due
    assert waits[0] == pytest.approx(RETRY_AWAITED_S)
    assert waits[1:5] == pytest.approx([RETRY_AWAITED_S * 2**k for k in range(4)])
    assert waits[-1] == pytest.approx(GRACE_S)
    assert pair.now < published_at + 4 * GRACE_S
    monkeypatch.undo()
    stream.turn(pair.now)
    assert not stream.is_behind()
