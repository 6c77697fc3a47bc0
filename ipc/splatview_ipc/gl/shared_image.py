"""An image in memory that OpenGL and CUDA both know, and whose turn it is with it.

Neither side does anything for the other's sake while it has the image: CUDA's copies to and from it are CUDA alone.
What costs is the change from the one to the other and back, whatever is done in between: the GPU runs compute or
graphics, and takes a third of a millisecond to change over.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl import glapi
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.vulkan import VulkanDevice, give_fd

if TYPE_CHECKING:
    import moderngl
    import torch

FORMATS = {  # components and dtype: Vulkan's format, OpenGL's format
    (1, "f1"): (9, 0x8229), (2, "f1"): (16, 0x822B), (4, "f1"): (37, 0x8058),
    (1, "f2"): (76, 0x822D), (2, "f2"): (83, 0x822F), (4, "f2"): (97, 0x881A),
    (1, "f4"): (100, 0x822E), (2, "f4"): (103, 0x8230), (4, "f4"): (109, 0x8814),
}
DTYPES = {"f1": "uint8", "f2": "float16", "f4": "float32"}


class BothSidesImage:
    """The image on both sides. CUDA has it first; `to_gl` and `from_gl` hand it over.

    Semaphores are signalled and awaited one for one: OpenGL's when it hands the image over (awaited by CUDA's first
    work with it, or by OpenGL itself if it takes the image back before that), CUDA's when OpenGL takes it.
    """

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], components: int, dtype: str, order: str) -> None:
        missing = {"GL_EXT_memory_object_fd", *(["GL_EXT_semaphore_fd"] if order == "gpu" else [])} - ctx.extensions
        if missing:
            raise SharingError(f"OpenGL ({ctx.info['GL_RENDERER']}) has no {' and no '.join(sorted(missing))}")
        uuid = require_import(ctx)
        import torch

        self._closed = False
        self._free: list[Any] = []  # what to call, last first
        self._device = driver.here(uuid)
        self._where = torch.device("cuda", self._device)
        self._kind = getattr(torch, DTYPES[dtype])
        self._shape = size[1], size[0], components
        self._read: torch.Tensor | None = None
        self._order = order
        self._stream: int | None = None
        """The CUDA stream that used the image last, since CUDA has had it."""
        self._signalled = False
        """Whether OpenGL handed it over and nobody has waited for that yet."""
        self._fence: int | None = None
        vulkan = VulkanDevice.on(uuid)
        try:
            self._image = vulkan.image(*size, FORMATS[components, dtype][0])
            self._free.append(self._image.release)
            self._array = self._import_into_cuda(size, components, dtype)
            name = self._import_into_gl(size, FORMATS[components, dtype][1])
            self.texture = ctx.external_texture(name, size, components, 0, dtype)
            if order == "gpu":
                self._gl_done, self._cuda_waits = self._semaphore(vulkan)
                self._gl_waits, self._cuda_done = self._semaphore(vulkan)
        except BaseException:
            self.close()
            raise
        self._texture_names = (ctypes.c_uint * 1)(name)
        self._layouts = (ctypes.c_uint * 1)(glapi.LAYOUT_GENERAL)
        cu = driver.bindings()
        self._signal_params = [cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()]
        self._wait_params = [cu.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()]
        row = size[0] * components * self._kind.itemsize
        linear, opaque = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
        self._to, self._from = cu.CUDA_MEMCPY2D(), cu.CUDA_MEMCPY2D()
        for copy in (self._to, self._from):
            copy.WidthInBytes, copy.Height, copy.srcPitch, copy.dstPitch = row, size[1], row, row
        self._to.srcMemoryType, self._to.dstMemoryType, self._to.dstArray = linear, opaque, self._array
        self._from.srcMemoryType, self._from.srcArray, self._from.dstMemoryType = opaque, self._array, linear

    def _import_into_cuda(self, size: tuple[int, int], components: int, dtype: str) -> Any:
        """The CUDA array over the image."""
        cu = driver.bindings()
        memory = cu.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        memory.type = cu.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
        memory.size, memory.flags = self._image.size, 1  # CUDA_EXTERNAL_MEMORY_DEDICATED

        def import_memory(fd: int) -> Any:
            memory.handle.fd = fd
            return driver.handle("cuImportExternalMemory", memory)

        formats = cu.CUarray_format
        levels = cu.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
        levels.offset, levels.numLevels = 0, 1
        levels.arrayDesc.Width, levels.arrayDesc.Height, levels.arrayDesc.Depth = *size, 0
        levels.arrayDesc.NumChannels = components
        levels.arrayDesc.Format = {"f1": formats.CU_AD_FORMAT_UNSIGNED_INT8, "f2": formats.CU_AD_FORMAT_HALF,
                                   "f4": formats.CU_AD_FORMAT_FLOAT}[dtype]
        levels.arrayDesc.Flags = 0x20 | 0x02  # a colour attachment, as Vulkan was told; loads and stores
        with driver.context(self._device):
            self._event = driver.handle("cuEventCreate", int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))
            self._free.append(lambda: driver.release("cuEventDestroy", self._event))
            external = give_fd(self._image.fd(), import_memory)
            self._free.append(lambda: driver.release("cuDestroyExternalMemory", external))
            mipmap = driver.handle("cuExternalMemoryGetMappedMipmappedArray", external, levels)
            self._free.append(lambda: driver.release("cuMipmappedArrayDestroy", mipmap))
            return driver.handle("cuMipmappedArrayGetLevel", mipmap, 0)

    def _import_into_gl(self, size: tuple[int, int], internal_format: int) -> int:
        """The name of the texture over the image."""
        gl = GL.current()
        gl.clear_errors()
        memory = gl.generate("glCreateMemoryObjectsEXT")
        self._free.append(lambda: gl.delete("glDeleteMemoryObjectsEXT", [memory]))
        dedicated = ctypes.c_int(1)
        gl.glMemoryObjectParameterivEXT(memory, glapi.DEDICATED_MEMORY_OBJECT, ctypes.byref(dedicated))

        def import_memory(fd: int) -> None:
            gl.glImportMemoryFdEXT(memory, self._image.size, glapi.HANDLE_TYPE_OPAQUE_FD, fd)
            gl.check(f"glImportMemoryFdEXT of {self._image.size} bytes")

        give_fd(self._image.fd(), import_memory)
        name = gl.generate("glGenTextures")
        self._free.append(lambda: gl.delete("glDeleteTextures", [name]))
        before = gl.integer(glapi.TEXTURE_BINDING_2D)
        gl.glBindTexture(glapi.TEXTURE_2D, name)
        gl.glTexParameteri(glapi.TEXTURE_2D, glapi.TEXTURE_TILING, glapi.OPTIMAL_TILING)
        gl.glTexStorageMem2DEXT(glapi.TEXTURE_2D, 1, internal_format, *size, memory, 0)
        gl.glBindTexture(glapi.TEXTURE_2D, before)
        gl.check("glTexStorageMem2DEXT")
        return name

    def _semaphore(self, vulkan: VulkanDevice) -> tuple[int, Any]:
        """The two sides of a semaphore: OpenGL's name and CUDA's handle."""
        gl, cu = GL.current(), driver.bindings()
        shared = vulkan.semaphore()
        self._free.append(shared.release)
        name = gl.generate("glGenSemaphoresEXT")
        self._free.append(lambda: gl.delete("glDeleteSemaphoresEXT", [name]))

        def import_into_gl(fd: int) -> None:
            gl.glImportSemaphoreFdEXT(name, glapi.HANDLE_TYPE_OPAQUE_FD, fd)
            gl.check("glImportSemaphoreFdEXT")

        description = cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
        description.type = cu.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD

        def import_into_cuda(fd: int) -> Any:
            description.handle.fd = fd
            return driver.handle("cuImportExternalSemaphore", description)

        give_fd(shared.fd(), import_into_gl)
        with driver.context(self._device):
            imported = give_fd(shared.fd(), import_into_cuda)
        self._free.append(lambda: driver.release("cuDestroyExternalSemaphore", imported))
        return name, imported

    def write(self, tensor: torch.Tensor) -> None:
        """Copy a tensor of the image's shape and dtype into it, on torch's current stream. CUDA must have it."""
        if tensor.device != self._where or not tensor.is_contiguous():
            tensor = tensor.to(self._where).contiguous()
        stream = self._begin()
        self._to.srcDevice = tensor.data_ptr()
        driver.in_stream(self._device, stream, "cuMemcpy2DAsync", self._to, driver.stream_object(stream))

    def read(self) -> torch.Tensor:
        """Copy it into a tensor, always the same one, on torch's current stream. CUDA must have it."""
        stream = self._begin()
        if self._read is None:
            import torch

            self._read = torch.empty(self._shape, dtype=self._kind, device=self._where)
            self._from.dstDevice = self._read.data_ptr()
        driver.in_stream(self._device, stream, "cuMemcpy2DAsync", self._from, driver.stream_object(stream))
        return self._read

    def _begin(self) -> int:
        """Torch's current stream, from now on behind all that was done with the image before."""
        if self._closed:
            raise SharingError("the texture is closed")
        stream, before = driver.current_stream(self._device), self._stream
        if stream == before:
            return stream
        queue = driver.stream_object(stream)
        if before is not None:
            with driver.context(self._device):
                driver.call("cuEventRecord", self._event, driver.stream_object(before))
                driver.call("cuStreamWaitEvent", queue, self._event, 0)
        elif self._signalled:
            self._signalled = False
            if self._order == "host":
                self._await_fence()
            else:
                driver.in_stream(self._device, stream, "cuWaitExternalSemaphoresAsync", [self._cuda_waits],
                                 self._wait_params, 1, queue)
        self._stream = stream
        return stream

    def to_gl(self) -> None:
        """OpenGL has the image from here on: what it does next comes after all that CUDA was told to do with it."""
        if self._closed:
            raise SharingError("the texture is closed")
        gl, stream = GL.current(), self._stream
        self._stream = None
        if stream is None:
            if self._signalled:
                self._signalled = False
                if self._order == "host":
                    self._drop_fence()
                else:
                    gl.glWaitSemaphoreEXT(self._gl_done, 0, None, 1, self._texture_names, self._layouts)
            return
        queue = driver.stream_object(stream)
        if self._order == "host":
            driver.in_stream(self._device, stream, "cuStreamSynchronize", queue)
            return
        driver.in_stream(self._device, stream, "cuSignalExternalSemaphoresAsync", [self._cuda_done],
                         self._signal_params, 1, queue)
        gl.glWaitSemaphoreEXT(self._gl_waits, 0, None, 1, self._texture_names, self._layouts)

    def from_gl(self) -> None:
        """CUDA has the image from here on: what it does next comes after all that OpenGL was told to do so far."""
        if self._closed:
            raise SharingError("the texture is closed")
        gl = GL.current()
        if self._order == "host":
            self._drop_fence()
            self._fence = gl.fence()
        else:
            gl.glSignalSemaphoreEXT(self._gl_done, 0, None, 1, self._texture_names, self._layouts)
        gl.glFlush()  # a wait for what was never handed to the GPU would not end
        self._signalled = True

    def _await_fence(self) -> None:
        fence, self._fence = self._fence, None
        if fence is not None:
            GL.current().wait_fence(fence)

    def _drop_fence(self) -> None:
        fence, self._fence = self._fence, None
        if fence is not None:
            GL.current().glDeleteSync(fence)

    def close(self) -> None:
        """Idempotent. Waits for both sides first."""
        if self._closed:
            return
        self._closed = True
        self._read = None
        self._drop_fence()
        GL.current().glFinish()
        with driver.context(self._device):
            driver.release("cuCtxSynchronize")
            while self._free:
                self._free.pop()()
