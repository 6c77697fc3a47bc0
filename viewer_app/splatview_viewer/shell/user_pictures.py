"""The drawing of one user's pictures, and of the interface over them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from splatview_viewer.core.screen import HandedPane, Pane, clear_rect
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.shell.kept_interface import KEPT_S
from splatview_viewer.shell.page_corner import page_corner
from splatview_viewer.shell.runs import listed_key
from splatview_viewer.shell.schedule import TOGETHER
from splatview_viewer.shell.seen_cameras import SeenCameras
from splatview_viewer.shell.stream_texts import caption_of
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview_viewer.core.handed import HandedOn
    from splatview_viewer.core.screen import Caption, InterfaceLayer
    from splatview_viewer.core.view import View
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

_SAID_FOR = 0.5
"""Seconds for which the panel's numbers stay as they are."""
_RATES_PERIOD = 0.5
"""Seconds within which streams' rates are shown; other pictures show them as well."""
_RATE_OVER_S = 1.05
"""Seconds after the last picture from which on its rate is none."""
_MAX_FRAMES = 8
"""Frames of imgui in one interface, which takes few events in each."""


class UserPictures:
    """Draws what is due by the user's schedule, and shows it."""

    def __init__(self, user: User, gpu_work: GpuWork) -> None:
        self._user = user
        self._gpu_work = gpu_work
        self._drew_pictures = False
        self._handed_panes: dict[int, HandedOn] = {}
        """The panes that the screen draws by itself, by number."""
        self._seen_cameras = SeenCameras()
        self._refresh_at = math.inf
        """When what is written over pictures is drawn again, by what they show."""
        self._rate_shown = False
        self._rates_seen = 0
        self._timings_due = 0.0

    def forget_sent(self) -> None:
        """Forget what was sent: another screen counts its pictures anew."""
        self._seen_cameras = SeenCameras()

    def tick(self, now: float) -> None:
        """Have the interface be drawn where what it tells of pictures is old."""
        if now >= self._refresh_at:
            self._refresh_at = math.inf
            self._user.schedule.refresh_interface()
        if self._is_old(now):
            self._user.mark_interface()
        elif self._has_other_rates(now):
            if self.are_all_handed:
                self._user.mark_pictures()
            else:
                self._user.mark_interface()

    def _is_old(self, now: float) -> bool:
        """Return whether the interface tells of other pictures than those of now."""
        layer = self._user.screen.interface
        is_old = layer is not None and self._seen_cameras.arrive(layer.sent_pictures)
        drawn_at = self._user.pace.drawn_at
        # Once more, so that no rate stands there that is over.
        is_old |= self._rate_shown and now > drawn_at + _RATE_OVER_S
        return is_old

    def _has_other_rates(self, now: float) -> bool:
        """Return whether the panel has shown other rates than those of now for long."""
        if not self._user.has_panel:
            return False
        is_new = self._rates_seen != self._user.catalogue.rate_changes
        return is_new and now > self._user.pace.drawn_at + _RATES_PERIOD

    def draw(self, now: float) -> None:
        """Draw what is due, all but showing the pictures: see `present`."""
        self._user.state.selected = listed_key(self._user)
        self._user.layout.place(self._user.area(), self._user.screen.state.scale)
        layer = self._user.screen.interface
        if layer is not None:
            self._draw_layers(layer, now)
            return
        self._user.schedule.draw_both()
        is_seen_later = self._draw_pictures(now)
        self._seen_cameras.note(0, self._seen_views())
        self._seen_cameras.arrive(0)
        if self._is_bare:
            return
        if self._user.kept_interface.stays(now):
            self._refresh_at = now + KEPT_S
        else:
            self._refresh_at = math.inf
            self._draw_interface(self._user.screen.state.size, now)
        if not is_seen_later:
            self._render_interface(self._user.screen.framebuffer)

    @property
    def _is_bare(self) -> bool:
        """True where nothing is drawn over the pictures."""
        state = self._user.interface.state
        return state.bare and not state.hides_all

    def _draw_layers(self, layer: InterfaceLayer, now: float) -> None:
        """Draw the interface and show it, and then the pictures, which may take long."""
        schedule = self._user.schedule
        self._hand_on()
        if schedule.interface_waits and now >= schedule.next_interface(now):
            schedule.draw_interface(now)
            self._draw_interface(layer.framebuffer.size, now)
            self._render_layer(layer.framebuffer)
            answers = schedule.interface_answers or not schedule.pictures_answer
            layer.present(self._caption(), self._panes(), answers=answers)
        may_draw = schedule.pictures_wait and now >= schedule.next_pictures(now)
        self._drew_pictures = may_draw
        if may_draw:
            schedule.draw_pictures(now)
            started_at = time.perf_counter()
            self._draw_pictures(now)
            schedule.pictures_s = time.perf_counter() - started_at
            self._drew_pictures = bool(self._drawn_viewports)
            if self._drew_pictures:
                self._refresh_at = now + TOGETHER
        if may_draw and not self._drew_pictures:
            # The interface is all that there is to show of it.
            schedule.interface_answers |= schedule.pictures_answer
            schedule.pictures_answer = False

    def _draw_pictures(self, now: float) -> bool:
        """Draw the pictures of all panes, with nothing over them.

        Returns True where they lie in no framebuffer: CUDA alone has drawn them.
        """
        self._user.pace.draw(now)
        area = self._user.area()
        self._user.layout.place(area, self._user.screen.state.scale)
        self._pull()
        viewports = self._drawn_viewports
        if not viewports:
            return False
        is_alone = len(self._user.layout.visible_viewports) == 1
        if is_alone and self._draw_on_device(viewports[0]):
            return True
        framebuffer = self._user.screen.framebuffer
        if not is_alone:  # what lies between them
            clear_rect(framebuffer, area, BACKDROP)
        for viewport in viewports:
            viewport.draw(framebuffer)
        if self._user.interface.state.bare:
            # As a rule nothing is drawn over it: it need not wait for the words.
            self._gpu_work.flush()
        return False

    def _pull(self) -> None:
        """Have views show what those show that they follow."""
        for feature in self._user.catalogue.features:
            feature.pull(self._user)

    def _hand_on(self) -> None:
        """Have the screen draw by itself what it can."""
        viewports = self._user.layout.visible_viewports
        self._handed_panes = {}
        scenes = self._user.screen.scenes
        if scenes is None:
            return
        self._pull()
        panes = [HandedPane(each.number, each.hand_on()) for each in viewports]
        scenes.put(panes)
        for viewport, pane in zip(viewports, panes, strict=True):
            if pane.handed.drawing is None:
                continue
            self._handed_panes[pane.number] = pane.handed
            if viewport.view is not None:
                # The page hides lines while its camera is elsewhere.
                viewport.view.view.seen_camera = None

    @property
    def are_all_handed(self) -> bool:
        """True while the screen draws all pictures by itself."""
        return bool(self._handed_panes) and not self._drawn_viewports

    @property
    def awaits_versions(self) -> bool:
        """False while another version of what is shown would be of no use soon."""
        if self._drawn_viewports:
            return True
        handed = self._handed_panes.values()
        return not handed or any(each.is_awaited for each in handed)

    @property
    def _drawn_viewports(self) -> list[Viewport]:
        """The panes that the screen does not draw by itself."""
        viewports = self._user.layout.visible_viewports
        return [each for each in viewports if each.number not in self._handed_panes]

    def _draw_on_device(self, viewport: Viewport) -> bool:
        """Draw the only picture with CUDA alone; return whether that was possible."""
        screen = self._user.screen
        pictures = screen.device_pictures
        if pictures is None or not viewport.rect.lies_in(screen.state.size):
            return False
        pixels = viewport.draw_on_device(pictures.gpu)
        if pixels is None:
            return False
        is_covered = screen.interface is None and not self._is_bare
        cover = self._render_interface if is_covered else None
        pictures.put(pixels, viewport.rect, cover)
        return True

    def _draw_interface(self, size: tuple[int, int], now: float) -> None:
        """Draw the interface for a framebuffer of a size, without rendering it."""
        self._rates_seen = self._user.catalogue.rate_changes
        timings = self._user.state.timings
        timings.fps = self._user.pace.fps(now)
        self._rate_shown = timings.fps >= 2
        if now >= self._timings_due or not self._rate_shown:
            self._timings_due = now + _SAID_FOR
            self._user.state.displayed_timings = replace(
                timings, stages=dict(timings.stages)
            )
        surface = self._user.interface.surface
        changed = False
        kept_boards = self._user.schedule.kept_boards
        keeps = kept_boards.count_drawing(now)
        if keeps:
            self._refresh_at = min(self._refresh_at, kept_boards.due)
        for _ in range(_MAX_FRAMES):
            changed |= self._user.interface.draw(self._user, size, keeps=keeps)
            if not surface.is_behind:
                break
        self._user.kept_interface.note_drawing(now)
        holds_keys = surface.input.holds_keys
        if surface.focus.is_moving or surface.is_behind or holds_keys:
            self._user.mark_interface(SETTLE)
        if changed:
            self._user.mark(SETTLE)

    def _render_layer(self, framebuffer: moderngl.Framebuffer) -> None:
        """Render the interface into a layer of its own."""
        if not self._handed_panes:
            self._render_interface(framebuffer, clear=True)
            return
        framebuffer.use()
        framebuffer.clear()
        for viewport in self._user.layout.visible_viewports:
            if viewport.number in self._handed_panes:
                viewport.draw_over_handed(framebuffer)
        self._render_interface(framebuffer)

    def _render_interface(
        self, framebuffer: moderngl.Framebuffer, *, clear: bool = False
    ) -> None:
        """Render the interface that was drawn last over pictures, or over nothing."""
        surface = self._user.interface.surface
        if not surface.is_open:
            return
        as_work = partial(
            self._gpu_work, "panel", *framebuffer.size, self._user.has_panel
        )
        surface.render(framebuffer, as_work, clear=clear)

    def _seen_views(self) -> Iterator[View[Any, Any]]:
        """Yield what the panes show that are drawn here."""
        for viewport in self._drawn_viewports:
            if viewport.view is not None:
                yield viewport.view.view

    def _panes(self) -> list[Pane]:
        return [
            Pane(viewport.number, viewport.rect)
            for viewport in self._user.layout.visible_viewports
        ]

    def _caption(self) -> Caption:
        caption = caption_of(
            self._user.layout.active.entry, self._user.interface.surface.is_typing
        )
        return msgspec.structs.replace(
            caption,
            light=self._user.state.light,
            corner=page_corner(self._user),
            keys=self._user.interface.surface.input.keys_owner,
        )

    def present(self, now: float) -> None:
        """Show what was drawn, and take down what it cost."""
        started_at = time.perf_counter()
        layer = self._user.screen.interface
        if layer is None:
            self._user.screen.present(self._caption())
        elif self._drew_pictures:
            is_pending = any(
                viewport.is_pending for viewport in self._user.layout.visible_viewports
            )
            answers = self._user.schedule.pictures_answer
            picture_number = layer.present_pictures(
                self._panes(), answers=answers, is_next_begun=is_pending
            )
            self._seen_cameras.note(picture_number, self._seen_views())
            # What is begun is still to answer.
            self._user.schedule.pictures_answer = answers and is_pending
        else:
            return
        self._user.pace.present()
        self._note_costs(now, time.perf_counter() - started_at)
        if layer is None and self._user.kept_interface.is_due(now):
            self._draw_interface(self._user.screen.state.size, now)
            self._refresh_at = now + KEPT_S

    def _note_costs(self, now: float, present_s: float) -> None:
        """Take down what the last pictures cost."""
        view = self._user.view
        timings = self._user.state.timings
        governor = self._gpu_work.governor
        timings.stages = {}
        if view is not None:
            timings.stages.update(view.timings)
        timings.stages["present"] = present_s * 1e3
        account = governor.account
        timings.gpu_share = None
        if account.limited:
            timings.gpu_share = account.used_share
        timings.worker_share = account.worker_share
        timings.gpu_budget = account.share
        timings.gpu_memory = self._user.catalogue.gpu_memory.read(now)
        waited_for = set[str]()
        if view is not None and view.wants.cuda:
            waited_for = {"load", "scene"}
        behind_ms = 0.0
        if not self._gpu_work.software:
            names = governor.work_names - waited_for
            behind_ms = sum(self._gpu_work.ms.get(name, 0.0) for name in names)
        latency_ms = self._user.layout.active.latency_ms(behind_ms)
        if latency_ms is not None:
            timings.latency_ms = latency_ms
