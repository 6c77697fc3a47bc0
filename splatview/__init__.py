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
    from splatview.memory import publish_memory
    from splatview.notebook import show
    from splatview.publishing import close, paused, publish, wait_while_paused

__version__ = "0.1.0"

__all__ = ["__version__", "close", "gl", "paused", "publish", "publish_memory", "show", "wait_while_paused"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'splatview' has no attribute {name!r}; it has {', '.join(__all__[1:])}")
    if name == "gl":
        from importlib import import_module

        return import_module("splatview.gl")  # which sets the name here
    if name == "show":
        from splatview import notebook as home
    elif name == "publish_memory":
        from splatview import memory as home
    else:
        from splatview import publishing as home

    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
