"""Images and semaphores that OpenGL and CUDA both import.

Only Vulkan makes memory whose inner layout both know. It is called by ctypes on the
system's Vulkan loader. Nothing is ever drawn or submitted with it.
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
    """Make a Vulkan structure: its type, a pointer to the next one, and the fields."""
    all_fields = [("sType", c_uint32), ("pNext", c_void_p), *fields.items()]
    return type(name, (Structure,), {"_fields_": all_fields})


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
# Of the properties 824 bytes are used; they are aligned to 8.
_Properties2 = _structure("_Properties2", properties=c_uint64 * 256)
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
# Of an image, of its memory, or of a semaphore.
_ExportInfo = _structure("_ExportInfo", handleTypes=c_uint32)
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


_VOID_PREFIXES = "vkGetPhysicalDevice", "vkGetImage", "vkDestroy", "vkFree"
"""Prefixes of functions that return nothing."""


class VulkanDevice:
    """Vulkan on one GPU.

    Handles of instances and devices are pointers; all others are 64-bit numbers.
    """

    def __init__(self, gpu_uuid: str) -> None:
        """Make a device.

        Args:
            gpu_uuid: UUID of the GPU, 32 lower-case hexadecimal digits.

        Raises:
            SharingError: there is no Vulkan, or it does not see the GPU.
        """
        try:
            self._library = ctypes.CDLL("libvulkan.so.1")
        except OSError as error:
            raise SharingError(
                f"no Vulkan ({error}): apt-get install libvulkan1"
            ) from error
        self._library.vkGetInstanceProcAddr.restype = c_void_p
        self._instance: c_void_p = c_void_p()
        self.handle: c_void_p = c_void_p()
        application = _ApplicationInfo(sType=0, apiVersion=_API_1_1)
        info = _InstanceCreateInfo(sType=1, application=_address(application))
        self.call("vkCreateInstance", byref(info), None, byref(self._instance))
        try:
            self._physical = self._physical_device(gpu_uuid)
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
        """Call a function with ctypes' values alone.

        Raises SharingError that names the call and Vulkan's error.
        """
        address = self._library.vkGetInstanceProcAddr(
            self._instance, c_char_p(name.encode())
        )
        if not address:
            raise SharingError(f"this Vulkan has no {name}")
        result_type = None if name.startswith(_VOID_PREFIXES) else c_int
        function = ctypes.CFUNCTYPE(result_type)(address)
        result = function(*arguments)
        if result is not None and result < 0:
            raise SharingError(f"{name}: VK_ERROR_{_ERRORS.get(result, result)}")

    def _physical_device(self, gpu_uuid: str) -> c_void_p:
        """Return the device with a UUID. Raises SharingError where there is none."""
        count = c_uint32(0)
        self.call("vkEnumeratePhysicalDevices", self._instance, byref(count), None)
        devices = (c_void_p * count.value)()
        self.call("vkEnumeratePhysicalDevices", self._instance, byref(count), devices)
        uuids = []
        for device in map(c_void_p, devices[: count.value]):
            identity = _IDProperties(sType=1000071004)
            properties = _Properties2(sType=1000059001, pNext=_address(identity))
            self.call("vkGetPhysicalDeviceProperties2", device, byref(properties))
            uuids.append(bytes(identity.deviceUUID).hex())
            if uuids[-1] == gpu_uuid:
                return device
        raise SharingError(
            f"Vulkan does not see GPU {gpu_uuid}, but {', '.join(uuids) or 'none'}"
        )

    def image(self, size: tuple[int, int], vk_format: int, undo: ExitStack) -> Exported:
        """Make a 2-D image with memory of its own, for sampling, drawing and copying.

        Args:
            size: width and height.
            vk_format: Vulkan's number of the format.
            undo: destroys the image when it is closed.

        Raises:
            SharingError: Vulkan cannot make it.
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
        # Allowed for 0, too.
        undo.callback(self.call, "vkFreeMemory", self.handle, memory, None)
        self.call("vkCreateImage", self.handle, byref(info), None, byref(image))
        undo.callback(self.call, "vkDestroyImage", self.handle, image, None)
        required = _MemoryRequirements()
        self.call("vkGetImageMemoryRequirements", self.handle, image, byref(required))
        dedicated = _DedicatedInfo(sType=1000127001, image=image.value)
        export = _ExportInfo(
            sType=1000072002, pNext=_address(dedicated), handleTypes=_OPAQUE_FD
        )
        allocate = _AllocateInfo(
            sType=5,
            pNext=_address(export),
            size=required.size,
            memoryType=self._device_local_type(required.types),
        )
        self.call("vkAllocateMemory", self.handle, byref(allocate), None, byref(memory))
        self.call("vkBindImageMemory", self.handle, image, memory, c_uint64(0))
        fd_info = _GetFdInfo(
            sType=1000074002, object=memory.value, handleType=_OPAQUE_FD
        )
        return Exported(self, "vkGetMemoryFdKHR", fd_info, required.size)

    def _device_local_type(self, allowed_types: int) -> int:
        """Return the first memory type on the GPU among those of a bit mask."""
        memory = _MemoryProperties()
        self.call("vkGetPhysicalDeviceMemoryProperties", self._physical, byref(memory))
        # Vulkan promises one.
        return next(
            k
            for k in range(memory.typeCount)
            if allowed_types >> k & 1 and memory.types[k].flags & _DEVICE_LOCAL
        )

    def semaphore(self, undo: ExitStack) -> Exported:
        """Make a binary semaphore, until `undo` ends. Raises SharingError."""
        export = _ExportInfo(sType=1000077000, handleTypes=_OPAQUE_FD)
        info = _SemaphoreInfo(sType=9, pNext=_address(export))
        semaphore = c_uint64(0)
        self.call("vkCreateSemaphore", self.handle, byref(info), None, byref(semaphore))
        undo.callback(self.call, "vkDestroySemaphore", self.handle, semaphore, None)
        fd_info = _GetFdInfo(
            sType=1000079001, object=semaphore.value, handleType=_OPAQUE_FD
        )
        return Exported(self, "vkGetSemaphoreFdKHR", fd_info)


vulkan_on = functools.cache(VulkanDevice)
"""The device on a GPU, made once and kept."""


class Exported:
    """An object of Vulkan's that others import by descriptor.

    What they imported stays when it is destroyed.
    """

    def __init__(
        self, device: VulkanDevice, function: str, fd_info: Structure, size: int = 0
    ) -> None:
        """Describe an object.

        Args:
            device: the device that the object is on.
            function: name of the function that exports it.
            fd_info: argument of this function.
            size: as the attribute.
        """
        self._device = device
        self._function = function
        self._fd_info = fd_info
        self.size = size
        """Bytes of an image's memory."""

    @contextmanager
    def fd(self) -> Iterator[int]:
        """Make a descriptor for an importer, which owns it after the block.

        It is closed if the block raises.
        """
        fd = c_int(-1)
        self._device.call(
            self._function, self._device.handle, byref(self._fd_info), byref(fd)
        )
        try:
            yield fd.value
        except BaseException:
            os.close(fd.value)
            raise


def _address(structure: Any) -> c_void_p:
    """Return a pointer to a structure of ctypes."""
    return ctypes.cast(byref(structure), c_void_p)
