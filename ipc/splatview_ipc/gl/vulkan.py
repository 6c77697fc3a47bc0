"""Images and semaphores that OpenGL and CUDA both import: memory whose inner layout both know comes from Vulkan only.

By ctypes on the system's Vulkan loader, and no more of Vulkan than that: an instance, a device on the GPU that is
asked for, an image with memory of its own, semaphores. Nothing is ever drawn or submitted with it.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

from splatview_ipc.control.errors import SharingError

_OPAQUE_FD = 1
_API_1_1 = 1 << 22 | 1 << 12
_MEMORY_FD, _SEMAPHORE_FD = b"VK_KHR_external_memory_fd", b"VK_KHR_external_semaphore_fd"
_DEVICE_LOCAL = 1
_TRANSFER, _SAMPLED, _STORAGE, _COLOR_ATTACHMENT = 3, 4, 8, 16
_ERRORS = {-1: "OUT_OF_HOST_MEMORY", -2: "OUT_OF_DEVICE_MEMORY", -3: "INITIALIZATION_FAILED", -4: "DEVICE_LOST",
           -7: "EXTENSION_NOT_PRESENT", -8: "FEATURE_NOT_PRESENT", -9: "INCOMPATIBLE_DRIVER", -10: "TOO_MANY_OBJECTS",
           -11: "FORMAT_NOT_SUPPORTED", -1000072003: "INVALID_EXTERNAL_HANDLE"}


def _structure(name: str, *fields: tuple[str, Any]) -> type[Structure]:
    """A Vulkan structure that begins with its type and a pointer to the next one."""
    return type(name, (Structure,), {"_fields_": [("sType", c_uint32), ("pNext", c_void_p), *fields]})


_ApplicationInfo = _structure("_ApplicationInfo", ("name", c_char_p), ("version", c_uint32), ("engine", c_char_p),
                              ("engineVersion", c_uint32), ("apiVersion", c_uint32))
_InstanceCreateInfo = _structure("_InstanceCreateInfo", ("flags", c_uint32), ("application", c_void_p),
                                 ("layerCount", c_uint32), ("layers", c_void_p), ("extensionCount", c_uint32),
                                 ("extensions", c_void_p))
_IDProperties = _structure("_IDProperties", ("deviceUUID", c_uint8 * 16), ("driverUUID", c_uint8 * 16),
                           ("luid", c_uint8 * 8), ("nodeMask", c_uint32), ("luidValid", c_uint32))
_Properties2 = _structure("_Properties2", ("properties", c_uint64 * 256))  # 824 bytes are used; aligned to 8
_QueueCreateInfo = _structure("_QueueCreateInfo", ("flags", c_uint32), ("family", c_uint32), ("count", c_uint32),
                              ("priorities", c_void_p))
_DeviceCreateInfo = _structure("_DeviceCreateInfo", ("flags", c_uint32), ("queueCount", c_uint32), ("queues", c_void_p),
                               ("layerCount", c_uint32), ("layers", c_void_p), ("extensionCount", c_uint32),
                               ("extensions", c_void_p), ("features", c_void_p))
_ExternalImageInfo = _structure("_ExternalImageInfo", ("handleTypes", c_uint32))
_ImageCreateInfo = _structure(
    "_ImageCreateInfo", ("flags", c_uint32), ("imageType", c_uint32), ("format", c_uint32), ("width", c_uint32),
    ("height", c_uint32), ("depth", c_uint32), ("mipLevels", c_uint32), ("arrayLayers", c_uint32),
    ("samples", c_uint32), ("tiling", c_uint32), ("usage", c_uint32), ("sharingMode", c_uint32),
    ("familyCount", c_uint32), ("families", c_void_p), ("initialLayout", c_uint32))
_ExportInfo = _structure("_ExportInfo", ("handleTypes", c_uint32))
_DedicatedInfo = _structure("_DedicatedInfo", ("image", c_uint64), ("buffer", c_uint64))
_AllocateInfo = _structure("_AllocateInfo", ("size", c_uint64), ("memoryType", c_uint32))
_SemaphoreInfo = _structure("_SemaphoreInfo", ("flags", c_uint32))
_GetFdInfo = _structure("_GetFdInfo", ("object", c_uint64), ("handleType", c_uint32))


class _MemoryRequirements(Structure):
    _fields_ = [("size", c_uint64), ("alignment", c_uint64), ("types", c_uint32)]


class _MemoryType(Structure):
    _fields_ = [("flags", c_uint32), ("heap", c_uint32)]


class _MemoryProperties(Structure):
    _fields_ = [("typeCount", c_uint32), ("types", _MemoryType * 32), ("rest", c_uint64 * 64)]


class _Extension(Structure):
    _fields_ = [("name", ctypes.c_char * 256), ("version", c_uint32)]


# Handles of instances, devices and queues are pointers; all others are 64-bit numbers.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "vkEnumeratePhysicalDevices": (c_void_p, POINTER(c_uint32), c_void_p),
    "vkGetPhysicalDeviceProperties2": (c_void_p, c_void_p),
    "vkGetPhysicalDeviceMemoryProperties": (c_void_p, c_void_p),
    "vkEnumerateDeviceExtensionProperties": (c_void_p, c_char_p, POINTER(c_uint32), c_void_p),
    "vkCreateDevice": (c_void_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "vkDestroyInstance": (c_void_p, c_void_p),
    "vkDestroyDevice": (c_void_p, c_void_p),
    "vkCreateImage": (c_void_p, c_void_p, c_void_p, POINTER(c_uint64)),
    "vkDestroyImage": (c_void_p, c_uint64, c_void_p),
    "vkGetImageMemoryRequirements": (c_void_p, c_uint64, c_void_p),
    "vkAllocateMemory": (c_void_p, c_void_p, c_void_p, POINTER(c_uint64)),
    "vkFreeMemory": (c_void_p, c_uint64, c_void_p),
    "vkBindImageMemory": (c_void_p, c_uint64, c_uint64, c_uint64),
    "vkCreateSemaphore": (c_void_p, c_void_p, c_void_p, POINTER(c_uint64)),
    "vkDestroySemaphore": (c_void_p, c_uint64, c_void_p),
    "vkGetMemoryFdKHR": (c_void_p, c_void_p, POINTER(c_int)),
    "vkGetSemaphoreFdKHR": (c_void_p, c_void_p, POINTER(c_int)),
}
_VOID = {"vkGetPhysicalDeviceProperties2", "vkGetPhysicalDeviceMemoryProperties", "vkGetImageMemoryRequirements",
         "vkDestroyInstance", "vkDestroyDevice", "vkDestroyImage", "vkFreeMemory", "vkDestroySemaphore"}


class VulkanDevice:
    """Vulkan on one GPU."""

    _made: dict[str, VulkanDevice] = {}  # noqa: RUF012

    @classmethod
    def on(cls, gpu_uuid: str) -> VulkanDevice:
        """Made once for each GPU (32 lower-case hexadecimal digits) and kept. Raises SharingError."""
        if gpu_uuid not in cls._made:
            cls._made[gpu_uuid] = cls(gpu_uuid)
        return cls._made[gpu_uuid]

    def __init__(self, gpu_uuid: str) -> None:
        try:
            self._library = ctypes.CDLL("libvulkan.so.1")
        except OSError as e:
            raise SharingError(f"no Vulkan ({e}): apt-get install libvulkan1") from e
        self._library.vkGetInstanceProcAddr.restype = c_void_p
        self._library.vkGetInstanceProcAddr.argtypes = [c_void_p, c_char_p]
        self._instance: c_void_p = c_void_p()
        self._device: c_void_p = c_void_p()
        self._functions: dict[str, Any] = {}
        self.semaphores = False
        """Whether its semaphores can be imported elsewhere."""
        self._create_instance()
        try:
            self._physical = self._find(gpu_uuid)
            self._create_device()
        except BaseException:
            self.call("vkDestroyInstance", self._instance, None)
            raise

    def call(self, name: str, *arguments: Any) -> None:
        """Raises SharingError that names the call and Vulkan's error."""
        if name not in self._functions:
            address = self._library.vkGetInstanceProcAddr(self._instance, name.encode())
            if not address:
                raise SharingError(f"this Vulkan has no {name}")
            result = None if name in _VOID else c_int
            self._functions[name] = ctypes.CFUNCTYPE(result, *_FUNCTIONS[name])(address)
        _check(name, self._functions[name](*arguments))

    def _create_instance(self) -> None:
        application = _ApplicationInfo(sType=0, apiVersion=_API_1_1)
        info = _InstanceCreateInfo(sType=1, application=_address(application))
        create = self._library.vkCreateInstance
        create.restype, create.argtypes = c_int, [c_void_p, c_void_p, POINTER(c_void_p)]
        _check("vkCreateInstance", create(byref(info), None, byref(self._instance)))

    def _find(self, gpu_uuid: str) -> c_void_p:
        count = c_uint32(0)
        self.call("vkEnumeratePhysicalDevices", self._instance, byref(count), None)
        found = (c_void_p * count.value)()
        if count.value:
            self.call("vkEnumeratePhysicalDevices", self._instance, byref(count), found)
        seen = []
        for device in found[: count.value]:
            identity = _IDProperties(sType=1000071004)
            properties = _Properties2(sType=1000059001, pNext=_address(identity))
            self.call("vkGetPhysicalDeviceProperties2", device, byref(properties))
            seen.append(bytes(identity.deviceUUID).hex())
            if seen[-1] == gpu_uuid:
                return c_void_p(device)
        raise SharingError(f"Vulkan does not see GPU {gpu_uuid}, but {', '.join(seen) or 'none'}")

    def _create_device(self) -> None:
        count = c_uint32(0)
        self.call("vkEnumerateDeviceExtensionProperties", self._physical, None, byref(count), None)
        found = (_Extension * count.value)()
        self.call("vkEnumerateDeviceExtensionProperties", self._physical, None, byref(count), found)
        known = {extension.name for extension in found}
        if _MEMORY_FD not in known:
            raise SharingError(f"this Vulkan has no {_MEMORY_FD.decode()}")
        self.semaphores = _SEMAPHORE_FD in known
        names = [_MEMORY_FD, _SEMAPHORE_FD] if self.semaphores else [_MEMORY_FD]
        extensions = (c_char_p * len(names))(*names)
        priority = ctypes.c_float(1.0)
        queue = _QueueCreateInfo(sType=2, family=0, count=1, priorities=_address(priority))
        info = _DeviceCreateInfo(sType=3, queueCount=1, queues=_address(queue), extensionCount=len(names),
                                 extensions=_address(extensions))
        self.call("vkCreateDevice", self._physical, byref(info), None, byref(self._device))

    def image(self, width: int, height: int, vk_format: int) -> SharedImage:
        """A 2-D image with memory of its own, for sampling, drawing into and copying. Raises SharingError."""
        external = _ExternalImageInfo(sType=1000072001, handleTypes=_OPAQUE_FD)
        info = _ImageCreateInfo(sType=14, pNext=_address(external), imageType=1, format=vk_format, width=width,
                                height=height, depth=1, mipLevels=1, arrayLayers=1, samples=1,
                                usage=_TRANSFER | _SAMPLED | _STORAGE | _COLOR_ATTACHMENT)
        image, memory = c_uint64(0), c_uint64(0)
        self.call("vkCreateImage", self._device, byref(info), None, byref(image))
        try:
            needs = _MemoryRequirements()
            self.call("vkGetImageMemoryRequirements", self._device, image, byref(needs))
            dedicated = _DedicatedInfo(sType=1000127001, image=image.value)
            export = _ExportInfo(sType=1000072002, pNext=_address(dedicated), handleTypes=_OPAQUE_FD)
            allocate = _AllocateInfo(sType=5, pNext=_address(export), size=needs.size,
                                     memoryType=self._memory_type(needs.types))
            self.call("vkAllocateMemory", self._device, byref(allocate), None, byref(memory))
            self.call("vkBindImageMemory", self._device, image, memory, 0)
        except BaseException:
            self.call("vkDestroyImage", self._device, image, None)
            if memory.value:
                self.call("vkFreeMemory", self._device, memory, None)
            raise
        return SharedImage(self, image.value, memory.value, needs.size)

    def _memory_type(self, allowed: int) -> int:
        properties = _MemoryProperties()
        self.call("vkGetPhysicalDeviceMemoryProperties", self._physical, byref(properties))
        fitting = [k for k in range(properties.typeCount) if allowed >> k & 1]
        local = [k for k in fitting if properties.types[k].flags & _DEVICE_LOCAL]
        if not fitting:
            raise SharingError("Vulkan has no memory for such an image")
        return (local or fitting)[0]

    def semaphore(self) -> SharedSemaphore:
        """A binary semaphore. Raises SharingError."""
        if not self.semaphores:
            raise SharingError(f"this Vulkan has no {_SEMAPHORE_FD.decode()}")
        export = _ExportInfo(sType=1000077000, handleTypes=_OPAQUE_FD)
        info = _SemaphoreInfo(sType=9, pNext=_address(export))
        made = c_uint64(0)
        self.call("vkCreateSemaphore", self._device, byref(info), None, byref(made))
        return SharedSemaphore(self, made.value)

    def _fd(self, function: str, kind: int, handle: int) -> int:
        fd = c_int(-1)
        info = _GetFdInfo(sType=kind, object=handle, handleType=_OPAQUE_FD)
        self.call(function, self._device, byref(info), byref(fd))
        return fd.value

    def free(self, function: str, handle: int) -> None:
        self.call(function, self._device, handle, None)


class SharedImage:
    """An image that others import by descriptor. What they imported stays when this is released."""

    def __init__(self, device: VulkanDevice, image: int, memory: int, size: int) -> None:
        self._device, self._image, self._memory = device, image, memory
        self.size = size
        """Bytes of its memory."""

    def fd(self) -> int:
        """A new descriptor of its memory, the caller's."""
        return self._device._fd("vkGetMemoryFdKHR", 1000074002, self._memory)

    def release(self) -> None:
        """Idempotent."""
        if self._memory:
            self._device.free("vkDestroyImage", self._image)
            self._device.free("vkFreeMemory", self._memory)
            self._memory = 0


class SharedSemaphore:
    """A binary semaphore that others import by descriptor."""

    def __init__(self, device: VulkanDevice, semaphore: int) -> None:
        self._device, self._semaphore = device, semaphore

    def fd(self) -> int:
        """A new descriptor, the caller's."""
        return self._device._fd("vkGetSemaphoreFdKHR", 1000079001, self._semaphore)

    def release(self) -> None:
        """Idempotent."""
        if self._semaphore:
            self._device.free("vkDestroySemaphore", self._semaphore)
            self._semaphore = 0


def give_fd(fd: int, importer: Any) -> Any:
    """`importer(fd)`, which takes the descriptor over if it succeeds; closed if it raises."""
    try:
        return importer(fd)
    except BaseException:
        os.close(fd)
        raise


def _address(structure: Any) -> c_void_p:
    return ctypes.cast(byref(structure), c_void_p)


def _check(name: str, result: int | None) -> None:
    if result is not None and result < 0:
        raise SharingError(f"{name}: VK_ERROR_{_ERRORS.get(result, result)}")
