"""splatview: a window into a running PyTorch process, from another process.

In a training script::

    import splatview
    splatview.publish(tensor)          # an image, or a Gaussian Splatting scene

and, in another terminal, `splatview serve`, or in a notebook `splatview.show()`. Importing
this module loads nothing heavy; what publishing needs is loaded at the first call.
"""

from __future__ import annotations

# Type checkers take it for True. Importing typing would cost half of this module's time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from splatview import controls, errors, gl
    from splatview.api.annotate import annotate
    from splatview.api.cameras import publish_cameras
    from splatview.api.frames import frames
    from splatview.api.grab import grab
    from splatview.api.log import log
    from splatview.api.memory import publish_memory
    from splatview.api.notebook import show
    from splatview.api.pause import paused, wait_while_paused
    from splatview.api.publish import close, publish
    from splatview.api.renderer import draw, renderer
    from splatview.api.selection import selection
    from splatview.api.window import Window

    __version__: str

_MODULE_OF_NAME = {
    "Window": "api.window",
    "annotate": "api.annotate",
    "close": "api.publish",
    "controls": "",
    "draw": "api.renderer",
    "errors": "",
    "frames": "api.frames",
    "gl": "",
    "grab": "api.grab",
    "log": "api.log",
    "paused": "api.pause",
    "publish": "api.publish",
    "publish_cameras": "api.cameras",
    "publish_memory": "api.memory",
    "renderer": "api.renderer",
    "selection": "api.selection",
    "show": "api.notebook",
    "wait_while_paused": "api.pause",
}
"""The module that holds each name; "" for a name that is a module itself."""

__all__ = [
    "Window",
    "__version__",
    "annotate",
    "close",
    "controls",
    "draw",
    "errors",
    "frames",
    "gl",
    "grab",
    "log",
    "paused",
    "publish",
    "publish_cameras",
    "publish_memory",
    "renderer",
    "selection",
    "show",
    "wait_while_paused",
]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name == "__version__":
        from splatview_ipc.control.limits import VERSION

        return VERSION
    if name not in _MODULE_OF_NAME:
        raise AttributeError(
            f"module 'splatview' has no attribute {name!r}; it has "
            f"{', '.join(_MODULE_OF_NAME)}"
        )
    from importlib import import_module

    module_name = _MODULE_OF_NAME[name]
    value: Any = import_module(f"splatview.{module_name or name}")
    if module_name:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
