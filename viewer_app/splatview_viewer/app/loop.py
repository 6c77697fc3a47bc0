"""The viewer's loop: streams and events in, pictures out; asleep while nothing happens.

`App.tick(now, events)` works and returns when it has to be called again; `run` and
`step` alone read a clock and sleep.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import moderngl

from splatview_ipc.system.entry import handle_signals
from splatview_viewer.compare.comparisons import Comparisons
from splatview_viewer.core.errors import FileError, GpuLostError, error_text
from splatview_viewer.core.events import PointerMove
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.formats.pictures import save_picture
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.gpu.health import Health, cuda_is_lost
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.recording.recorder import Recorder
from splatview_viewer.shell.user import User
from splatview_viewer.workspace.catalogue import Catalogue
from splatview_viewer.workspace.pump import Pump
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.host import Memo
    from splatview_viewer.core.screen import Screen
    from splatview_viewer.core.settings import State
    from splatview_viewer.recording.options import RecordOptions
    from splatview_viewer.web.browser import BrowserScreen
    from splatview_viewer.web.browsers import Browsers
    from splatview_viewer.workspace.feature import Feature
    from splatview_viewer.workspace.file_source import FileSource

FEATURES: tuple[
    Callable[[Catalogue, moderngl.Context, GpuWork, Callable[[], None]], Feature], ...
] = (Comparisons,)
"""Makers of additions that show several entries in one picture."""
_NEWS_PERIOD_S = 0.004
"""Seconds between full turns while new versions come."""
_NAP_S = 0.00025
"""Seconds between glances at whether there is a new version, which cost little."""
_REMOTE_NAP_S = 0.002
"""The same while all screens are remote: sending takes longer."""
_ACTIVE_PERIOD_S = 1 / 60
"""Seconds between turns while something else happens, or in a window that is hidden."""
_IDLE_PERIOD_S = 1 / 15
"""Seconds between turns while nothing happens."""
_ACTIVE_FOR_S = 1.0
"""Seconds after the last event or version for which the loop turns often."""
_STEPS_S = 0.015
_MAX_STEPS_S = 0.03
"""Seconds of a turn for pictures that are drawn in steps, the latter where the rest of
the turn took as long: input waits no longer, and what is slow gets on."""
_NEXT_WAY_S = 0.1
"""Seconds between two times that steps make way for input: beside a pointer that moves
all the time they get on as well."""
_OUT_PERIOD_S = 1.0
"""Seconds between two pictures for --out."""
_MAX_AWAY = 16
"""Disconnected browsers whose views are kept."""


@dataclass(frozen=True)
class AppOptions:
    """The options of a viewer."""

    files: tuple[Path | FileSource, ...] = ()
    """To be read, or being read already."""
    run: str | None = None
    """The run that is followed, by its id, name or process id; None for all."""
    max_fps: float = 60.0
    out: Path | None = None
    """The file for the screen's own pictures, written once a second when they changed.
    """
    compares: bool = False
    """The two files are shown together, compared with each other."""
    panel: bool = True
    """False for pictures with nothing around or over them."""
    watched: bool = True
    """True if the screen itself is visible, and not only those of browsers."""
    gpu_budget: float = 0.1
    """The share of the GPU's time that the viewer takes at most while a run that it
    shows needs it; 1: no limit."""
    memo: Memo | None = None
    """Settings that are kept between sessions; None if none are."""
    record: RecordOptions | None = None
    """Options of the recorder of scenes; None: nothing is recorded."""


class App:
    """Shows streams and files on a screen, and on those of browsers.

    Everything happens in the thread that made it.
    """

    def __init__(
        self,
        screen: Screen,
        options: AppOptions | None = None,
        *,
        subscriber: Subscriber | None = None,
        browsers: Browsers | None = None,
    ) -> None:
        """Start without users.

        Args:
            screen: holds the OpenGL context of all users.
            subscriber: the subscriber to use; None makes one.
            browsers: makes a screen for each browser that connects.
        """
        self.screen = screen
        self.options = options or AppOptions()
        self.governor = Governor(self.options.gpu_budget)
        self.work = GpuWork(screen.ctx, self.governor, screen.wake)
        self.health = Health(screen.ctx)
        self.users: list[User] = []
        """The connected users. The first is the screen's own, if that is visible."""
        self._browsers = browsers
        self._away: dict[str, User] = {}
        """The users of disconnected browsers, the last one at the end."""
        self._stopping = False
        self._closed = False
        self.due = 0.0
        """The time of the next turn if nothing happens."""
        self.full_ticks = 0
        """Turns in which more was done than to look for a new version."""
        self._active_until = 0.0
        self._naps_until = 0.0
        """Until then a new version is looked for in short naps."""
        self._next_full_turn = 0.0
        self._next_way_at = 0.0
        """Time from which on steps make way for input again."""
        self._is_out_late = False
        """The file of --out is behind the screen's picture."""
        self._last_out = 0.0
        if subscriber is None:
            subscriber = make_subscriber(screen.ctx, self.options.run)
        self.catalogue = self._make_catalogue(subscriber)
        self.pump = Pump(self.catalogue, screen.ctx, self.work)
        self._files = [self.catalogue.open_file(file) for file in self.options.files]
        """The sources of the files that were asked for."""
        if self.options.watched:
            self.users.append(self._make_user(screen))

    def _make_catalogue(self, subscriber: Subscriber) -> Catalogue:
        options = self.options
        screen = self.screen
        catalogue = Catalogue(subscriber, screen.ctx, wake=screen.wake)
        catalogue.features += [
            make(catalogue, screen.ctx, self.work, screen.wake) for make in FEATURES
        ]
        catalogue.shards.run = options.run
        if options.memo is not None:
            catalogue.memo = options.memo
        if options.record is not None and options.record.on:
            catalogue.recorder = Recorder(
                options.record, self.work, screen.wake, catalogue.notice
            )
        return catalogue

    def _make_user(self, screen: Screen) -> User:
        user = User(
            screen,
            self.catalogue,
            self.work,
            panel=self.options.panel,
            max_fps=self.options.max_fps,
            far=screen is not self.screen,
        )
        if self.options.compares:
            first, second = (source.file for source in self._files)
            user.open_pair(first, second)
        return user

    @property
    def user(self) -> User:
        """The screen's own."""
        return self.users[0]

    @property
    def state(self) -> State:
        return self.user.state

    # -- the loop ----------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """The screen is closed, or `stop` was called."""
        return self.screen.state.closed or self._stopping

    def stop(self) -> None:
        """End `run` after this turn. May be called from any thread."""
        self._stopping = True
        self.screen.wake()

    def expect_news(self, end: float) -> None:
        """Look for new versions in short naps until a time."""
        self._active_until = end
        self._naps_until = end

    def tick(self, now: float, events: Sequence[Event] = ()) -> float:
        """Do what is due, and return when to turn again if nothing happens.

        Events are taken in and pictures drawn. While new versions come, most turns only
        look for one, which costs little.

        Args:
            now: the present time, `time.monotonic()`.
            events: of the app's own screen; those of others are fetched.

        Raises:
            FileError: none of the files that were asked for can be read.
        """
        is_napping = self._is_napping(now)
        is_due = bool(events) or now >= self._next_full_turn or self.ended
        if not is_napping or is_due or self.pump.has_new_value(now):
            self._tick_fully(now, events, only_values=is_napping and not is_due)
            is_napping = self._is_napping(now)
            self._next_full_turn = self._plan_full_turn(now, is_napping)
        self.due = self._next_full_turn
        if is_napping:
            nap = _REMOTE_NAP_S
            if self.options.watched:
                nap = _NAP_S
            self.due = min(self._next_full_turn, now + nap)
        return self.due

    def _is_napping(self, now: float) -> bool:
        """Return whether new versions come, and would be seen."""
        if now >= self._naps_until:
            return False
        return any(user.screen.state.visible for user in self.users)

    def _plan_full_turn(self, now: float, is_napping: bool) -> float:
        """Return when the next full turn is due: a period from now, or for a picture."""
        period = _IDLE_PERIOD_S
        if self.catalogue.slots and now < self._active_until:
            period = _NEWS_PERIOD_S if is_napping else _ACTIVE_PERIOD_S
        times = [now + period]
        if self.work.steps.can_go_on:
            times.append(now)
        for user in self.users:
            if user.waiting:
                times.append(max(user.next_drawing(now), now))
        return min(times)

    def _tick_fully(
        self, now: float, events: Sequence[Event], only_values: bool = False
    ) -> None:
        """Take in events and new versions, and draw the pictures that are due.

        only_values: nothing but a new version made the loop turn.
        """
        self.full_ticks += 1
        if self._browsers is not None:
            with self._guard("connecting browsers"):
                self._connect_browsers(self._browsers, now)
        event_types: set[type] = set()
        for user in self.users:
            event_types |= self._take_events(user, events, now)
        if self.screen.state.closed:
            return
        self.work.collect()
        fault = self.health.check(now)
        if fault:
            self.catalogue.notice(fault)
        only_moves = event_types == {PointerMove}
        only_values = only_values and not event_types
        if self.pump.poll(now, only_moves, only_values):
            self.expect_news(now + _ACTIVE_FOR_S)
        for user in self.users:
            with self._guard("a user's turn"):
                user.tick(now)
        self._draw_due(now)
        with self._guard("drawing in steps"):
            turn_s = time.monotonic() - now
            steps_s = min(max(turn_s, _STEPS_S), _MAX_STEPS_S)
            self.work.steps.advance(steps_s, self._makes_way)
        if self._is_out_late and now - self._last_out >= _OUT_PERIOD_S:
            with self._guard("drawing for --out"):
                self.write_out(now)
        # One file among others that cannot be read shows its fault.
        if self._files and all(source.error for source in self._files):
            raise FileError("\n".join(source.error for source in self._files))

    def _makes_way(self) -> bool:
        """Return whether steps end before their time, as a user did something."""
        now = time.monotonic()
        if now < self._next_way_at:
            return False
        if not any(user.screen.has_events for user in self.users):
            return False
        self._next_way_at = now + _NEXT_WAY_S
        return True

    def _draw_due(self, now: float) -> None:
        """Draw the pictures that are due.

        When the GPU's time is short, each user is the first once in a while.
        """
        count = len(self.users)
        for index in range(count):
            user = self.users[(self.full_ticks + index) % count]
            if user.due(now):
                with self._guard("drawing a picture"):
                    self._draw(user, now)

    def _take_events(
        self, user: User, events: Sequence[Event], now: float
    ) -> set[type]:
        """Give a user the events of the screen; a failing one costs none of the others.

        Returns the types of the events.
        """
        with self._guard("reading a page's messages"):
            if user.screen is not self.screen:
                events = user.screen.poll(0)
        for event in events:
            self._active_until = now + _ACTIVE_FOR_S
            with self._guard(f"the event {type(event).__name__}"):
                user.take(event, now)
        return set(map(type, events))

    @contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        """Show a fault of one user or part once, and go on.

        One that ends OpenGL or CUDA is raised.
        """
        try:
            yield
        except (moderngl.Error, GpuLostError):
            raise
        except Exception as e:
            if cuda_is_lost():
                raise
            self.catalogue.fail(action, e)

    def _connect_browsers(self, browsers: Browsers, now: float) -> None:
        """Add the users of browsers that connect, and remove those that leave.

        The views of one that leaves are kept for a while, should it come back.
        """
        for user in list(self.users):
            if user.screen is not self.screen and user.screen.state.closed:
                self._disconnect(user)
        for arrived in browsers.arrivals(now, self.work):
            self._connect(arrived)

    def _disconnect(self, user: User) -> None:
        """Disconnect a browser, and keep its views."""
        self.users.remove(user)
        user.rise()
        user.screen.close()
        previous = self._away.pop(user.who, None)
        if previous is not None:
            previous.close()
        self._away[user.who] = user
        if len(self._away) > _MAX_AWAY:
            oldest = next(iter(self._away))
            self._away.pop(oldest).close()

    def _connect(self, arrived: BrowserScreen) -> None:
        """Add the user of a browser that connects.

        One that connects again before its old connection was missed takes over from it.
        """
        for user in list(self.users):
            if user.who == arrived.page_id and user.screen is not self.screen:
                user.screen.close()
                self._disconnect(user)
        try:
            user = self._away.pop(arrived.page_id, None)
            if user is None:
                user = self._make_user(arrived)
                user.who = arrived.page_id
            else:
                user.sit(arrived)
        except Exception as e:
            arrived.close()
            self.catalogue.fail("connecting a browser", e)
            return
        self.users.append(user)

    # -- pictures ----------------------------------------------------------------------

    def _draw(self, user: User, now: float) -> None:
        """Draw a user's picture and show it; write the screen's own for --out."""
        user.draw(now)
        if self.options.out is not None and user.screen is self.screen:
            self._is_out_late = now - self._last_out < _OUT_PERIOD_S
            if not self._is_out_late:
                self._last_out = now
                self._save_picture(self.options.out)
        user.present(now)

    def _save_picture(self, path: Path) -> None:
        """Write the screen's picture to a file; show a fault of the file."""
        pixels = read_pixels(self.screen.framebuffer)[..., :3]
        try:
            save_picture(pixels, path)
        except FileError as e:
            self.catalogue.notice(str(e))

    def write_out(self, now: float) -> None:
        """Draw once more where the file of --out is behind the screen's picture."""
        if self._is_out_late:
            self.user.mark()
            self._last_out = now - 2 * _OUT_PERIOD_S
            self._draw(self.user, now)

    def close(self) -> None:
        """Release everything. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._browsers is not None:
            self._browsers.close()
        for user in [*self.users, *self._away.values()]:
            user.close()
            if user.screen is not self.screen:
                user.screen.close()
        self._away.clear()
        self.catalogue.close()
        self.work.close()
        self.screen.close()


# -- around the loop -------------------------------------------------------------------


def step(app: App) -> None:
    """Sleep until there is something to do, and do it."""
    full_ticks = app.full_ticks
    while app.full_ticks == full_ticks:
        events = app.screen.poll(max(app.due - time.monotonic(), 0.0))
        app.tick(time.monotonic(), events)


def run(app: App, signals: Sequence[int] = ()) -> None:
    """Turn until the screen closes or a signal comes; then close the app.

    The signals are SIGINT, SIGTERM and SIGHUP.

    Args:
        app: the viewer.
        signals: such signals that came before.

    Raises:
        FileError: none of the files that were asked for can be read.
        GpuLostError: OpenGL or CUDA is lost for this process. The app is not closed
            then: a lost driver may never answer.
    """
    lost_reason = ""
    # What was imported lives to the end: looking through it takes up to 100 ms.
    gc.freeze()
    with handle_signals(lambda *_: app.stop()):
        try:
            if signals:
                app.stop()
            while not app.ended:
                step(app)
            app.write_out(time.monotonic())
        except Exception as e:
            # Any call may be the first to meet a lost GPU; faults of one view are shown
            # in its place.
            lost_reason = _lost_gpu(e)
            if not lost_reason:
                raise
            raise GpuLostError(
                f"{lost_reason}. Start the viewer again; what the driver says: "
                "nvidia-smi, "
                "dmesg; "
                "without a graphics card: CUDA_VISIBLE_DEVICES= splatview serve"
            ) from e
        finally:
            gc.unfreeze()
            if not lost_reason:
                app.close()


def _lost_gpu(e: Exception) -> str:
    """Return how OpenGL or CUDA was lost; "" for another exception."""
    if isinstance(e, (moderngl.Error, GpuLostError)):
        return error_text(e)
    return cuda_is_lost()
