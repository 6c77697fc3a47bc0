"""Calls of EGL that moderngl lacks: which GPUs EGL can draw on, and letting go of an EGL context."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

_EXTENSIONS, _CUDA_DEVICE, _DEVICE_UUID = 0x3055, 0x323A, 0x335C
_MAX_DEVICES = 64


class Device(NamedTuple):
    """Something that EGL can draw on, in EGL's order."""

    uuid: str | None
    """The GPU's, 32 lower-case hexadecimal digits; None where EGL does not say."""
    nvidia: bool
    """CUDA knows it as well."""


def devices() -> list[Device]:
    """Return what EGL can draw on; [] where EGL is missing or does not say."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
        egl.eglGetProcAddress.restype, egl.eglGetProcAddress.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    except (OSError, AttributeError):
        return []

    def function(name: str, result: Any, *arguments: Any) -> Any:
        address = egl.eglGetProcAddress(name.encode())
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None

    query = function("eglQueryDevicesEXT", ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    attribute = function("eglQueryDeviceAttribEXT", ctypes.c_uint, ctypes.c_void_p, ctypes.c_int,
                         ctypes.POINTER(ctypes.c_ssize_t))
    text = function("eglQueryDeviceStringEXT", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
    binary = function("eglQueryDeviceBinaryEXT", ctypes.c_uint, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                      ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    if query is None or attribute is None or text is None:
        return []
    count, found = ctypes.c_int(0), (ctypes.c_void_p * _MAX_DEVICES)()
    if not query(_MAX_DEVICES, found, ctypes.byref(count)):
        return []
    out = []
    for device in found[: count.value]:
        extensions = (text(device, _EXTENSIONS) or b"").decode("ascii", "replace").split()
        number, nvidia = ctypes.c_ssize_t(-1), False
        if "EGL_NV_device_cuda" in extensions:
            nvidia = bool(attribute(device, _CUDA_DEVICE, ctypes.byref(number))) and number.value >= 0
        uuid, size = (ctypes.c_ubyte * 16)(), ctypes.c_int(0)
        known = (binary is not None and "EGL_EXT_device_persistent_id" in extensions
                 and binary(device, _DEVICE_UUID, 16, uuid, ctypes.byref(size)) and size.value == 16)
        out.append(Device(bytes(uuid).hex() if known else None, nvidia))
    return out


def candidates(found: list[Device], gpu_uuid: str | None) -> list[int]:
    """The numbers of the devices that may be the GPU with this UUID, the likeliest first; [] for EGL's own choice."""
    exact = [k for k, device in enumerate(found) if gpu_uuid is not None and device.uuid == gpu_uuid]
    if exact or gpu_uuid is None:
        return exact[:1]
    return [k for k, device in enumerate(found) if device.nvidia and device.uuid is None]


def current_context() -> int:
    """The EGL context that this thread holds, as an opaque number; 0 for none."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return 0
    egl.eglGetCurrentContext.restype = ctypes.c_void_p
    return egl.eglGetCurrentContext() or 0


def let_go(context: int | None = None) -> None:
    """Hold no EGL context in this thread any more; with `context`, only if it is that one.

    A thread that holds one cannot make a GLX context current: Xlib would end the whole process (BadAccess).
    """
    held = current_context()
    if held and context in (None, held):
        ctypes.CDLL("libEGL.so.1").eglReleaseThread()
