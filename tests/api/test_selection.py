"""`selection`: what a viewer's user selects, as the script reads it."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pytest
import torch
from support.frames import cloud
from support.reading import stream_of
from support.wait import wait_until

import splatview
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber


def wanted_stream(subscriber: Subscriber) -> RemoteStream:
    """Return the opened stream of a script that has asked what is selected in it."""
    assert splatview.selection() is None
    stream = stream_of(subscriber)

    def is_wanted() -> bool:
        subscriber.poll()
        return stream.info.wants_selection

    wait_until(is_wanted, "the wish of the script")
    return stream


def send(stream: RemoteStream, mask: np.ndarray) -> None:
    stream.send_selection(len(mask), np.packbits(mask).tobytes())


def until_selected(subscriber: Subscriber, count: int | None) -> torch.Tensor | None:
    """Wait until the script reads so many selected Gaussians; None: no mask."""

    def is_read() -> bool:
        subscriber.poll()
        mask = splatview.selection()
        if mask is None:
            return count is None
        return int(mask.sum()) == count

    wait_until(is_read, f"{count} selected")
    return splatview.selection()


def test_script_prunes_what_a_viewer_selects(subscriber: Subscriber) -> None:
    """Its mask is for the Gaussians that were published last, and for no others."""
    scene = cloud(1003)
    splatview.publish(scene)
    stream = wanted_stream(subscriber)
    expected = scene["means"][:, 0] > 0.5
    send(stream, expected.numpy())
    mask = until_selected(subscriber, int(expected.sum()))
    assert mask is not None
    assert torch.equal(mask, expected)
    assert splatview.selection() is mask
    pruned = {name: value[~mask] for name, value in scene.items()}
    assert (pruned["means"][:, 0] <= 0.5).all()
    splatview.publish(pruned)
    assert splatview.selection() is None
    every = np.ones(len(pruned["means"]), bool)
    send(stream, every)
    until_selected(subscriber, len(every))
    stream.send_selection(0, b"")
    until_selected(subscriber, None)


def test_mask_ends_with_the_gaussians_that_it_was_of(subscriber: Subscriber) -> None:
    """Those that become as many again later are others."""
    splatview.publish(cloud(20))
    stream = wanted_stream(subscriber)
    send(stream, np.ones(20, bool))
    until_selected(subscriber, 20)
    splatview.publish(cloud(20))
    assert splatview.selection() is not None
    splatview.publish(cloud(30))
    splatview.publish(cloud(20))
    assert splatview.selection() is None


def test_captured_graph_gets_no_other_mask(
    subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replays would read a tensor that is there no more."""
    splatview.publish(cloud(20))
    stream = wanted_stream(subscriber)
    send(stream, np.arange(20) < 3)
    mask_before = until_selected(subscriber, 3)
    send(stream, np.arange(20) < 5)
    with monkeypatch.context() as patch:
        patch.setattr("splatview.api.selection.capturing", partial(bool, 1))
        for _ in range(20):
            subscriber.poll()
            assert splatview.selection() is mask_before
        splatview.publish(cloud(30))
        assert splatview.selection() is None
    assert splatview.selection() is None


def test_only_whole_gaussians_have_a_selection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert splatview.selection("unknown") is None
    with pytest.raises(TypeError, match="name"):
        splatview.selection(3)  # type: ignore[arg-type]
    splatview.publish(torch.zeros(4, 4, 3, dtype=torch.uint8), "picture")
    with pytest.raises(ValueError, match="shows image"):
        splatview.selection("picture")
    splatview.publish(cloud(5), "part", shard=(0, 2))
    with caplog.at_level(logging.WARNING, "splatview"):
        assert splatview.selection("part") is None
        assert splatview.selection("part") is None
    assert caplog.text.count("part of a scene") == 1
