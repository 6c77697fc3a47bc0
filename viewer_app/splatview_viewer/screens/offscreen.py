"""A screen without a display: an EGL context and a framebuffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import moderngl

from splatview_ipc.control.errors import IpcError
from splatview_ipc.gl.glapi import GL, gl_device_uuid
from splatview_viewer.core.errors import GraphicsError
from splatview_viewer.core.events import Close, Inbox, Resize
from splatview_viewer.core.screen import MIN_SIZE, ScreenState, read_pixels
from splatview_viewer.formats.pictures import output_path, save_picture
from splatview_viewer.screens import _egl
from splatview_viewer.screens.target import Target

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption

_INSTALL = "apt-get install libegl1 libgl1 libgl1-mesa-dri"


def create_context(gpu_uuid: str | None = None) -> moderngl.Context:
    """An OpenGL 3.3 core context without any display. Raises GraphicsError that says what to do.

    `gpu_uuid`: the GPU to draw on, as 32 lower-case hexadecimal digits, so that tensors on it need not be moved; by
    default, and with several GPUs, the first that CUDA sees here. Where EGL cannot draw on it another one is taken.
    """
    found = _egl.devices()
    if gpu_uuid is None and sum(device.nvidia for device in found) > 1:
        gpu_uuid = _first_gpu()
    for index in _egl.candidates(found, gpu_uuid):
        try:
            ctx = _create(device_index=index)
        except GraphicsError:
            continue
        if gl_device_uuid(ctx) == gpu_uuid:
            return ctx
        held = _egl.current_context()
        ctx.release()
        _egl.let_go(held)
    return _create()


def _first_gpu() -> str | None:
    """The UUID of CUDA's device 0 (EGL does not look at CUDA_VISIBLE_DEVICES)."""
    from splatview_ipc.cuda import driver

    try:
        return driver.gpu_uuid(0)
    except IpcError:
        return None


def _create(**device: int) -> moderngl.Context:
    # By their runtime names: the ones that moderngl looks for come with compilers and development packages.
    settings: dict[str, Any] = {"backend": "egl", "libegl": "libEGL.so.1", "libgl": "libGL.so.1", **device}
    try:
        return moderngl.create_context(require=330, standalone=True, **settings)
    except Exception as e:  # moderngl raises bare Exception here
        if "not loaded" in str(e):
            raise GraphicsError(f"EGL not found ({e}): {_INSTALL}") from e
        raise GraphicsError(f"no OpenGL 3.3 context through EGL ({e}). With an NVIDIA GPU in a container, start it "
                            f"with NVIDIA_DRIVER_CAPABILITIES=all; without one: {_INSTALL}") from e


class LocalUser:
    """The user of a screen on this machine: files are where they were written."""

    shows_captions = False

    def __init__(self) -> None:
        self._clipboard = ""

    def copy(self, text: str) -> None:
        self._clipboard = text

    def pasted(self) -> str:
        return self._clipboard

    def keep(self, picture: np.ndarray, name: str) -> None:
        save_picture(picture, output_path(name), numbered=True)

    def hand_over(self, path: Path) -> None:
        """The user finds it where it is."""


class OffscreenScreen:
    """Draws into a texture. Events come from `push`, so that a test or a program can act as the user."""

    def __init__(self, width: int = 1280, height: int = 720, scale: float = 1.0, *,
                 gpu_uuid: str | None = None) -> None:
        """`gpu_uuid` as in `create_context`. Raises GraphicsError when no EGL context can be made."""
        self.ctx = create_context(gpu_uuid)
        self.user = LocalUser()
        self._egl = _egl.current_context()
        self._scale = scale
        self._closed = False
        self._inbox: Inbox[Event] = Inbox(most=1_000_000)
        self._target: Target | None = Target(self.ctx, (width, height))

    def resize(self, width: int, height: int, scale: float | None = None, *, shared: bool = False) -> None:
        """Draw in this many pixels from now on. shared: CUDA reads them (`tensor`). Raises SharingError, moderngl's
        Error where nothing so large can be made."""
        self._scale = self._scale if scale is None else scale
        if (width, height) != self.size or shared != (self._drawn.shared is not None):
            before, self._target = self._drawn, Target(self.ctx, (width, height), shared=shared)
            before.release()

    def tensor(self) -> torch.Tensor | None:
        """As `Target.tensor`; None where CUDA does not read it."""
        return None if self._drawn.shared is None else self._drawn.tensor()

    @property
    def _drawn(self) -> Target:
        assert self._target is not None, "the screen is closed"
        return self._target

    @property
    def size(self) -> tuple[int, int]:
        return self._drawn.size

    @property
    def state(self) -> ScreenState:
        size = self.size if self._target is not None else (MIN_SIZE, MIN_SIZE)
        return ScreenState(size, self._scale, not self._closed, not self._closed, self._closed)

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        return self._drawn.framebuffer

    def push(self, *events: Event) -> None:
        """Add events as if a user had caused them. May be called from any thread."""
        self._inbox.put(*events)

    def poll(self, timeout: float) -> list[Event]:
        events = self._inbox.take(timeout)
        for event in events:
            if isinstance(event, Resize):
                self.resize(event.width, event.height, event.scale)
            elif isinstance(event, Close):
                self._closed = True
        return events

    def wake(self) -> None:
        self._inbox.wake()

    def present(self, caption: Caption | None = None) -> None:
        """Give the drawing to the GPU, and wait for nothing."""
        GL.current().glFlush()

    def pixels(self) -> np.ndarray:
        """As `read_pixels` of its framebuffer."""
        return read_pixels(self.framebuffer)

    def close(self) -> None:
        self._closed = True
        if self._target is None:
            return
        self._target.release()
        self._target = None
        self.ctx.release()
        _egl.let_go(self._egl)
