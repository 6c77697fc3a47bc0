"""splatview: a window into a running PyTorch process, from another process.

    import splatview
    splatview.publish(tensor)          # an image, or a Gaussian Splatting scene

and, in another terminal, `splatview serve`, or in a notebook `splatview.show()`. Importing this module loads nothing
heavy; what publishing needs is loaded at the first call.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; importing typing would cost half of this module's time
if TYPE_CHECKING:
    from typing import Any

    from splatview import gl
    from splatview.annotating import annotate
    from splatview.camera_views import publish_cameras
    from splatview.grabbing import grab
    from splatview.memory import publish_memory
    from splatview.notebook import show
    from splatview.pausing import paused, wait_while_paused
    from splatview.publishing import close, publish
    from splatview.reading import frames
    from splatview.scalars import log
    from splatview.window import Window

    __version__: str

_HOME = {
    "Window": "window",
    "annotate": "annotating",
    "close": "publishing",
    "frames": "reading",
    "gl": "",
    "grab": "grabbing",
    "log": "scalars",
    "paused": "pausing",
    "publish": "publishing",
    "publish_cameras": "camera_views",
    "publish_memory": "memory",
    "show": "notebook",
    "wait_while_paused": "pausing",
}
"""The module of each name; "" for what is a module itself."""

__all__ = ["Window", "__version__", "annotate", "close", "frames", "gl", "grab", "log", "paused", "publish",
           "publish_cameras", "publish_memory", "show", "wait_while_paused"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from splatview.ipc.limits import VERSION

        return VERSION
    if name not in _HOME:
        raise AttributeError(f"module 'splatview' has no attribute {name!r}; it has {', '.join(_HOME)}")
    from importlib import import_module

    from splatview.publishing import leave_untraced

    home = import_module(f"splatview.{_HOME[name] or name}")
    leave_untraced(home)
    value = globals()[name] = getattr(home, name) if _HOME[name] else home
    return value


def __dir__() -> list[str]:
    return list(__all__)
