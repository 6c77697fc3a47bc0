"""A texture that CUDA copies to and from at its own speed: one image in memory that OpenGL and CUDA both know.

The image and two semaphores come from Vulkan (`vulkan`) and are imported on both sides. Nothing is mapped, unmapped or
copied by OpenGL, and with the semaphores nobody waits but the GPU. Where that cannot be, an ordinary texture behind a
`TextureTensor` does the same, slower.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import moderngl

from ipc.cuda import driver
from ipc.errors import SharingError
from ipc.interop import glapi
from ipc.interop.direct import require_import
from ipc.interop.glapi import GL
from ipc.interop.tensors import dtype_name
from ipc.interop.texture_tensor import TextureTensor
from ipc.interop.vulkan import VulkanDevice, give_fd

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_FORMATS = {  # components and dtype: Vulkan's format, OpenGL's format
    (1, "f1"): (9, 0x8229), (2, "f1"): (16, 0x822B), (4, "f1"): (37, 0x8058),
    (1, "f2"): (76, 0x822D), (2, "f2"): (83, 0x822F), (4, "f2"): (97, 0x881A),
    (1, "f4"): (100, 0x822E), (2, "f4"): (103, 0x8230), (4, "f4"): (109, 0x8814),
}
_DTYPES = {"f1": "uint8", "f2": "float16", "f4": "float32"}
_TRIAL_SECONDS = 5.0


class SharedTexture:
    """A texture of ours to draw from or into, that tensors go into and come out of."""

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], components: int = 4, dtype: str = "f1", *,
                 order: str | None = None) -> None:
        """`size`: width and height; `components` 1, 2 or 4; `dtype` f1, f2 or f4, as moderngl names them.

        `order`: how OpenGL's and CUDA's work is kept apart: "gpu" by semaphores, "host" by waiting on this thread
        (for measuring; by default the first that works). Raises ValueError for another format, SharingError when not
        even a copy works.
        """
        if (components, dtype) not in _FORMATS or min(size) < 1:
            raise ValueError(f"a texture of size {size} with {components} components of dtype {dtype!r}; legal are "
                             f"1, 2 or 4 of {', '.join(_DTYPES)}")
        if order not in (None, "gpu", "host"):
            raise ValueError(f"order: {order!r} is not gpu or host")
        self.size = size
        self.shape = size[1], size[0], components
        """(H, W, C) of the tensors."""
        self.dtype = _DTYPES[dtype]
        self.reason = ""
        """Why the image is not shared, if it is not."""
        self._link: TextureTensor | None = None
        self._image: _Image | None = None
        try:
            usable = _usable_order(ctx) if order is None else order
            self._image = _Image(ctx, size, components, dtype, usable)
            self.texture: moderngl.Texture = self._image.texture
        except SharingError as e:
            if order is not None:
                raise
            self.reason = str(e)
            self.texture = ctx.texture(size, components, alignment=1, dtype=dtype)
            self._link = TextureTensor(self.texture)
        self.texture.filter = moderngl.NEAREST, moderngl.NEAREST

    @property
    def way(self) -> str:
        """vulkan, or the way of `TextureTensor` in use."""
        return "vulkan" if self._link is None else self._link.way

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture, after what the current CUDA stream does now.

        OpenGL draws with it from now on. Raises ValueError for another shape or dtype.
        """
        if tuple(tensor.shape) != self.shape or dtype_name(tensor) != self.dtype:
            raise ValueError(f"a {dtype_name(tensor)} tensor {tuple(tensor.shape)}; the texture takes {self.dtype} "
                             f"{self.shape}")
        if self._image is not None:
            self._image.write(tensor.detach())
        elif self._link is not None:
            self._link.write(tensor)

    def read(self) -> torch.Tensor:
        """What OpenGL has drawn into the texture so far: (H, W, C), row 0 is OpenGL's row 0.

        It is there for what the current CUDA stream does next. The next `read` writes into the same tensor.
        """
        if self._image is not None:
            return self._image.read()
        assert self._link is not None, "the texture is closed"
        return self._link.update()

    def close(self) -> None:
        """Give back everything, the texture too. Idempotent."""
        if self._image is not None:
            self._image.close()
            self._image = None
        if self._link is not None:
            self._link.close()
            self._link = None
            self.texture.release()

    def __enter__(self) -> SharedTexture:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _usable_order(ctx: moderngl.Context) -> str:
    """gpu, or else host; tried once for each context. Raises SharingError with the reason why neither works."""
    known: dict[str, str] = vars(ctx).setdefault("_splatview_shared_texture", {})
    if not known:
        for order in ("gpu", "host"):
            try:
                _trial(ctx, order)
            except SharingError as e:
                known[order] = str(e)
                continue
            known[order] = ""
            break
        GL.current().clear_errors()
    usable = [order for order, reason in known.items() if not reason]
    if not usable:
        raise SharingError(known["host"] if known["host"] == known["gpu"] else
                           f"{known['host']} (and with semaphores: {known['gpu']})")
    return usable[0]


def _trial(ctx: moderngl.Context, order: str) -> None:
    """Pixels go to OpenGL and back, on a stream of their own, in case something waits for ever."""
    device = driver.here(require_import(ctx))
    import torch

    image = _Image(ctx, (64, 32), 4, "f1", order)
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream()):
        sent = torch.arange(64 * 32 * 4, device="cuda").mul_(7).to(torch.uint8).view(32, 64, 4)
        image.write(sent)
        image.write(sent.flip(0))
        image.read()
        image.write(sent)
        got = image.read()
        done = torch.cuda.Event()
        done.record()
    end = time.monotonic() + _TRIAL_SECONDS
    while not done.query():
        if time.monotonic() > end:
            raise SharingError("a semaphore of Vulkan never came through to CUDA")
        time.sleep(1e-4)
    drawn = image.texture.read(alignment=1)
    same = bytes(drawn) == sent.cpu().numpy().tobytes() and torch.equal(got, sent)
    image.close()
    if not same:
        raise SharingError("an image shared by Vulkan came back different")


class _Image:
    """The image on both sides."""

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
        self._kind = getattr(torch, _DTYPES[dtype])
        self._shape = size[1], size[0], components
        self._read: torch.Tensor | None = None
        self._order = order
        vulkan = VulkanDevice.on(uuid)
        try:
            self._image = vulkan.image(*size, _FORMATS[components, dtype][0])
            self._free.append(self._image.release)
            self._array = self._import_into_cuda(size, components, dtype)
            name = self._import_into_gl(size, _FORMATS[components, dtype][1])
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
        if tensor.device != self._where or not tensor.is_contiguous():
            tensor = tensor.to(self._where).contiguous()
        self._to.srcDevice = tensor.data_ptr()
        with self._turn() as stream:
            driver.call("cuMemcpy2DAsync", self._to, stream)

    def read(self) -> torch.Tensor:
        if self._read is None:
            import torch

            self._read = torch.empty(self._shape, dtype=self._kind, device=self._where)
            self._from.dstDevice = self._read.data_ptr()
        with self._turn() as stream:
            driver.call("cuMemcpy2DAsync", self._from, stream)
        return self._read

    @contextmanager
    def _turn(self) -> Iterator[Any]:
        """CUDA's turn with the image, between what OpenGL was told before and after: the current stream."""
        if self._closed:
            raise SharingError("the texture is closed")
        gl, number = GL.current(), driver.current_stream(self._device)
        stream = driver.stream_object(number)
        with driver.context(self._device):
            if self._order == "host":
                gl.wait_fence(gl.fence())
                yield stream
                driver.call("cuStreamSynchronize", stream)
                return
            gl.glSignalSemaphoreEXT(self._gl_done, 0, None, 1, self._texture_names, self._layouts)
            gl.glFlush()  # a wait for what was never handed to the GPU would not end
            driver.call("cuWaitExternalSemaphoresAsync", [self._cuda_waits], self._wait_params, 1, stream)
            try:
                yield stream
            finally:
                driver.call("cuSignalExternalSemaphoresAsync", [self._cuda_done], self._signal_params, 1, stream)
                gl.glWaitSemaphoreEXT(self._gl_waits, 0, None, 1, self._texture_names, self._layouts)

    def close(self) -> None:
        """Idempotent. Waits for both sides first."""
        if self._closed:
            return
        self._closed = True
        self._read = None
        GL.current().glFinish()
        with driver.context(self._device):
            driver.release("cuCtxSynchronize")
            while self._free:
                self._free.pop()()
