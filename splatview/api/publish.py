"""`publish` and `close`: what a training script calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from splatview.adapters import checks
from splatview.api.session import public, session

if TYPE_CHECKING:
    from splatview.adapters.gaussians import GaussianLayout
    from splatview.adapters.images import ImageLayout
    from splatview_ipc.publisher.stream import Published, Stream


class Known(NamedTuple):
    """A stream, the layout of the values it has been given so far, and the options they were given with."""

    stream: Stream
    layout: ImageLayout | GaussianLayout
    options: tuple[Any, ...]


@public()
def publish(
    value: Any,
    name: str | None = None,
    *,
    kind: str | None = None,
    copy: bool | None = None,
    live: bool | None = None,
    shard: tuple[int, int] | None = None,
    **meta: Any,
) -> None:
    """Show a value in every viewer of this process, and go on at once.

    value: an image, (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 in 0..255 or float16, bfloat16, float32 in [0, 1];
        or a Gaussian scene in any form that `splatview.adapters.gaussians` lists: a gsplat `ParameterDict` or mapping
        with its names, an inria `GaussianModel`, a nerfstudio model, async_torchwindow's tuple. OpenCV axes,
        quaternions w x y z. Tensors of the CPU or a GPU, also slices and those that require gradients; arrays of other
        libraries (NumPy, JAX, CuPy, PIL, whatever has `__dlpack__` or an array interface), whose work on another CUDA
        stream than torch's current one is the caller's to order; of a DTensor its `.to_local()`, with `shard`.
    name: the stream's, "image" or "gaussians" by default; up to 200 printable characters without "/". The next call
        with this name is its next version.
    kind: "image" or "gaussians", where the value alone leaves a doubt.
    copy: of CUDA tensors. True: copy them on the GPU at this call. False: share their memory, which costs nothing, and
        shows changes made in place, even half done: parameters that an optimizer steps can tear. None: Gaussians that
        stay where they are are shared, all others copied. CPU tensors are copied.
    live: True: viewers follow changes made in place between two calls (they may see one half done).
    shard: (rank, world) of a scene whose Gaussians are spread over processes, 0 <= rank < world <= 64. Each publishes
        its part under the same name; viewers show one scene. Processes belong together by what their launcher
        (torchrun, SLURM, mpirun) told them, by the process that started them, or by SPLATVIEW_GROUP.
    meta: shown beside the picture: bool, int, float, str, or up to 16 floats; texts of 1,024 characters each and 48 KiB
        together. A name that is nearly an option's raises TypeError. For Gaussians `activated` (False: scales
        and opacities before exp and sigmoid; a pair for scales and opacities apart; left out: what the model's getters
        give, or read off the names), `sh_degree` (the degree in use) and
        `antialiased` steer the drawing; for images `layout`: "HWC", "CHW", or "BGR" for (H, W, 3|4) with blue first.

    The call waits neither for a viewer nor for the GPU: copies are queued on torch's current stream. Tensors and arrays
    are kept until the next version or `close`, and copied only while a viewer shows them: a later one is shown what
    they hold by then. PIL images are copied at the call, and what a model's own getters give is read at the call. While a CUDA graph is captured nothing is queued. Within
    torch.compile a call breaks the graph; within torch.vmap and the transforms of torch.func tensors raise TypeError.
    Raises TypeError or ValueError for values that cannot be shown. Faults of the surroundings (no shared memory, an
    unwritable runtime folder) are logged once and counted, and raised only when SPLATVIEW_STRICT=1 is set.
    SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    if name is None:
        name = kind or _names.get(type(value))
        if name is None:
            from splatview.adapters.tensors import is_array

            name = "image" if is_array(value) else "gaussians"
            _names[type(value)] = name
    if meta:
        meta = checks.metadata(meta)
    options = kind, copy, live, shard, meta.get("activated"), meta.get("layout")
    known = session().published.get(name)
    if known is not None and known.options == options:
        published = known.layout.match(value, meta)
    else:
        published = None
    if known is None or published is None:
        if session().idle or (found := _describe(value, name, options, meta)) is None:
            return
        known, published = found
    known.stream.publish(published)


@public()
def close() -> None:
    """End this process's run: viewers keep the last picture, all memory is given back. Idempotent.

    The next `publish` begins a new run.
    """
    session().close()


_names: dict[type, str] = {}
"""Default names by the value's type: to import at every call would cost as much as all the rest of it."""


def _describe(
    value: Any, name: str, options: tuple[Any, ...], meta: dict[str, Any]
) -> tuple[Known, Published] | None:
    """Return the stream for a value of a new layout or with new options, and what to publish; None: no run."""
    from splatview.adapters import recognise
    from splatview.api.shard import checked_shard, group_of_this_process

    kind, copy, live, shard, *_ = options
    checks.stream_name(name)
    part, group = (
        (None, "") if shard is None else (checked_shard(shard), group_of_this_process())
    )
    layout = recognise(value, kind, meta)
    if part is not None and layout.kind != "gaussians":
        raise TypeError(
            f"shard={part}: {layout.kind} {name!r} cannot be put together from parts, only Gaussians can; "
            f"leave shard out: each rank's {layout.kind} is a stream of its own"
        )
    if copy is False and layout.device == "cpu":
        raise ValueError(
            "copy=False: a CPU tensor cannot be shared where it lies; leave copy out, or publish "
            "a CUDA tensor"
        )
    published = layout.match(value, meta)
    if published is None:
        raise ValueError(
            f"{name!r} changed while it was being published; publish from one thread at a time"
        )
    current = session()
    with current.lock:
        publisher = current.run()
        if publisher is None:
            return None
        stream = publisher.stream(name, layout.kind)
        if stream.shard != (part, group):
            stream.shard = part, group
            publisher.wake()
        stream.describe(layout, copy, bool(live))
        known = Known(stream, layout, options)
        current.published[name] = known
        if current.publisher is not publisher:
            # A signal's handler has ended the run meanwhile: the next call begins another.
            del current.published[name]
    return known, published
