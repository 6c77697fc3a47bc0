"""Holds the viewer to its share of a GPU that a training run needs as well. Plain arithmetic, no graphics.

Whatever is given to the GPU is called a work: a tuple of a word and what decides what it costs, such as
("scene", 1280, 720). The governor learns what each costs, pays for it from an account that fills with the share,
and says when the next picture may begin and how large it may be while the camera moves.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = tuple[object, ...]

SCALES = (1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35)
"""Resolutions of pictures while the camera moves: a few, so that each is measured often."""
SMOOTH = 52.0
FLUENT = 45.0
"""Pictures a second to aim for while the camera moves, and with how few a resolution is kept once it was chosen."""
ALONE = 60.0
"""Milliseconds that a picture may take at most while the camera moves and nothing else needs the GPU."""
SWITCH = 0.4
"""Milliseconds that another process loses whenever the GPU turns to the viewer's CUDA, and again for its OpenGL, beside
what is done then. (On an H200 a turn to CUDA and on to OpenGL takes 0.34 ms however little is done, and a training at
its side lost 2.1 ms for each picture of 1.03 ms.)"""
SLOW = 40.0
"""Versions a second up to which each is shown as soon as the share allows it."""
VERSIONS = 10.0
"""New versions of a scene a second, at most, while the camera moves and where they come faster than SLOW."""
RENDERS = 15.0
"""Pictures of a scene a second to aim for, at full resolution, while the last one is moved along with the camera."""
BROUGHT = "brought"
"""Last word of a scene's work that gives depth as well, for a picture that is going to be moved along."""
_DISPLAY = 0.65
"""Part of the share that pictures on the screen take at most that show a scene's last picture moved."""
_ENOUGH = 45.0
"""Pictures a second on the screen with which moving the last one along goes on, once FLUENT seemed possible."""
_CLEARLY = 0.75
"""Part of the cost of a picture of the scene itself that one that shows the last one moved may cost to be worth it."""
_WITH_DEPTH = 1.6
"""Cost of a picture that is brought with its depth, in those of one without, as long as one of both is not measured."""
_TRY_MOVING = 5.0
"""Seconds after which it is measured again what it costs to move a picture, if that seemed too much."""
_LEAST = 0.5
"""The lowest resolution of a picture that is moved along."""
_PAUSE = 0.5
"""Seconds without such pictures after which the choice of a resolution begins anew."""
_BURST = 0.05
"""Seconds of its share that may be saved up, so that the first picture after a rest comes at once."""
_MEMORY = 5.0
"""Seconds after which what was measured is forgotten, unless nothing was measured since."""
_SAMPLES = 32


class Governor:
    """Spaces pictures so that the GPU works for the viewer at most `share` of the time, while `shared` is set."""

    def __init__(
        self, share: float = 0.1, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`share`: over 0 up to 1; 1 means no limit. `clock`: seconds."""
        if not 0 < share <= 1:
            raise ValueError(
                f"share is {share:g}, not a number over 0 up to 1 (1: no limit)"
            )
        self.share = share
        self.shared = False
        """True while another process needs the GPU. Otherwise nothing is held back."""
        self._clock = clock
        self._samples: dict[Work, deque[tuple[float, float]]] = {}
        self._unknown: dict[Work, int] = {}
        self._account = _BURST * share * 1e3  # ms that may be spent; less than 0: debts
        self._counted_at = clock()
        self._spent: deque[tuple[float, float]] = deque()
        # Of the present picture and the one before it: works, what did them, what is saved up for.
        self._works: tuple[list[Work], list[Work]] = [], []
        self._bursts: tuple[set[str], set[str]] = set(), set()
        self._goals = 0.0, 0.0
        self._begun_at = -1e9
        self._moved_ms: float | None = None
        """Cost in ms of a picture that shows the last one moved, while that goes on."""
        self._scale = 1.0
        self._later_scale = 1.0
        self._scaled_at = self._moving_tried_at = self._version_at = -1e9
        self._version_period = 0.0

    @property
    def limited(self) -> bool:
        """True while anything is held back."""
        return self.shared and self.share < 1

    @property
    def _per_second(self) -> float:
        """Milliseconds of the GPU that may be spent in a second."""
        return self.share * 1e3

    # -- what is done and what it costs --------------------------------------------------------------------

    def begin_picture(self) -> None:
        """Begin another picture: the works that follow belong to it."""
        self._works = ([], self._works[0])
        self._bursts = (set(), self._bursts[0])
        self._goals, self._begun_at = (0.0, self._goals[0]), self._clock()

    @property
    def words(self) -> set[object]:
        """The first words of the works that the present picture consists of."""
        return {work[0] for work in self._works[0]}

    def gives(self, work: Work, by: str = "") -> None:
        """Take note that the GPU was given this work, and pay for it.

        `by`: "cuda" or "opengl". The first of each in a picture makes the GPU turn to it, which costs SWITCH.
        """
        self._works[0].append(work)
        if by and by not in self._bursts[0]:
            self._bursts[0].add(by)
            if self.shared:
                self._pay(SWITCH)
        cost = self.cost(work)
        if cost is None:
            self._unknown[work] = self._unknown.get(work, 0) + 1
        else:
            self._pay(cost)

    def took(self, work: Work, ms: float) -> None:
        """Take note that the GPU spent `ms` on it, from begin to end.

        What another process did in between counts in: the least of the last few is what it costs.
        """
        now = self._clock()
        samples = self._samples.setdefault(work, deque(maxlen=_SAMPLES))
        samples.append((now, ms))
        for _ in range(self._unknown.pop(work, 0)):
            self._pay(self.cost(work) or 0.0)
        if len(self._samples) > 200:  # of windows that were dragged to many sizes
            self._samples = {
                w: s for w, s in self._samples.items() if now - s[-1][0] < _MEMORY
            }

    def cost(self, work: Work) -> float | None:
        """Milliseconds that it takes, as far as is known."""
        samples = self._samples.get(work)
        if not samples:
            return None
        newest = samples[-1][0]
        return min(ms for at, ms in samples if newest - at <= _MEMORY)

    def _pay(self, ms: float) -> None:
        now = self._clock()
        self._balance(now)
        if self.limited:
            self._account -= ms
        self._spent.append((now, ms))

    def _balance(self, now: float) -> float:
        earned = (now - self._counted_at) * self._per_second
        self._counted_at = now
        most = max(_BURST * self._per_second, *self._goals)
        if self.limited:
            self._account = min(self._account + max(earned, 0.0), most)
        else:
            self._account = most
        return self._account

    @property
    def used(self) -> float:
        """The share of the last second that the GPU worked for the viewer."""
        now = self._clock()
        while self._spent and self._spent[0][0] < now - 1:
            self._spent.popleft()
        return sum(ms for _, ms in self._spent) * 1e-3

    # -- what may be done ----------------------------------------------------------------------------------

    def next_picture(self) -> float:
        """Return the time of the clock at which the next picture may begin; 0 means now. Pictures that show the last
        one moved take only a part of the share, so that scenes are drawn as well.
        """
        now = self._clock()
        due = now - self._balance(now) / self._per_second
        if self.limited and any(self._goals) and self._moved_ms is not None:
            due = max(
                due, self._begun_at + self._moved_ms / (self._per_second * _DISPLAY)
            )
        return due if due > now else 0.0

    def has_saved(self, ms: float) -> bool:
        """Return whether the account holds what works of `ms` and a turn to CUDA cost, so that they hold back no
        picture on the screen. What is missing is saved up, as long as it is asked for with each picture.
        """
        needed = ms + SWITCH
        self._goals = max(self._goals[0], needed), self._goals[1]
        return self._balance(self._clock()) >= needed or not self.limited

    def moves_along(self, name: str, size: tuple[int, int], warp: Work) -> bool:
        """Return whether the last picture of a scene, moved along, is to be shown while the camera moves, and not the
        works `(name, width, height)` each time: only where that is clearly cheaper, and can be done often enough.

        `warp`: the work of moving one. As long as its cost is not known, it is tried.
        """
        known = self._known(name, size)
        moves = self._moved_ms is not None
        now = self._clock()
        self._moved_ms = None
        if not self.limited or not known:
            return False
        beside = self._beside(name)
        scale = self._fluent(known, beside, None if moves else 1.0)
        cost = self.cost(warp) or 0.0
        if cost and not moves and now - self._moving_tried_at > _TRY_MOVING:
            self._moving_tried_at = now
            cost = 0.0
        display = beside + cost
        pace = _ENOUGH if moves else FLUENT
        if (
            scale < 1.0
            and display <= _CLEARLY * (_estimate(known, scale) + beside)
            and display * pace <= self._per_second * _DISPLAY
        ):
            self._moved_ms = display
        return self._moved_ms is not None

    def scale_later(self, name: str, size: tuple[int, int]) -> tuple[float, float]:
        """Return the resolution at which to draw the works `(name, width, height, BROUGHT)` RENDERS times a second,
        beside pictures on the screen that show the last one moved: 1, or one of SCALES, but no less than _LEAST. And
        how many ms one takes, as far as is known.
        """
        known = self._known(name, size, BROUGHT)
        if not known:
            known = {
                scale: cost * _WITH_DEPTH
                for scale, cost in self._known(name, size).items()
            }
        if not self.limited or not known:
            return 1.0, 0.0
        display = self._beside(name) if self._moved_ms is None else self._moved_ms
        room = (
            self._per_second - min(SMOOTH * display, self._per_second * _DISPLAY)
        ) / RENDERS - SWITCH
        self._later_scale = max(
            _allowed(known, room, self._later_scale, 1.2 * room), _LEAST
        )
        return self._later_scale, _estimate(known, self._later_scale)

    def scale(self, name: str, size: tuple[int, int]) -> float:
        """Return the resolution at which to draw the works `(name, width, height)` while the camera moves, of SCALES:
        as the share allows it or, where nothing is limited, so that a picture takes at most ALONE.

        Costs that are not known are taken from those that are: a part stays, a part goes with the number of pixels.
        """
        now = self._clock()
        if now - self._scaled_at > _PAUSE:
            self._scale = 1.0
        self._scaled_at = now
        known = self._known(name, size)
        if not known:
            return 1.0
        if self.limited:
            self._scale = self._fluent(known, self._beside(name), self._scale)
        else:
            self._scale = _allowed(known, ALONE / 1.3, self._scale, ALONE)
        return self._scale

    def next_version(self, rate_hz: float, moving: bool = False) -> float:
        """Return the time of the clock at which the next version of a scene may be loaded; 0 means now.

        `rate_hz`: how many come in a second. `moving`: the camera moves, whose pictures come first, however large the
        share is.
        """
        if not self.shared or not (self.limited or moving):
            return 0.0
        pace = VERSIONS if moving or rate_hz > SLOW else SLOW * 10
        self._version_period = 1 / pace
        return max(self.next_picture(), self._version_at + self._version_period)

    def loads_version(self) -> None:
        """Take note that a version is being loaded. On average one is in a period, though each comes a little late."""
        self._version_at = max(
            self._version_at + self._version_period,
            self._clock() - self._version_period / 2,
        )

    def _known(
        self, name: str, size: tuple[int, int], *more: object
    ) -> dict[float, float]:
        """Return the cost of the work `(name, width, height, *more)` at each of SCALES, as far as is known.

        What is measured beside another process is often too much: a resolution that is not drawn is soon unknown again,
        and drawn anew if what others cost lets it.
        """
        works = {s: (name, *scaled(size, s), *more) for s in SCALES}
        measured = {
            s: self._samples[work][-1][0]
            for s, work in works.items()
            if work in self._samples
        }
        newest = max(measured.values(), default=0.0)
        return {
            s: self.cost(works[s]) or 0.0
            for s, at in measured.items()
            if newest - at <= _MEMORY
        }

    def _fluent(
        self, known: dict[float, float], beside: float, kept: float | None
    ) -> float:
        """Return the highest of SCALES with SMOOTH pictures a second, or with FLUENT ones if it is the one to be
        `kept`; `beside`: ms that each costs beside what is `known`.
        """
        return _allowed(
            known,
            self._per_second / SMOOTH - beside,
            kept,
            self._per_second / FLUENT - beside,
        )

    def _beside(self, name: str) -> float:
        """Return the cost of a picture on the screen beside `name`, and beside what is moved or loaded."""
        works = [
            work
            for work in self._works[0] or self._works[1]
            if work[0] not in (name, "load", "warp")
        ]
        return sum(self.cost(w) or 0.0 for w in works) + SWITCH * len(
            self._bursts[0] | self._bursts[1]
        )


def scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """The width and height of a picture of `size` at a resolution of `scale`; at least 16, or what there is."""
    w, h = size
    return max(int(w * scale), min(16, w)), max(int(h * scale), min(16, h))


def _allowed(
    known: dict[float, float], room: float, kept: float | None, kept_room: float
) -> float:
    """The highest of SCALES that costs at most `room` ms, or `kept_room` if it is the one to be `kept`; the lowest
    there is where none does. `known`: what some of them cost.
    """
    fits = [
        s for s in SCALES if _estimate(known, s) <= (kept_room if s == kept else room)
    ]
    return max(fits, default=SCALES[-1])


def _estimate(known: dict[float, float], scale: float) -> float:
    """Milliseconds at a scale, from those known at others."""
    if scale in known:
        return known[scale]
    nearest = sorted(known, key=lambda s: abs(s - scale))
    a = nearest[0]
    if len(nearest) == 1:
        factor = (scale / a) ** 2
        return known[a] * (0.5 + 0.5 * factor)
    b = nearest[1]
    slope = max((known[b] - known[a]) / (b * b - a * a), 0.0)
    return max(known[a] + slope * (scale * scale - a * a), 0.0)


def after(due: float, begun: float, period: float) -> float:
    """Return when the picture after one may begin that was due and begun at these times: on average one in a period,
    though each begins a little late.
    """
    return max(due + period, begun + period / 2)
