"""The viewer's loop: streams and events in, pictures out; asleep while nothing happens.

`App.turn(now, events)` works and returns when it has to be called again; `run` and `step` alone read a clock and
sleep.
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
from splatview_viewer.core.errors import FileError, GpuLostError, words_of
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.formats.pictures import save_picture
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.gpu.work import GpuWork, Health, cuda_is_lost
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
    from splatview_viewer.recording.recording import RecordOptions
    from splatview_viewer.web.browser import Browsers, BrowserScreen
    from splatview_viewer.workspace.catalogue import Feature
    from splatview_viewer.workspace.sources import FileSource

FEATURES: tuple[
    Callable[[Catalogue, moderngl.Context, GpuWork, Callable[[], None]], Feature], ...
] = (Comparisons,)
"""Makers of what adds its parts to the panel for several entries."""
_NEWS_PERIOD = 0.004
_NAP = 0.00025
"""Seconds between turns while new versions come, and between glances at whether there is one, which cost little."""
_REMOTE_NAP = 0.002
"""The same glances while all screens are remote: sending takes longer."""
_ACTIVE_PERIOD = 1 / 60
"""Seconds between turns while something else happens, and where nothing is seen: in a window that is hidden."""
_IDLE_PERIOD = 1 / 15
_ACTIVE_FOR = 1.0
_OUT_PERIOD = 1.0
_MOST_AWAY = 16
"""Disconnected browsers whose views are kept."""


@dataclass(frozen=True)
class AppOptions:
    files: tuple[Path | FileSource, ...] = ()
    """To be read, or being read already."""
    run: str | None = None
    max_fps: float = 60.0
    out: Path | None = None
    """The file for what the screen itself shows, written once a second when it changed."""
    panel: bool = True
    """False for pictures with nothing around or over them."""
    watched: bool = True
    """True where the screen itself is seen, and not only those of browsers."""
    gpu_budget: float = 0.1
    """The share of the GPU's time that the viewer takes at most while a run that it shows needs it; 1: no limit."""
    memo: Memo | None = None
    """Settings that are kept between sessions; None: none are."""
    record: RecordOptions | None = None
    """Options of the recorder of scenes; None: nothing is recorded."""


class App:
    """Shows streams and files on a screen, and on those of browsers. Everything happens in the thread that made it."""

    def __init__(
        self,
        screen: Screen,
        options: AppOptions | None = None,
        *,
        subscriber: Subscriber | None = None,
        browsers: Browsers | None = None,
    ) -> None:
        """`screen` holds the OpenGL context of all users. `browsers`: makes a screen for each that connects."""
        self.screen = screen
        self.options = options or AppOptions()
        self.governor = Governor(self.options.gpu_budget)
        self.work = GpuWork(screen.ctx, self.governor)
        self.health = Health(screen.ctx)
        self.users: list[User] = []
        """The connected users. The first is the screen's own, if that is seen."""
        self._browsers = browsers
        self._away: dict[str, User] = {}
        """The users of disconnected browsers, the last one at the end."""
        self._stopping = False
        self._closed = False
        self.due = 0.0
        """The time of the next turn if nothing happens."""
        self.turns = 0
        """Turns in which more was done than to look for a new version."""
        self._active_until = 0.0
        self._news_until = 0.0
        self._full_at = 0.0
        """The time of the next full turn."""
        self._out_due = False
        self._out_at = 0.0
        if subscriber is None:
            subscriber = make_subscriber(screen.ctx, self.options.run)
        self.catalogue = Catalogue(subscriber, screen.ctx, wake=screen.wake)
        self.pump = Pump(self.catalogue, screen.ctx, self.work)
        self.catalogue.features += [
            make(self.catalogue, screen.ctx, self.work, screen.wake)
            for make in FEATURES
        ]
        self.catalogue.shards.run = self.options.run
        if self.options.memo is not None:
            self.catalogue.memo = self.options.memo
        if self.options.record is not None and self.options.record.on:
            self.catalogue.recorder = Recorder(
                self.options.record, self.work, screen.wake
            )
        self._asked = [self.catalogue.open_file(file) for file in self.options.files]
        if self.options.watched:
            self.users.append(self._user(screen))

    def _user(self, screen: Screen) -> User:
        return User(
            screen,
            self.catalogue,
            self.work,
            panel=self.options.panel,
            max_fps=self.options.max_fps,
            far=screen is not self.screen,
        )

    @property
    def user(self) -> User:
        """The screen's own."""
        return self.users[0]

    @property
    def state(self) -> State:
        return self.user.state

    # -- the loop ------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """The screen is closed, or the program was told to end."""
        return self.screen.state.closed or self._stopping

    def stop(self) -> None:
        """End `run` after this turn. May be called from any thread."""
        self._stopping = True
        self.screen.wake()

    def turn(self, now: float, events: Sequence[Event] = ()) -> float:
        """Take in what has happened, draw if need be, and return when to turn again if nothing happens.

        events: of the app's own screen; those of others are fetched. While new versions come, most turns only look for
        one, which costs little.

        Raises FileError when none of the files that were asked for can be read.
        """

        def looks() -> bool:
            return now < self._news_until and any(
                user.screen.state.visible for user in self.users
            )

        looking = looks()
        if (
            not looking
            or events
            or now >= self._full_at
            or self.ended
            or self.pump.has_news(now)
        ):
            self._turn(now, events)
            looking = looks()
            period = _IDLE_PERIOD
            if self.catalogue.slots and now < self._active_until:
                period = _NEWS_PERIOD if looking else _ACTIVE_PERIOD
            self._full_at = min(
                [
                    now + period,
                    *(
                        max(user.may_draw(now), now)
                        for user in self.users
                        if user.waiting
                    ),
                ]
            )
        nap = _NAP if self.options.watched else _REMOTE_NAP
        self.due = min(self._full_at, now + nap) if looking else self._full_at
        return self.due

    def _turn(self, now: float, events: Sequence[Event]) -> None:
        self.turns += 1
        with self._guard("connecting browsers"):
            self._receive(now)
        for user in self.users:
            self._take_events(user, events, now)
        if self.screen.state.closed:
            return
        self.work.collect()
        why = self.health.turn(now)
        if why:
            self.catalogue.notice(why)
        self.governor.shared = self.pump.gpu_is_needed(now)
        if self.pump.poll(now):
            self._active_until = self._news_until = now + _ACTIVE_FOR
        for user in self.users:
            with self._guard("a user's turn"):
                user.tick(now)
        # When the GPU's time is short, each is the first in its turn.
        for i in range(len(self.users)):
            user = self.users[(self.turns + i) % len(self.users)]
            if user.due(now):
                with self._guard("drawing a picture"):
                    self._draw(user, now)
        if self._out_due and now - self._out_at >= _OUT_PERIOD:
            with self._guard("drawing for --out"):
                self.write_out(now)
        if self._asked and all(
            source.error for source in self._asked
        ):  # one among others shows its fault
            raise FileError("\n".join(source.error for source in self._asked))

    def _take_events(self, user: User, events: Sequence[Event], now: float) -> None:
        """Give a user the events of the screen; one that fails costs none of the others."""
        with self._guard("reading a page's messages"):
            if user.screen is not self.screen:
                events = user.screen.poll(0)
        for event in events:
            self._active_until = now + _ACTIVE_FOR
            with self._guard(f"the event {type(event).__name__}"):
                user.take(event, now)

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Tell a fault of one user or part once, and go on. One that ends OpenGL or CUDA is raised."""
        try:
            yield
        except (moderngl.Error, GpuLostError):
            raise
        except Exception as e:
            if cuda_is_lost():
                raise
            self.catalogue.fail(what, e)

    def _receive(self, now: float) -> None:
        """Connect and disconnect browsers. The views of one that leaves are kept for a while, should it come back."""
        if self._browsers is None:
            return
        for user in list(self.users):
            if user.screen is not self.screen and user.screen.state.closed:
                self._part(user)
        for arrived in self._browsers.arrivals(now, self.work):
            self._seat(arrived)

    def _part(self, user: User) -> None:
        """Disconnect a browser."""
        self.users.remove(user)
        user.rise()
        user.screen.close()
        gone = self._away.pop(user.who, None)
        if gone is not None:
            gone.close()
        self._away[user.who] = user
        if len(self._away) > _MOST_AWAY:
            self._away.pop(next(iter(self._away))).close()

    def _seat(self, arrived: BrowserScreen) -> None:
        """Connect a browser. One that connects again before its old connection was missed takes over from it."""
        for user in list(self.users):
            if user.who == arrived.who and user.screen is not self.screen:
                user.screen.close()
                self._part(user)
        try:
            user = self._away.pop(arrived.who, None)
            if user is None:
                user = self._user(arrived)
                user.who = arrived.who
            else:
                user.sit(arrived)
        except Exception as e:
            arrived.close()
            self.catalogue.fail("connecting a browser", e)
            return
        self.users.append(user)

    # -- pictures ------------------------------------------------------------------------------------------

    def _draw(self, user: User, now: float) -> None:
        user.draw(now)
        if self.options.out is not None and user.screen is self.screen:
            self._out_due = now - self._out_at < _OUT_PERIOD
            if not self._out_due:
                self._out_at = now
                try:
                    save_picture(
                        read_pixels(self.screen.framebuffer)[..., :3], self.options.out
                    )
                except FileError as e:
                    self.catalogue.notice(str(e))
        user.present(now)

    def write_out(self, now: float) -> None:
        """Draw once more where the file of --out is behind what was shown."""
        if self._out_due:
            self.user.dirty = 1
            self._out_at = now - 2 * _OUT_PERIOD
            self._draw(self.user, now)

    def close(self) -> None:
        """Give back everything. Idempotent."""
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


# -- around the loop --------------------------------------------------------------------------------------------------


def step(app: App) -> None:
    """Sleep until there is something to do, and do it."""
    before = app.turns
    while app.turns == before:
        events = app.screen.poll(max(app.due - time.monotonic(), 0.0))
        app.turn(time.monotonic(), events)


def run(app: App, asked: Sequence[int] = ()) -> None:
    """Turn until the screen closes, SIGINT, SIGTERM or SIGHUP comes; then give back everything. asked: such signals
    that came before.

    Raises FileError when none of the files that were asked for can be read; GpuLostError when OpenGL or CUDA is lost
    for this process, and then gives back nothing: a lost driver may never answer.
    """
    lost = ""
    gc.freeze()  # what was imported lives to the end: looking through it takes up to 100 ms
    with handle_signals(lambda *_: app.stop()):
        try:
            if asked:
                app.stop()
            while not app.ended:
                step(app)
            app.write_out(time.monotonic())
        except Exception as e:  # any call may be the first to meet it; faults of one view are told in its place
            if isinstance(e, (moderngl.Error, GpuLostError)):
                lost = words_of(e)
            else:
                lost = cuda_is_lost()
            if not lost:
                raise
            raise GpuLostError(
                f"{lost}. Start the viewer again; what the driver says: nvidia-smi, dmesg; without a "
                "graphics card: CUDA_VISIBLE_DEVICES= splatview serve"
            ) from e
        finally:
            gc.unfreeze()
            if not lost:
                app.close()
