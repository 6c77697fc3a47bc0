"""Holds the viewer to its share of a GPU that a training run needs as well.

Plain arithmetic, no graphics. The governor learns what each work costs (`costs`), pays
for it from an account that fills with the share (`account`), and says when the next
picture may begin and how large it may be while the camera moves.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.gpu.account import Account
from splatview_viewer.gpu.costs import WorkCosts, estimate, highest_scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.gpu.costs import Costs, WorkKey

SMOOTH = 52.0
FLUENT = 45.0
"""Pictures a second to aim for while the camera moves, and with how few a resolution is
kept once it was chosen."""
ALONE = 60.0
"""Milliseconds that a picture may take at most while the camera moves and nothing else
needs the GPU."""
SWITCH = 0.4
"""Milliseconds that another process loses whenever the GPU turns to the viewer's CUDA,
and again for its OpenGL, beside what is done then.

On an H200 a turn to CUDA and on to OpenGL takes 0.34 ms however little is done, and a
training at its side lost 2.1 ms for each picture of 1.03 ms."""
SLOW = 40.0
"""Versions a second up to which each is shown as soon as the share allows it."""
VERSIONS = 10.0
"""New versions of a scene a second, at most, while the camera moves and where they come
faster than SLOW."""
RENDERS = 15.0
"""Pictures of a scene a second to aim for, at full resolution, while the last one is
moved along with the camera."""
WITH_DEPTH = "with depth"
"""Option of a scene's work that gives depth as well, for a picture that is going to be
moved along."""
_DISPLAY_SHARE = 0.65
"""Part of the share that pictures on the screen take at most that show a scene's last
picture moved."""
WORKER_SHARE = 0.5
"""Part of the share that pictures on the screen leave to a worker whose picture is
awaited."""
_ENOUGH = 45.0
"""Pictures a second on the screen with which moving the last one along goes on, once
FLUENT seemed possible."""
_WORTHWHILE = 0.75
"""Part of the cost of a picture of the scene itself that one that shows the last one
moved may cost to be worth it."""
_DEPTH_FACTOR = 1.6
"""Cost of a picture with depth, in those of one without, as long as one of both is not
measured."""
_TRY_MOVING_S = 5.0
"""Seconds after which it is measured again what it costs to move a picture, if that
seemed too much."""
_MIN_MOVED_SCALE = 0.5
"""The lowest resolution of a picture that is moved along."""
_PAUSE_S = 0.5
"""Seconds without such pictures after which the choice of a resolution begins again."""
_LONG_AGO = -1e9


@dataclass(slots=True)
class _PictureWork:
    """The works of one picture."""

    work_keys: list[WorkKey] = field(default_factory=list)
    interfaces: set[str] = field(default_factory=set)
    """The interfaces that did them: "cuda", "opengl"."""
    goal_ms: float = 0.0
    """Milliseconds that are to be saved up for a later picture."""
    is_worker_awaited: bool = False
    """Some of them are for a worker's picture."""


class _PictureWorks:
    """The works of the present picture, and of the one before it."""

    def __init__(self, costs: WorkCosts) -> None:
        self.present = _PictureWork()
        self._previous = _PictureWork()
        self._costs = costs

    def begin(self) -> None:
        """Start another picture."""
        self._previous = self.present
        self.present = _PictureWork()

    @property
    def goal_ms(self) -> float:
        """Milliseconds that are being saved up; 0: none."""
        return max(self.present.goal_ms, self._previous.goal_ms)

    @property
    def is_worker_awaited(self) -> bool:
        """True while it is saved up for a worker's picture."""
        return self.present.is_worker_awaited or self._previous.is_worker_awaited

    def display_ms(self, name: str) -> float:
        """Return the cost of a picture on the screen without `name`, moving and loading."""
        left_out = (name, "load", "warp")
        work_keys = self.present.work_keys or self._previous.work_keys
        costs = [
            self._costs.cost(key) or 0.0 for key in work_keys if key[0] not in left_out
        ]
        interfaces = self.present.interfaces | self._previous.interfaces
        return sum(costs) + SWITCH * len(interfaces)


class _MovingTrials:
    """Trials of moving a picture along although that seemed too much."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_at = _LONG_AGO

    def begin(self) -> bool:
        """Begin a trial if the last one was long ago; return whether it was."""
        now = self._clock()
        if now - self._begun_at <= _TRY_MOVING_S:
            return False
        self._begun_at = now
        return True


class ScaleChoice(NamedTuple):
    """A resolution, and what a picture costs there."""

    scale: float
    ms: float
    """As far as is known, else 0."""


class Governor:
    """Spaces pictures so that the GPU works for the viewer at most a share of the time.

    Only while another process needs it (`Account.shared`).
    """

    def __init__(
        self, share: float = 0.1, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with a full account.

        Args:
            share: over 0 up to 1; 1 means no limit.
            clock: seconds.

        Raises:
            ValueError: `share` is something else.
        """
        self.account = Account(share, clock)
        self._clock = clock
        self._costs = WorkCosts(clock)
        self._unpaid: dict[WorkKey, int] = {}
        """Number of works by work, of those that were done before their cost was known."""
        self._pictures = _PictureWorks(self._costs)
        self._picture_at = _LONG_AGO
        self._moved_ms: float | None = None
        """Cost in ms of a picture that shows the last one moved, while that goes on."""
        self._scale = 1.0
        self._depth_scale = 1.0
        self._scaled_at = _LONG_AGO
        self._moving_trials = _MovingTrials(clock)
        self._version_at = _LONG_AGO
        self._version_period = 0.0

    # -- works and their costs ------------------------------------------------------------

    def begin_picture(self) -> None:
        """Start another picture: the works that follow belong to it."""
        self._pictures.begin()
        self._picture_at = self._clock()
        self.account.goal_ms = self._pictures.goal_ms

    @property
    def work_names(self) -> set[object]:
        """The names of the works that the present picture consists of."""
        return {name for name, *_ in self._pictures.present.work_keys}

    def charge(self, work_key: WorkKey, interface: str = "") -> None:
        """Take note that the GPU was given a work, and pay for it.

        Args:
            work_key: the work.
            interface: "cuda" or "opengl". The first of each in a picture makes the GPU
                turn to it, which costs SWITCH.
        """
        picture = self._pictures.present
        picture.work_keys.append(work_key)
        if interface and interface not in picture.interfaces:
            picture.interfaces.add(interface)
            if self.account.shared:
                self.account.pay(SWITCH)
        cost = self.cost(work_key)
        if cost is None:
            self._unpaid[work_key] = self._unpaid.get(work_key, 0) + 1
        else:
            self.account.pay(cost)

    def record(self, work_key: WorkKey, ms: float) -> None:
        """Take note that the GPU spent `ms` on a work, from its start to its end.

        What another process did in between counts in.
        """
        self._costs.record(work_key, ms)
        for _ in range(self._unpaid.pop(work_key, 0)):
            self.account.pay(self.cost(work_key) or 0.0)

    def cost(self, work_key: WorkKey) -> float | None:
        """Return the milliseconds that a work takes; None if it was not measured."""
        return self._costs.cost(work_key)

    def costs_by_scale(
        self, name: str, size: tuple[int, int], *options: object
    ) -> Costs:
        """Return the known costs of a work at SCALES, as `WorkCosts.by_scale`."""
        return self._costs.by_scale(name, size, *options)

    # -- what may be done -----------------------------------------------------------------

    def next_picture(self) -> float:
        """Return the time of the clock at which the next picture may begin; 0 means now.

        Pictures that show the last one moved, or wait for a worker's, take only a part
        of the share, so that scenes are drawn as well.
        """
        account = self.account
        now = self._clock()
        due = now - account.balance(now) / account.ms_per_second
        is_saving = account.goal_ms > 0
        display_ms = self._moved_ms
        display_share = _DISPLAY_SHARE
        if self._pictures.is_worker_awaited:
            display_share = 1 - WORKER_SHARE
            if display_ms is None:
                display_ms = self._pictures.display_ms("")
        if account.limited and is_saving and display_ms is not None:
            period = display_ms / (account.ms_per_second * display_share)
            due = max(due, self._picture_at + period)
        if due <= now:
            return 0.0
        return due

    @property
    def least_period(self) -> float:
        """Return the fewest seconds between two pictures; 0: as the screen has it.

        Scenes are drawn SMOOTH times a second where another process needs the GPU: what
        is beyond that costs it more than a user sees.
        """
        if self.account.limited and "cuda" in self._pictures.present.interfaces:
            return 1 / SMOOTH
        return 0.0

    def has_saved(self, ms: float, *, is_for_worker: bool = False) -> bool:
        """Return True if the account holds the cost of works of `ms` and a turn to CUDA.

        Then they hold back no picture on the screen. What is missing is saved up, as long
        as this is asked with each picture.

        Args:
            ms: milliseconds of the GPU.
            is_for_worker: another program does them, for which pictures on the screen
                leave a part of the share.
        """
        account = self.account
        picture = self._pictures.present
        picture.is_worker_awaited |= is_for_worker
        needed = ms + SWITCH
        picture.goal_ms = max(picture.goal_ms, needed)
        account.goal_ms = self._pictures.goal_ms
        return account.balance(self._clock()) >= needed or not account.limited

    def moves_along(self, name: str, size: tuple[int, int], warp: WorkKey) -> bool:
        """Return True if a scene's last picture, moved along, is to be shown meanwhile.

        That is while the camera moves, in place of the works `(name, width, height)` each
        time: only where it is clearly cheaper, and can be done often enough.

        Args:
            name: the name of the scene's work.
            size: width and height on the screen.
            warp: the work of moving a picture. As long as its cost is not known, it is
                tried.
        """
        costs = self._costs.by_scale(name, size)
        was_moving = self._moved_ms is not None
        self._moved_ms = None
        if not self.account.limited or not costs:
            return False
        display_ms = self._pictures.display_ms(name)
        kept_scale = None if was_moving else 1.0
        ms_per_second = self.account.ms_per_second
        scale = _fluent_scale(costs, ms_per_second, display_ms, kept_scale)
        warp_ms = self.cost(warp) or 0.0
        if warp_ms and not was_moving and self._moving_trials.begin():
            warp_ms = 0.0
        moved_ms = display_ms + warp_ms
        pace = _ENOUGH if was_moving else FLUENT
        is_cheaper = moved_ms <= _WORTHWHILE * (estimate(costs, scale) + display_ms)
        is_possible = moved_ms * pace <= ms_per_second * _DISPLAY_SHARE
        if scale < 1.0 and is_cheaper and is_possible:
            self._moved_ms = moved_ms
            return True
        return False

    def scale_with_depth(self, name: str, size: tuple[int, int]) -> ScaleChoice:
        """Choose the resolution of pictures with depth, RENDERS of them a second.

        They are the works `(name, width, height, WITH_DEPTH)`, beside pictures on the
        screen that show the last one moved. It is 1, or one of SCALES, but no less than
        `_MIN_MOVED_SCALE`.
        """
        costs = self._costs.by_scale(name, size, WITH_DEPTH)
        if not costs:
            without_depth = self._costs.by_scale(name, size)
            costs = {scale: ms * _DEPTH_FACTOR for scale, ms in without_depth.items()}
        if not self.account.limited or not costs:
            return ScaleChoice(1.0, 0.0)
        moved_ms = self._moved_ms
        if moved_ms is None:
            moved_ms = self._pictures.display_ms(name)
        ms_per_second = self.account.ms_per_second
        display = min(SMOOTH * moved_ms, ms_per_second * _DISPLAY_SHARE)
        budget = (ms_per_second - display) / RENDERS - SWITCH
        scale = highest_scale(costs, budget, self._depth_scale, 1.2 * budget)
        self._depth_scale = max(scale, _MIN_MOVED_SCALE)
        return ScaleChoice(self._depth_scale, estimate(costs, self._depth_scale))

    def scale(self, name: str, size: tuple[int, int]) -> float:
        """Choose the resolution of the works `(name, width, height)` while the camera moves.

        It is one of SCALES: as the share allows it or, where nothing is limited, so that a
        picture takes at most ALONE. Costs that are not known are estimated from those
        that are.
        """
        now = self._clock()
        if now - self._scaled_at > _PAUSE_S:
            self._scale = 1.0
        self._scaled_at = now
        costs = self._costs.by_scale(name, size)
        if not costs:
            return 1.0
        if self.account.limited:
            display_ms = self._pictures.display_ms(name)
            ms_per_second = self.account.ms_per_second
            self._scale = _fluent_scale(costs, ms_per_second, display_ms, self._scale)
        else:
            self._scale = highest_scale(costs, ALONE / 1.3, self._scale, ALONE)
        return self._scale

    def version_pace(self, rate_hz: float, moving: bool = False) -> float:
        """Return how many versions of scenes a second may be loaded; inf: all.

        Args:
            rate_hz: versions that come in a second.
            moving: the camera moves, whose pictures come first, however large the share
                is.
        """
        if not self.account.shared or not (self.account.limited or moving):
            return math.inf
        if moving or rate_hz > SLOW:
            return VERSIONS
        return SLOW * 10

    def next_version(self, rate_hz: float, moving: bool = False) -> float:
        """Return the time of the clock at which a scene's next version may be loaded.

        0 means now. The arguments are those of `version_pace`.
        """
        pace = self.version_pace(rate_hz, moving)
        if math.isinf(pace):
            return 0.0
        self._version_period = 1 / pace
        return max(self.next_picture(), self._version_at + self._version_period)

    def loads_version(self) -> None:
        """Take note that a version is being loaded."""
        # On average one is loaded in a period, though each comes a little late.
        earliest = self._clock() - self._version_period / 2
        self._version_at = max(self._version_at + self._version_period, earliest)


def _fluent_scale(
    costs: Costs, ms_per_second: float, display_ms: float, kept_scale: float | None
) -> float:
    """Return the highest of SCALES with enough pictures a second.

    Args:
        costs: the costs of the scene at some of SCALES.
        ms_per_second: milliseconds a second that pictures may cost.
        display_ms: milliseconds that each picture costs besides.
        kept_scale: the scale for which FLUENT pictures are enough; for others it is
            SMOOTH.
    """
    budget = ms_per_second / SMOOTH - display_ms
    kept_budget = ms_per_second / FLUENT - display_ms
    return highest_scale(costs, budget, kept_scale, kept_budget)


def next_due(due: float, started_at: float, period: float) -> float:
    """Return the time at which the picture after one may begin.

    On average one begins in a period, though each begins a little late.

    Args:
        due: the time at which the one before was due.
        started_at: the time at which it began.
        period: seconds.
    """
    return max(due + period, started_at + period / 2)
