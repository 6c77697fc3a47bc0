"""Tensors to OpenGL and back, 1024x1024 RGBA8, 360 frames each way and each bridge; every frame's pixels verified.

The frames are different from one to the next. The time is that of all of them until CUDA and OpenGL are both finished.
gl_tensor prints 22,086 frames/s one way for the same size and count (on a GP100, without saying that it waits). Map
and unmap is the bare driver API: a registered texture, mapped, copied and unmapped for each frame.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np
import torch

from benchmarks.gpu import require_gpu, tried
from ipc.interop.base import fragment_head
from ipc.interop.probe import BRIDGES, bridge_class, probe
from ipc.interop.readback import VERTEX, read_source
from ipc.interop.texture_tensor import WAYS, TextureTensor
from viewer_app.screens.offscreen import create_context

if TYPE_CHECKING:
    from collections.abc import Callable

    Rows = list[dict[str, str]]
    Frame = Callable[[Any], Any]

SIZE, FRAMES, DISTINCT = 1024, 360, 12
PRINTED = 22_086
_COPY = "out vec4 f_color;\nvoid main() { f_color = stored(ivec2(gl_FragCoord.xy)); }\n"


def run() -> Rows:
    require_gpu()
    ctx = create_context()
    frames = [torch.randint(0, 256, (SIZE, SIZE, 4), dtype=torch.uint8, device="cuda") for _ in range(DISTINCT)]
    floor: dict[str, float] = {}
    rows = tried("map, copy, unmap", lambda: _mapped(ctx, frames, floor))
    for name in BRIDGES:
        if name != "direct":  # which needs another process's memory, and copies nothing: see gpu_image
            rows += tried(f"tensor to OpenGL: {name}", lambda name=name: _bridge(ctx, frames, name, floor))
    for way in WAYS:
        rows += tried(f"TextureTensor, {way}", lambda way=way: _texture_tensor(ctx, frames, way, floor))
    for order in (None, "host"):
        rows += tried(f"SharedTexture, order: {order or 'best'}",
                      lambda order=order: _shared_texture(ctx, frames, order, floor))
    ctx.release()
    return rows


def _rate(ctx: moderngl.Context, frame: Frame) -> float:
    """Frames per second, the better of two goes; finished on the GPU."""
    best = 0.0
    for go in range(3):
        torch.cuda.synchronize()
        ctx.finish()
        begin = time.perf_counter()
        for i in range(FRAMES if go else 24):
            frame(i)
        torch.cuda.synchronize()
        ctx.finish()
        if go:
            best = max(best, FRAMES / (time.perf_counter() - begin))
    return best


def _row(what: str, way: str, rate: float, floor: dict[str, float], verified: str) -> dict[str, str]:
    mapped = floor.get("to" if what.startswith("tensor") else "from" if what.startswith("texture") else "both")
    return {"what": what, "way": way, "frames/s": f"{rate:,.0f}", "us per frame": f"{1e6 / rate:.1f}",
            "over map/unmap": f"{rate / mapped:.1f}" if mapped else "", "over 22,086": f"{rate / PRINTED:.2f}",
            "target": "22,086 (import)", "verified": verified}


def _same(got: np.ndarray, frame: torch.Tensor) -> None:
    wrong = float((got != frame.cpu().numpy()).mean())
    if wrong:
        raise RuntimeError(f"{wrong:.2%} of the bytes are not the frame's")


# -- tensor to OpenGL ----------------------------------------------------------------------------------------


def _bridge(ctx: moderngl.Context, frames: list[torch.Tensor], name: str, floor: dict[str, float]) -> Rows:
    reason = probe(ctx, name)[name]
    if reason:
        return [{"what": "tensor to OpenGL", "way": name, "verified": f"not here: {reason}"}]
    bridge = bridge_class(name)(ctx)
    target = ctx.texture((SIZE, SIZE), 4)
    framebuffer = ctx.framebuffer([target])
    try:
        source = bridge.put(frames[0], "HWC")
        for frame in frames:
            source = bridge.put(frame, "HWC")
            _same(np.rint(read_source(ctx, source) * 255).astype(np.uint8), frame)
        program = ctx.program(vertex_shader=VERTEX, fragment_shader=fragment_head(source.defines) + _COPY)
        array = ctx.vertex_array(program, [])

        def put(i: int) -> None:
            bridge.put(frames[i % DISTINCT], "HWC")

        def draw(i: int) -> None:
            framebuffer.use()
            bridge.put(frames[i % DISTINCT], "HWC").bind(program)
            array.render(moderngl.TRIANGLES, vertices=3)

        rows = [_row("tensor to OpenGL, readable by shaders", name, _rate(ctx, put), floor, f"{DISTINCT} frames")]
        _same(np.rint(read_source(ctx, bridge.put(frames[1], "HWC")) * 255).astype(np.uint8), frames[1])
        for i, frame in enumerate(frames):
            draw(i)
            _same(np.frombuffer(target.read(), np.uint8).reshape(SIZE, SIZE, 4), frame)
        rows.append(_row("tensor to an RGBA8 texture, drawn by a shader", name, _rate(ctx, draw), floor,
                         f"{DISTINCT} frames"))
        _same(np.frombuffer(target.read(), np.uint8).reshape(SIZE, SIZE, 4), frames[(FRAMES - 1) % DISTINCT])
        return rows
    finally:
        bridge.close()
        framebuffer.release()
        target.release()


# -- a texture and its tensor --------------------------------------------------------------------------------


def _texture_tensor(ctx: moderngl.Context, frames: list[torch.Tensor], way: str, floor: dict[str, float]) -> Rows:
    """`splatview.gl.TextureTensor`, over a texture of the program's own."""
    reason = probe(ctx, way)[way]
    if reason:
        return [{"what": "tensor to texture and back", "way": way, "verified": f"not here: {reason}"}]
    texture = ctx.texture((SIZE, SIZE), 4)
    link = TextureTensor(texture, way)
    try:
        return _to_and_fro(ctx, frames, (texture, link.write, link.update), f"TextureTensor, {way}", floor)
    finally:
        link.close()
        texture.release()


def _shared_texture(ctx: moderngl.Context, frames: list[torch.Tensor], order: str | None,
                    floor: dict[str, float]) -> Rows:
    """A texture of ours that both sides know. `order`: "host" to wait; by default semaphores on the GPU, if they work
    (which is tried out first: waiting for one that never comes would not end)."""
    from ipc.interop.shared_texture import SharedTexture

    with SharedTexture(ctx, (SIZE, SIZE), order=order) as link:
        kept = "waiting" if order == "host" else link.reason or "the best way to keep order"
        label = f"SharedTexture, {link.way}, {kept}"
        return _to_and_fro(ctx, frames, (link.texture, link.write, link.read), label, floor)


def _to_and_fro(ctx: moderngl.Context, frames: list[torch.Tensor], link: tuple[moderngl.Texture, Frame, Any],
                label: str, floor: dict[str, float]) -> Rows:
    """Written, read, and both in turn. `link`: the texture, what writes it, what reads it into a tensor."""
    texture, write, read = link
    last = frames[(FRAMES - 1) % DISTINCT]

    def both(i: int) -> None:
        write(frames[i % DISTINCT])
        read()

    for frame in frames:
        write(frame)
        _same(np.frombuffer(texture.read(), np.uint8).reshape(SIZE, SIZE, 4), frame)
        _same(read().cpu().numpy(), frame)
    writing = _rate(ctx, lambda i: write(frames[i % DISTINCT]))
    _same(np.frombuffer(texture.read(), np.uint8).reshape(SIZE, SIZE, 4), last)
    reading = _rate(ctx, lambda _: read())
    _same(read().cpu().numpy(), last)
    turns = _rate(ctx, both)
    _same(read().cpu().numpy(), last)
    return [_row(what, label, rate, floor, f"{DISTINCT} frames")
            for what, rate in (("tensor to texture", writing), ("texture to tensor", reading), ("both in turn", turns))]


# -- the bare driver API -------------------------------------------------------------------------------------


def _mapped(ctx: moderngl.Context, frames: list[torch.Tensor], floor: dict[str, float]) -> Rows:
    from cuda.bindings import driver as cu  # pyright: ignore[reportAttributeAccessIssue]  (it has no stubs)

    def ok(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RuntimeError(str(result[0]))
        return result[1] if len(result) == 2 else None

    texture = ctx.texture((SIZE, SIZE), 4)
    back = torch.zeros_like(frames[0])
    stream = cu.CUstream(torch.cuda.current_stream().cuda_stream)
    resource = ok(cu.cuGraphicsGLRegisterImage(texture.glo, 0x0DE1, 0))
    kinds = cu.CUmemorytype

    def copy(tensor: torch.Tensor, to_texture: bool) -> None:
        ok(cu.cuGraphicsMapResources(1, resource, stream))
        array = ok(cu.cuGraphicsSubResourceGetMappedArray(resource, 0, 0))
        c = cu.CUDA_MEMCPY2D()
        if to_texture:
            c.srcMemoryType, c.srcDevice, c.srcPitch = kinds.CU_MEMORYTYPE_DEVICE, tensor.data_ptr(), SIZE * 4
            c.dstMemoryType, c.dstArray = kinds.CU_MEMORYTYPE_ARRAY, array
        else:
            c.srcMemoryType, c.srcArray = kinds.CU_MEMORYTYPE_ARRAY, array
            c.dstMemoryType, c.dstDevice, c.dstPitch = kinds.CU_MEMORYTYPE_DEVICE, tensor.data_ptr(), SIZE * 4
        c.WidthInBytes, c.Height = SIZE * 4, SIZE
        ok(cu.cuMemcpy2DAsync(c, stream))
        ok(cu.cuGraphicsUnmapResources(1, resource, stream))

    try:
        for frame in frames:
            copy(frame, True)
            torch.cuda.synchronize()
            _same(np.frombuffer(texture.read(), np.uint8).reshape(SIZE, SIZE, 4), frame)
            copy(back, False)
            _same(back.cpu().numpy(), frame)
        floor["to"] = _rate(ctx, lambda i: copy(frames[i % DISTINCT], True))
        floor["from"] = _rate(ctx, lambda _: copy(back, False))
        floor["both"] = 1 / (1 / floor["to"] + 1 / floor["from"])
    finally:
        ok(cu.cuGraphicsUnregisterResource(resource))
        texture.release()
    return [_row("tensor to texture", "bare map, copy, unmap", floor["to"], floor, f"{DISTINCT} frames"),
            _row("texture to tensor", "bare map, copy, unmap", floor["from"], floor, f"{DISTINCT} frames")]
