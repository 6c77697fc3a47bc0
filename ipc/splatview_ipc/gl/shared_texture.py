"""A texture that CUDA copies to and from at its own speed.

It is one image in memory that OpenGL and CUDA both know. The image and two semaphores
come from Vulkan (`vulkan`) and are imported on both sides. Nothing is mapped, unmapped
or copied by OpenGL, and only the GPU waits: it runs compute or graphics, and takes a
third of a millisecond to change over and back.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import moderngl

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl import glapi
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.texture_tensor import DTYPES, array_copy, check_same_form
from splatview_ipc.gl.vulkan import vulkan_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from splatview_ipc.gl.vulkan import Exported, VulkanDevice


class _ImageFormat(NamedTuple):
    """A format of images."""

    vulkan: int
    """Vulkan's number of it."""
    gl: int
    """OpenGL's name of it."""


_FORMATS = {
    (1, "f1"): _ImageFormat(9, 0x8229),
    (2, "f1"): _ImageFormat(16, 0x822B),
    (4, "f1"): _ImageFormat(37, 0x8058),
    (1, "f2"): _ImageFormat(76, 0x822D),
    (2, "f2"): _ImageFormat(83, 0x822F),
    (4, "f2"): _ImageFormat(97, 0x881A),
    (1, "f4"): _ImageFormat(100, 0x822E),
    (2, "f4"): _ImageFormat(103, 0x8230),
    (4, "f4"): _ImageFormat(109, 0x8814),
}
"""By components and moderngl's dtype."""
_MEMORY_DEDICATED = 1
"""CUDA_EXTERNAL_MEMORY_DEDICATED."""
_COLOR_ATTACHMENT = 0x20
_LOADS_AND_STORES = 0x02
"""Flags of a CUDA array, as the image has in Vulkan."""


@dataclass(frozen=True)
class _ImageForm:
    """Size and format of an image."""

    size: tuple[int, int]
    """Width and height."""
    components: int
    dtype: str
    """As moderngl names it."""

    @property
    def format(self) -> _ImageFormat:
        return _FORMATS[self.components, self.dtype]


class SharedTexture(AbstractContextManager["SharedTexture"]):
    """A texture of ours to draw from or into, that tensors are copied to and from.

    For example::

        canvas = SharedTexture(ctx, (1024, 1024))
        # OpenGL may draw with canvas.texture at any time.
        canvas.write(tensor)

        canvas = SharedTexture(ctx, (1024, 1024), explicit=True)
        # CUDA alone: microseconds.
        canvas.write(tensor)
        # OpenGL may use it in this block only (or from acquire() to release()).
        with canvas.gl() as texture:
            texture.use(0)

    Every call needs the OpenGL context to be current on its thread. Without `explicit`
    every `write` and `read` takes the image from OpenGL and returns it: a third of a
    millisecond of the GPU's time if OpenGL works in between.
    """

    way = "vulkan"

    def __init__(
        self,
        ctx: moderngl.Context,
        size: tuple[int, int],
        components: int = 4,
        dtype: str = "f1",
        *,
        explicit: bool = False,
    ) -> None:
        """Make a texture.

        Args:
            ctx: the OpenGL context.
            size: width and height.
            components: 1, 2 or 4.
            dtype: "f1", "f2" or "f4", as moderngl names them.
            explicit: True if `acquire` and `release` say when OpenGL has the texture.

        Raises:
            ValueError: another format.
            SharingError: OpenGL, CUDA and Vulkan do not share an image; `TextureTensor`
                works there.
        """
        if (components, dtype) not in _FORMATS or min(size) < 1:
            raise ValueError(
                f"a texture of size {size} with {components} components of dtype "
                f"{dtype!r}; expected 1, 2 or 4 of {', '.join(DTYPES)}"
            )
        self.size = size
        self.shape = size[1], size[0], components
        """(H, W, C) of the tensors."""
        self.dtype = DTYPES[dtype]
        self.explicit = explicit
        form = _ImageForm(size, components, dtype)
        try:
            self._image: _SharedImage | None = _SharedImage(ctx, form)
        except SharingError as error:
            raise SharingError(
                "SharedTexture cannot work here, a TextureTensor over your own texture "
                f"can: {error}"
            ) from error
        import torch

        self.texture: moderngl.Texture = self._image.texture
        self.texture.filter = moderngl.NEAREST, moderngl.NEAREST
        self._with_gl = not explicit
        """True while OpenGL has the image."""
        self._signalled = False
        """True from OpenGL's signal until it was awaited.

        By CUDA's first work, or by OpenGL if that comes first.
        """
        self._stream: int | None = None
        """The CUDA stream that used the image last, since CUDA has had it."""
        self._torch_device = torch.device("cuda", self._image.device)
        self._torch_dtype: torch.dtype = getattr(torch, self.dtype)
        self._pixels: torch.Tensor | None = None
        """The tensor that `read` returns."""
        row_bytes = size[0] * components * self._torch_dtype.itemsize
        array = self._image.array
        self._upload = array_copy(array, 0, row_bytes, size[1], to_array=True)
        self._download = array_copy(array, 0, row_bytes, size[1], to_array=False)

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture.

        After what the current CUDA stream does now. OpenGL draws with it from now on;
        with `explicit`, when it has the texture next.

        Raises:
            ValueError: another shape or dtype.
            SharingError: OpenGL has an explicit texture.
        """
        check_same_form(tensor, self.shape, self.dtype)
        tensor = tensor.detach().to(self._torch_device).contiguous()
        self._upload.srcDevice = tensor.data_ptr()
        self._copy(self._upload)

    def read(self) -> torch.Tensor:
        """Return the texture's content, drawn by OpenGL or written.

        It is (H, W, C), row 0 is OpenGL's row 0, and is there for what the current CUDA
        stream does next. The next `read` writes into the same tensor.

        Raises:
            SharingError: OpenGL has an explicit texture.
        """
        if self._pixels is None:
            import torch

            self._pixels = torch.empty(
                self.shape, dtype=self._torch_dtype, device=self._torch_device
            )
            self._download.dstDevice = self._pixels.data_ptr()
        self._copy(self._download)
        return self._pixels

    def _copy(self, copy: Any) -> None:
        """Copy on torch's current stream, after all earlier work on the image.

        Raises SharingError.
        """
        image = self._image
        if image is None:
            raise SharingError("the texture is closed")
        if self.explicit and self._with_gl:
            raise SharingError(
                "OpenGL has the texture: write and read outside the "
                "`with texture.gl()` block, or after release()"
            )
        if not self.explicit:
            self._take_from_gl(image)
        try:
            stream = driver.current_stream(image.device)
            self._order(image, stream)
            driver.enqueue(
                image.device,
                stream,
                "cuMemcpy2DAsync",
                copy,
                driver.stream_object(stream),
            )
        finally:
            if not self.explicit:
                self.acquire()

    def _order(self, image: _SharedImage, stream: int) -> None:
        """Have a CUDA stream wait for the last use of the image."""
        last_stream = self._stream
        if last_stream is None and self._signalled:
            self._signalled = False
            image.gl_done.await_in_cuda(image.device, stream)
        elif last_stream not in (None, stream):
            last_queue = driver.stream_object(last_stream)
            queue = driver.stream_object(stream)
            with driver.context(image.device):
                driver.call("cuEventRecord", image.event, last_queue)
                driver.call("cuStreamWaitEvent", queue, image.event, 0)
        self._stream = stream

    def _take_from_gl(self, image: _SharedImage) -> None:
        """Give the image to CUDA, after all that OpenGL was told to do so far."""
        image.gl_done.signal_from_gl()
        GL.current().glFlush()  # a wait for work that the GPU never got would not end
        self._signalled = True
        self._with_gl = False

    def acquire(self) -> moderngl.Texture:
        """Give an explicit texture to OpenGL, after all that CUDA was told to do.

        No effect if OpenGL has it.
        """
        if not self._with_gl and self._image is not None:
            stream = self._stream
            self._stream = None
            if stream is not None:
                self._image.cuda_done.signal_from_cuda(self._image.device, stream)
                self._image.cuda_done.await_in_gl()
            elif self._signalled:
                self._signalled = False
                self._image.gl_done.await_in_gl()
            self._with_gl = True
        return self.texture

    def release(self) -> None:
        """Give an explicit texture back to CUDA, after all that OpenGL was told to do.

        No effect if CUDA has it.
        """
        if self.explicit and self._with_gl and self._image is not None:
            self._take_from_gl(self._image)

    @contextmanager
    def gl(self) -> Iterator[moderngl.Texture]:
        """Give the texture to OpenGL for a block: `acquire`, then `release`."""
        texture = self.acquire()
        try:
            yield texture
        finally:
            self.release()

    def close(self) -> None:
        """Release everything, the texture too. Idempotent.

        Waits for CUDA and OpenGL.
        """
        image = self._image
        self._image = None
        if image is not None:
            image.close()

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Semaphore:
    """A binary semaphore of Vulkan's that OpenGL and CUDA both know."""

    def __init__(
        self, vulkan: VulkanDevice, device: int, texture: int, undo: ExitStack
    ) -> None:
        """Make a semaphore and import it.

        Args:
            vulkan: Vulkan on the GPU.
            device: ordinal of the CUDA device.
            texture: OpenGL's name of the texture that it guards.
            undo: destroys the semaphore when it is closed.

        Raises:
            SharingError: one of Vulkan, OpenGL and CUDA cannot.
        """
        gl = GL.current()
        cu = driver.bindings()
        shared = vulkan.semaphore(undo)
        self._name = gl.generate("glGenSemaphoresEXT")
        undo.callback(gl.delete, "glDeleteSemaphoresEXT", [self._name])
        with shared.fd() as fd:
            gl.glImportSemaphoreFdEXT(self._name, glapi.HANDLE_TYPE_OPAQUE_FD, fd)
            gl.check("glImportSemaphoreFdEXT")
        description = cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
        description.type = (
            cu.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
        )
        with driver.context(device), shared.fd() as fd:
            description.handle.fd = fd
            self._handles = [
                driver.call_for_handle("cuImportExternalSemaphore", description)
            ]
        undo.callback(driver.call_quietly, "cuDestroyExternalSemaphore", *self._handles)
        self._signal_params = [cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()]
        self._wait_params = [cu.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()]
        self._texture = (ctypes.c_uint * 1)(texture)
        self._layout = (ctypes.c_uint * 1)(glapi.LAYOUT_GENERAL)

    def signal_from_gl(self) -> None:
        GL.current().glSignalSemaphoreEXT(
            self._name, 0, None, 1, self._texture, self._layout
        )

    def await_in_gl(self) -> None:
        GL.current().glWaitSemaphoreEXT(
            self._name, 0, None, 1, self._texture, self._layout
        )

    def signal_from_cuda(self, device: int, stream: int) -> None:
        driver.enqueue(
            device,
            stream,
            "cuSignalExternalSemaphoresAsync",
            self._handles,
            self._signal_params,
            1,
            driver.stream_object(stream),
        )

    def await_in_cuda(self, device: int, stream: int) -> None:
        driver.enqueue(
            device,
            stream,
            "cuWaitExternalSemaphoresAsync",
            self._handles,
            self._wait_params,
            1,
            driver.stream_object(stream),
        )


class _SharedImage:
    """An image of Vulkan's that OpenGL and CUDA both know; CUDA has it first.

    Semaphores are signalled and awaited one for one: `gl_done` when OpenGL hands the
    image over, `cuda_done` when OpenGL takes it.
    """

    def __init__(self, ctx: moderngl.Context, form: _ImageForm) -> None:
        """Make an image and import it.

        Raises SharingError when one of OpenGL, CUDA and Vulkan cannot.
        """
        uuid = require_import(ctx, "GL_EXT_semaphore", "GL_EXT_semaphore_fd")
        self.device = driver.require_device(uuid)
        self._undo = ExitStack()
        vulkan = vulkan_on(uuid)
        try:
            image = vulkan.image(form.size, form.format.vulkan, self._undo)
            self.array = self._import_into_cuda(image, form)
            texture = self._import_into_gl(image, form)
            self.texture: moderngl.Texture = ctx.external_texture(
                texture, form.size, form.components, 0, form.dtype
            )
            self.gl_done = _Semaphore(vulkan, self.device, texture, self._undo)
            self.cuda_done = _Semaphore(vulkan, self.device, texture, self._undo)
        except BaseException:
            self.close()
            raise

    def _import_into_cuda(self, image: Exported, form: _ImageForm) -> Any:
        """Return the CUDA array over the image."""
        cu = driver.bindings()
        memory = cu.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        memory.type = (
            cu.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
        )
        memory.size = image.size
        memory.flags = _MEMORY_DEDICATED
        levels = _mipmap_levels(form)
        undo = self._undo.callback
        with driver.context(self.device):
            self.event = driver.call_for_handle(
                "cuEventCreate", int(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING)
            )
            undo(driver.call_quietly, "cuEventDestroy", self.event)
            with image.fd() as fd:
                memory.handle.fd = fd
                external = driver.call_for_handle("cuImportExternalMemory", memory)
            undo(driver.call_quietly, "cuDestroyExternalMemory", external)
            mipmap = driver.call_for_handle(
                "cuExternalMemoryGetMappedMipmappedArray", external, levels
            )
            undo(driver.call_quietly, "cuMipmappedArrayDestroy", mipmap)
            return driver.call_for_handle("cuMipmappedArrayGetLevel", mipmap, 0)

    def _import_into_gl(self, image: Exported, form: _ImageForm) -> int:
        """Return OpenGL's name of the texture over the image."""
        gl = GL.current()
        gl.clear_errors()
        memory = gl.generate("glCreateMemoryObjectsEXT")
        self._undo.callback(gl.delete, "glDeleteMemoryObjectsEXT", [memory])
        gl.glMemoryObjectParameterivEXT(
            memory, glapi.DEDICATED_MEMORY_OBJECT, ctypes.byref(ctypes.c_int(1))
        )
        with image.fd() as fd:
            gl.glImportMemoryFdEXT(memory, image.size, glapi.HANDLE_TYPE_OPAQUE_FD, fd)
            gl.check(f"glImportMemoryFdEXT of {image.size} bytes")
        texture = gl.generate("glGenTextures")
        self._undo.callback(gl.delete, "glDeleteTextures", [texture])
        last_texture = gl.integer(glapi.TEXTURE_BINDING_2D)
        gl.glBindTexture(glapi.TEXTURE_2D, texture)
        gl.glTexParameteri(glapi.TEXTURE_2D, glapi.TEXTURE_TILING, glapi.OPTIMAL_TILING)
        gl.glTexStorageMem2DEXT(
            glapi.TEXTURE_2D, 1, form.format.gl, *form.size, memory, 0
        )
        gl.glBindTexture(glapi.TEXTURE_2D, last_texture)
        gl.check("glTexStorageMem2DEXT")
        return texture

    def close(self) -> None:
        """Destroy the image, once. Waits for both sides first."""
        GL.current().glFinish()
        with driver.context(self.device):
            driver.call_quietly("cuCtxSynchronize")
            self._undo.close()


def _mipmap_levels(form: _ImageForm) -> Any:
    """Return the driver's description of an image in imported memory: one level."""
    cu = driver.bindings()
    formats = cu.CUarray_format
    levels = cu.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
    levels.offset = 0
    levels.numLevels = 1
    levels.arrayDesc.Width = form.size[0]
    levels.arrayDesc.Height = form.size[1]
    levels.arrayDesc.Depth = 0
    levels.arrayDesc.NumChannels = form.components
    levels.arrayDesc.Format = {
        "f1": formats.CU_AD_FORMAT_UNSIGNED_INT8,
        "f2": formats.CU_AD_FORMAT_HALF,
        "f4": formats.CU_AD_FORMAT_FLOAT,
    }[form.dtype]
    levels.arrayDesc.Flags = _COLOR_ATTACHMENT | _LOADS_AND_STORES
    return levels
