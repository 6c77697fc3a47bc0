"""The next part of a scene for a page that draws by itself, by the pace of its line.

A page gets a scene in passes. A pass is a whole version, or its most important part, in
one form. The page draws the pass before until the new one has come as a whole, so that
nothing of two versions is ever mixed. As long as the training goes on, each pass is of
the version that is the newest when it begins, and holds what the line carries in
`PASS_S`. A version that stays is refined: all of it, then exactly, then with its
harmonics.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.blocks.layout import BLOCK, block_count, part_bytes

if TYPE_CHECKING:
    from splatview_viewer.blocks.packing_request import VersionFacts
from splatview_viewer.blocks.versions import MOST_GAUSSIANS

FIRST_S = 0.6
"""Seconds of the first pass, by which something is seen."""
PASS_S = 1.2
"""Seconds of a pass while a training goes on: it takes so long to come, and is seen until
the next one has come, by when it is 3 s old at most."""
LEAST_SHARE = 1 / 16
"""Of a scene that a pass has at smallest, however slow the line is."""


class PassForm(NamedTuple):
    """The extent of a pass."""

    gaussians: int
    """The most important ones, if they are fewer than all."""
    is_exact: bool = False
    has_harmonics: bool = False


class ScenePass(NamedTuple):
    """The next pass of a page."""

    version_number: int
    """The version."""
    form: PassForm
    refines: bool = False
    """True if its blocks replace those of the version that the page draws; only what
    `form` adds is sent."""
    completes: bool = False
    """True if it brings all of the version of which the page draws a part."""

    @property
    def gives_way(self) -> bool:
        """True if it ends as it is once there is a newer version."""
        return self.refines or self.completes


def pass_bytes(form: PassForm, coefficients: int) -> int:
    """Return the bytes of a pass with all of its blocks."""
    part = "exact" if form.is_exact else "quick"
    size = part_bytes(part, coefficients)
    if form.has_harmonics:
        size += part_bytes("harmonics", coefficients)
    return block_count(form.gaussians) * size


class ScenePlan:
    """Chooses the passes of one reader, one after the other."""

    def __init__(self, most_gaussians: int = MOST_GAUSSIANS) -> None:
        """most_gaussians: that the page can hold."""
        self.most_gaussians = min(most_gaussians, MOST_GAUSSIANS)
        self._last: ScenePass | None = None
        """The last pass that the page has got."""
        self._previous: ScenePass | None = None
        """What it had got before."""

    @property
    def last_version(self) -> int:
        """The version of the last pass; 0 before the first."""
        if self._last is None:
            return 0
        return self._last.version_number

    def note_change(self, sent: ScenePass) -> None:
        """Note that this was sent in place of the last pass."""
        self._last = sent

    def undo(self) -> None:
        """Note that the last pass was not sent, or not as a whole."""
        self._last = self._previous

    def next_pass(self, newest: VersionFacts, rate: float) -> ScenePass | None:
        """Return what to send next; None while the page has all.

        It counts as sent.

        Args:
            newest: the newest version.
            rate: bytes a second that the line carries for this.
        """
        last = self._last
        if last is None:
            form = self._form_of(newest, rate * FIRST_S)
            next_pass = ScenePass(newest.version_number, form)
        elif last.version_number != newest.version_number:
            form = self._form_of(newest, rate * PASS_S)
            next_pass = ScenePass(newest.version_number, form)
        else:
            refined = self._refined(last, newest)
            if refined is None:
                return None
            next_pass = refined
        self._previous = last
        self._last = next_pass
        return next_pass

    def holdable(self, gaussians: int) -> int:
        """Return how many Gaussians of a scene the page can hold."""
        return min(gaussians, self.most_gaussians)

    def _form_of(self, version: VersionFacts, budget: float) -> PassForm:
        """Return the best form of so many bytes."""
        count = self.holdable(version.gaussians)
        for form in _forms(count, version.coefficients):
            if pass_bytes(form, version.coefficients) <= budget:
                return form
        block_bytes = part_bytes("quick", version.coefficients)
        fitting = int(budget // block_bytes) * BLOCK
        smallest = block_count(math.ceil(count * LEAST_SHARE)) * BLOCK
        return PassForm(min(max(fitting, smallest), count))

    def _refined(self, last: ScenePass, version: VersionFacts) -> ScenePass | None:
        """Return the next step of a version that stays; None if the page has all."""
        form = last.form
        count = self.holdable(version.gaussians)
        if form.gaussians < count:
            return ScenePass(version.version_number, PassForm(count), completes=True)
        has_all = form.has_harmonics or not version.coefficients
        if not form.is_exact:
            better = form._replace(is_exact=True)
        elif not has_all:
            better = form._replace(has_harmonics=True)
        else:
            return None
        return ScenePass(version.version_number, better, refines=True)


def _forms(gaussians: int, coefficients: int) -> list[PassForm]:
    """Return the forms of all Gaussians, the best one first."""
    forms = [PassForm(gaussians, is_exact=True), PassForm(gaussians)]
    if coefficients:
        forms.insert(0, PassForm(gaussians, is_exact=True, has_harmonics=True))
    return forms
