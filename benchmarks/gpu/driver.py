"""Run the viewer as a user starts it, and the user.

`python -m benchmarks.gpu.driver serve [OPTION ...]`

Runs the command `serve` itself, without a window; only that pictures are counted, and a
hand drags the mouse on request. Commands come as lines of JSON, {"do": NAME, ...}, and each is answered by one line:

| do | what |
|---|---|
| state | what is shown: fault, path, notes, details, the camera's distance |
| hands, how=rest, drag or burst | keep still; drag without pause; a second of each in turn |
| key, name= | press and let go of a key |
| closer, distance= | turn the wheel until the camera is that far from its target |
| begin, report | count from now on; what was counted |
| pixel | the pixel in the middle of the last picture |
| watch, on= | read it after every picture and report at once when it changes, and since when what was done |
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

import splatview_viewer.app.loop
from benchmarks.harness import reply
from splatview_viewer.app.commands import parse
from splatview_viewer.app.commands import viewer as viewer_options
from splatview_viewer.core.events import (
    Close,
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.screens.offscreen import OffscreenPictures

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.app.loop import App
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption, Screen, ScreenState
    from splatview_viewer.core.shown_view import ShownView

_MOUSE_HZ = 125.0
"""Moves a second of a common mouse."""


class CountingScreen:
    """A screen with a user in front of it."""

    app: ClassVar[App | None] = None

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pushed: collections.deque[Event] = collections.deque()
        self._commands: collections.deque[dict[str, Any]] = collections.deque()
        self._ended = False
        self._hand_mode = "rest"
        self._watched: tuple[int, ...] | None = None
        self._renderers: set[int] = set()
        self._moved_to: bytes = b""
        self._renders: list[tuple[int, int, bool]] = []
        self._presented_at: list[float] = []
        self._counted_from = time.monotonic()
        self._extent = self.state.size
        self._step_times: dict[str, int] = {}
        """When what was done for the picture that comes next, in ns: see `_time`."""
        self._timed: set[int] = set()
        self._hand = threading.Event()
        for thread_main in (self._listen, self._move_hand):
            threading.Thread(target=thread_main, daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)

    def push(self, *events: Event) -> None:
        """Add events to the queue, as if a user had caused them.

        May be called from any thread.
        """
        self._pushed.extend(events)
        self._screen.wake()

    # -- what the viewer calls ------------------------------------------------------------------------------

    @property
    def state(self) -> ScreenState:
        state = self._screen.state
        return state._replace(closed=state.closed or self._ended)

    def poll(self, timeout: float) -> list[Event]:
        events = self._screen.poll(0 if self._commands or self._pushed else timeout)
        while self._pushed:
            events.append(self._pushed.popleft())
            self._ended |= isinstance(events[-1], Close)
        self._extent = self.state.size
        while self._commands:
            command = self._commands.popleft()
            try:
                answer = getattr(self, "_do_" + command.pop("do"))(**command)
                reply(**(answer or {"done": True}))
            except Exception as e:
                reply(error=f"{type(e).__name__}: {e}")
        return events

    def present(self, caption: Caption) -> None:
        rgb = self._watched
        if rgb is not None:
            rgb = self._middle()
        now = time.monotonic_ns()
        self._screen.present(caption)
        self._presented_at.append(time.monotonic())
        if rgb != self._watched:
            reply(seen=rgb, ns=now, moments=self._step_times)
            self._watched = rgb
        self._count_renders()
        self._time()

    # -- what it shows --------------------------------------------------------------------------------------

    def _view(self) -> ShownView | None:
        if self.app is None or self.app.user.shown is None:
            return None
        return self.app.user.shown.view

    def _count_renders(self) -> None:
        """Count what the view's renderer draws, from its first picture on.

        In what size and with what camera.
        """
        renderer = getattr(getattr(self._view(), "content", None), "renderer", None)
        if renderer is None or id(renderer) in self._renderers:
            return
        self._renderers.add(id(renderer))
        render = renderer.render

        def counted(camera: Any, *args: Any, **options: Any) -> Any:
            camera_now = camera.viewmat.tobytes()
            self._renders.append(
                (camera.width, camera.height, camera_now != self._moved_to)
            )
            self._moved_to = camera_now
            picture = render(camera, *args, **options)
            if self._watched is not None:
                self._step_times["launched"] = time.monotonic_ns()
                picture.source = self._marking("cuda", picture.source)
                picture.lacks_gaussians = self._marking(
                    "cuda", picture.lacks_gaussians, in_any_case=True
                )
            return picture

        renderer.render = counted

    def _time(self) -> None:
        """Take the times of new versions, from the view's first picture on.

        When one was seen, and taken by the view.

        A picture of Gaussians is launched when its renderer returns, and CUDA is done
        when its pixels are handed out; an image's work of CUDA, if any, is done when
        the view has taken it.
        """
        view = self._view()
        if view is None or self.app is None or id(view) in self._timed:
            return
        self._timed.add(id(view))
        subscriber = self.app.catalogue.subscriber
        if "poll" not in vars(subscriber):
            subscriber.poll = self._marking("seen", subscriber.poll)
        view.update = self._marking("taken", view.update)

    def _marking(
        self, name: str, do: Callable[..., Any], *, in_any_case: bool = False
    ) -> Callable[..., Any]:
        """Return a function that calls `do` and notes when that last did something.

        in_any_case: also if it says that it did nothing.
        """

        def marked(*args: Any, **options: Any) -> Any:
            done = do(*args, **options)
            if (done or in_any_case) and self._watched is not None:
                self._step_times[name] = time.monotonic_ns()
            return done

        return marked

    def _middle(self) -> tuple[int, ...]:
        width, height = self.state.size
        pictures = self._screen.device_pictures
        if isinstance(pictures, OffscreenPictures) and pictures.unread is not None:
            pixels, rect, _ = pictures.unread
            row = height - 1 - height // 2
            return tuple(pixels[row - rect.y, width // 2 - rect.x].tolist())
        return tuple(
            self.framebuffer.read(
                viewport=(width // 2, height // 2, 1, 1), components=3, alignment=1
            )
        )

    # -- commands -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.append(json.loads(line))
            self.wake()
        self.push(Close())

    def _do_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "shows": False,
            "fault": "",
            "panel": False,
            "path": [],
            "details": [],
            "distance": 0.0,
            "notes": [],
        }
        app = self.app
        if app is None:
            return state
        state["panel"] = app.user.layout.active.has_panel
        slot = app.user.shown
        if slot is not None:
            state["fault"] = slot.entry.fault or slot.entry.fault_of_source
        view = self._view()
        if slot is None or view is None:
            return state
        is_drawn = not view.empty and bool(self._presented_at)
        state["shows"] = is_drawn and not state["fault"]
        state["path"] = [slot.source.path, *view.info.path]
        state["details"] = view.info.details
        state["notes"] = [*app.state.notices, *slot.source.notes, *view.info.extras]
        rig = getattr(getattr(view, "view", None), "rig", None)
        if rig is not None:
            state["distance"] = rig.orbit.distance
        return state

    def _do_hands(self, how: str) -> None:
        self._hand_mode = how
        self._hand.set()

    def _do_key(self, name: str) -> None:
        self.push(Key(name), Key(name, pressed=False))

    def _do_closer(self, distance: float) -> None:
        rig = getattr(getattr(self._view(), "view", None), "rig", None)
        assert rig is not None, "nothing to come closer to"
        orbit = rig.orbit
        notches = math.log(distance / orbit.distance) / math.log(0.88)
        width, height = self.state.size
        while abs(notches) > 1e-6:
            step = max(min(notches, 1.0), -1.0)
            notches -= step
            self.push(Wheel(width / 2, height / 2, step))

    def _do_begin(self) -> None:
        self._renders.clear()
        self._presented_at.clear()
        self._counted_from = time.monotonic()

    def _do_report(self) -> dict[str, Any]:
        assert self.app is not None
        now = time.monotonic()
        seconds = now - self._counted_from
        sizes = collections.Counter(f"{w}x{h}" for w, h, _ in self._renders)
        times = [self._counted_from, *self._presented_at, now]
        return {
            "renders_s": len(self._renders) / seconds,
            "moved_s": sum(moved for *_, moved in self._renders) / seconds,
            "sizes": sizes.most_common(4),
            "gap_ms": max(b - a for a, b in itertools.pairwise(times)) * 1e3,
            "gpu_share": self.app.state.timings.gpu_share,
        }

    def _do_pixel(self) -> dict[str, Any]:
        return {"rgb": self._middle()}

    def _do_watch(self, on: bool) -> None:
        self._watched = self._middle() if on else None

    # -- the hand -------------------------------------------------------------------------------------------

    def _move_hand(self) -> None:
        pressed = False
        phase = 0.0
        mode_since = time.monotonic()
        previous_mode = ""
        while not self.state.closed:
            if self._hand_mode == "rest" and not pressed:
                self._hand.wait()  # a thread that wakes takes time from the one that draws
                self._hand.clear()
            time.sleep(1 / _MOUSE_HZ)
            mode = self._hand_mode
            now = time.monotonic()
            if mode != previous_mode:
                mode_since = now
                previous_mode = mode
            moving = mode == "drag" or (
                mode == "burst" and int(now - mode_since) % 2 == 0
            )
            width, height = self._extent
            x = width / 2 + 0.2 * height * math.sin(phase)
            y = height / 2 + 0.04 * height * math.sin(1.5 * phase)
            if moving and not pressed:
                self.push(PointerPress(x, y))
            elif pressed and not moving:
                self.push(PointerRelease(x, y))
            elif moving:
                phase += 1 / _MOUSE_HZ
                self.push(PointerMove(x, y))
            pressed = moving


def main(counting: type[CountingScreen] = CountingScreen) -> None:
    """Run the viewer's command line with a screen of this class around its own."""

    class WatchedApp(splatview_viewer.app.loop.App):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            CountingScreen.app = self

    def counted(make: Any) -> Any:
        def make_counted(options: Any, size: Any) -> Any:
            screen = make(options, size)
            return counting(screen) if screen is not None else None

        return make_counted

    viewer_options.SCREENS = tuple(map(counted, viewer_options.SCREENS))
    splatview_viewer.app.loop.App = WatchedApp  # the command takes it from its module
    # `reply` has the other to itself.
    sys.stdout = sys.stderr
    parse(sys.argv[1:]).execute()


if __name__ == "__main__":
    main()
