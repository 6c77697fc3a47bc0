"""The OpenGL functions that moderngl does not wrap, by name, from the driver of the current context.

`gl = GL.current()`, then `gl.glGenBuffers(1, ...)`; signatures are in `_SIGNATURES`. Every call needs a current
context on the calling thread.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import contextmanager
from ctypes import POINTER, c_int, c_ssize_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import moderngl

TEXTURE_2D, TEXTURE_BUFFER, RENDERBUFFER = 0x0DE1, 0x8C2A, 0x8D41
TEXTURE0, ACTIVE_TEXTURE = 0x84C0, 0x84E0
TEXTURE_BINDING_2D, TEXTURE_BINDING_BUFFER, TEXTURE_BUFFER_BINDING = 0x8069, 0x8C2C, 0x8C2A
ARRAY_BUFFER, ARRAY_BUFFER_BINDING = 0x8892, 0x8894
PIXEL_PACK_BUFFER, PIXEL_UNPACK_BUFFER = 0x88EB, 0x88EC
PIXEL_PACK_BUFFER_BINDING, PIXEL_UNPACK_BUFFER_BINDING = 0x88ED, 0x88EF
READ_FRAMEBUFFER, DRAW_FRAMEBUFFER = 0x8CA8, 0x8CA9
READ_FRAMEBUFFER_BINDING, DRAW_FRAMEBUFFER_BINDING, RENDERBUFFER_BINDING = 0x8CAA, 0x8CA6, 0x8CA7
COLOR_ATTACHMENT0, DEPTH_ATTACHMENT = 0x8CE0, 0x8D00
RED, RG, RGB, RGBA, DEPTH_COMPONENT = 0x1903, 0x8227, 0x1907, 0x1908, 0x1902
UNSIGNED_BYTE, FLOAT, HALF_FLOAT = 0x1401, 0x1406, 0x140B
STATIC_DRAW = 0x88E4
SYNC_GPU_COMMANDS_COMPLETE = 0x9117
SYNC_FLUSH_COMMANDS_BIT = 1
ALREADY_SIGNALED, TIMEOUT_EXPIRED, CONDITION_SATISFIED = 0x911A, 0x911B, 0x911C
HANDLE_TYPE_OPAQUE_FD = 0x9586
DEDICATED_MEMORY_OBJECT = 0x9581
TEXTURE_TILING, OPTIMAL_TILING = 0x9580, 0x9584
LAYOUT_GENERAL = 0x958D
DEVICE_UUID = 0x9597
MAX_TEXTURE_BUFFER_SIZE, TEXTURE_BUFFER_OFFSET_ALIGNMENT = 0x8C2B, 0x919F
CURRENT_PROGRAM = 0x8B8D

_ERRORS = {0x0500: "GL_INVALID_ENUM", 0x0501: "GL_INVALID_VALUE", 0x0502: "GL_INVALID_OPERATION",
           0x0505: "GL_OUT_OF_MEMORY", 0x0506: "GL_INVALID_FRAMEBUFFER_OPERATION"}

_names, _size = POINTER(c_uint), c_ssize_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # the result first
    "glGetError": (c_uint,),
    "glGetIntegerv": (None, c_uint, POINTER(c_int)),
    "glPixelStorei": (None, c_uint, c_int),
    "glFlush": (None,),
    "glUseProgram": (None, c_uint),
    "glUniform1i": (None, c_int, c_int),
    "glFinish": (None,),
    "glActiveTexture": (None, c_uint),
    "glGenTextures": (None, c_int, _names),
    "glDeleteTextures": (None, c_int, _names),
    "glBindTexture": (None, c_uint, c_uint),
    "glTexParameteri": (None, c_uint, c_uint, c_int),
    "glTexSubImage2D": (None, c_uint, c_int, c_int, c_int, c_int, c_int, c_uint, c_uint, c_void_p),
    "glGetTexImage": (None, c_uint, c_int, c_uint, c_uint, c_void_p),
    "glTexBuffer": (None, c_uint, c_uint, c_uint),
    "glTexBufferRange": (None, c_uint, c_uint, c_uint, _size, _size),
    "glGenBuffers": (None, c_int, _names),
    "glDeleteBuffers": (None, c_int, _names),
    "glBindBuffer": (None, c_uint, c_uint),
    "glBufferData": (None, c_uint, _size, c_void_p, c_uint),
    "glGenFramebuffers": (None, c_int, _names),
    "glDeleteFramebuffers": (None, c_int, _names),
    "glBindFramebuffer": (None, c_uint, c_uint),
    "glFramebufferRenderbuffer": (None, c_uint, c_uint, c_uint, c_uint),
    "glBlitFramebuffer": (None, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_uint, c_uint),
    "glReadBuffer": (None, c_uint),
    "glReadPixels": (None, c_int, c_int, c_int, c_int, c_uint, c_uint, c_void_p),
    "glBindRenderbuffer": (None, c_uint, c_uint),
    "glFenceSync": (c_void_p, c_uint, c_uint),
    "glClientWaitSync": (c_uint, c_void_p, c_uint, c_uint64),
    "glDeleteSync": (None, c_void_p),
    "glGetUnsignedBytei_vEXT": (None, c_uint, c_uint, POINTER(c_ubyte)),
    "glCreateMemoryObjectsEXT": (None, c_int, _names),
    "glDeleteMemoryObjectsEXT": (None, c_int, _names),
    "glMemoryObjectParameterivEXT": (None, c_uint, c_uint, POINTER(c_int)),
    "glImportMemoryFdEXT": (None, c_uint, c_uint64, c_uint, c_int),
    "glBufferStorageMemEXT": (None, c_uint, _size, c_uint, c_uint64),
    "glTexStorageMem2DEXT": (None, c_uint, c_int, c_uint, c_int, c_int, c_uint, c_uint64),
    "glGenSemaphoresEXT": (None, c_int, _names),
    "glDeleteSemaphoresEXT": (None, c_int, _names),
    "glImportSemaphoreFdEXT": (None, c_uint, c_uint, c_int),
    "glWaitSemaphoreEXT": (None, c_uint, c_uint, _names, c_uint, _names, _names),
    "glSignalSemaphoreEXT": (None, c_uint, c_uint, _names, c_uint, _names, _names),
}


class GL:
    """OpenGL functions as attributes. Raises SharingError for one that the driver does not have."""

    _loaded: dict[str, GL] = {}  # noqa: RUF012  # by library: EGL's and GLX's addresses may differ

    def __init__(self, address: Callable[[bytes], int | None]) -> None:
        self._address = address

    @classmethod
    def current(cls) -> GL:
        """For the context that is current on this thread. Raises SharingError when no library can be asked."""
        kind = "egl" if _egl_current()() else "glx"
        if kind not in cls._loaded:
            cls._loaded[kind] = cls(_loader(kind))
        return cls._loaded[kind]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _SIGNATURES:
            raise AttributeError(f"{name} has no signature in {__name__}")
        address = self._address(name.encode())
        if not address:
            raise SharingError(f"this OpenGL has no {name}")
        result, *arguments = _SIGNATURES[name]
        function = ctypes.CFUNCTYPE(result, *arguments)(address)
        setattr(self, name, function)
        return function

    def integer(self, what: int) -> int:
        value = c_int(0)
        self.glGetIntegerv(what, ctypes.byref(value))
        return value.value

    def generate(self, function: str) -> int:
        """The one name that a glGen or glCreate function makes."""
        name = c_uint(0)
        getattr(self, function)(1, ctypes.byref(name))
        return name.value

    def delete(self, function: str, names: Sequence[int]) -> None:
        if names:
            getattr(self, function)(len(names), (c_uint * len(names))(*names))

    def clear_errors(self) -> None:
        for _ in range(16):  # a lost context reports errors for ever
            if not self.glGetError():
                return

    def check(self, what: str) -> None:
        """Raises SharingError when a call since the last `check` or `clear_errors` failed."""
        code = self.glGetError()
        if code:
            self.clear_errors()
            raise SharingError(f"{what}: {_ERRORS.get(code, hex(code))}")

    @contextmanager
    def bound(self, target: int, name: int) -> Iterator[None]:
        """A buffer bound to a target, and what was bound there before again afterwards."""
        before = self.integer(_BINDINGS[target])
        self.glBindBuffer(target, name)
        try:
            yield
        finally:
            self.glBindBuffer(target, before)

    def fence(self) -> int:
        """A fence after everything drawn so far; hand it to `wait_fence` once."""
        fence = self.glFenceSync(SYNC_GPU_COMMANDS_COMPLETE, 0)
        if not fence:
            raise SharingError("glFenceSync failed")
        return int(fence)

    def wait_fence(self, fence: int, seconds: float = 10.0) -> None:
        """Wait on this thread until the GPU has passed a fence, and delete it. Raises SharingError after `seconds`."""
        result = self.glClientWaitSync(fence, 0, 0)
        if result == TIMEOUT_EXPIRED:  # only then is there anything to flush
            result = self.glClientWaitSync(fence, SYNC_FLUSH_COMMANDS_BIT, int(seconds * 1e9))
        self.glDeleteSync(fence)
        if result not in (ALREADY_SIGNALED, CONDITION_SATISFIED):
            raise SharingError(f"OpenGL did not finish drawing within {seconds} s (glClientWaitSync: {result:#x})")


_BINDINGS = {ARRAY_BUFFER: ARRAY_BUFFER_BINDING, TEXTURE_BUFFER: TEXTURE_BUFFER_BINDING,
             PIXEL_PACK_BUFFER: PIXEL_PACK_BUFFER_BINDING, PIXEL_UNPACK_BUFFER: PIXEL_UNPACK_BUFFER_BINDING}


@functools.cache
def _egl_current() -> Callable[[], int | None]:
    try:
        current = ctypes.CDLL("libEGL.so.1").eglGetCurrentContext
    except (OSError, AttributeError):
        return lambda: None
    current.restype = c_void_p
    return current


def _loader(kind: str) -> Callable[[bytes], int | None]:
    try:
        get = (ctypes.CDLL("libEGL.so.1").eglGetProcAddress if kind == "egl" else
               ctypes.CDLL("libGL.so.1").glXGetProcAddressARB)
    except (OSError, AttributeError) as e:
        raise SharingError(f"OpenGL's functions cannot be found: {e}") from e
    get.restype, get.argtypes = c_void_p, [ctypes.c_char_p]
    return get


def gl_device_uuid(ctx: moderngl.Context) -> str | None:
    """The UUID of the GPU that a context draws on, 32 lower-case hex digits; None when OpenGL does not say."""
    if not {"GL_EXT_memory_object", "GL_EXT_semaphore"} & ctx.extensions:
        return None
    gl, uuid = GL.current(), (c_ubyte * 16)()
    gl.clear_errors()
    try:
        gl.glGetUnsignedBytei_vEXT(DEVICE_UUID, 0, uuid)
        gl.check("GL_DEVICE_UUID_EXT")
    except SharingError:
        return None
    return bytes(uuid).hex() if any(uuid) else None
