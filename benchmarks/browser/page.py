"""Stands for the page, without a browser: `python -m benchmarks.browser.page JSON`.

JSON: {"port", "token", "size"}; the size is that of the picture without the panel. Pictures are counted when they have come whole, and acknowledged at once. Commands:

| do | what |
|---|---|
| key, name= | press and let go of a key |
| begin | count from now on |
| whole | whether pictures have come in full size for a second |
| report | what was counted |
| check, base= | decode some of the pictures that were counted, and hold them against what was published |
| drag, seconds=, hz= | drag with the left button, decoding every picture before it is acknowledged, as a page does |
| latency | of that drag: ms from each move to the first decoded picture that tells of it |
| moved | of that drag: how far the mark lies from where the move put it, in some of the pictures |
| changed | of that drag over a scene: how many pictures tell of another move than the one before, and look otherwise |
| use, seconds=, points=, keys= | move between these points of the interface, and return ms from each move to the interface that shows it, and the pictures that came; the keys are held by turns, a second each |
| state | how many pictures came, the number in the last one, or -1, and the place of the mark in it |
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import statistics
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from benchmarks import harness
from benchmarks.browser import pictures
from benchmarks.browser.websocket import Closed, WebSocket
from splatview_viewer.core import events as ev
from splatview_viewer.web import messages

_PIXELS_ABOVE = 44 + 30
"""Pixels above the picture: the top bar and the pane's strip."""
_PIXELS_BELOW = 88
"""Pixels below it: the time area."""
_CHECKED = 24
"""Pictures of a measurement that are decoded."""


@dataclass
class ReceivedPicture:
    time: float
    caused_at: float
    size: tuple[int, int]
    bytes: int
    data: bytes = b""


class ReceivingPage:
    """A page that counts the pictures that come, and acknowledges them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._size: tuple[int, int] = tuple(options["size"])
        self._decoding = False
        self._drawn: list[tuple[float, float, tuple[int, int], bytes]] = []
        self._moves: list[tuple[float, float, float]] = []
        self._received: list[ReceivedPicture] = []
        self._counted_from = time.monotonic()
        self._why_closed = ""
        self._answers: list[tuple[float, float]] = []
        """When an interface came, and the event that it tells of, in ms."""
        self._coming: tuple[messages.Picture, float]
        self._picture_data = b""
        self._socket = WebSocket(options["port"], f"/ws?token={options['token']}")
        width, height = self._size
        height += _PIXELS_ABOVE + _PIXELS_BELOW
        self._send(messages.Hello(id="benchmark", width=width, height=height))
        threading.Thread(target=self._reading, daemon=True).start()

    def _send(self, message: messages.ClientMessage) -> None:
        self._socket.send(messages.encode(message).encode())

    def _reading(self) -> None:
        try:
            while True:
                self._read()
        except (Closed, OSError) as e:
            self._why_closed = f"{type(e).__name__}: {e}"

    def _read(self) -> None:
        binary, raw = self._socket.receive()
        if binary:
            self._picture_data += raw
            if len(self._picture_data) == self._coming[0].bytes:
                self._take(self._picture_data)
        elif b'"picture"' in raw[:40]:
            picture = msgspec.json.decode(raw, type=messages.Picture)
            self._coming = picture, time.monotonic()
            self._picture_data = b""
        elif b'"interface"' in raw[:40]:
            update = msgspec.json.decode(raw, type=messages.InterfaceUpdate)
            if update.sizes:
                self._socket.receive()
            self._answers.append((time.perf_counter() * 1e3, update.at))
            self._send(messages.Ack(update.number, layer="interface"))

    def _take(self, raw: bytes) -> None:
        """Take a picture that has come whole."""
        now = time.monotonic()
        picture, announced_at = self._coming
        self._answers.append((time.perf_counter() * 1e3, picture.at))
        line_ms = (now - announced_at) * 1e3
        if self._decoding:
            pictures.decode(raw)
            self._drawn.append(
                (time.perf_counter() * 1e3, picture.at, picture.size, raw)
            )
        with Image.open(io.BytesIO(raw)) as image:
            self._received.append(
                ReceivedPicture(now, picture.at, image.size, len(raw), raw)
            )
        # A picture that the server knows of is counted.
        self._send(messages.Ack(picture.number, line_ms))

    def _counted(self) -> list[ReceivedPicture]:
        if self._why_closed:
            raise RuntimeError(f"the connection is closed: {self._why_closed}")
        return [s for s in self._received if s.time >= self._counted_from]


class Page(ReceivingPage):
    """A page that answers commands: each is a method `do_` with its name."""

    def do_key(self, name: str) -> None:
        for pressed in (True, False):
            self._send(ev.Key(name, pressed, at=time.perf_counter() * 1e3))

    def do_hold(self, name: str, down: bool) -> None:
        self._send(ev.Key(name, down, at=time.perf_counter() * 1e3))

    def do_use(
        self, seconds: float, points: list[list[float]], keys: list[str]
    ) -> dict[str, Any]:
        """Move from point to point four times a second, whatever comes."""
        self._answers.clear()
        moves = []
        self.do_begin()
        started_at = time.monotonic()
        for i in range(round(seconds * 4)):
            if keys and i % 4 == 0:
                self.do_hold(keys[i // 4 % len(keys) - 1], down=False)
                self.do_hold(keys[i // 4 % len(keys)], down=True)
            x, y = points[i % len(points)]
            moves.append(time.perf_counter() * 1e3)
            self._send(ev.PointerMove(x, y, at=moves[-1]))
            # Not always at the same place between two pictures.
            due = started_at + (i + 1 + (i * 7 % 10 - 5) / 25) / 4
            time.sleep(max(due - time.monotonic(), 0))
        pictures_per_s = self.do_report()["per_s"]
        for name in keys:
            self.do_hold(name, down=False)
        time.sleep(5)
        answers = sorted(self._answers)
        latencies = []
        for moved_at in moves:
            later = (time for time, event_at in answers if event_at >= moved_at)
            answered_at = next(later, None)
            if answered_at is not None:
                latencies.append(answered_at - moved_at)
        return {
            "latencies": latencies,
            "missed": len(moves) - len(latencies),
            "per_s": pictures_per_s,
        }

    def do_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "pictures": len(self._received),
            "number": -1,
            "mark": None,
        }
        if self._received:
            picture = pictures.decode(self._received[-1].data)
            with contextlib.suppress(ValueError):
                state["number"] = pictures.read(picture)
            with contextlib.suppress(ValueError):
                state["mark"] = pictures.find_mark(picture)
        return state

    def do_whole(self) -> dict[str, Any]:
        """Return whether pictures have come in full size for a second."""
        now = time.monotonic()
        small = [s for s in self._received if s.time > now - 1 and s.size != self._size]
        return {
            "whole": bool(self._received)
            and self._received[-1].time > now - 1
            and not small
        }

    def do_begin(self) -> None:
        self._received = []
        self._counted_from = time.monotonic()

    def do_report(self) -> dict[str, Any]:
        now = time.monotonic()
        received = self._counted()
        gaps = np.diff([self._counted_from, *(s.time for s in received), now])
        sizes = Counter("x".join(map(str, s.size)) for s in received)
        mean_bytes = 0.0
        if received:
            mean_bytes = statistics.mean(s.bytes for s in received)
        return {
            "pictures": len(received),
            "seconds": now - self._counted_from,
            "per_s": len(received) / (now - self._counted_from),
            "bytes": mean_bytes,
            "gap_ms": float(gaps.max()) * 1e3,
            "sizes": sizes.most_common(3),
        }

    def do_check(
        self, base: str, times: list[tuple[int, float]], max_time: float
    ) -> dict[str, Any]:
        """Compare pictures with those that were published, until `max_time`.

        `times`: when each number was handed over. Only pictures that came before the
        moment `max_time` count.
        """
        received = [s for s in self._counted() if s.time <= max_time]
        if not received:
            raise RuntimeError("no picture came")
        published_at = dict(times)
        pool = pictures.moving(np.load(base), self._size, pictures.POOL)
        ages = []
        likeness = []
        indices = []
        kinds = []
        for s in received[:: max(len(received) // _CHECKED, 1)]:
            picture = pictures.decode(s.data)
            version = pictures.read(picture)
            if version not in published_at or published_at[version] > s.time:
                raise RuntimeError(
                    f"a picture shows {version}, which was not published by then"
                )
            if indices and version <= indices[-1]:
                raise RuntimeError(f"a picture shows {version} after {indices[-1]}")
            indices.append(version)
            expected = pool[version % len(pool)].copy()
            pictures.write(expected, version)
            own_likeness, next_likeness = (
                pictures.likeness(picture, one)
                for one in (expected, pool[(version + 1) % len(pool)])
            )
            if own_likeness < next_likeness + 3:
                raise RuntimeError(
                    f"a picture is not the one that was published: {own_likeness:.1f} dB, and {next_likeness:.1f} dB "
                    "like the next one"
                )
            likeness.append(own_likeness)
            ages.append((s.time - published_at[version]) * 1e3)
            kinds.append(pictures.describe(s.data))
        return {
            "checked": len(indices),
            "likeness": statistics.median(likeness),
            "age_ms": statistics.median(ages),
            "quality": statistics.median_low([k["quality"] for k in kinds]),
            "colour": statistics.mode(k["colour"] for k in kinds),
        }

    def do_drag(self, seconds: float, hz: float) -> None:
        """Back and forth around the middle; every move is told, and its place kept."""
        self._drawn = []
        self._moves = []
        self._received = []
        self._decoding = True
        x0, y0 = pictures.hand_position(0, self._size)
        self._send(
            ev.PointerPress(x0, y0 + _PIXELS_ABOVE, at=time.perf_counter() * 1e3)
        )
        started_at = time.monotonic()
        due = started_at
        step = 0
        while time.monotonic() < started_at + seconds:
            step += 1
            x, y = pictures.hand_position(step, self._size)
            moved_at = time.perf_counter() * 1e3
            self._send(ev.PointerMove(x, y + _PIXELS_ABOVE, at=moved_at))
            self._moves.append((moved_at, x - x0, y - y0))
            due += 1 / hz
            time.sleep(max(due - time.monotonic(), 0))
        time.sleep(1.5)
        self._send(
            ev.PointerRelease(
                *(x0 + self._moves[-1][1], y0 + self._moves[-1][2] + _PIXELS_ABOVE),
                at=time.perf_counter() * 1e3,
            )
        )
        self._decoding = False

    def do_latency(self) -> dict[str, Any]:
        drawn = self._drawn
        latencies = []
        i = 0
        for moved_at, *_ in self._moves[10:]:  # the first moves find the viewer asleep
            while i < len(drawn) and drawn[i][1] < moved_at:
                i += 1
            if i == len(drawn):
                raise RuntimeError(
                    f"no picture tells of the move at {moved_at:.1f} ms; the last one tells of {drawn[-1][1]}"
                )
            latencies.append(drawn[i][0] - moved_at)
        if len(drawn) < 3:
            raise RuntimeError(f"only {len(drawn)} pictures came while it was dragged")
        span = (drawn[-1][0] - drawn[0][0]) / 1e3
        return {
            "latencies": latencies,
            "pictures": len(drawn),
            "per_s": (len(drawn) - 1) / span,
            "sizes": Counter(
                "x".join(map(str, s.size)) for s in self._received
            ).most_common(2),
        }

    def do_moved(self) -> dict[str, Any]:
        """Return how far the mark lies from where the moves put it.

        It began in the middle of the picture, and the picture follows the pointer.
        """
        moves = {moved_at: (dx, dy) for moved_at, dx, dy in self._moves}
        answers = [d for d in self._drawn if d[1] in moves]
        if len(answers) < 3:
            raise RuntimeError(
                f"only {len(answers)} pictures tell of a move, of {len(self._drawn)}"
            )
        off = []
        for _, moved_at, full, data in answers[:: max(len(answers) // _CHECKED, 1)]:
            pixels = pictures.decode(data)
            scale = full[0] / pixels.shape[1]
            x, y = (n * scale for n in pictures.find_mark(pixels, 1 / scale))
            dx, dy = moves[moved_at]
            off.append(math.hypot(x - full[0] / 2 - dx, y - full[1] / 2 - dy))
        return {"off": max(off), "checked": len(off)}

    def do_changed(self) -> dict[str, Any]:
        """Return how many pictures that tell of other moves look otherwise."""
        answers = [
            (moved_at, pictures.decode(data))
            for _, moved_at, _, data in self._drawn
            if moved_at > 0
        ][:60]
        changed = 0
        pair_count = 0
        for (moved_at, picture), (next_at, next_picture) in itertools.pairwise(answers):
            if moved_at == next_at:
                continue
            pair_count += 1
            changed += _look_different(picture, next_picture)
        return {"changed": changed, "pairs": pair_count}


def _look_different(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two pictures differ by more than rounding."""
    if a.shape != b.shape:
        return True
    return float(np.abs(a[::4, ::4].astype(int) - b[::4, ::4]).mean()) > 0.2


if __name__ == "__main__":
    harness.serve_requests(Page(json.loads(sys.argv[1])))
