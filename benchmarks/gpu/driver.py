"""The viewer as a user starts it, and the user: `python -m benchmarks.gpu.driver serve --offscreen [OPTION ...]`.

Runs the command `serve` itself, on its own offscreen screen; only this screen counts pictures, and a hand drags the
mouse on request. Commands come as lines of JSON, {"do": NAME, ...}, and each is answered by one line:

| do | what |
|---|---|
| state | what is shown: fault, version, path, notes, details, timings, the camera's distance |
| hands, how=rest, drag or burst | keep still; drag without pause; 1 s of dragging and 1 s of rest in turn |
| key, name= | press and let go of a key |
| closer, distance= | turn the wheel until the camera is that far from its target |
| begin, report | count from now on; what was counted |
| pixel | the pixel in the middle of the last picture |
| picture, path= | the last picture as a .npy file, (H, W, 4) uint8 |
| watch, on= | read that pixel after every picture and report at once when it changes, and since when what was done |
"""

from __future__ import annotations

import collections
import itertools
import json
import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import viewer_app.app
import viewer_app.screens.offscreen
from viewer_app.events import Close, Key, PointerMove, PointerPress, PointerRelease, Wheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from viewer_app.app import App
    from viewer_app.events import Event
    from viewer_app.views.base import View

_HAND_PERIOD = 1 / 125
"""Seconds between two moves of a common mouse."""
_out = sys.stdout


def say(**message: Any) -> None:
    print(json.dumps(message), file=_out, flush=True)


class CountingScreen(viewer_app.screens.offscreen.OffscreenScreen):
    """The offscreen screen, with a user in front of it."""

    app: ClassVar[App | None] = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._commands: collections.deque[dict[str, Any]] = collections.deque()
        self._how = "rest"
        self._watched: tuple[int, ...] | None = None
        self._renderers: set[int] = set()
        self._moved_to: bytes = b""
        self._renders: list[tuple[int, int, bool]] = []
        self._shown: list[float] = []
        self._begin = time.monotonic()
        self._extent = self.size
        self._moments: dict[str, int] = {}
        """When what was done for the picture that comes next, in ns: see `_time`."""
        self._timed: set[int] = set()
        self._hand = threading.Event()
        for work in (self._listen, self._move_hand):
            threading.Thread(target=work, daemon=True).start()

    # -- what the viewer calls ------------------------------------------------------------------------------

    def poll(self, timeout: float) -> list[Event]:
        events = super().poll(0 if self._commands else timeout)
        self._extent = self.size
        while self._commands:
            command = self._commands.popleft()
            try:
                answer = getattr(self, "_do_" + command.pop("do"))(**command)
                say(**(answer or {"done": True}))
            except Exception as e:
                say(error=f"{type(e).__name__}: {e}")
        return events

    def present(self) -> None:
        super().present()
        self._shown.append(time.monotonic())
        if self._watched is not None and (rgb := self._middle()) != self._watched:
            now = time.monotonic_ns()
            say(seen=rgb, ns=now, moments=self._moments)
            self._watched = rgb
        self._count_renders()
        self._time()

    # -- what it shows --------------------------------------------------------------------------------------

    def _view(self) -> View | None:
        slot = self.app.catalogue.shown if self.app is not None else None
        return slot.view if slot is not None else None

    def _count_renders(self) -> None:
        """From its first picture on, count what the view's renderer draws, in what size and with what camera."""
        renderer = getattr(self._view(), "_renderer", None)
        if renderer is None or id(renderer) in self._renderers:
            return
        self._renderers.add(id(renderer))
        render = renderer.render

        def counted(camera: Any, *args: Any, **options: Any) -> Any:
            camera_now = camera.viewmat.tobytes()
            self._renders.append((camera.width, camera.height, camera_now != self._moved_to))
            self._moved_to = camera_now
            picture = render(camera, *args, **options)
            if self._watched is not None:
                self._moments["launched"] = time.monotonic_ns()
                picture.source = self._marking("cuda", picture.source)
            return picture

        renderer.render = counted

    def _time(self) -> None:
        """From its first picture on, note when a new version was seen, and taken by the view.

        A picture of Gaussians is launched when its renderer returns, and CUDA is done when its pixels are handed out;
        an image's work of CUDA, if any, is done when the view has taken it.
        """
        view = self._view()
        if view is None or self.app is None or id(view) in self._timed:
            return
        self._timed.add(id(view))
        subscriber = self.app.catalogue.subscriber
        if "poll" not in vars(subscriber):
            subscriber.poll = self._marking("seen", subscriber.poll)
        view.update = self._marking("taken", view.update)

    def _marking(self, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        """Notes when it last did something."""
        def marked(*args: Any, **options: Any) -> Any:
            done = do(*args, **options)
            if done and self._watched is not None:
                self._moments[name] = time.monotonic_ns()
            return done

        return marked

    def _middle(self) -> tuple[int, ...]:
        width, height = self.size
        return tuple(self.framebuffer.read(viewport=(width // 2, height // 2, 1, 1), components=3, alignment=1))

    # -- commands -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.append(json.loads(line))
            self.wake()
        self.push(Close())

    def _do_state(self) -> dict[str, Any]:
        app, view = self.app, self._view()
        slot = app.catalogue.shown if app is not None else None
        fault = (slot.entry.fault or slot.entry.fault_of_source) if slot is not None else ""
        orbit = getattr(view, "orbit", None)
        return {"shows": view is not None and not view.empty and not fault and bool(self._shown),
                "fault": fault, "version": slot.entry.version if slot is not None else 0,
                "path": [slot.source.path, *view.path] if slot is not None and view is not None else [],
                "details": view.details if view is not None else [],
                "timings": view.timings if view is not None else {},
                "distance": orbit.distance if orbit is not None else 0.0,
                "notes": [*app.state.notices, *slot.source.notes, *view.extras]
                if app is not None and slot is not None and view is not None else [],
                "torch": "torch" in sys.modules, "cuda": _has_cuda_context()}

    def _do_hands(self, how: str) -> None:
        self._how = how
        self._hand.set()

    def _do_key(self, name: str) -> None:
        self.push(Key(name), Key(name, pressed=False))

    def _do_closer(self, distance: float) -> None:
        orbit = getattr(self._view(), "orbit", None)
        assert orbit is not None, "nothing to come closer to"
        notches = math.log(distance / orbit.distance) / math.log(0.88)
        width, height = self.size
        while abs(notches) > 1e-6:
            step = max(min(notches, 1.0), -1.0)
            notches -= step
            self.push(Wheel(width / 2, height / 2, step))

    def _do_begin(self) -> None:
        self._renders.clear()
        self._shown.clear()
        self._begin = time.monotonic()

    def _do_report(self) -> dict[str, Any]:
        assert self.app is not None
        now = time.monotonic()
        seconds = now - self._begin
        sizes = collections.Counter(f"{w}x{h}" for w, h, _ in self._renders)
        moments = [self._begin, *self._shown, now]
        return {"seconds": seconds, "pictures_s": len(self._shown) / seconds,
                "renders_s": len(self._renders) / seconds,
                "moved_s": sum(moved for *_, moved in self._renders) / seconds, "sizes": sizes.most_common(4),
                "gap_ms": max(b - a for a, b in itertools.pairwise(moments)) * 1e3,
                "gpu_share": self.app.state.timings.gpu_share}

    def _do_pixel(self) -> dict[str, Any]:
        return {"rgb": self._middle()}

    def _do_picture(self, path: str) -> None:
        np.save(path, self.pixels())

    def _do_watch(self, on: bool) -> None:
        self._watched = self._middle() if on else None

    # -- the hand -------------------------------------------------------------------------------------------

    def _move_hand(self) -> None:
        pressed = False
        phase = 0.0
        since, before = time.monotonic(), ""
        while not self.closed:
            if self._how == "rest" and not pressed:
                self._hand.wait()  # a thread that wakes takes time from the one that draws
                self._hand.clear()
            time.sleep(_HAND_PERIOD)
            how, now = self._how, time.monotonic()
            if how != before:
                since, before = now, how
            moving = how == "drag" or (how == "burst" and int(now - since) % 2 == 0)
            width, height = self._extent
            x = width / 2 + 0.2 * height * math.sin(phase)
            y = height / 2 + 0.04 * height * math.sin(1.5 * phase)
            if moving and not pressed:
                self.push(PointerPress(x, y))
            elif pressed and not moving:
                self.push(PointerRelease(x, y))
            elif moving:
                phase += _HAND_PERIOD
                self.push(PointerMove(x, y))
            pressed = moving


def _has_cuda_context() -> bool:
    """Whether this process made a CUDA context, without making one."""
    import ctypes

    with open("/proc/self/maps", encoding="utf-8", errors="replace") as f:
        if "libcuda.so" not in f.read():
            return False
    active, flags = ctypes.c_int(), ctypes.c_uint()
    state = ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxGetState
    return state(0, ctypes.byref(flags), ctypes.byref(active)) == 0 and active.value == 1


def main() -> None:
    from viewer_app.commands import parse

    class WatchedApp(viewer_app.app.App):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            CountingScreen.app = self

    viewer_app.screens.offscreen.OffscreenScreen = CountingScreen  # the command takes both from their modules
    viewer_app.app.App = WatchedApp
    sys.stdout = sys.stderr  # our answers have it to themselves
    parse(sys.argv[1:]).execute()


if __name__ == "__main__":
    main()
