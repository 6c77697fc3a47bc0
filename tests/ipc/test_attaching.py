"""Trainers and viewers find each other, in any order and number.

They survive each other's ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from support.impostor import Liar
from support.pair import Pair, show
from support.programs import Programs
from support.reading import newest, stream_of, welcomed
from support.trainers import Trainer
from support.wait import wait_until

import splatview
from splatview.adapters.checks import metadata
from splatview_ipc.control import limits, messages
from splatview_ipc.control.sockets import wait_readable
from splatview_ipc.publisher.publisher import Publisher
from splatview_ipc.publisher.stream_channels import OverlaidStream
from splatview_ipc.subscriber.subscriber import Subscriber


def _image(value: int, size: int = 4) -> torch.Tensor:
    return torch.full((size, size), value, dtype=torch.uint8)


def _wait_polling(
    viewer: Subscriber, condition: Callable[[], bool], name: str = ""
) -> None:
    """Poll the viewer until a condition is true."""

    def poll() -> bool:
        viewer.poll()
        return condition()

    wait_until(poll, name)


# -- values and streams ----------------------------------------------------------------


def test_value_arrives_with_its_metadata(pair: Pair) -> None:
    value = torch.arange(2 * 3 * 3, dtype=torch.uint8).reshape(2, 3, 3)
    pair.publish(value, "picture", step=7, note="hello")
    version, meta, tensors = pair.newest("picture")
    assert version == 1
    assert meta == {"step": 7, "note": "hello", "layout": "HWC"}
    assert np.array_equal(tensors["image"], value.numpy())


def test_stream_and_viewer_are_announced(pair: Pair) -> None:
    pair.publish(torch.zeros(2, 3, 3, dtype=torch.uint8), "picture")
    pair.newest("picture")
    (stream,) = pair.viewer.streams
    assert stream.kind == "image"
    assert stream.shape == (2, 3, 3)
    assert stream.dtype == "uint8"
    assert stream.device == "cpu"
    assert stream.sharing == "ring"
    assert pair.run.viewers == [{"pid": os.getpid(), "client": "viewer"}]


def test_metadata_up_to_its_limit_arrives(pair: Pair) -> None:
    """The limit is in bytes, as a slot's header has them; that of a text in characters."""
    letter = "\u6d41"
    count = limits.MAX_META_BYTES // limits.MAX_META_TEXT // len(letter.encode())
    texts = {f"text_{i}": letter * limits.MAX_META_TEXT for i in range(count)}
    tuples = {f"{'n' * 38}{i}": (0.1,) * 16 for i in range(24 - count)}
    largest_meta = metadata(texts | tuples)
    for value in (1, 2):
        pair.publish(_image(value), **largest_meta)
        _, meta, arrays = pair.newest(after=value - 1)
        assert meta == largest_meta | {"layout": "HW"}
        assert (arrays["image"] == value).all()
    assert not pair.faults


def test_all_streams_are_announced_however_long_their_names_are(
    runtime_dir: Path, subscriber: Subscriber
) -> None:
    """They are more than one message holds, for viewers that come early and late."""
    publisher = Publisher("many")
    letter = "\U0001f600"
    welcomed(subscriber)
    for i in range(limits.MAX_STREAMS):
        name = letter * (limits.MAX_NAME - 3) + f"{i:03}"
        show(publisher, torch.zeros(4, 4), name)
        publisher.streams[name].over = OverlaidStream(name)
    with Subscriber() as late:

        def all_are_known() -> bool:
            subscriber.poll()
            late.poll()
            counts = {len(subscriber.streams), len(late.streams)}
            return counts == {limits.MAX_STREAMS}

        wait_until(all_are_known, "all streams are known")
        assert welcomed(subscriber).dropped == 0
        assert welcomed(late).dropped == 0
    publisher.close()


def test_nothing_is_copied_for_a_stream_that_is_not_open(pair: Pair) -> None:
    for value in range(100):
        pair.publish(_image(value))

    def versions() -> list[int]:
        return [stream.version for stream in pair.viewer.streams]

    pair.until(lambda: versions() == [100])
    assert pair.run.counters["copies"] == 0
    assert (pair.newest()[2]["image"] == 99).all()
    copies = pair.counted("copies")
    assert copies > 0
    pair.viewer.streams[0].release()
    pair.pump(2)
    for value in range(100):
        pair.publish(_image(value))
    pair.pump(5)
    assert versions() == [200]
    assert pair.counted("copies") == copies


def test_each_viewer_opens_streams_of_its_own(pair: Pair) -> None:
    second_viewer = pair.attach(client="other")
    for name in ("a", "b"):
        pair.publish(_image(5), name)
    pair.newest("a")
    pair.newest("b", viewer=second_viewer)
    clients = sorted(viewer["client"] for viewer in pair.run.viewers)
    assert clients == ["other", "viewer"]
    assert [stream.opened for stream in pair.viewer.streams] == [True, False]
    second_viewer.close()
    pair.until_viewers(1)
    streams = pair.publisher.streams.values()
    assert [stream.readers for stream in streams] == [1, 0]


def test_helper_sleeps_for_an_hour_when_viewers_have_all_they_opened(
    pair: Pair,
) -> None:
    pair.publish(_image(1))
    pair.newest()
    pair.pump(40)
    due = pair.turn_helper()
    assert due is not None
    assert 600 < due - pair.now <= 3600
    assert not wait_readable(pair.publisher.helper.fds(), 0)
    pair.publisher.wake()
    pair.publisher.wake()
    assert len(wait_readable(pair.publisher.helper.fds(), 0)) == 1


def test_a_viewer_is_answered_in_the_turn_that_accepts_it(pair: Pair) -> None:
    """Each turn of the helper takes the interpreter from the training."""
    liar = Liar(pair.publisher.folder.path)
    liar.hello()
    pair.turn_helper()
    answer = liar.receive()
    assert answer is not None
    assert isinstance(messages.decode_to_viewer(answer), messages.Welcome)
    liar.close()


def test_connection_that_was_cut_is_made_again(pair: Pair) -> None:
    pair.publish(_image(1))
    pair.newest()
    # The trainer takes the viewer for gone.
    pair.run.send(messages.Bye())
    pair.pump()
    # The frames that it has stay readable.
    frame = pair.viewer.streams[0].read()
    assert frame is not None
    frame.close()
    stream = pair.publisher.streams["image"]
    pair.until_read(stream)
    pair.publish(_image(2))
    assert (pair.newest(after=1)[2]["image"] == 2).all()


# -- other protocols -------------------------------------------------------------------

_NEXT_PROTOCOL = limits.PROTOCOL + 1
"""The protocol of a later release."""


def test_viewer_of_another_protocol_is_refused_with_both_versions(pair: Pair) -> None:
    liar = Liar(pair.publisher.folder.path)
    liar.hello(protocol=_NEXT_PROTOCOL, version="9.0.0")
    refused = messages.decode_to_viewer(pair.until(liar.receive, "an answer"))
    assert isinstance(refused, messages.Refused)
    assert f"9.0.0 (protocol {_NEXT_PROTOCOL})" in refused.reason
    own_version = f"the run {limits.VERSION} (protocol {limits.PROTOCOL})"
    assert own_version in refused.reason

    def is_closed() -> bool:
        liar.receive()
        return not liar.up

    pair.until(is_closed)
    liar.close()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"protocol": _NEXT_PROTOCOL, "version": "9.0.0"},
            f"the run 9.0.0 (protocol {_NEXT_PROTOCOL})",
        ),
        ({"protocol": 1}, "the run of an unknown version (protocol 1)"),
        (
            {
                "protocol": 10**6,
                "version": "x" * limits.MAX_VERSION,
                "more": [1, {"a": None}],
            },
            "(protocol 1000000)",
        ),
    ],
)
def test_viewer_does_not_connect_to_a_run_of_another_protocol(
    pair: Pair, fields: dict[str, Any], reason: str
) -> None:
    folder = pair.publisher.folder
    description = msgspec.to_builtins(folder.description)
    del description["version"]
    content = msgspec.json.encode(description | fields)
    (folder.path / "run.json").write_bytes(content)
    pair.until(lambda: pair.viewer.runs)
    pair.pump(200)
    assert reason in str(pair.viewer.runs[0].refused)
    assert len(pair.publisher.helper.fds()) == 2


# -- several runs, and their ends ------------------------------------------------------


def _publish_code(step: int) -> str:
    """Return the code with which a trainer publishes an image of this value."""
    return (
        f"splatview.publish(torch.full((8, 8, 3), {step}, dtype=torch.uint8), 'render', "
        f"meta={{'step': {step}}})"
    )


@pytest.fixture
def trainer(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """Another process, whose run has the name of this one's."""
    monkeypatch.setenv("SPLATVIEW_NAME", "same")
    return Trainer(programs)


def test_runs_of_one_name_are_told_apart(
    subscriber: Subscriber, trainer: Trainer
) -> None:
    splatview.publish(_image(7), "render")
    for step in range(2):
        trainer.do(_publish_code(step))
    _, _, tensors = newest(subscriber, "render", pid=os.getpid())
    assert (tensors["image"] == 7).all()
    version, _, tensors = newest(subscriber, "render", pid=trainer.process.pid)
    assert version == 2
    assert (tensors["image"] == 1).all()
    assert [run.name for run in subscriber.runs] == ["same", "same"]
    assert len({run.id for run in subscriber.runs}) == 2


def test_last_picture_of_a_killed_run_stays_and_its_folder_goes(
    subscriber: Subscriber, trainer: Trainer, runtime_dir: Path
) -> None:
    splatview.publish(_image(7), "render")
    trainer.do(_publish_code(1))
    newest(subscriber, "render", pid=os.getpid())
    newest(subscriber, "render", pid=trainer.process.pid)
    with Subscriber(str(trainer.process.pid)) as viewer:
        stream = stream_of(viewer, "render")
        assert [run.pid for run in viewer.runs] == [trainer.process.pid]
        assert newest(viewer, "render")[0] == 1
        trainer.process.killed()
        _wait_polling(viewer, lambda: not stream.run.alive)
        frame = stream.read()
        assert frame is not None
        with frame:
            assert frame.intact()

    def live_ids() -> list[str]:
        return [run.id for run in subscriber.runs if run.alive]

    def folder_names() -> list[str]:
        return [path.name for path in runtime_dir.iterdir()]

    _wait_polling(subscriber, lambda: len(live_ids()) == 1)
    _wait_polling(
        subscriber, lambda: folder_names() == live_ids(), "the folder is removed"
    )


def test_stopped_trainer_stops_no_viewer(
    programs: Programs, subscriber: Subscriber
) -> None:
    trainer = Trainer(programs)
    trainer.do(_publish_code(0))
    newest(subscriber, "render")
    trainer.process.send_signal(signal.SIGSTOP)
    # Its threads may run for a moment after the signal.
    os.waitid(os.P_PID, trainer.process.pid, os.WSTOPPED)
    with Subscriber() as late:
        # Each poll returns.
        for _ in range(50):
            late.poll()
            subscriber.poll()
        assert [run.welcomed for run in late.runs] == [False]
        assert subscriber.streams[0].read() is not None
        trainer.process.send_signal(signal.SIGCONT)
        assert newest(late, "render")[0] == 1
