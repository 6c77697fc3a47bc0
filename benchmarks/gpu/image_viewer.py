"""An image-only viewer that times its own GPU work: `python -m benchmarks.gpu.image_viewer FRAMES`.

Follows the stream "frame" with the viewer's own source and view, and after each of its pictures draws the same one from
a plain texture with the same view. Every pixel of every tenth picture is compared: the stream's frames are
`pattern() + k` for some k. Prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gpu.clocks import GlClock, until
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.settings import ViewSettings
from splatview_viewer.kinds import make_view
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.sources import StreamSource, make_subscriber

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.old_view import View

SIZE = (1920, 1080)
_RUN_UP = 4
"""Pictures drawn before the timed one, so that the GPU has work while the next commands are written."""


def pattern() -> np.ndarray:
    """(1080, 1920, 4) uint8, opaque: noise of which no two rows are alike."""
    pixels = np.random.default_rng(7).integers(0, 256, (SIZE[1], SIZE[0], 4), dtype=np.uint8)
    pixels[..., 3] = 255
    return pixels


def main(frames: int) -> None:
    screen = OffscreenScreen(*SIZE)
    subscriber = make_subscriber(screen.ctx, None, "benchmark")
    found: list[RemoteStream] = []

    def follow() -> bool:
        subscriber.poll()
        found[:] = [s for s in subscriber.streams if s.name == "frame"]
        return bool(found)

    until("the stream", follow)
    source = StreamSource(found[0])
    source.open()
    clock, rect = GlClock(), Rect(0, 0, *SIZE)
    streamed, plain = (make_view("image", screen.ctx, ViewSettings()) for _ in range(2))
    expected = pattern()
    plain.update(expected)
    times: dict[str, list[int]] = {"ours": [], "ours_again": [], "plain": [], "again": []}
    compared = 0
    for i in range(frames):
        _next_frame(subscriber, source, streamed)
        if i % 10 == 0:
            streamed.draw(screen.framebuffer, rect)
            compared += _check(screen.pixels(), expected)
        for _ in range(_RUN_UP):
            plain.draw(screen.framebuffer, rect)
        clock.mark()
        plain.draw(screen.framebuffer, rect)
        clock.mark()
        streamed.draw(screen.framebuffer, rect)
        clock.mark()
        streamed.draw(screen.framebuffer, rect)  # with the frame in the GPU's cache, as the plain texture is
        clock.mark()
        plain.draw(screen.framebuffer, rect)
        clock.mark()
        screen.present()
        a, b, c, d, e = clock.read()
        if i >= 10:
            for name, took in (("plain", b - a), ("ours", c - b), ("ours_again", d - c), ("again", e - d)):
                times[name].append(took)
    # What a new frame brings along beside its drawing: everything between its arrival and its picture.
    whole: list[int] = []
    for _ in range(frames):
        until("the next frame", lambda: bool(subscriber.poll() or True) and source.has_news(), 5)
        for _ in range(_RUN_UP):
            plain.draw(screen.framebuffer, rect)
        clock.mark()
        streamed.tick(time.monotonic())
        fed = source.feed(streamed)
        streamed.draw(screen.framebuffer, rect)
        clock.mark()
        screen.present()
        a, b = clock.read()
        if fed:
            whole.append(b - a)
    print(json.dumps({
        "path": [source.path, *streamed.path], "compared": compared, "torch": "torch" in sys.modules,
        "frames": len(whole), **{f"{k}_us": statistics.median(t) / 1e3 for k, t in {**times, "whole": whole}.items()},
    }), flush=True)
    source.close()
    for view in (streamed, plain):
        view.close()
    screen.close()
    subscriber.close()


def _next_frame(subscriber: Subscriber, source: StreamSource, view: View) -> None:
    end = time.monotonic() + 10
    while True:
        subscriber.poll()
        view.tick(time.monotonic())  # gives back the frames that were shown before
        if source.has_news() and source.feed(view):
            return
        if time.monotonic() > end:
            raise RuntimeError(f"no new frame for 10 s: {source.stream.fault or 'no fault told'}")
        time.sleep(0.0005)


def _check(shown: np.ndarray, expected: np.ndarray) -> int:
    """1 when every pixel is `expected` plus one and the same number; otherwise it is torn or wrong."""
    difference = shown[..., :3] - expected[..., :3]
    if (difference != difference[0, 0, 0]).any():
        wrong = float((difference != difference[0, 0, 0]).mean())
        raise RuntimeError(f"{wrong:.2%} of the bytes shown are not the frame's")
    return 1


if __name__ == "__main__":
    main(int(sys.argv[1]))
