"""A screen without a display: an EGL context and a framebuffer; copies of what was
drawn, for other threads.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.control.errors import IpcError, SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.glapi import GL, gl_device_uuid
from splatview_ipc.gl.shared_texture import SharedTexture
from splatview_ipc.gl.texture_tensor import TextureTensor
from splatview_viewer.core.errors import GraphicsError
from splatview_viewer.core.events import Close, Inbox, Resize
from splatview_viewer.core.screen import ScreenState, read_pixels
from splatview_viewer.formats.pictures import output_path, save_picture
from splatview_viewer.screens import gl_versions

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Caption

    Pixels = np.ndarray | torch.Tensor

_INSTALL = "apt-get install libegl1 libgl1 libgl1-mesa-dri"
_EXTENSIONS = 0x3055
_CUDA_DEVICE = 0x323A
_DEVICE_UUID = 0x335C
_MAX_DEVICES = 64


class EglDevice(NamedTuple):
    """Something that EGL can draw on, in EGL's order."""

    uuid: str | None
    """The GPU's, 32 lower-case hexadecimal digits; None where EGL does not say."""
    nvidia: bool
    """CUDA knows it as well."""


def devices() -> list[EglDevice]:
    """Return what EGL can draw on; [] where EGL is missing or does not say."""
    egl = _library()
    if egl is None:
        return []

    def function(name: str, result: Any, *arguments: Any) -> Any:
        address = egl.eglGetProcAddress(name.encode())
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None

    query = function(
        "eglQueryDevicesEXT",
        ctypes.c_uint,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int),
    )
    attribute = function(
        "eglQueryDeviceAttribEXT",
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_ssize_t),
    )
    text = function(
        "eglQueryDeviceStringEXT", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int
    )
    binary = function(
        "eglQueryDeviceBinaryEXT",
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int),
    )
    if query is None or attribute is None or text is None:
        return []
    count = ctypes.c_int(0)
    found = (ctypes.c_void_p * _MAX_DEVICES)()
    if not query(_MAX_DEVICES, found, ctypes.byref(count)):
        return []
    out = []
    for device in found[: count.value]:
        extensions = (
            (text(device, _EXTENSIONS) or b"").decode("ascii", "replace").split()
        )
        number = ctypes.c_ssize_t(-1)
        nvidia = False
        if "EGL_NV_device_cuda" in extensions:
            nvidia = (
                bool(attribute(device, _CUDA_DEVICE, ctypes.byref(number)))
                and number.value >= 0
            )
        uuid = (ctypes.c_ubyte * 16)()
        size = ctypes.c_int(0)
        known = (
            binary is not None
            and "EGL_EXT_device_persistent_id" in extensions
            and binary(device, _DEVICE_UUID, 16, uuid, ctypes.byref(size))
            and size.value == 16
        )
        out.append(EglDevice(bytes(uuid).hex() if known else None, nvidia))
    return out


@functools.cache
def _library() -> ctypes.CDLL | None:
    """EGL, of which moderngl lacks some calls."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return None
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    egl.eglGetCurrentContext.restype = ctypes.c_void_p
    return egl


def current_context() -> int:
    """Return the EGL context that this thread holds, as an opaque number; 0 for none."""
    egl = _library()
    return 0 if egl is None else egl.eglGetCurrentContext() or 0


def let_go(context: int | None = None) -> None:
    """Hold no EGL context in this thread any more; with `context`, only if it is that
    one.

    A thread that holds one cannot make a GLX context current: Xlib would end the whole
    process (BadAccess).
    """
    held = current_context()
    egl = _library()
    if egl is not None and held and context in (None, held):
        egl.eglReleaseThread()


def create_context(gpu_uuid: str | None = None) -> moderngl.Context:
    """An OpenGL 3.3 core context without any display.

    Raises GraphicsError that says what to do.

    `gpu_uuid`: the GPU to draw on, as 32 lower-case hexadecimal digits, so that tensors
    on it need not be moved; by default, and with several GPUs, the first that CUDA sees
    here. Where EGL cannot draw on it another one is taken.
    """
    found = devices()
    if gpu_uuid is None and sum(device.nvidia for device in found) > 1:
        with suppress(IpcError):
            gpu_uuid = driver.gpu_uuid(0)  # EGL does not look at CUDA_VISIBLE_DEVICES
    exact = [k for k, device in enumerate(found) if device.uuid == gpu_uuid is not None]
    unnamed = [
        k
        for k, device in enumerate(found)
        if device.nvidia and device.uuid is None and gpu_uuid is not None
    ]
    for index in exact[:1] or unnamed:
        try:
            ctx = _create(device_index=index)
        except GraphicsError:
            continue
        if gl_device_uuid(ctx) == gpu_uuid:
            return ctx
        held = current_context()
        ctx.release()
        let_go(held)
    return _create()


def _create(**device: int) -> moderngl.Context:
    # By their runtime names: the ones that moderngl looks for come with compilers and
    # development packages.
    settings: dict[str, Any] = {
        "backend": "egl",
        "libegl": "libEGL.so.1",
        "libgl": "libGL.so.1",
        **device,
    }
    try:
        return moderngl.create_context(require=330, standalone=True, **settings)
    except Exception as e:  # moderngl raises bare Exception here
        if "not loaded" in str(e):
            raise GraphicsError(f"EGL not found ({e}): {_INSTALL}") from e
        settings.pop("backend")
        offered = gl_versions.egl_version(**settings)
        if offered:
            raise GraphicsError(gl_versions.too_old("EGL", offered)) from e
        raise GraphicsError(
            f"no OpenGL 3.3 context through EGL ({e}). With an NVIDIA GPU in a "
            "container, start it "
            f"with NVIDIA_DRIVER_CAPABILITIES=all; without one: {_INSTALL}"
        ) from e


class DrawTarget:
    """A framebuffer of one size, black at first.

    Lives in the thread of its context, which it does not own.
    """

    def __init__(
        self, ctx: moderngl.Context, size: tuple[int, int], *, shared: bool = False
    ) -> None:
        """`shared`: CUDA reads the texture as well, by `self.shared`.

        Raises SharingError or moderngl's Error when it cannot be made.
        """
        self._ctx = ctx
        self.shared: SharedTexture | TextureTensor | None = None
        with ExitStack() as held:
            if shared:
                with suppress(SharingError):  # nothing waits but the GPU
                    self.shared = SharedTexture(ctx, size)
                    held.callback(self.shared.close)
            if isinstance(self.shared, SharedTexture):
                texture = self.shared.texture
            else:
                texture = ctx.texture(size, 4)
                held.callback(texture.release)
                if shared:
                    self.shared = TextureTensor(texture, "register")
                    held.callback(self.shared.close)
            self.framebuffer = ctx.framebuffer([texture])
            held.callback(self.framebuffer.release)
            self._held = held.pop_all()
        # Moderngl binds what was in use again after a clear: that must not be an old
        # one.
        self.framebuffer.use()
        self.framebuffer.clear(0.0, 0.0, 0.0, 1.0)

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.framebuffer.size
        return width, height

    def tensor(self) -> torch.Tensor:
        """Return what has been drawn, for the next work of the current CUDA stream: (H,
        W, 4) uint8, lowest row first. The next call writes into the same tensor.
        """
        assert self.shared is not None, "made without `shared`"
        if isinstance(self.shared, SharedTexture):
            return self.shared.read()
        return self.shared.update()

    def release(self) -> None:
        """Idempotent."""
        if self._ctx.fbo is self.framebuffer:
            self._ctx.detect_framebuffer(0).use()
        self._held.close()


@dataclass(eq=False)
class Copy:
    """One picture for other threads."""

    pixels: Pixels
    """(H, W, 4) uint8, the lowest row first."""
    at: float
    """The newest event that the picture reflects, by the page's clock; 0: none."""
    arrived: torch.cuda.Event | None = None
    """Passed by the GPU once the pixels are there; None: they are."""

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


def copied(target: DrawTarget, at: float, device: int | None) -> Copy:
    """Copy what has been drawn, in the thread of the context.

    Copies on a GPU stay there, and nothing waits; others wait for the drawing.
    `device`: CUDA's ordinal of the GPU that OpenGL draws on, for targets that are
    shared with it.
    """
    if target.shared is None:
        width, height = target.size
        pixels = np.empty((height, width, 4), np.uint8)
        target.framebuffer.read_into(pixels, components=4, alignment=1)
        return Copy(pixels, at)
    import torch

    with torch.cuda.device(device):
        # a thread that waits sleeps
        tensor = target.tensor().clone()
        arrived = torch.cuda.Event(blocking=True)
        arrived.record()
    return Copy(tensor, at, arrived)


class LocalDesktop:
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
    """Draws into a texture.

    Events come from `push`, so that a test or a program can act as the user.
    """

    def __init__(
        self,
        width: int = 1280,
        height: int = 720,
        scale: float = 1.0,
        *,
        gpu_uuid: str | None = None,
    ) -> None:
        """`gpu_uuid` as in `create_context`.

        Raises GraphicsError when no EGL context can be made.
        """
        self.ctx = create_context(gpu_uuid)
        self.desktop = LocalDesktop()
        self._held: int | None = current_context()
        """The EGL context; None once it was released."""
        self._scale = scale
        self._closed = False
        self._inbox: Inbox[Event] = Inbox(capacity=1_000_000)
        self._target = DrawTarget(self.ctx, (width, height))

    def resize(
        self,
        width: int,
        height: int,
        scale: float | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Draw in this many pixels from now on.

        shared: CUDA reads them (`tensor`). Raises SharingError, moderngl's Error where
        nothing so large can be made.
        """
        self._scale = self._scale if scale is None else scale
        if (width, height) != self.size or shared != (self._target.shared is not None):
            before = self._target
            self._target = DrawTarget(self.ctx, (width, height), shared=shared)
            before.release()

    def tensor(self) -> torch.Tensor | None:
        """As `Target.tensor`; None where CUDA does not read it."""
        return None if self._target.shared is None else self._target.tensor()

    @property
    def size(self) -> tuple[int, int]:
        return self._target.size

    @property
    def state(self) -> ScreenState:
        return ScreenState(
            self.size, self._scale, not self._closed, not self._closed, self._closed
        )

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        return self._target.framebuffer

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
        if self._held is None:
            return
        self._target.release()
        self.ctx.release()
        let_go(self._held)
        self._held = None
