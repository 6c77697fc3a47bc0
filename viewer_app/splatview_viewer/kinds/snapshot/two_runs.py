"""Two snapshots in one view: B's timeline below A's, along one axis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from splatview_viewer.kinds.snapshot.state import SnapshotState
from splatview_viewer.snapshot.analysis.annotations import annotated_ranges

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Range
    from splatview_viewer.kinds.snapshot.view import SnapshotView

MARKS = "two moments"
"""Stands for the snapshot itself, compared with itself at its two marks."""
Badge = Literal["A", "B"]


class SharedAxes(NamedTuple):
    """Limits of the axes that two plots have in common."""

    extent: Range | None = None
    """All of the time axis, in the units of the plot's own; None: its own."""
    height: float | None = None
    """Bytes at the top of both; None: each has its own."""
    zero: float | None = None
    """The x from which times count, where both meet; None: times are of the clock."""


_HEADROOM = 1.12
"""Height of two timelines, as a multiple of the bytes at the higher peak: there is room
for the name."""
NOT_SHARED = SharedAxes()
"""Of a plot that is alone."""


def names_of_others(view: SnapshotView) -> dict[str, Content]:
    """Return the other open snapshots by their names, each of which is unlike others."""
    contents: dict[str, Content] = {}
    for content in view.content.other_contents():
        name = content.snapshot.name
        copy_number = 2
        while name in contents:
            name = f"{content.snapshot.name} ({copy_number})"
            copy_number += 1
        contents[name] = content
    return contents


class TwoRuns:
    """The other snapshot that a view shows below its own, and how both are tied.

    The view of the other one, the partner, draws and reacts as if it were alone; its
    state is a part of the view's state.
    """

    def __init__(self, view: SnapshotView) -> None:
        self._view = view
        self._partner: SnapshotView | None = None
        self._prepared_shift: float | None = None
        """The shift with which the timelines are drawn; an answer may come meanwhile."""

    # -- which -------------------------------------------------------------------------

    @property
    def other_name(self) -> str:
        """The name of the snapshot that is compared with; MARKS: none other."""
        other_names = names_of_others(self._view)
        chosen_name = self._view.state.other
        if chosen_name in other_names or chosen_name == MARKS:
            return chosen_name
        return next(iter(other_names), MARKS)

    def compare_with(self, content: Content) -> None:
        """Show the timeline of another open snapshot, B, below the view's own, A."""
        for name, other_content in names_of_others(self._view).items():
            if other_content is content:
                self._view.change(
                    shows="both",
                    other=name,
                    swapped=False,
                    partner=None,
                    tab="timeline",
                )

    @property
    def partner(self) -> SnapshotView | None:
        """The view of the other snapshot; None: there is none, or none is compared."""
        view = self._view
        content = None
        if view.state.shows != "alone":
            content = names_of_others(view).get(self.other_name)
        if content is None:
            self.close()
            return None
        partner = self._partner
        if partner is None or partner.data.content is not content:
            self.close()
            partner = type(view)(view.data.paired_with(content), SnapshotState())
            self._partner = partner
        partner.scale = view.scale
        partner.host = view.host
        return partner

    def close(self) -> None:
        """Release what the view of the other one has. Idempotent."""
        if self._partner is not None:
            self._partner.release("closed")
            self._partner = None

    @property
    def is_swapped(self) -> bool:
        """True if the view's own snapshot is B."""
        return self._view.state.swapped

    def badge_of(self, view: SnapshotView) -> Badge:
        """Return whether a view's snapshot is A or B."""
        if (view is self._view) != self.is_swapped:
            return "A"
        return "B"

    def sides(self, partner: SnapshotView) -> tuple[SnapshotView, SnapshotView]:
        """Return the views of A and of B."""
        if self.is_swapped:
            return partner, self._view
        return self._view, partner

    # -- one axis ----------------------------------------------------------------------

    def shift(self, partner: SnapshotView) -> float | None:
        """Return how far an x of the partner is beyond the same x of the view.

        None until it is known.
        """
        meeting = self._meeting(partner)
        if meeting is None:
            return None
        own_x, partner_x = meeting
        return partner_x - own_x

    def _meeting(self, partner: SnapshotView) -> tuple[float, float] | None:
        """Return an x of each that are put above each other; None: not yet known."""
        view = self._view
        axis = view.content.axis(view.device, view.state.unit)
        other_axis = partner.content.axis(partner.device, view.state.unit)
        meeting_moments = self._moments_that_meet(partner)
        if axis is None or other_axis is None or meeting_moments is None:
            return None
        own_event, partner_moment = meeting_moments
        return axis.x_of(own_event), other_axis.x_of(partner_moment)

    def _moments_that_meet(self, partner: SnapshotView) -> tuple[int, int] | None:
        """Return a moment of each that are put above each other; None: not yet known."""
        view = self._view
        line_up = view.state.line_up
        if line_up == "peak":
            own_event = view.content.peak(view.device)
            partner_moment = partner.content.peak(partner.device)
            if own_event is None or partner_moment is None:
                return None
            return (own_event, partner_moment)
        if line_up == "mark":
            return self._marked_moments(partner)
        # The first event, whose time is 0.
        own_first = min(len(view.trace.events), 1)
        return own_first, min(len(partner.trace.events), 1)

    def _marked_moments(self, partner: SnapshotView) -> tuple[int, int]:
        """Return the moments that were marked in both, or where both begin the same step.

        The beginnings of both where neither is so.
        """
        own_event = self._view.state.marks[0]
        partner_moment = partner.state.marks[0]
        if own_event is not None and partner_moment is not None:
            return own_event, partner_moment
        beginnings = []
        for view in (self._view, partner):
            ranges = annotated_ranges(view.content.snapshot, view.trace)
            starts = ranges.moments[0].tolist()
            beginnings.append(dict(zip(ranges.names, starts, strict=True)))
        for name, event_index in beginnings[0].items():
            if name in beginnings[1]:
                return event_index, beginnings[1][name]
        return 0, 0

    def prepare(self, partner: SnapshotView) -> None:
        """Give both views one axis, and the partner what it has in common with the view.

        Call it before they are drawn.
        """
        view = self._view
        state = view.state
        devices = [trace.device for trace in partner.content.snapshot.traces]
        device = None
        if view.trace.device in devices:
            device = devices.index(view.trace.device)
        partner.state = replace(
            state.partner or SnapshotState(),
            tab="timeline",
            device=device,
            unit=state.unit,
            color_by=state.color_by,
            measure=state.measure,
            search=state.search,
            legend=False,
        )
        view.shared = SharedAxes()
        partner.shared = SharedAxes()
        self._prepared_shift = None
        meeting = self._meeting(partner)
        bands = view.bands
        other_bands = partner.bands
        axis = view.content.axis(view.device, state.unit)
        other_axis = partner.content.axis(partner.device, state.unit)
        if meeting is None or bands is None or other_bands is None:
            return
        if axis is None or other_axis is None:
            return
        zero, other_zero = meeting
        shift = self._prepared_shift = other_zero - zero
        height = None
        if state.tied_bytes:
            height = _HEADROOM * max(bands.height, other_bands.height)
            partner.change(y=state.y)
        extent = other_extent = None
        if state.tied_time:
            low = min(axis.extent[0], other_axis.extent[0] - shift)
            high = max(axis.extent[1], other_axis.extent[1] - shift)
            extent = (low, high)
            other_extent = (low + shift, high + shift)
            partner.change(x=_moved(state.x, shift))
        view.shared = SharedAxes(extent, height, zero)
        partner.shared = SharedAxes(other_extent, height, other_zero)
        if state.moment is not None:
            event_index = other_axis.moment(axis.x_of(state.moment) + shift)
            partner.change(moment=event_index)

    def take_back(self, partner: SnapshotView, previous: SnapshotState) -> None:
        """Take what the user did in the partner's plot into the view's state.

        previous: the partner's state before it was drawn.
        """
        view = self._view
        state = partner.state
        shift = self._prepared_shift
        axis = view.content.axis(view.device, view.state.unit)
        other_axis = partner.content.axis(partner.device, view.state.unit)
        if shift is not None and axis is not None and other_axis is not None:
            if view.state.tied_time and state.x != previous.x:
                view.change(x=_moved(state.x, -shift))
            if view.state.tied_bytes and state.y != previous.y:
                view.change(y=state.y)
            if state.moment is not None and state.moment != previous.moment:
                event_index = axis.moment(other_axis.x_of(state.moment) - shift)
                view.change(moment=event_index)
        if state.selected is not None and state.selected != previous.selected:
            view.change(selected=None)
        view.change(partner=state)

    def let_choose(self, partner: SnapshotView) -> None:
        """Have the partner's allocation be chosen no longer, once the view's own is."""
        if self._view.state.selected is not None:
            partner.change(selected=None)

    # -- the line ----------------------------------------------------------------------

    def line(self, partner: SnapshotView) -> tuple[int, int] | None:
        """Return the moments of the view and of the partner at the chosen line."""
        view = self._view
        own_event = view.moment
        if own_event is None:
            return None
        return self._with_partner_moment(partner, own_event)

    def pointed(self, partner: SnapshotView) -> tuple[int, int] | None:
        """Return the moments of both under the pointer; None: it is over neither."""
        view = self._view
        if view.state.pointed_moment is not None:
            return self._with_partner_moment(partner, view.state.pointed_moment)
        partner_moment = partner.state.pointed_moment
        shift = self.shift(partner)
        axis = view.content.axis(view.device, view.state.unit)
        other_axis = partner.content.axis(partner.device, view.state.unit)
        if (
            partner_moment is None
            or shift is None
            or axis is None
            or other_axis is None
        ):
            return None
        return axis.moment(other_axis.x_of(partner_moment) - shift), partner_moment

    def _with_partner_moment(
        self, partner: SnapshotView, own_event: int
    ) -> tuple[int, int] | None:
        """Return a moment of the view, and the one of the partner at the same x."""
        view = self._view
        shift = self.shift(partner)
        axis = view.content.axis(view.device, view.state.unit)
        other_axis = partner.content.axis(partner.device, view.state.unit)
        if shift is None or axis is None or other_axis is None:
            return None
        return own_event, other_axis.moment(axis.x_of(own_event) + shift)


def _moved(span: Range | None, shift: float) -> Range | None:
    """Return a range moved by a shift; None for all."""
    if span is None:
        return None
    return (span[0] + shift, span[1] + shift)
