"""Masks of what viewers' users select, on their way to the script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from support.pair import Pair

from splatview_ipc.control.limits import MAX_SELECTION_PIECE
from splatview_ipc.subscriber.remote_stream import RemoteStream


class Script:
    """A script that reads what is selected in its stream "wide", and viewers of it."""

    def __init__(self, pair: Pair, count: int) -> None:
        self.pair = pair
        self.masks: list[Any] = []
        """Those that have come, whole."""
        self.publish(count)
        self.stream = pair.publisher.streams["wide"]
        self.stream.wants_selection = True
        pair.publisher.on_request["SelectionMask", "wide"] = self.masks.append

    def publish(self, count: int) -> None:
        wide_image = torch.zeros(1, 1, 3, dtype=torch.uint8).expand(count, 1, 3)
        self.pair.publish(wide_image, "wide")

    def viewer(self) -> RemoteStream:
        """Attach a viewer; return its stream."""
        stream = self.pair.stream("wide", self.pair.attach())
        self.pair.pump(3)
        return stream

    def counts(self) -> list[int]:
        """Return how many each mask selects that has come since the last call."""
        self.pair.pump(3)
        counts = [int(np.unpackbits(mask.bits).sum()) for mask in self.masks]
        self.masks.clear()
        return counts


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as pair:
        yield pair


def send(stream: RemoteStream, selected: int, *, is_again: bool = False) -> None:
    """Send a mask of the first ones of 20."""
    bits = np.packbits(np.arange(20) < selected).tobytes()
    stream.send_selection(20, bits, is_again)


def test_viewer_whose_user_selected_last_counts(pair: Pair) -> None:
    """Masks that another one makes anew, for Gaussians that have changed, do not."""
    script = Script(pair, 20)
    first = script.viewer()
    second = script.viewer()
    send(first, 3)
    assert script.counts() == [3]
    send(second, 5)
    assert script.counts() == [5]
    send(first, 7, is_again=True)
    assert script.counts() == []
    send(second, 9, is_again=True)
    assert script.counts() == [9]
    send(first, 11)
    assert script.counts() == [11]
    send(second, 13, is_again=True)
    assert script.counts() == []
    # Where the other has left, there is one that counts again.
    pair.viewers.pop(1).close()
    pair.until_viewers(2)
    send(second, 15, is_again=True)
    assert script.counts() == [15]


def test_change_that_was_not_sent_yet_stays_one(pair: Pair) -> None:
    script = Script(pair, 20)
    first = script.viewer()
    second = script.viewer()
    send(first, 3)
    assert script.counts() == [3]
    send(second, 5)
    send(second, 7, is_again=True)
    assert script.counts() == [7]


def test_masks_say_of_which_values_they_are(pair: Pair) -> None:
    script = Script(pair, 20)
    stream = script.viewer()
    send(stream, 3)
    pair.pump(3)
    (mask,) = script.masks
    assert mask.resize_count == script.stream.resize_count
    script.publish(20)
    assert mask.resize_count == script.stream.resize_count
    script.publish(30)
    script.publish(20)
    assert mask.resize_count != script.stream.resize_count


def test_mask_of_several_pieces_comes_whole(pair: Pair) -> None:
    count = 8 * MAX_SELECTION_PIECE * 2 + 77
    script = Script(pair, count)
    stream = script.viewer()
    expected = np.zeros(count, bool)
    expected[[0, 8 * MAX_SELECTION_PIECE, count - 1]] = True
    stream.send_selection(count, np.packbits(expected).tobytes())
    pair.until(lambda: script.masks)
    (mask,) = script.masks
    assert mask.bits == np.packbits(expected).tobytes()
