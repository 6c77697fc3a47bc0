"""Images and semaphores that OpenGL and CUDA both import: only Vulkan makes memory whose inner layout both know.

By ctypes on the system's Vulkan loader. Nothing is ever drawn or submitted with it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from contextlib import contextmanager
from ctypes import (
    Structure,
    byref,
    c_char_p,
    c_int,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

_OPAQUE_FD = 1
_API_1_1 = 1 << 22 | 1 << 12
_EXTENSIONS = (c_char_p * 2)(
    b"VK_KHR_external_memory_fd", b"VK_KHR_external_semaphore_fd"
)
_DEVICE_LOCAL = 1
_TRANSFER = 3
_SAMPLED = 4
_STORAGE = 8
_COLOR_ATTACHMENT = 16
_ERRORS = {
    -1: "OUT_OF_HOST_MEMORY",
    -2: "OUT_OF_DEVICE_MEMORY",
    -3: "INITIALIZATION_FAILED",
    -4: "DEVICE_LOST",
    -7: "EXTENSION_NOT_PRESENT",
    -8: "FEATURE_NOT_PRESENT",
    -9: "INCOMPATIBLE_DRIVER",
    -10: "TOO_MANY_OBJECTS",
    -11: "FORMAT_NOT_SUPPORTED",
    -1000072003: "INVALID_EXTERNAL_HANDLE",
}


def _structure(name: str, /, **fields: Any) -> type[Structure]:
    """A Vulkan structure, which begins with its type and a pointer to the next one."""
    return type(
        name,
        (Structure,),
        {"_fields_": [("sType", c_uint32), ("pNext", c_void_p), *fields.items()]},
    )


_ApplicationInfo = _structure(
    "_ApplicationInfo",
    name=c_char_p,
    version=c_uint32,
    engine=c_char_p,
    engineVersion=c_uint32,
    apiVersion=c_uint32,
)
_InstanceCreateInfo = _structure(
    "_InstanceCreateInfo",
    flags=c_uint32,
    application=c_void_p,
    layerCount=c_uint32,
    layers=c_void_p,
    extensionCount=c_uint32,
    extensions=c_void_p,
)
_IDProperties = _structure(
    "_IDProperties",
    deviceUUID=c_uint8 * 16,
    driverUUID=c_uint8 * 16,
    luid=c_uint8 * 8,
    nodeMask=c_uint32,
    luidValid=c_uint32,
)
_Properties2 = _structure(
    "_Properties2", properties=c_uint64 * 256
)  # 824 bytes are used; aligned to 8
_QueueCreateInfo = _structure(
    "_QueueCreateInfo",
    flags=c_uint32,
    family=c_uint32,
    count=c_uint32,
    priorities=c_void_p,
)
_DeviceCreateInfo = _structure(
    "_DeviceCreateInfo",
    flags=c_uint32,
    queueCount=c_uint32,
    queues=c_void_p,
    layerCount=c_uint32,
    layers=c_void_p,
    extensionCount=c_uint32,
    extensions=c_void_p,
    features=c_void_p,
)
_ImageCreateInfo = _structure(
    "_ImageCreateInfo",
    flags=c_uint32,
    imageType=c_uint32,
    format=c_uint32,
    width=c_uint32,
    height=c_uint32,
    depth=c_uint32,
    mipLevels=c_uint32,
    arrayLayers=c_uint32,
    samples=c_uint32,
    tiling=c_uint32,
    usage=c_uint32,
    sharingMode=c_uint32,
    familyCount=c_uint32,
    families=c_void_p,
    initialLayout=c_uint32,
)
_ExportInfo = _structure(
    "_ExportInfo", handleTypes=c_uint32
)  # of an image, its memory, a semaphore
_DedicatedInfo = _structure("_DedicatedInfo", image=c_uint64, buffer=c_uint64)
_AllocateInfo = _structure("_AllocateInfo", size=c_uint64, memoryType=c_uint32)
_SemaphoreInfo = _structure("_SemaphoreInfo", flags=c_uint32)
_GetFdInfo = _structure("_GetFdInfo", object=c_uint64, handleType=c_uint32)


class _MemoryRequirements(Structure):
    _fields_ = [("size", c_uint64), ("alignment", c_uint64), ("types", c_uint32)]


class _MemoryType(Structure):
    _fields_ = [("flags", c_uint32), ("heap", c_uint32)]


class _MemoryProperties(Structure):
    _fields_ = [
        ("typeCount", c_uint32),
        ("types", _MemoryType * 32),
        ("rest", c_uint64 * 64),
    ]


_VOID = "vkGetPhysicalDevice", "vkGetImage", "vkDestroy", "vkFree"
"""Prefixes of functions that return nothing."""


class VulkanDevice:
    """Vulkan on one GPU. Handles of instances and devices are pointers; all others are 64-bit numbers."""

    def __init__(self, gpu_uuid: str) -> None:
        """`gpu_uuid`: 32 lower-case hexadecimal digits. Raises SharingError."""
        try:
            self._library = ctypes.CDLL("libvulkan.so.1")
        except OSError as e:
            raise SharingError(f"no Vulkan ({e}): apt-get install libvulkan1") from e
        self._library.vkGetInstanceProcAddr.restype = c_void_p
        self._instance: c_void_p = c_void_p()
        self.handle: c_void_p = c_void_p()
        application = _ApplicationInfo(sType=0, apiVersion=_API_1_1)
        info = _InstanceCreateInfo(sType=1, application=_address(application))
        self.call("vkCreateInstance", byref(info), None, byref(self._instance))
        try:
            self._physical = self._find(gpu_uuid)
            priority = ctypes.c_float(1.0)
            queue = _QueueCreateInfo(
                sType=2, family=0, count=1, priorities=_address(priority)
            )
            info = _DeviceCreateInfo(
                sType=3,
                queueCount=1,
                queues=_address(queue),
                extensionCount=len(_EXTENSIONS),
                extensions=_address(_EXTENSIONS),
            )
            self.call(
                "vkCreateDevice", self._physical, byref(info), None, byref(self.handle)
            )
        except BaseException:
            self.call("vkDestroyInstance", self._instance, None)
            raise

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function with ctypes' values alone. Raises SharingError that names the call and Vulkan's error."""
        address = self._library.vkGetInstanceProcAddr(
            self._instance, c_char_p(name.encode())
        )
        if not address:
            raise SharingError(f"this Vulkan has no {name}")
        result = ctypes.CFUNCTYPE(None if name.startswith(_VOID) else c_int)(address)(
            *arguments
        )
        if result is not None and result < 0:
            raise SharingError(f"{name}: VK_ERROR_{_ERRORS.get(result, result)}")

    def _find(self, gpu_uuid: str) -> c_void_p:
        count = c_uint32(0)
        self.call("vkEnumeratePhysicalDevices", self._instance, byref(count), None)
        found = (c_void_p * count.value)()
        self.call("vkEnumeratePhysicalDevices", self._instance, byref(count), found)
        seen = []
        for device in map(c_void_p, found[: count.value]):
            identity = _IDProperties(sType=1000071004)
            properties = _Properties2(sType=1000059001, pNext=_address(identity))
            self.call("vkGetPhysicalDeviceProperties2", device, byref(properties))
            seen.append(bytes(identity.deviceUUID).hex())
            if seen[-1] == gpu_uuid:
                return device
        raise SharingError(
            f"Vulkan does not see GPU {gpu_uuid}, but {', '.join(seen) or 'none'}"
        )

    def image(self, size: tuple[int, int], vk_format: int, undo: ExitStack) -> Exported:
        """A 2-D image with memory of its own, for sampling, drawing into and copying, until `undo` ends.

        Raises SharingError.
        """
        external = _ExportInfo(sType=1000072001, handleTypes=_OPAQUE_FD)
        info = _ImageCreateInfo(
            sType=14,
            pNext=_address(external),
            imageType=1,
            format=vk_format,
            width=size[0],
            height=size[1],
            depth=1,
            mipLevels=1,
            arrayLayers=1,
            samples=1,
            usage=_TRANSFER | _SAMPLED | _STORAGE | _COLOR_ATTACHMENT,
        )
        image = c_uint64(0)
        memory = c_uint64(0)
        undo.callback(
            self.call, "vkFreeMemory", self.handle, memory, None
        )  # allowed for 0
        self.call("vkCreateImage", self.handle, byref(info), None, byref(image))
        undo.callback(self.call, "vkDestroyImage", self.handle, image, None)
        needs = _MemoryRequirements()
        known = _MemoryProperties()
        self.call("vkGetImageMemoryRequirements", self.handle, image, byref(needs))
        self.call("vkGetPhysicalDeviceMemoryProperties", self._physical, byref(known))
        local = next(
            k
            for k in range(known.typeCount)  # Vulkan promises one
            if needs.types >> k & 1 and known.types[k].flags & _DEVICE_LOCAL
        )
        dedicated = _DedicatedInfo(sType=1000127001, image=image.value)
        export = _ExportInfo(
            sType=1000072002, pNext=_address(dedicated), handleTypes=_OPAQUE_FD
        )
        allocate = _AllocateInfo(
            sType=5, pNext=_address(export), size=needs.size, memoryType=local
        )
        self.call("vkAllocateMemory", self.handle, byref(allocate), None, byref(memory))
        self.call("vkBindImageMemory", self.handle, image, memory, c_uint64(0))
        wanted = _GetFdInfo(
            sType=1000074002, object=memory.value, handleType=_OPAQUE_FD
        )
        return Exported(self, "vkGetMemoryFdKHR", wanted, needs.size)

    def semaphore(self, undo: ExitStack) -> Exported:
        """A binary semaphore, until `undo` ends. Raises SharingError."""
        export = _ExportInfo(sType=1000077000, handleTypes=_OPAQUE_FD)
        info = _SemaphoreInfo(sType=9, pNext=_address(export))
        made = c_uint64(0)
        self.call("vkCreateSemaphore", self.handle, byref(info), None, byref(made))
        undo.callback(self.call, "vkDestroySemaphore", self.handle, made, None)
        wanted = _GetFdInfo(sType=1000079001, object=made.value, handleType=_OPAQUE_FD)
        return Exported(self, "vkGetSemaphoreFdKHR", wanted)


vulkan_on = functools.cache(VulkanDevice)
"""The device on a GPU, made once and kept."""


class Exported:
    """An object of Vulkan's that others import by descriptor. What they imported stays when it is destroyed."""

    def __init__(
        self, device: VulkanDevice, function: str, wanted: Structure, size: int = 0
    ) -> None:
        self._device = device
        self._function = function
        self._wanted = wanted
        self.size = size
        """Bytes of an image's memory."""

    @contextmanager
    def fd(self) -> Iterator[int]:
        """A new descriptor for an importer, which owns it after the block; closed if the block raises."""
        fd = c_int(-1)
        self._device.call(
            self._function, self._device.handle, byref(self._wanted), byref(fd)
        )
        try:
            yield fd.value
        except BaseException:
            os.close(fd.value)
            raise


def _address(structure: Any) -> c_void_p:
    return ctypes.cast(byref(structure), c_void_p)
