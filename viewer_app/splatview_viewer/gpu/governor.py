"""Holds the viewer to its share of a GPU that a training run needs as well. Plain arithmetic, no graphics.

Whatever is given to the GPU is called a work: a tuple of a word and what decides what it costs, such as
("scene", 1280, 720). The governor learns what each costs, pays for it from an account that fills with the share,
and says when the next picture may begin and how large it may be while somebody moves.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = tuple[object, ...]

SCALES = (1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35)
"""Resolutions of pictures while somebody moves: a few, so that each is measured often."""
SMOOTH, FLUENT = 60.0, 52.0
"""Pictures a second to aim for while somebody moves, and with how few a resolution is kept once it was chosen."""
SWITCH = 0.4
"""Milliseconds that another process loses whenever the GPU turns to the viewer's CUDA, and again for its OpenGL, beside
what is done then. (On an H200 a turn to CUDA and on to OpenGL takes 0.34 ms however little is done, and a training at
its side lost 2.1 ms for each picture of 1.03 ms.)"""
SLOW = 40.0
"""Versions a second up to which each is shown as soon as the share allows it."""
VERSIONS = 10.0
"""New versions of a scene a second, at most, while somebody moves and where they come faster than SLOW."""
RENDERS = 15.0
"""Pictures of a scene a second to aim for, at full resolution, while the last one is moved along with the camera."""
HEAVY = "scene", "load"
"""First words of works that need not be done for each picture on the screen, if the last one can be moved."""
BROUGHT = "brought"
"""Last word of a scene's work that gives depth as well, for a picture that is going to be moved along."""
_DISPLAY = 0.65
"""Of the share, what pictures on the screen take at most that show a scene's last picture moved."""
_ENOUGH = 45.0
"""Pictures a second on the screen with which moving the last one along goes on, once FLUENT seemed possible."""
_CLEARLY = 0.75
"""Of what a picture of the scene itself costs, what one that shows the last one moved may cost to be worth it."""
_WITH_DEPTH = 1.6
"""How many times more a picture costs that is brought with its depth, as long as that is not measured."""
_TRY_MOVING = 5.0
"""Seconds after which it is measured again what it costs to move a picture, if that seemed too much."""
_LEAST = 0.5
"""The lowest resolution of a picture that is moved along."""
_TRY = 2.0
"""Seconds between two pictures that are drawn at a higher resolution than was chosen, to learn what that costs."""
_PAUSE = 0.5
"""Seconds without such pictures after which somebody who moves begins anew."""
_BURST = 0.05
"""Seconds of its share that may be saved up, so that the first picture after a rest comes at once."""
_MEMORY = 10.0
_SAMPLES = 32


class Governor:
    """Spaces pictures so that the GPU works for the viewer at most `share` of the time, while `shared` is set."""

    def __init__(self, share: float = 0.1, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`share`: over 0 up to 1; 1 means no limit. `clock`: seconds."""
        if not 0 < share <= 1:
            raise ValueError(f"share is {share:g}, not a number over 0 up to 1 (1: no limit)")
        self.share = share
        self.shared = False
        """Whether somebody else needs the GPU now. Otherwise nothing is held back."""
        self._clock = clock
        self._samples: dict[Work, deque[tuple[float, float]]] = {}
        self._unknown: dict[Work, int] = {}
        self._account = _BURST * share * 1e3  # ms that may be spent; less than 0: debts
        self._light = self._account * _DISPLAY  # the same for all but HEAVY works
        self._counted_at = clock()
        self._spent: deque[tuple[float, float]] = deque()
        self._picture: list[Work] = []
        self._last_picture: list[Work] = []
        self._bursts: set[str] = set()
        self._last_bursts: set[str] = set()
        self._scene_by = ""
        self._affordable = True
        self._later_scale = 1.0
        self._moves = False
        self._display: float | None = None  # what a picture costs that shows the last one moved, as last reckoned
        self._moving_tried_at = -1e9
        self._scale = 1.0
        self._scaled_at = self._tried_at = -1e9
        self._version_at = -1e9
        self._version_period = 0.0

    @property
    def limited(self) -> bool:
        """Whether anything is held back at the moment."""
        return self.shared and self.share < 1

    # -- what is done and what it costs --------------------------------------------------------------------

    def begin_picture(self) -> None:
        """What follows belongs to another picture than what came before."""
        self._last_picture, self._picture = self._picture, []
        self._last_bursts, self._bursts = self._bursts, set()

    @property
    def words(self) -> set[object]:
        """The first words of the works that the present picture consists of."""
        return {work[0] for work in self._picture}

    def gives(self, work: Work, by: str = "") -> None:
        """The GPU is given this to do.

        `by`: "cuda" or "opengl". The first of each in a picture makes the GPU turn to it, which costs SWITCH.
        """
        self._picture.append(work)
        heavy = work[0] in HEAVY
        if heavy:
            self._scene_by = by
        if by and by not in self._bursts:
            self._bursts.add(by)
            if self.shared:
                self._pay(SWITCH, heavy)
        cost = self.cost(work)
        if cost is None:
            self._unknown[work] = self._unknown.get(work, 0) + 1
        else:
            self._pay(cost, heavy)

    def took(self, work: Work, ms: float) -> None:
        """The GPU was seen to spend `ms` on it, from begin to end.

        What another process did in between counts in: the least of the last few is what it costs.
        """
        now = self._clock()
        samples = self._samples.setdefault(work, deque(maxlen=_SAMPLES))
        samples.append((now, ms))
        for _ in range(self._unknown.pop(work, 0)):
            self._pay(self.cost(work) or 0.0, work[0] in HEAVY)
        if len(self._samples) > 200:  # of windows that were dragged to many sizes
            self._samples = {w: s for w, s in self._samples.items() if now - s[-1][0] < _MEMORY}

    def cost(self, work: Work) -> float | None:
        """Milliseconds that it takes, as far as is known."""
        samples = self._samples.get(work)
        if not samples:
            return None
        newest = samples[-1][0]
        return min(ms for at, ms in samples if newest - at <= _MEMORY)

    def _pay(self, ms: float, heavy: bool) -> None:
        now = self._clock()
        self._balance(now)
        if self.limited:
            self._account -= ms
            self._light -= 0.0 if heavy else ms
        self._spent.append((now, ms))

    def _balance(self, now: float) -> float:
        earned = (now - self._counted_at) * self.share * 1e3
        self._counted_at = now
        most = _BURST * self.share * 1e3
        self._account = min(self._account + max(earned, 0.0), most) if self.limited else most
        most *= _DISPLAY
        self._light = min(self._light + max(earned, 0.0) * _DISPLAY, most) if self.limited else most
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
        """When the next picture may begin, by the clock; 0 means now."""
        now = self._clock()
        debt = -self._balance(now)
        return now + debt / (self.share * 1e3) if debt > 0 else 0.0

    def next_display(self) -> float:
        """The same for a picture that shows a scene's last one moved. What scenes cost does not hold it back; it takes
        no more than a part of the share, so that scenes are drawn as well. Never later than `next_picture`."""
        now = self._clock()
        self._balance(now)
        light = now - self._light / (self.share * 1e3 * _DISPLAY) if self._light < 0 else 0.0
        return min(light, self.next_picture())

    def affords(self, name: str, size: tuple[int, int]) -> bool:
        """Whether the work `(name, width, height)` can be done for each picture while somebody moves."""
        known = self._known(name, size)
        if not self.limited or not known:
            return True
        cost = _estimate(known, 1.0)
        beside = self._cost(self._others(name), {*self._bursts, *self._last_bursts, self._scene_by} - {""})
        self._affordable = cost <= self.share * 1e3 / (FLUENT if self._affordable else SMOOTH) - beside
        return self._affordable

    def moves_along(self, name: str, size: tuple[int, int], warp: Work, by: str = "opengl") -> bool:
        """Whether the last picture of a scene, moved along, is to be shown while somebody moves, and not the works
        `(name, width, height)` each time: only where that is clearly cheaper, and can be done often enough.

        `warp`: the work of moving one; `by`: who does that. As long as its cost is not known, it is tried, one picture
        at a time.
        """
        if self.affords(name, size) or not (known := self._known(name, size)):
            self._moves = False
            return False
        others = self._cost(self._others(name), {by, "opengl"})
        beside = self._cost(self._others(name), {self._scene_by, "opengl"} - {""})
        scene = _estimate(known, self._fitting(known, beside)) + beside
        cost, now = self.cost(warp), self._clock()
        self._display = others + (cost or 0.0)
        pace = _ENOUGH if self._moves else FLUENT
        if cost is None or not self._is_worth(self._display, scene, pace):
            self._moves = False
            seldom = cost is not None and now - self._moving_tried_at < _TRY_MOVING
            if seldom or warp in self._unknown or not self._is_worth(others, scene, pace):
                return False
            self._moving_tried_at = now
            return True
        self._moves = True
        return True

    def _is_worth(self, display: float, scene: float, pace: float) -> bool:
        """Whether to show pictures of `display` ms instead of some of `scene` ms, `pace` of them a second."""
        return display <= _CLEARLY * scene and display * pace <= self.share * 1e3 * _DISPLAY

    def scale_later(self, name: str, size: tuple[int, int]) -> float:
        """At what resolution to draw the works `(name, width, height, BROUGHT)` RENDERS times a second, beside pictures
        on the screen that show the last one moved: 1, or one of SCALES, but no less than _LEAST."""
        known = self._known(name, size, BROUGHT)
        if not known:
            known = {scale: cost * _WITH_DEPTH for scale, cost in self._known(name, size).items()}
        if not self.limited or not known:
            return 1.0
        display = self._cost(self._others(name), {"opengl"}) if self._display is None else self._display
        beside = min(SMOOTH * display, self.share * 1e3 * _DISPLAY)
        room = (self.share * 1e3 - beside) / RENDERS - SWITCH
        fits = [s for s in SCALES if _estimate(known, s) <= room * (1.2 if s == self._later_scale else 1.0)]
        self._later_scale = max(*fits, _LEAST) if fits else _LEAST
        return self._later_scale

    def _known(self, name: str, size: tuple[int, int], *more: object) -> dict[float, float]:
        """What the work `(name, width, height)` costs at each of SCALES, as far as is known. `more`: only with these
        words; what costs more with them costs no more without."""
        out = {}
        for s in SCALES:
            works = [(name, *scaled(size, s), *words) for words in ([more] if more else [(), (BROUGHT,)])]
            costs = [cost for work in works if (cost := self.cost(work)) is not None]
            if costs:
                out[s] = min(costs)
        return out

    def _others(self, name: str) -> list[Work]:
        """What a picture on the screen consists of beside `name`."""
        works = self._picture or self._last_picture
        return [work for work in works if work[0] not in (name, *HEAVY, "warp")]

    def next_version(self, rate_hz: float, moving: bool = False) -> float:
        """When the next version of a scene may be loaded, by the clock; 0 means now.

        `rate_hz`: how many come in a second. `moving`: somebody moves the camera, whose pictures come first, however
        large the share is.
        """
        if not self.shared or not (self.limited or moving):
            return 0.0
        pace = VERSIONS if moving or rate_hz > SLOW else SLOW * 10
        self._version_period = 1 / pace
        return max(self.next_picture(), self._version_at + self._version_period)

    def _cost(self, works: list[Work], bursts: set[str]) -> float:
        return sum(self.cost(w) or 0.0 for w in works) + SWITCH * len(bursts)

    def loads_version(self) -> None:
        """A version is being loaded. On average one is in a period, though each comes a little late."""
        self._version_at = max(self._version_at + self._version_period, self._clock() - self._version_period / 2)

    def scale(self, name: str, size: tuple[int, int]) -> float:
        """At what resolution to draw the works `(name, width, height)` while somebody moves: 1, or one of SCALES.

        Costs that are not known are taken from those that are: a part stays, a part goes with the number of pixels.
        Since what is measured beside another process is often too much, a higher one is tried now and then.
        """
        if not self.limited:
            return 1.0
        now = self._clock()
        if now - self._scaled_at > _PAUSE:
            self._scale, self._tried_at = 1.0, now
        self._scaled_at = now
        known = self._known(name, size)
        if not known:
            return 1.0
        beside = self._cost(self._others(name), self._bursts | self._last_bursts)
        self._scale = self._fitting(known, beside)
        if self._scale < 1.0 and now - self._tried_at > _TRY:
            self._tried_at = now
            return SCALES[SCALES.index(self._scale) - 1]
        return self._scale


    def _fitting(self, known: dict[float, float], beside: float) -> float:
        """The highest resolution at which pictures can be drawn fluently, or the lowest there is; what comes `beside`
        costs so much for each."""
        room, enough = (self.share * 1e3 / pace - beside for pace in (SMOOTH, FLUENT))
        fits = [s for s in SCALES if _estimate(known, s) <= (enough if s == self._scale else room)]
        return max(fits, default=SCALES[-1])


def scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """The width and height of a picture of `size` at a resolution of `scale`; at least 16, or what there is."""
    w, h = size
    return max(int(w * scale), min(16, w)), max(int(h * scale), min(16, h))


def _estimate(known: dict[float, float], scale: float) -> float:
    """Milliseconds at a scale, from those known at others."""
    if scale in known:
        return known[scale]
    nearest = sorted(known, key=lambda s: abs(s - scale))
    a = nearest[0]
    if len(nearest) == 1:
        factor = (scale / a) ** 2
        return known[a] * (0.5 + 0.5 * factor if scale < a else factor)
    b = nearest[1]
    slope = max((known[b] - known[a]) / (b * b - a * a), 0.0)
    return max(known[a] + slope * (scale * scale - a * a), 0.0)


def after(due: float, begun: float, period: float) -> float:
    """When the picture after one may begin that was due and begun at these times: on average one in a period, though
    each begins a little late."""
    return max(due + period, begun + period / 2)
