"""`selection`: what a viewer's user selects, as the script reads it."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from support.frames import cloud
from support.reading import stream_of
from support.wait import wait_until

import splatview
from splatview_ipc.control.limits import MAX_SELECTION_PIECE
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


def test_mask_of_several_pieces_counts_as_a_whole(subscriber: Subscriber) -> None:
    count = 8 * MAX_SELECTION_PIECE * 2 + 77
    row = {name: value[:1] for name, value in cloud(1).items()}
    scene = {name: value.expand(count, *value.shape[1:]) for name, value in row.items()}
    splatview.publish(scene)
    stream = wanted_stream(subscriber)
    expected = np.zeros(count, bool)
    expected[[0, 8 * MAX_SELECTION_PIECE, count - 1]] = True
    send(stream, expected)
    mask = until_selected(subscriber, 3)
    assert mask is not None
    assert mask.nonzero().flatten().tolist() == np.flatnonzero(expected).tolist()


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
