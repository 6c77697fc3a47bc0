"""A viewer as a program, `python -m support.watcher`, which checks every new frame.

It is for tests whose trainers fill each value of a frame with its step modulo 251. It
prints lines of JSON: how many frames it has read, how many of them were wrong, the last
step of each stream, and the transport.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any, NamedTuple

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber


def is_right(frame: StreamFrame) -> bool | None:
    """Return whether all values of a frame are of the step in its metadata.

    None: the frame says that it was overwritten.
    """
    arrays = [t.to_float32() for t in frame.tensors.values()]
    value = frame.meta["step"] % 251
    all_equal = all(a.min() == a.max() == value for a in arrays if a.size)
    if not frame.intact():
        return None
    return all_equal


class HeldFrame(NamedTuple):
    frame: StreamFrame
    is_still: bool


class Watcher:
    """Reads the frames of streams, and holds some to look at them again later."""

    def __init__(self, hold: int) -> None:
        self.hold = hold
        self.chance = random.Random(8)
        self.steps: dict[str, int] = {}
        """The last step of each stream."""
        self.versions: dict[str, int] = {}
        self.held: list[HeldFrame] = []
        self.wrong_count = 0
        self.frames = 0
        self.sharing = ""

    def watch(self, stream: RemoteStream) -> bool:
        """Read the newest frame of a stream; return whether there was a whole one."""
        stream.open()
        last_version = self.versions.get(stream.name, 0)
        frame = stream.read(last_version)
        if frame is None:
            return False
        # A value in place may be of two steps: its trainer does not stop for readers.
        is_still = stream.sharing != "in-place"
        right = is_right(frame)
        self.wrong_count += right is False and is_still
        self.held.append(HeldFrame(frame, is_still))
        if len(self.held) > self.hold:
            self._release_one()
        if right is None:
            return False
        self.wrong_count += frame.version <= last_version
        self.versions[stream.name] = frame.version
        self.steps[stream.name] = frame.meta["step"]
        self.frames += 1
        self.sharing = stream.sharing
        return True

    def _release_one(self) -> None:
        """Look at one of the held frames again, and close it."""
        old = self.held.pop(self.chance.randrange(len(self.held)))
        self.wrong_count += is_right(old.frame) is False and old.is_still
        old.frame.close()

    def report(self) -> dict[str, Any]:
        return {
            "wrong": self.wrong_count,
            "frames": self.frames,
            "seen": self.steps,
            "sharing": self.sharing,
        }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", help="transports that it takes, comma-separated")
    parser.add_argument(
        "--streams", help="names of streams, comma-separated; all without it"
    )
    parser.add_argument(
        "--hold",
        type=int,
        default=0,
        help="frames that it keeps and looks at again later",
    )
    parser.add_argument(
        "--period", type=float, default=0.0, help="seconds between two lines, at least"
    )
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    subscriber_options: dict[str, Any] = {}
    if options.ways:
        subscriber_options["transports"] = options.ways.split(",")
    names = None
    if options.streams:
        names = options.streams.split(",")
    watcher = Watcher(options.hold)
    due = 0.0
    is_unreported = False
    with Subscriber(**subscriber_options) as subscriber:
        while True:
            subscriber.poll()
            has_new_version = False
            for stream in subscriber.streams:
                if names is None or stream.name in names:
                    has_new_version |= watcher.watch(stream)
            is_unreported |= has_new_version
            if is_unreported and time.monotonic() >= due:
                due = time.monotonic() + options.period
                is_unreported = False
                print(json.dumps(watcher.report()), flush=True)
            if not has_new_version:
                time.sleep(0.001)


if __name__ == "__main__":
    main()
