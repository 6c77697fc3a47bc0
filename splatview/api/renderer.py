"""`renderer` and `draw`: pictures that a function of the training script draws."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from splatview.adapters import checks
from splatview.adapters.value_texts import type_text
from splatview.api import script_controls
from splatview.api.session import (
    capturing,
    public,
    session,
    started_publisher,
    untraced_function,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.rendering.inside import InsideRenderer
    from splatview_ipc.publisher.publisher import Publisher

    F = TypeVar("F", bound=Callable[..., Any])

_LEAST_BUDGET = 0.001
_awaited: set[InsideRenderer] = set()
"""Those that viewers wait for. While it is empty, `draw` does nothing."""
_call_count = 0
"""Calls of `draw`: the scene has changed when it grows."""
drawing_thread = 0
"""The thread that draws, as far as is known; 0: none does."""


@public()
def renderer(
    name: str = "scene", budget: float = 0.05, points: Any = None
) -> Callable[[F], F]:
    """Make a scene that a function of this script draws, whenever a viewer looks.

    The function may use anything of the script. It is called by `splatview.draw`, in the
    script's thread and on its current CUDA stream, with gradients off::

        @splatview.renderer("scene", points=means)
        def picture(camera):
            return render(means, camera.viewmat, camera.K, camera.width, camera.height)

        for step in range(30_000):
            train(step)
            splatview.draw()

    `camera` is a `splatview.rendering.camera.RenderCamera`: `viewmat`, `c2w` (4, 4) and
    `K` (3, 3), float32 tensors in OpenCV axes, `width`, `height`, `fov`, `is_draft` and
    more. A second parameter gets the values of the script's controls. The function
    returns rgb, or (rgb, depth, alpha), of which the last two may be None: tensors of the
    CPU or a GPU, or arrays; rgb (H, W, 3) or (3, H, W), uint8, or floating point in
    [0, 1], premultiplied by alpha where there is one; depth (H, W), camera z in world
    units; alpha (H, W). What cannot be shown, and what the function raises, is told over
    the picture and logged once; the training goes on.

    The function itself is returned as it is. With a name that was used before, the new
    function takes the place of the old one. SPLATVIEW_DISABLE=1 makes all of this do
    nothing.

    Args:
        name: the scene's, as `publish` takes names.
        budget: the share of the time that pictures may take, 0.001 to 1: after one that
            took 10 ms the next is begun 200 ms later at 0.05. After the first one, which
            loads libraries, it is begun a second later at most. On a GPU the time counts
            that the GPU takes, if it is longer than that of the call.
        points: (N, 3), the scene's points, or a callable that returns them, by which
            viewers place their camera: 4,096 of them are looked at, now and then. They
            also say on which device the camera's tensors are; without them, on the
            current GPU if the script uses one.

    Raises:
        TypeError, ValueError: an argument that is not as above, or a name that is in use
            for something else.
    """
    if callable(name):
        raise TypeError(
            'name is a function; write @splatview.renderer("scene"), with parentheses'
        )
    checks.stream_name(name)
    share = checks.real("budget", budget, _LEAST_BUDGET, 1)

    @public(fallback=_unchanged)
    def decorate(function: F) -> F:
        if not callable(function):
            raise TypeError(
                f"splatview.renderer was given {type_text(function)}; expected a function "
                "of a camera"
            )
        if not session().idle and not capturing():
            _register(function, name, share, points)
        return function

    return decorate


def _unchanged(function: F) -> F:
    return function


def _register(
    function: Callable[..., Any], name: str, budget: float, points: Any
) -> None:
    """Have a function draw a scene. Raises as `renderer` does."""
    global drawing_thread
    from splatview.rendering.drawn_scene import sample_points
    from splatview.rendering.inside import InsideRenderer

    sample_points(points)  # before there is a stream

    def make(publisher: Publisher) -> InsideRenderer:
        if f"render {name}" in session().features:
            raise ValueError(
                f"scene {name!r} is published with render=, drawn by a function outside "
                f"this script; use another name in @splatview.renderer({name!r})"
            )
        if name in publisher.streams:
            kind = publisher.streams[name].kind
            raise ValueError(
                f"stream {name!r} shows {kind} that this script publishes; use another "
                "name"
            )

        def note_request() -> None:
            _awaited.add(scene)
            session().wake()

        scene = InsideRenderer(publisher, name, note_request, _count_calls)
        scene.set_function(function, budget, points)
        return scene

    current = session()
    with current.lock:
        key = f"renderer {name}"
        is_new = key not in current.features
        scene = current.feature(key, make)
        if scene is not None and not is_new:
            scene.set_function(function, budget, points)
    drawing_thread = drawing_thread or threading.get_ident()
    current.wake()


@untraced_function
def draw() -> None:
    """Draw a picture that a viewer waits for, if the budget allows it now.

    Call it in each step, where the tensors that the functions use are whole. It draws at
    most one picture, of the scene and the viewer whose turn it is, by the newest camera
    of that viewer. Without a viewer that waits it costs less than a microsecond. It
    waits for no GPU: a thread publishes the picture when it has come to host memory.
    """
    global _call_count
    _call_count += 1
    if _awaited:
        _draw_next(False)


def draw_while_paused() -> None:
    """Draw a picture that a viewer waits for, while the script waits for a viewer."""
    if _awaited:
        _draw_next(True)


def _count_calls() -> int:
    return _call_count


def _drawn_at(scene: InsideRenderer) -> float:
    return scene.drawn_at


@public()
def _draw_next(is_paused: bool) -> None:
    """Draw the picture whose turn it is."""
    global drawing_thread
    drawing_thread = threading.get_ident()
    publisher = started_publisher()
    for scene in sorted(_awaited, key=_drawn_at):
        if scene.publisher is not publisher:
            # Of a run that has ended, or of the parent of this process.
            _awaited.discard(scene)
            continue
        if not scene.is_due(is_paused):
            continue
        if capturing():
            return
        _awaited.discard(scene)
        try:
            scene.draw(script_controls.registry.values())
        finally:
            # In this order: a request that comes meanwhile is not forgotten.
            if scene.has_requests:
                _awaited.add(scene)
        session().wake()
        return
