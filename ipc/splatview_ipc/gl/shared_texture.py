"""A texture that CUDA copies to and from at its own speed: one image in memory that OpenGL and CUDA both know.

The image and two semaphores come from Vulkan (`vulkan`) and are imported on both sides. Nothing is mapped, unmapped or
copied by OpenGL, and with the semaphores nobody waits but the GPU. Where that cannot be, an ordinary texture behind a
`TextureTensor` does the same, slower.

    canvas = SharedTexture(ctx, (1024, 1024))
    canvas.write(tensor)                       # OpenGL may draw with canvas.texture at any time

    canvas = SharedTexture(ctx, (1024, 1024), explicit=True)
    canvas.write(tensor)                       # CUDA alone: microseconds
    with canvas.gl() as texture:               # OpenGL may use it in here only
        texture.use(0)
        ...
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import moderngl

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.gl.direct import require_import
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.probe import forced_bridge
from splatview_ipc.gl.shared_image import DTYPES, FORMATS, BothSidesImage
from splatview_ipc.gl.tensors import dtype_name
from splatview_ipc.gl.texture_tensor import TextureTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_CODES = {name: code for code, name in DTYPES.items()}
_TRIAL_SECONDS = 5.0


class SharedTexture:
    """A texture of ours to draw from or into, that tensors go into and come out of.

    Everything happens on the thread of the OpenGL context, with that context current. By default OpenGL may use
    `texture` at any time, and every `write` and `read` takes the image from OpenGL and gives it back, which costs a
    third of a millisecond of the GPU's time if OpenGL works in between. With `explicit` CUDA has the image, and
    OpenGL gets it only in a `with canvas.gl()` block (or from `acquire()` to `release()`).
    """

    def __init__(self, ctx: moderngl.Context, size: tuple[int, int], components: int = 4, dtype: str = "f1", *,
                 explicit: bool = False, order: str | None = None) -> None:
        """`size`: width and height; `components` 1, 2 or 4; `dtype` f1, f2 or f4, as moderngl names them.

        `order`: how OpenGL's and CUDA's work is kept apart: "gpu" by semaphores, "host" by waiting on this thread
        (for measuring; by default the first that works). Raises ValueError for another format, SharingError when not
        even a copy works.
        """
        if (components, dtype) not in FORMATS or min(size) < 1:
            raise ValueError(f"a texture of size {size} with {components} components of dtype {dtype!r}; legal are "
                             f"1, 2 or 4 of {', '.join(DTYPES)}")
        if order not in (None, "gpu", "host"):
            raise ValueError(f"order: {order!r} is not gpu or host")
        self.size = size
        self.shape = size[1], size[0], components
        """(H, W, C) of the tensors."""
        self.dtype = DTYPES[dtype]
        self.explicit = explicit
        self.reason = ""
        """Why the image is not shared, if it is not."""
        self._with_gl = not explicit
        self._link: TextureTensor | None = None
        self._image: BothSidesImage | None = None
        try:
            usable = _usable_order(ctx) if order is None else order
            self._image = BothSidesImage(ctx, size, components, dtype, usable)
            self.texture: moderngl.Texture = self._image.texture
        except SharingError as e:
            if order is not None:
                raise
            self.reason = str(e)
            self.texture = ctx.texture(size, components, alignment=1, dtype=dtype)
            try:
                self._link = TextureTensor(self.texture)
            except BaseException:
                self.texture.release()
                raise
        self.texture.filter = moderngl.NEAREST, moderngl.NEAREST

    @property
    def way(self) -> str:
        """vulkan, or the way of `TextureTensor` in use."""
        return "vulkan" if self._link is None else self._link.way

    def write(self, tensor: torch.Tensor) -> None:
        """Put a tensor of this shape and dtype into the texture, after what the current CUDA stream does now.

        OpenGL draws with it from now on; with `explicit`, when it has the texture next. Raises ValueError for another
        shape or dtype, SharingError while OpenGL has an explicit texture.
        """
        if tensor.shape != self.shape or dtype_name(tensor) != self.dtype:
            raise ValueError(f"a {dtype_name(tensor)} tensor {tuple(tensor.shape)}; the texture takes {self.dtype} "
                             f"{self.shape}")
        with _Turn(self) as side:
            if isinstance(side, BothSidesImage):
                side.write(tensor.detach())
            else:
                side.write(tensor)

    def read(self) -> torch.Tensor:
        """What OpenGL has drawn into the texture so far, or what was written: (H, W, C), row 0 is OpenGL's row 0.

        It is there for what the current CUDA stream does next. The next `read` writes into the same tensor. Raises
        SharingError while OpenGL has an explicit texture.
        """
        with _Turn(self) as side:
            return side.read() if isinstance(side, BothSidesImage) else side.update()

    def acquire(self) -> moderngl.Texture:
        """OpenGL gets an explicit texture, after all that CUDA was told to do with it. No effect if it has it."""
        if not self._with_gl:
            if self._image is not None:
                self._image.to_gl()
            self._with_gl = True
        return self.texture

    def release(self) -> None:
        """CUDA gets an explicit texture back, after all that OpenGL was told to do. No effect if it has it."""
        if self.explicit and self._with_gl:
            if self._image is not None:
                self._image.from_gl()
            self._with_gl = False

    @contextmanager
    def gl(self) -> Iterator[moderngl.Texture]:
        """`acquire` and `release` around a block in which OpenGL uses the texture."""
        texture = self.acquire()
        try:
            yield texture
        finally:
            if self._image is not None or self._link is not None:  # closed in the block
                self.release()

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


class _Turn:
    """CUDA's turn with a texture: with an explicit one that is nothing but a check. (A class: a generator costs more
    than the copy that it surrounds.)"""

    def __init__(self, owner: SharedTexture) -> None:
        self._owner = owner

    def __enter__(self) -> BothSidesImage | TextureTensor:
        owner = self._owner
        if owner.explicit and owner._with_gl:
            raise SharingError("OpenGL has the texture: write and read outside the `with texture.gl()` block, or "
                               "after release()")
        side = owner._image or owner._link
        if side is None:
            raise SharingError("the texture is closed")
        if not owner.explicit and owner._image is not None:
            owner._image.from_gl()
        return side

    def __exit__(self, *exc: object) -> None:
        owner = self._owner
        if not owner.explicit and owner._image is not None:
            owner._image.to_gl()


class TensorTexture:
    """A texture that follows a tensor."""

    def __init__(self, tensor: torch.Tensor, ctx: moderngl.Context, way: str | None = None, *,
                 explicit: bool = False) -> None:
        """`tensor`: (H, W) or (H, W, C), C from 1 to 4, uint8, float16 or float32, on any GPU or the CPU.

        By default it is a `SharedTexture`, `explicit` as there; for 3 channels, and where `way` or SPLATVIEW_INTEROP
        names one, a `TextureTensor`. Errors as in both.
        """
        shape = tuple(tensor.shape)
        if len(shape) not in (2, 3) or 0 in shape or shape[2:] > (4,) or dtype_name(tensor) not in _CODES:
            raise ValueError(f"a {dtype_name(tensor)} tensor {shape}; legal are (H, W) and (H, W, C), C from 1 to 4, "
                             f"of {', '.join(_CODES)}")
        self.tensor = tensor
        size, components, dtype = (shape[1], shape[0]), (*shape, 1)[2], _CODES[dtype_name(tensor)]
        self._shared: SharedTexture | None = None
        self._link: SharedTexture | TextureTensor
        if way is None and forced_bridge() is None and (components, dtype) in FORMATS:
            self._link = self._shared = SharedTexture(ctx, size, components, dtype, explicit=explicit)
            self.texture: moderngl.Texture = self._shared.texture
        else:
            self.texture = ctx.texture(size, components, alignment=1, dtype=dtype)
            try:
                self._link = TextureTensor(self.texture, way)
            except BaseException:
                self.texture.release()
                raise
        try:
            self.update()
        except BaseException:
            self.close()
            raise

    @property
    def way(self) -> str:
        """vulkan, import, register or host."""
        return self._link.way

    def update(self) -> None:
        """Bring the tensor's present content into the texture, in the order of the current CUDA stream."""
        self._link.write(self.tensor if self.tensor.ndim == 3 else self.tensor.unsqueeze(-1))

    @contextmanager
    def gl(self) -> Iterator[moderngl.Texture]:
        """Where OpenGL uses the texture, if it is explicit; see `SharedTexture`."""
        if self._shared is None:
            yield self.texture
        else:
            with self._shared.gl() as texture:
                yield texture

    def close(self) -> None:
        """Give back everything, the texture too. Idempotent."""
        self._link.close()
        if self._shared is None:
            self.texture.release()

    def __enter__(self) -> TensorTexture:
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

    image = BothSidesImage(ctx, (64, 32), 4, "f1", order)
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream()):
        sent = torch.arange(64 * 32 * 4, device="cuda").mul_(7).to(torch.uint8).view(32, 64, 4)
        image.write(sent)
        for turn in (sent.flip(0), sent):
            image.to_gl()
            image.from_gl()
            image.write(turn)
        got = image.read()
        done = torch.cuda.Event()
        done.record()
        image.to_gl()
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
