"""Comparisons: entries that show others of the list, in one space or beside a line; and viewports that are tied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from imgui_bundle import ImVec2, imgui

from splatview_viewer.compare.pair import PairSource, PairState, PairView, told_apart
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.view import Section, ShownView
from splatview_viewer.geometry.cameras import bounds
from splatview_viewer.kinds import about
from splatview_viewer.scene.scene import merged, nothing
from splatview_viewer.scene.turning import STAYS, Placement, placed
from splatview_viewer.ui import widgets as ui
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl
    import numpy as np

    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.scene.turning import Triple
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue

MOST = 16
"""Scenes in one picture."""
_SCALES = (0.01, 100.0)
_LOGARITHMIC = imgui.SliderFlags_.logarithmic | imgui.SliderFlags_.always_clamp
_FOLD = (
    imgui.TreeNodeFlags_.span_avail_width
    | imgui.TreeNodeFlags_.frame_padding
    | imgui.TreeNodeFlags_.no_tree_push_on_open
)  # its content has the whole width


@dataclass(eq=False)
class ComparedScene:
    """One of the scenes."""

    key: str
    """Key of its entry."""
    visible: bool = True
    placement: Placement = STAYS
    pivot: np.ndarray | None = None
    """Centre of turns and scales: the middle of the scene when it was first merged."""
    radius: float = 1.0
    """Radius of the scene then, in world units."""


class MergedSource(ValueSource):
    """The source of an entry that shows several others as one scene, which is merged anew for each version and each
    placement: on the GPU if any of them is there, otherwise in a job.
    """

    path = "put together"

    def __init__(self, catalogue: Catalogue, wake: Callable[[], None]) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.parts: list[ComparedScene] = []
        self._catalogue, self._jobs = catalogue, Jobs("merge scenes", wake)
        self._job: Job[GaussianScene] | None = None
        self._of: tuple[object, ...] | None = None
        """The parts, placements and versions that were merged last."""
        self._held: GaussianScene | None = None
        """The scene that the view took last: on a GPU it may still be read."""

    def add(self, keys: Sequence[str]) -> None:
        """Show more entries. Raises ViewerError for too many."""
        new = [
            key
            for key in dict.fromkeys(keys)
            if all(part.key != key for part in self.parts)
        ]
        if len(self.parts) + len(new) > MOST:
            raise ViewerError(
                f"together: {MOST} scenes are the most that can be shown in one picture; "
                "take one away first"
            )
        self.parts += map(ComparedScene, new)

    def remove(self, part: ComparedScene) -> None:
        self.parts = [other for other in self.parts if other is not part]

    @property
    def reading(self) -> bool:
        return self._job is not None

    @property
    def uses(self) -> list[str]:  # type: ignore[override]
        return [part.key for part in self.parts if part.visible]

    def refresh(self, entry: Entry, now: float) -> None:
        catalogue = self._catalogue
        self.parts = [part for part in self.parts if part.key in catalogue.slots]
        if not self.parts:
            catalogue.forget(entry.key)
            return
        entry.name = name_of(
            [catalogue.slots[part.key].entry for part in self.parts], " + "
        )
        self.notes = [f"of {len(self.parts)} scenes"]
        own = catalogue.slots[entry.key]
        if own in catalogue.watched():
            with catalogue.guard(own):
                for _, view in self._loaded():  # which may be drawn nowhere
                    if view.content.renderer.pending:
                        view.content.renderer.read()
                    view.content.tick(now)

    # -- merging -----------------------------------------------------------------------------------------------------

    def _loaded(self) -> list[tuple[ComparedScene, Any]]:
        """Return the visible parts that have a scene, each with a view of it."""
        slots = [
            (part, self._catalogue.slots.get(part.key))
            for part in self.parts
            if part.visible
        ]
        return [
            (part, slot.view)
            for part, slot in slots
            if slot is not None and slot.view is not None and not slot.view.empty
        ]

    def _wanted(self) -> tuple[object, ...] | None:
        """Return the parts, placements and versions to be merged; None until all of them are whole, and at first all
        that will come have come, so that the first picture shows all of it.
        """
        loaded = self._loaded()
        if self._of is None:
            late = [
                slot.entry
                for key in self.uses
                if (slot := self._catalogue.slots.get(key)) is not None
                and (slot.view is None or slot.view.empty)
            ]
            if any(
                entry.alive and not (entry.fault or entry.fault_of_source)
                for entry in late
            ):
                return None
        if any(view.wants.busy or view.wants.stale for _, view in loaded):
            return None
        return tuple(
            (part, part.placement, view.content, view.content.loads)
            for part, view in loaded
        )

    def open(self) -> None:
        """Merge again: the last time may have failed."""
        self._of = None

    def has_news(self) -> bool:
        if self._job is not None:
            return self._job.done
        wanted = self._wanted()
        return wanted is not None and wanted != self._of

    def feed(self, view: ShownView) -> bool:
        if self._job is not None:
            job = self._job
            self._job = None
            if job.fault:
                raise ViewerError(f"together: {job.fault}")
            self._held = job.result()
            return view.update(self._held)
        if (
            self._held is not None
            and self._held.on_gpu
            and view.content.renderer.reading
        ):
            return False  # its memory would be used again
        self._of, loaded = self._wanted(), self._loaded()
        for part, of in loaded:
            if part.pivot is None and of.content.sight is not None:
                part.pivot, part.radius = bounds(
                    of.content.sight.means, of.content.sight.weights
                )
        scenes = [
            (of.content.renderer.scene(), part.placement, part.pivot)
            for part, of in loaded
        ]
        smooth = [of.content.facts.antialiased for _, of in loaded]
        gpu = next((scene.gpu for scene, *_ in scenes if scene.on_gpu), None)

        def make(_: object = None) -> GaussianScene:
            moved = [
                placed(scene, where, pivot) if pivot is not None else scene
                for scene, where, pivot in scenes
            ]
            return merged(moved, smooth, gpu or "cpu") if moved else nothing()

        if scenes and gpu is None:
            self._job = self._jobs.submit(make)
            return False
        self._held = make()
        return view.update(self._held)

    def close(self) -> None:
        self._jobs.close()
        self._job = None
        self._held = None
        self._of = None


def name_of(entries: Sequence[Entry], between: str) -> str:
    """Return the name of an entry that shows several others."""
    names = [entry.name for entry in entries]
    if len(names) < 4:
        return between.join(names)
    return f"{names[0]} + {len(names) - 1} more"


class Comparisons:
    """Makes comparisons, and ties viewports."""

    def __init__(
        self,
        catalogue: Catalogue,
        ctx: moderngl.Context,
        work: GpuWork,
        wake: Callable[[], None],
    ) -> None:
        self._catalogue = catalogue
        self._ctx = ctx
        self._work = work
        self._wake = wake
        self._chosen: WeakKeyDictionary[Viewport, str] = WeakKeyDictionary()
        """The entry to compare with, as the panel shows it: its key."""
        self._ties: WeakKeyDictionary[User, dict[ShownView, object]] = (
            WeakKeyDictionary()
        )
        """Users whose viewports are tied: the place of each view when all were last alike."""
        self._made = 0

    def _candidates(self, slot: Slot) -> list[Entry]:
        """Return the entries that one can be compared with."""
        if not about(slot.entry.kind).compared:
            return []
        return [
            other.entry
            for other in self._catalogue.slots.values()
            if other is not slot and other.entry.kind == slot.entry.kind
        ]

    def compare(self, how: str, viewport: Viewport, key: str) -> None:
        """Show the entry `key` with what a viewport shows: as a "pair", "together" or "beside"."""
        if how == "beside":
            self.tie(viewport.user, True)
            viewport.user.layout.add(key)
            return
        shown = self._catalogue.shown(viewport)
        other = self._catalogue.slots.get(key)
        if shown is None or other is None or shown is other:
            return
        if other.entry not in self._candidates(shown) or (
            how == "together" and not about(shown.entry.kind).merged
        ):
            viewport.host.say(
                "Only scenes can be put together"
                if how == "together"
                else f"{shown.entry.name} and {other.entry.name} are not of one kind: nothing to compare"
            )
            return
        slots = self._catalogue.slots
        source = shown.source
        keys = [key]
        if how == "together":  # in the same space
            if isinstance(other.source, MergedSource):
                keys = [part.key for part in other.source.parts]
            try:
                if isinstance(source, MergedSource):
                    source.add(keys)
                else:
                    source = MergedSource(self._catalogue, self._wake)
                    source.add([shown.entry.key, *keys])
                    self._add(
                        name_of([shown.entry, other.entry], " + "),
                        shown.entry.kind,
                        source,
                        viewport,
                    )
            except ViewerError as e:
                viewport.host.say(str(e))
            viewport.user.mark()
            return
        made = next(
            (
                k
                for k, slot in slots.items()
                if isinstance(slot.source, PairSource)
                and {*slot.source.uses} == {shown.entry.key, key}
            ),
            None,
        )
        if made is not None:
            viewport.select(made)
            return
        pair = PairSource(
            self._catalogue, (shown.entry.key, key), self._ctx, self._work
        )
        slot = self._add(
            name_of([shown.entry, other.entry], " vs "), "pair", pair, viewport
        )
        view = ShownView(PairView(pair, PairState()))
        view.update(None)
        slot.views[None] = view
        slot.view_kind = "pair"

    def _add(
        self,
        name: str,
        kind: str,
        source: MergedSource | PairSource,
        viewport: Viewport,
    ) -> Slot:
        self._made += 1
        slot = Slot(
            Entry(f"comparison {self._made}", "Compare", name, kind, is_file=True),
            source,
        )
        self._catalogue.add(slot)
        viewport.select(slot.entry.key)
        return slot

    # -- tied viewports ----------------------------------------------------------------------------------------------

    def tie(self, user: User, tied: bool) -> None:
        """Have the cameras of a user's viewports move together from now on, or no longer."""
        known = self._ties.pop(user, {})
        if tied:
            self._ties[user] = known
        user.mark()

    def pull(self, user: User) -> None:
        """Move the tied viewports of a user to the place of the one that was moved. New ones follow the others; if all
        are new, the active one leads.
        """
        known = self._ties.get(user)
        if known is None:
            return
        active = user.layout.active
        seen: list[Any] = [
            p.view for p in sorted(user.layout.seen, key=lambda p: p is not active)
        ]
        of_pairs = (
            v.view.lead
            if isinstance(v, ShownView) and isinstance(v.view, PairView)
            else v
            for v in seen
        )
        views: list[Any] = [
            view
            for view in of_pairs
            if view is not None and about(view.kind).compared and not view.empty
        ]
        for kind in {view.kind for view in views}:
            alike = [view for view in views if view.kind == kind]
            moved = [
                view
                for view in alike
                if view in known and known[view] != view.view.state.place
            ]
            leader: Any = next(
                iter(moved or [view for view in alike if view in known] or alike), None
            )
            for view in alike:
                if view is not leader and (moved or view not in known):
                    view.follow(leader)
        self._ties[user] = {view: view.view.state.place for view in views}

    # -- the panel ---------------------------------------------------------------------------------------------------

    def sections(self, viewport: Viewport) -> list[Section]:
        """Return the parts of the panel for comparing what a viewport shows."""
        slot = self._catalogue.shown(viewport)
        if slot is None or not about(slot.entry.kind).compared:
            return []
        out = []
        source = slot.source
        if isinstance(source, MergedSource):
            out.append(
                Section(
                    "Scenes",
                    partial(self._scenes, source),
                    True,
                    "Which scenes are seen in this picture, and where",
                )
            )
        if self._candidates(slot) or len(viewport.user.layout) > 1:
            out.append(
                Section(
                    "Compare",
                    partial(self._compare, slot, viewport),
                    False,
                    "Another stream or file in the same picture, or beside it",
                )
            )
        return out

    def _compare(self, slot: Slot, viewport: Viewport) -> None:
        user = viewport.user
        do = self._catalogue.do
        found = self._candidates(slot)
        if found:
            options = dict(
                zip([entry.key for entry in found], told_apart(found), strict=True)
            )
            key = self._chosen.get(viewport, "")
            key = ui.choice(
                "With",
                "The scene that this one is compared with",
                key if key in options else found[0].key,
                options,
            )
            self._chosen[viewport] = key
            pressed = ui.buttons(
                "Show",
                ["Split", "Beside"],
                [
                    "Both in one picture, with a line between them that can be dragged; or their difference",
                    "In a pane beside this one; what is moved in one moves in both",
                ],
            )
            if (
                about(slot.entry.kind).merged
                and ui.buttons(
                    "", ["Together"], ["Both scenes in one space, each where you like"]
                )
                == 0
            ):
                pressed = 2
            if pressed is not None:
                do(self.compare, ("pair", "beside", "together")[pressed], viewport, key)
        if len(user.layout) > 1:
            tied = ui.check(
                "Tied panes",
                "What is moved in one pane moves in all that show the same kind",
                user in self._ties,
            )
            if tied != (user in self._ties):
                do(self.tie, user, tied)

    def _scenes(self, source: MergedSource) -> None:
        """Draw a box for each scene that shows it, and a fold with its placement."""
        slots = self._catalogue.slots
        for i, part in enumerate(part for part in source.parts if part.key in slots):
            entry = slots[part.key].entry
            p = part.placement
            imgui.push_id(i)
            part.visible = imgui.checkbox("##visible", part.visible)[1]
            imgui.set_item_tooltip("Whether this scene is seen")
            imgui.same_line()
            imgui.push_style_var(
                imgui.StyleVar_.frame_padding,
                ImVec2(0, imgui.get_style().frame_padding.y),
            )
            opened = imgui.tree_node_ex(f"{entry.name}###place", _FOLD)
            imgui.pop_style_var()
            imgui.set_item_tooltip(f"{entry.name}, {entry.group}: where it is put")
            if opened:
                move = _triple(
                    "Move",
                    p.move,
                    part.radius / 300,
                    "%.4g",
                    "World units along x, y and z",
                )
                turn = _triple(
                    "Turn",
                    p.turn,
                    0.5,
                    "%.1f",
                    "Degrees around x, then y, then z, about its own middle",
                )
                ui.row("Scale")
                scale = imgui.slider_float(
                    "##Scale", p.scale, *_SCALES, "%.3g \u00d7", _LOGARITHMIC
                )[1]
                if (
                    all(abs(v) < 1e9 for v in (*move, *turn))
                    and _SCALES[0] <= scale <= _SCALES[1]
                ):  # may be typed
                    part.placement = replace(p, move=move, turn=turn, scale=scale)
                pressed = ui.buttons(
                    "",
                    ["Reset", "Remove"],
                    [
                        "Back to where it came from",
                        "Out of this picture; its entry stays in the list",
                    ],
                )
                if pressed == 0:
                    part.placement = STAYS
                elif pressed == 1:
                    self._catalogue.do(source.remove, part)
                imgui.dummy(ImVec2(0, 0.2 * imgui.get_font_size()))
            imgui.pop_id()


def _triple(label: str, value: Triple, speed: float, fmt: str, tip: str) -> Triple:
    """Three numbers to drag, or to type with Ctrl + click."""
    ui.row(label)
    edited, new = imgui.drag_float3(f"##{label}", list(value), speed, 0.0, 0.0, fmt)
    imgui.set_item_tooltip(f"{tip}. Drag, or Ctrl + click to type a number.")
    return (float(new[0]), float(new[1]), float(new[2])) if edited else value
