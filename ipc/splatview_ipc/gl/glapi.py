"""OpenGL functions that moderngl does not wrap: `GL.current().glGenBuffers(1, ...)`.

Every call needs a current context on the calling thread.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_int, c_ssize_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

TEXTURE_2D = 0x0DE1
TEXTURE_BUFFER = 0x8C2A
RENDERBUFFER = 0x8D41
TEXTURE0 = 0x84C0
ACTIVE_TEXTURE = 0x84E0
TEXTURE_BINDING_2D = 0x8069
TEXTURE_BINDING_BUFFER = 0x8C2C
TEXTURE_BUFFER_BINDING = 0x8C2A
PIXEL_PACK_BUFFER = 0x88EB
PIXEL_UNPACK_BUFFER = 0x88EC
PIXEL_PACK_BUFFER_BINDING = 0x88ED
PIXEL_UNPACK_BUFFER_BINDING = 0x88EF
UNPACK_ROW_LENGTH = 0x0CF2
UNPACK_ALIGNMENT = 0x0CF5
RED = 0x1903
RGBA = 0x1908
UNSIGNED_BYTE = 0x1401
FLOAT = 0x1406
READ_FRAMEBUFFER = 0x8CA8
DRAW_FRAMEBUFFER = 0x8CA9
READ_FRAMEBUFFER_BINDING = 0x8CAA
DRAW_FRAMEBUFFER_BINDING = 0x8CA6
SYNC_GPU_COMMANDS_COMPLETE = 0x9117
SYNC_FLUSH_COMMANDS_BIT = 1
ALREADY_SIGNALED = 0x911A
TIMEOUT_EXPIRED = 0x911B
CONDITION_SATISFIED = 0x911C
HANDLE_TYPE_OPAQUE_FD = 0x9586
DEDICATED_MEMORY_OBJECT = 0x9581
TEXTURE_TILING = 0x9580
OPTIMAL_TILING = 0x9584
LAYOUT_GENERAL = 0x958D
DEVICE_UUID = 0x9597
MAX_TEXTURE_BUFFER_SIZE = 0x8C2B

_FENCE_TIMEOUT_S = 10
_ERRORS = {
    0x0500: "GL_INVALID_ENUM",
    0x0501: "GL_INVALID_VALUE",
    0x0502: "GL_INVALID_OPERATION",
    0x0505: "GL_OUT_OF_MEMORY",
    0x0506: "GL_INVALID_FRAMEBUFFER_OPERATION",
}

_names = POINTER(c_uint)
_size = c_ssize_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            "glGenTextures",
            "glGenBuffers",
            "glCreateMemoryObjectsEXT",
            "glGenSemaphoresEXT",
            "glDeleteTextures",
            "glDeleteBuffers",
            "glDeleteMemoryObjectsEXT",
            "glDeleteSemaphoresEXT",
        ),
        (None, c_int, _names),
    ),
    **dict.fromkeys(
        ("glBindTexture", "glBindBuffer", "glBindFramebuffer", "glBindRenderbuffer"),
        (None, c_uint, c_uint),
    ),
    **dict.fromkeys(("glGenQueries", "glDeleteQueries"), (None, c_int, _names)),
    "glQueryCounter": (None, c_uint, c_uint),
    "glGetQueryObjectuiv": (None, c_uint, c_uint, _names),
    "glGetQueryObjectui64v": (None, c_uint, c_uint, POINTER(c_uint64)),
    "glGetError": (c_uint,),
    "glGetIntegerv": (None, c_uint, POINTER(c_int)),
    "glPixelStorei": (None, c_uint, c_int),
    "glFlush": (None,),
    "glFinish": (None,),
    "glUseProgram": (None, c_uint),
    "glUniform1i": (None, c_int, c_int),
    "glActiveTexture": (None, c_uint),
    "glTexParameteri": (None, c_uint, c_uint, c_int),
    "glTexSubImage2D": (
        None,
        c_uint,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_uint,
        c_uint,
        c_void_p,
    ),
    "glTexBufferRange": (None, c_uint, c_uint, c_uint, _size, _size),
    "glBlitFramebuffer": (
        None,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_uint,
        c_uint,
    ),
    "glFenceSync": (c_void_p, c_uint, c_uint),
    "glClientWaitSync": (c_uint, c_void_p, c_uint, c_uint64),
    "glDeleteSync": (None, c_void_p),
    "glGetUnsignedBytei_vEXT": (None, c_uint, c_uint, POINTER(c_ubyte)),
    "glMemoryObjectParameterivEXT": (None, c_uint, c_uint, POINTER(c_int)),
    "glImportMemoryFdEXT": (None, c_uint, c_uint64, c_uint, c_int),
    "glBufferStorageMemEXT": (None, c_uint, _size, c_uint, c_uint64),
    "glTexStorageMem2DEXT": (
        None,
        c_uint,
        c_int,
        c_uint,
        c_int,
        c_int,
        c_uint,
        c_uint64,
    ),
    "glImportSemaphoreFdEXT": (None, c_uint, c_uint, c_int),
    "glWaitSemaphoreEXT": (None, c_uint, c_uint, _names, c_uint, _names, _names),
    "glSignalSemaphoreEXT": (None, c_uint, c_uint, _names, c_uint, _names, _names),
}
"""Types of the result and of the arguments, by function."""

_LIBRARIES = (
    ("libEGL.so.1", "eglGetCurrentContext", "eglGetProcAddress"),
    ("libGL.so.1", "glXGetCurrentContext", "glXGetProcAddressARB"),
)
"""Libraries, and their functions for the current context and for addresses."""
_MAX_ERRORS = 16
"""Errors that are fetched at once: a lost context reports errors for ever."""


class GL:
    """OpenGL functions as attributes.

    An attribute raises SharingError if the driver does not have the function.
    """

    def __init__(self, library: str, context: str, address: str) -> None:
        """Load a library; the arguments are as in `_LIBRARIES`.

        Raises OSError or AttributeError where it is not installed.
        """
        functions = ctypes.CDLL(library)
        self.context: Callable[[], int | None] = getattr(functions, context)
        """Returns the handle of this thread's current context; None: there is none."""
        self.context.restype = c_void_p  # type: ignore[attr-defined]
        self._address = getattr(functions, address)
        self._address.restype = c_void_p
        self._address.argtypes = [ctypes.c_char_p]

    @staticmethod
    def current() -> GL:
        """Return the functions for the context that is current on this thread.

        Raises SharingError where no library is installed.
        """
        loaded = None
        for library in _LIBRARIES:
            loaded = _load(*library) or loaded
            if loaded is not None and loaded.context():
                return loaded
        if loaded is None:
            raise SharingError(
                "OpenGL's functions cannot be found: install libEGL.so.1 or libGL.so.1"
            )
        return loaded

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function, which is looked up once."""
        if name not in _SIGNATURES:
            raise AttributeError(f"{name} has no signature in {__name__}")
        address = self._address(name.encode())
        if not address:
            raise SharingError(f"this OpenGL has no {name}")
        result, *arguments = _SIGNATURES[name]
        function = ctypes.CFUNCTYPE(result, *arguments)(address)
        setattr(self, name, function)
        return function

    def integer(self, name: int) -> int:
        """Return a value of OpenGL's state by its name."""
        value = c_int(0)
        self.glGetIntegerv(name, ctypes.byref(value))
        return value.value

    def generate(self, function: str) -> int:
        """Return the one name that a glGen or glCreate function makes."""
        name = c_uint(0)
        getattr(self, function)(1, ctypes.byref(name))
        return name.value

    def delete(self, function: str, names: Sequence[int]) -> None:
        """Call a glDelete function."""
        if names:
            getattr(self, function)(len(names), (c_uint * len(names))(*names))

    def clear_errors(self) -> None:
        """Forget the errors of all calls so far."""
        for _ in range(_MAX_ERRORS):
            if not self.glGetError():
                return

    def check(self, action: str) -> None:
        """Raise SharingError if a call since the last `check` or `clear_errors` failed.

        Args:
            action: what the calls did, for the message.
        """
        code = self.glGetError()
        if code:
            self.clear_errors()
            raise SharingError(f"{action}: {_ERRORS.get(code, hex(code))}")

    def fence(self) -> int:
        """Set a fence after everything drawn so far, for one call of `wait_fence`."""
        fence = self.glFenceSync(SYNC_GPU_COMMANDS_COMPLETE, 0)
        if not fence:
            raise SharingError("glFenceSync failed")
        return int(fence)

    def has_passed(self, fence: int) -> bool:
        """Return whether the GPU has passed a fence; delete it if so."""
        result = self.glClientWaitSync(fence, SYNC_FLUSH_COMMANDS_BIT, 0)
        if result == TIMEOUT_EXPIRED:
            return False
        self.glDeleteSync(fence)
        return True

    def wait_fence(self, fence: int) -> None:
        """Wait on this thread until the GPU has passed a fence, and delete it.

        Raises SharingError after 10 seconds.
        """
        result = self.glClientWaitSync(fence, 0, 0)
        if result == TIMEOUT_EXPIRED:  # only then is there anything to flush
            result = self.glClientWaitSync(
                fence, SYNC_FLUSH_COMMANDS_BIT, _FENCE_TIMEOUT_S * 1_000_000_000
            )
        self.glDeleteSync(fence)
        if result not in (ALREADY_SIGNALED, CONDITION_SATISFIED):
            raise SharingError(
                f"OpenGL did not finish drawing within {_FENCE_TIMEOUT_S} s "
                f"(glClientWaitSync: {result:#x})"
            )


@functools.cache
def _load(library: str, context: str, address: str) -> GL | None:
    """Return the functions of a library; None where it is not installed."""
    try:
        return GL(library, context, address)
    except (OSError, AttributeError):
        return None


def gl_device_uuid(ctx: moderngl.Context) -> str | None:
    """Return the UUID of the GPU that a context draws on, 32 lower-case hex digits.

    None when OpenGL does not report it.
    """
    if not {"GL_EXT_memory_object", "GL_EXT_semaphore"} & ctx.extensions:
        return None
    gl = GL.current()
    uuid = (c_ubyte * 16)()
    gl.clear_errors()
    try:
        gl.glGetUnsignedBytei_vEXT(DEVICE_UUID, 0, uuid)
        gl.check("GL_DEVICE_UUID_EXT")
    except SharingError:
        return None
    return bytes(uuid).hex() if any(uuid) else None
