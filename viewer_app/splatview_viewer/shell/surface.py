"""Dear ImGui over the framebuffers of one screen: its contexts, its frames, its fonts."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui, implot

from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.imgui_input import ImguiInput
from splatview_viewer.ui import controls, focus, lettering, plots, theme
from splatview_viewer.ui.boards import keep_boards
from splatview_viewer.ui.recovery import end_frame, prepare, recovering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import moderngl

_TIP_DELAY_S = 0.6


class Surface:
    """An imgui context that draws into framebuffers.

    It belongs to the OpenGL context that is current when it is made.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self._imgui = imgui.create_context()
        self._implot = implot.create_context()
        self._lettering = lettering.Lettering()
        self.focus = focus.Focus()
        """The keyboard's way through the boards."""
        imgui.set_current_context(self._imgui)
        self._fonts = theme.Fonts()
        self.use()
        io = imgui.get_io()
        # The user's folder is not ours to write in.
        io.set_ini_filename("")
        io.set_log_filename("")
        prepare()
        # Nothing is drawn while nothing happens.
        io.config_input_text_cursor_blink = False
        io.config_flags |= imgui.ConfigFlags_.nav_enable_keyboard.value
        context = imgui.get_current_context()
        # The viewer's panes have these keys.
        context.config_nav_windowing_key_next = 0
        context.config_nav_windowing_key_prev = 0
        imgui.backends.opengl3_init("#version 330")
        self.scale = scale
        """Pixels per point of the last frame."""
        self.light = False
        self.touch = False
        """True if it is for fingers: all is larger."""
        self.size = (1, 1)
        """Width and height of the last framebuffer, in pixels."""
        self.input = ImguiInput(self)
        self.has_popup = False
        """True if the last frame showed a popup."""
        self.is_behind = False
        """True if events are left for the next frame: imgui takes few in one."""
        self._styled: tuple[float, bool, bool] | None = None
        self._texture = -1
        """The id of the texture of the letters when the last frame began."""
        self._is_open = True
        self._last_time = time.perf_counter()

    def use(self) -> None:
        """Have imgui and ImPlot draw for this surface from now on."""
        imgui.set_current_context(self._imgui)
        implot.set_current_context(self._implot)
        lettering.use(self._lettering)
        focus.use(self.focus)
        theme.use_fonts(self._fonts)

    @property
    def is_typing(self) -> bool:
        """True while a text field has the focus."""
        imgui.set_current_context(self._imgui)
        return bool(imgui.get_io().want_text_input)

    def cover(self, texts: list[str]) -> None:
        """Have imgui itself draw the letters of these texts from now on."""
        self.use()
        self._lettering.cover(texts)

    @contextmanager
    def frame(
        self,
        size: tuple[int, int],
        scale: float,
        *,
        keeps: bool = False,
    ) -> Iterator[None]:
        """Draw a frame of imgui's, for `render` to put over pictures.

        Args:
            size: width and height of the framebuffer that it is for, in pixels.
            scale: pixels per point.
            keeps: boards that stay keep what was drawn in them, where that can be.
        """
        self.use()
        self.scale = scale
        theme.use(self.light)
        theme.use_touch(self.touch)
        controls.allow_tips(not self.input.hides_tips)
        theme.use_scale(scale)
        if self._styled != (scale, self.light, self.touch):
            self._styled = scale, self.light, self.touch
            theme.apply(scale)
            plots.apply(scale)
            imgui.get_style().hover_stationary_delay = _TIP_DELAY_S
        io = imgui.get_io()
        self.size = size
        io.display_size = ImVec2(*self.size)
        now = time.perf_counter()
        io.delta_time = min(max(now - self._last_time, 1e-4), 0.5)
        self._last_time = now
        imgui.backends.opengl3_new_frame()
        imgui.new_frame()
        may_keep = self._may_keep_boards()
        keep_boards(keeps and may_keep)
        self.input.begin_frame()
        self.is_behind = len(imgui.get_current_context().input_events_queue) > 0
        self.focus.begin_frame()
        try:
            with recovering():
                yield
                focus.draw_ring()
                self.has_popup = imgui.is_popup_open("", imgui.PopupFlags_.any_popup)
        finally:
            end_frame()

    def render(
        self,
        framebuffer: moderngl.Framebuffer,
        gpu_work: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        clear: bool = False,
    ) -> None:
        """Render the last frame over what is in a framebuffer; it can be done again.

        imgui adds to alpha what it adds to colours, so over nothing it leaves colours
        that are multiplied by alpha.

        Args:
            framebuffer: of the OpenGL context of this surface, of the frame's size.
            gpu_work: OpenGL is given anything only inside it, and only if anything is seen.
            clear: over nothing instead.
        """
        self.use()
        drawn = imgui.get_draw_data()
        if clear:
            framebuffer.use()
            framebuffer.clear(0.0, 0.0, 0.0, 0.0)
        if drawn.total_vtx_count:
            with gpu_work():
                framebuffer.use()
                imgui.backends.opengl3_render_draw_data(drawn)
                # This tells moderngl what imgui left bound.
                framebuffer.use()

    def can_render_again(self, size: tuple[int, int], scale: float) -> bool:
        """Return whether the last frame still serves a framebuffer.

        The frame has its size and scale, nothing is done with the interface, and the
        texture of the letters is the one that the frame refers to.
        """
        self.use()
        if self.size != size or self.scale != scale or self._is_in_use():
            return False
        return imgui.get_io().fonts.tex_data.unique_id == self._texture

    def _may_keep_boards(self) -> bool:
        """Return whether boards can keep what was drawn in them, once a frame has begun.

        Nothing is done with the interface, and they refer to the texture of the letters
        that is in use.
        """
        texture = imgui.get_io().fonts.tex_data.unique_id
        is_same_texture = texture == self._texture
        self._texture = texture
        return is_same_texture and not self._is_in_use()

    def _is_in_use(self) -> bool:
        """Return whether something is done with the interface."""
        return self.has_popup or self.focus.is_moving or imgui.is_any_item_active()

    def draw_over(
        self,
        framebuffer: moderngl.Framebuffer,
        draw: Callable[[Rect, float], bool],
        scale: float,
    ) -> bool:
        """Draw only what a view writes over its picture, which fills the framebuffer.

        Returns its result.
        """
        needs_redraw = False
        try:
            with self.frame(framebuffer.size, scale):
                needs_redraw = draw(Rect(0, 0, *self.size), scale)
        finally:
            self.render(framebuffer)
            # What is rendered next is a whole frame again.
            self._texture = -1
        return needs_redraw

    def close(self) -> None:
        """Give back everything.

        Idempotent. The OpenGL context must still be current.
        """
        if not self._is_open:
            return
        self._is_open = False
        self.use()
        imgui.backends.opengl3_shutdown()
        implot.destroy_context(self._implot)
        imgui.destroy_context(self._imgui)

    @property
    def is_open(self) -> bool:
        """True until `close`."""
        return self._is_open
