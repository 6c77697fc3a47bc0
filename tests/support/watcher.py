"""A viewer as a program, `python -m support.watcher`: it reads every new frame and tells whether all of it is of its
step, for tests whose trainers fill each value with its step modulo 251.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.subscriber.subscriber import Subscriber


def right(frame: StreamFrame) -> bool | None:
    """Return whether all of a frame is of the step that its metadata name; None: it says that it was overwritten."""
    arrays = [t.to_float32() for t in frame.tensors.values()]
    value = frame.meta["step"] % 251
    good = all(a.min() == a.max() == value for a in arrays if a.size)
    return good if frame.intact() else None


def main() -> None:
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
    asked = parser.parse_args()
    options: dict[str, Any] = (
        {"transports": asked.ways.split(",")} if asked.ways else {}
    )
    chance = random.Random(8)
    due = 0.0
    seen: dict[str, int] = {}
    versions: dict[str, int] = {}
    held: list[tuple[StreamFrame, bool]] = []
    untold = False
    told = {"wrong": 0, "frames": 0, "seen": seen, "sharing": ""}
    with Subscriber(**options) as subscriber:
        while True:
            subscriber.poll()
            news = False
            for stream in subscriber.streams:
                if asked.streams and stream.name not in asked.streams.split(","):
                    continue
                stream.open()
                frame = stream.read(versions.get(stream.name, 0))
                if frame is None:
                    continue
                still = (
                    stream.sharing != "in-place"
                )  # there a value may be of two steps: it is not stopped for us
                good = right(frame)
                told["wrong"] += good is False and still
                held.append((frame, still))
                if len(held) > asked.hold:
                    old, still = held.pop(chance.randrange(len(held)))
                    told["wrong"] += right(old) is False and still
                    old.close()
                if good is not None:
                    told["wrong"] += frame.version <= versions.get(stream.name, 0)
                    versions[stream.name] = frame.version
                    seen[stream.name] = frame.meta["step"]
                    told["frames"] += 1
                    told["sharing"] = stream.sharing
                    news = True
            untold |= news
            if untold and time.monotonic() >= due:
                due = time.monotonic() + asked.period
                untold = False
                print(json.dumps(told), flush=True)
            if not news:
                time.sleep(0.001)


if __name__ == "__main__":
    main()
