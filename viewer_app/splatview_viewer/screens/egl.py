"""OpenGL contexts without a display, through EGL."""

from __future__ import annotations

import ctypes
import functools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl

from splatview_ipc.control.errors import IpcError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.core.errors import GraphicsError
from splatview_viewer.screens import gl_versions

if TYPE_CHECKING:
    from collections.abc import Callable

_INSTALL = "apt-get install libegl1 libgl1 libgl1-mesa-dri"
# Enumerators of EGL and its extensions.
_EXTENSIONS = 0x3055
_CUDA_DEVICE = 0x323A
_DEVICE_UUID = 0x335C
_MAX_DEVICES = 64
_UUID_BYTES = 16


class EglDevice(NamedTuple):
    """A GPU or a software renderer that EGL can draw with, in EGL's order."""

    uuid: str | None
    """The GPU's, 32 lower-case hexadecimal digits; None where EGL does not say."""
    nvidia: bool
    """CUDA knows it as well."""


def devices() -> list[EglDevice]:
    """Return what EGL can draw with; [] where EGL is missing or does not say."""
    egl = _library()
    if egl is None:
        return []
    queries = _DeviceQueries(egl)
    return [queries.describe(device) for device in queries.devices()]


class _DeviceQueries:
    """EGL's functions on devices; those that it does not have are None."""

    def __init__(self, egl: ctypes.CDLL) -> None:
        self._egl = egl
        int_pointer = ctypes.POINTER(ctypes.c_int)
        self._devices = self._function(
            "eglQueryDevicesEXT",
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_void_p,
            int_pointer,
        )
        self._attribute = self._function(
            "eglQueryDeviceAttribEXT",
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_ssize_t),
        )
        self._string = self._function(
            "eglQueryDeviceStringEXT", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int
        )
        self._binary = self._function(
            "eglQueryDeviceBinaryEXT",
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_void_p,
            int_pointer,
        )

    def _function(
        self, name: str, result: Any, *arguments: Any
    ) -> Callable[..., Any] | None:
        address = self._egl.eglGetProcAddress(name.encode())
        if address:
            return ctypes.CFUNCTYPE(result, *arguments)(address)
        return None

    def devices(self) -> list[int]:
        """Return the handles of all devices; [] where EGL cannot describe them."""
        if self._devices is None or self._attribute is None or self._string is None:
            return []
        handles = (ctypes.c_void_p * _MAX_DEVICES)()
        count = ctypes.c_int(0)
        if not self._devices(_MAX_DEVICES, handles, ctypes.byref(count)):
            return []
        return list(handles[: count.value])

    def describe(self, device: int) -> EglDevice:
        assert self._string is not None
        text = self._string(device, _EXTENSIONS) or b""
        extensions = text.decode("ascii", "replace").split()
        uuid = None
        if "EGL_EXT_device_persistent_id" in extensions:
            uuid = self._uuid(device)
        has_cuda = "EGL_NV_device_cuda" in extensions
        return EglDevice(uuid, has_cuda and self._has_cuda_index(device))

    def _uuid(self, device: int) -> str | None:
        if self._binary is None:
            return None
        uuid = (ctypes.c_ubyte * _UUID_BYTES)()
        size = ctypes.c_int(0)
        has_uuid = self._binary(
            device, _DEVICE_UUID, _UUID_BYTES, uuid, ctypes.byref(size)
        )
        if not has_uuid or size.value != _UUID_BYTES:
            return None
        return bytes(uuid).hex()

    def _has_cuda_index(self, device: int) -> bool:
        assert self._attribute is not None
        index = ctypes.c_ssize_t(-1)
        has_index = self._attribute(device, _CUDA_DEVICE, ctypes.byref(index))
        return bool(has_index) and index.value >= 0


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Load EGL, of which moderngl lacks some calls."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return None
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    egl.eglGetCurrentContext.restype = ctypes.c_void_p
    return egl


def current_context() -> int:
    """Return the EGL context that this thread holds, as an opaque number; 0: none."""
    egl = _library()
    if egl is None:
        return 0
    return egl.eglGetCurrentContext() or 0


def let_go(context: int | None = None) -> None:
    """Hold no EGL context in this thread any more.

    A thread that holds one cannot make a GLX context current: Xlib would end the whole
    process (BadAccess).

    Args:
        context: only if it is this one.
    """
    current = current_context()
    egl = _library()
    if egl is not None and current and context in (None, current):
        egl.eglReleaseThread()


def create_context(gpu_uuid: str | None = None) -> moderngl.Context:
    """Make an OpenGL 3.3 core context without any display.

    Where EGL cannot draw on the requested GPU another one is taken.

    Args:
        gpu_uuid: the GPU to draw on, as 32 lower-case hexadecimal digits, so that
            tensors on it need not be moved; None: with several GPUs, the first that
            CUDA sees.

    Raises:
        GraphicsError: with advice.
    """
    found_devices = devices()
    if gpu_uuid is None and sum(device.nvidia for device in found_devices) > 1:
        # EGL does not look at CUDA_VISIBLE_DEVICES.
        with suppress(IpcError):
            gpu_uuid = driver.gpu_uuid(0)
    if gpu_uuid is None:
        return _create()
    for index in _candidates(found_devices, gpu_uuid):
        try:
            ctx = _create(device_index=index)
        except GraphicsError:
            continue
        if gl_device_uuid(ctx) == gpu_uuid:
            return ctx
        context = current_context()
        ctx.release()
        let_go(context)
    return _create()


def _candidates(found_devices: list[EglDevice], gpu_uuid: str) -> list[int]:
    """Return the indices of the devices that may be a GPU."""
    unnamed = []
    for index, device in enumerate(found_devices):
        if device.uuid == gpu_uuid:
            return [index]
        if device.nvidia and device.uuid is None:
            unnamed.append(index)
    return unnamed


def _create(**device: int) -> moderngl.Context:
    """Make a context on a device, by default EGL's own choice. Raises GraphicsError."""
    # By their runtime names: the ones that moderngl looks for come with compilers and
    # development packages.
    settings: dict[str, Any] = {
        "libegl": "libEGL.so.1",
        "libgl": "libGL.so.1",
        **device,
    }
    try:
        egl: dict[str, Any] = {"backend": "egl", **settings}
        return moderngl.create_context(require=330, standalone=True, **egl)
    except Exception as e:
        # moderngl raises bare Exception here.
        if "not loaded" in str(e):
            raise GraphicsError(f"EGL not found ({e}): {_INSTALL}") from e
        offered = gl_versions.egl_version(**settings)
        if offered:
            raise GraphicsError(gl_versions.too_old("EGL", offered)) from e
        raise GraphicsError(
            f"no OpenGL 3.3 context through EGL ({e}). With an NVIDIA GPU in a "
            "container, start it with NVIDIA_DRIVER_CAPABILITIES=all; without one: "
            f"{_INSTALL}"
        ) from e
