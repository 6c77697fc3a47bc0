"""`publish` and `close`: the two functions that every training script calls."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import (
    CALLERS_MISTAKES,
    public,
    session,
    survive,
    untraced_function,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview.adapters.gaussians import GaussianLayout
    from splatview.adapters.images import ImageLayout
    from splatview.adapters.named_tensors import NamedTensorsLayout
    from splatview.api.render_worker import RenderedScene
    from splatview_ipc.publisher.channel import Published
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream

_MAX_WARNED = 1000
_warned_lines: set[tuple[str, int]] = set()
"""Files and lines of calls that were warned of loose metadata."""
_default_names: dict[type, str] = {}
"""Default names by type of value. To import at every call costs as much as a call."""
_NO_META: dict[str, Any] = {}
"""Metadata of a call that gives none. Never written."""


@dataclass(slots=True)
class KnownStream:
    """A stream, the layout of its values so far, and the options they came with."""

    stream: Stream | RenderedScene
    layout: ImageLayout | GaussianLayout | NamedTensorsLayout
    options: tuple[Any, ...]


@untraced_function
def publish(
    value: Any,
    name: str | None = None,
    *,
    kind: str | None = None,
    copy: bool | None = None,
    live: bool | None = None,
    shard: tuple[int, int] | None = None,
    layout: str | None = None,
    activated: bool | tuple[bool, bool] | None = None,
    sh_degree: int | None = None,
    antialiased: bool | None = None,
    meta: Mapping[str, Any] | None = None,
    render: str | None = None,
    module: str | None = None,
    **loose_meta: Any,
) -> None:
    """Show a value in every viewer of this process, and go on at once.

    The call waits neither for a viewer nor for the GPU: copies are queued on torch's
    current stream. Tensors and arrays are kept until the next version or `close`, and
    copied only while a viewer shows them: a later one is shown what they hold by then.
    PIL images are copied at the call, and what a model's own getters give is read at
    the call. While a CUDA graph is captured nothing is queued. Within torch.compile a
    call breaks the graph; within torch.vmap and the transforms of torch.func tensors
    raise TypeError. SPLATVIEW_DISABLE=1 makes the call do nothing.

    Args:
        value: an image, (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 in 0..255,
            uint16 or float16, bfloat16, float32 in [0, 1]; or a Gaussian scene in any
            form that `splatview.adapters.gaussians` lists: a gsplat `ParameterDict` or mapping
            with its names, an inria `GaussianModel`, a nerfstudio model,
            async_torchwindow's tuple. OpenCV axes, quaternions w x y z. Tensors of the
            CPU or a GPU, also slices and those that require gradients; arrays of other
            libraries (NumPy, JAX, CuPy, PIL, whatever has `__dlpack__` or an array
            interface), whose work on another CUDA stream than torch's current one is
            the caller's to order; of a DTensor its `.to_local()`, with `shard`.
        name: the stream's, "image" or "gaussians" by default; up to 200 printable
            characters. Folders stand before a "/", as in "train/render"; no part is
            empty, "." or "..". The next call with this name is its next version.
        kind: "image" or "gaussians", where the value alone leaves a doubt.
        copy: of CUDA tensors. True: copy them on the GPU at this call. False: share
            their memory, which costs nothing, and shows changes made in place, even
            half done: parameters that an optimizer steps can tear. None: Gaussians that
            stay where they are are shared, all others copied. CPU tensors are copied.
        live: True: viewers follow changes made in place between two calls (they may see
            one half done).
        shard: (rank, world) of a scene whose Gaussians are spread over processes,
            0 <= rank < world <= 64. Each publishes its part under the same name;
            viewers show one scene. Processes belong together by what their launcher
            (torchrun, SLURM, mpirun) set, by the process that started them, or by
            SPLATVIEW_GROUP.
        layout: of an image, where the shape leaves a doubt: "HW", "HWC", "CHW", or
            "BGR" for (H, W, 3|4) with blue first.
        activated: of Gaussians. False: scales and opacities are those before exp and
            sigmoid; a pair for scales and opacities apart. None: what the model's
            getters give, or read off the names of the parts.
        sh_degree: of Gaussians, the degree of spherical harmonics in use, 0 to 4. None:
            the model's own, or all coefficients.
        antialiased: of Gaussians: True where they are trained with the antialiased
            rasteriser. None: the model's own, or False.
        meta: shown beside the picture, up to 24 values by name: bool, int, float, str,
            or up to 16 floats; texts of 1,024 characters each and 48 KiB together. Of a
            uint16 image of one channel, such as depth, "unit" and "scale" say what
            a value of 1 is: {"unit": "m", "scale": 0.001} for millimetres shown as metres.
        render: "package.module:function", which draws the scene in a process of its own
            whenever a viewer asks: `function(tensors, camera, controls)`, as the page
            on render functions describes. `value` is then a mapping of names to
            tensors, or a torch.nn.Module, whose parameters and buffers count; what lies
            within another is named with dots, as in "net.0.weight". The process is
            started when a viewer opens the scene. It finds modules where this script
            does, and imports the function's anew when its file changes.
        module: with render: "package.module:function" that makes, without arguments, a
            module with the published names. The function is then given that module
            instead of the mapping, its parameters and buffers being those published.
        loose_meta: deprecated: metadata as keywords, as in `step=7`. A keyword that is
            nearly an option's name raises TypeError.

    Raises:
        TypeError: a value that is neither an image nor Gaussians, or a wrong option.
        ValueError: shapes, dtypes, devices or options that cannot be shown.

    Faults of the surroundings (no shared memory, an unwritable runtime folder) are
    logged once and counted, and raised only when SPLATVIEW_STRICT=1 is set.
    """
    # Each statement here is part of the 2 us that a call may cost: no objects are made
    # that the next call does not need, and the guard of public functions (`public`) is
    # written out here, since a function around this one costs a tenth of a call.
    try:
        if name is None:
            name = _default_names.get(type(value)) or _default_name(value)
            if kind is not None and isinstance(kind, str):
                name = kind
        if loose_meta:
            meta = _with_loose_meta(meta, loose_meta)
        frame_meta = _NO_META if meta is None else checks.metadata(meta)
        if sh_degree is not None or antialiased is not None:
            frame_meta = checks.with_drawing_options(frame_meta, sh_degree, antialiased)
        if activated is not None:
            activated = checks.activation(activated)
        if copy is not None and type(copy) is not bool:
            copy = checks.checked_bool("copy", copy)
        if live is not None and type(live) is not bool:
            live = checks.checked_bool("live", live)
        options = kind, copy, live, shard, layout, activated, render, module
        entry = session().published.get(name)
        published = None
        if entry is not None and entry.options == options:
            published = entry.layout.match(value, frame_meta)
        if entry is None or published is None:
            described = _describe(value, name, options, frame_meta)
            if described is None:
                return
            entry, published = described
        entry.stream.publish(published)
    except CALLERS_MISTAKES:
        raise
    except Exception as error:
        survive(error)


@public()
def close() -> None:
    """End this process's run: viewers keep the last picture, all memory is released.

    Idempotent. The next `publish` begins a new run.
    """
    session().close()


def _default_name(value: Any) -> str:
    """Return the name of a stream that the caller gave none: that of its kind."""
    from splatview.adapters.tensors import is_array

    name = "image" if is_array(value) else "gaussians"
    _default_names[type(value)] = name
    return name


def _with_loose_meta(meta: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata together with that which the caller gave as keywords."""
    checks.loose_keywords(keywords)
    _warn_of_loose_meta(next(iter(keywords)))
    return {**keywords, **(meta or {})}


def _warn_of_loose_meta(key: str) -> None:
    """Warn of metadata as a keyword, once for each line that calls `publish`.

    The module `warnings` counts lines too, but takes several microseconds for it.
    """
    # Between this function and the caller are the helper above and `publish`.
    caller = sys._getframe(3)
    line = (caller.f_code.co_filename, caller.f_lineno)
    if line in _warned_lines or len(_warned_lines) >= _MAX_WARNED:
        return
    _warned_lines.add(line)
    warnings.warn(
        f"publish(..., {key}=...) is deprecated; metadata goes into "
        f'publish(..., meta={{"{key}": ...}})',
        DeprecationWarning,
        stacklevel=4,
    )


def _describe(
    value: Any, name: str, options: tuple[Any, ...], meta: dict[str, Any]
) -> tuple[KnownStream, Published] | None:
    """Return the stream for a value of a new layout, and what to publish there.

    None while there is no run.
    """
    if session().idle:
        return None
    from splatview.adapters import recognise
    from splatview.api.shard import checked_shard, group_of_this_process

    kind, copy, live, shard, image_layout, activated, render, module = options
    checks.stream_name(name)
    if render is not None or module is not None:
        return _describe_rendered(value, name, options, meta)
    rank_of = None
    group = ""
    if shard is not None:
        rank_of = checked_shard(shard)
        group = group_of_this_process()
    layout = recognise(value, kind, image_layout, activated)
    if rank_of is not None and layout.kind != "gaussians":
        raise TypeError(
            f"shard={rank_of}: {layout.kind} {name!r} cannot be put together from parts, "
            f"only Gaussians can; leave shard out: each rank's {layout.kind} is a stream "
            "of its own"
        )
    _check_copy(copy, layout.device)
    published = _first_match(layout, value, meta, name)
    current = session()
    with current.lock:
        publisher = current.run()
        if publisher is None:
            return None
        stream = publisher.stream(name, layout.kind)
        if stream.shard != (rank_of, group):
            stream.shard = rank_of, group
            publisher.wake()
        stream.describe(layout, copy, bool(live))
        entry = KnownStream(stream, layout, options)
        _remember(entry, name, publisher)
    return entry, published


def _remember(entry: KnownStream, name: str, publisher: Publisher) -> None:
    """Have the next calls find a stream of a run. Under the session's lock."""
    current = session()
    current.published[name] = entry
    if current.publisher is not publisher:
        # A signal's handler has ended the run meanwhile: the next call begins another.
        del current.published[name]


def _describe_rendered(
    value: Any, name: str, options: tuple[Any, ...], meta: dict[str, Any]
) -> tuple[KnownStream, Published] | None:
    """Return the scene for a value of a new form that a function draws, as `_describe`."""
    from splatview.adapters.named_tensors import NamedTensorsLayout
    from splatview.api.render_worker import checked_functions, rendered_scene

    kind, copy, live, shard, image_layout, activated, render, module = options
    functions = checked_functions(render, module)
    unused = {
        "kind": kind,
        "shard": shard,
        "layout": image_layout,
        "activated": activated,
    }
    for option, option_value in unused.items():
        if option_value is not None:
            raise TypeError(
                f"{option}={option_value!r} with render: a function draws from tensors "
                f"as they are; leave {option} out"
            )
    layout = NamedTensorsLayout(value)
    _check_copy(copy, layout.device)
    published = _first_match(layout, value, meta, name)
    current = session()
    with current.lock:
        publisher = current.run()
        if publisher is None:
            return None
        scene = rendered_scene(publisher, name, functions)
        scene.describe(layout, published[0], copy, bool(live))
        entry = KnownStream(scene, layout, options)
        _remember(entry, name, publisher)
    return entry, published


def _check_copy(copy: bool | None, device: str) -> None:
    """Raise ValueError where tensors cannot be shared as the caller wants."""
    if copy is False and device == "cpu":
        raise ValueError(
            "copy=False: a CPU tensor cannot be shared where it lies; leave copy out, or "
            "publish a CUDA tensor"
        )


def _first_match(
    layout: ImageLayout | GaussianLayout | NamedTensorsLayout,
    value: Any,
    meta: dict[str, Any],
    name: str,
) -> Published:
    """Return what to publish of the value that a layout was made for."""
    published = layout.match(value, meta)
    if published is None:
        raise ValueError(
            f"{name!r} changed while it was being published; publish from one thread at "
            "a time"
        )
    return published
