"""Extras of the distribution: packages that only some commands need, and the error for one that is missing.

Nothing is imported to look for a package. Callers raise errors of their own kinds with this text.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRAS: dict[str, tuple[str, ...]] = {
    "memory": ("numba", "duckdb"),
    "video": ("av",),
    "camera": ("cv2", "onnxruntime"),
}
"""Modules that an extra installs, by its name. `camera-gpu` installs the modules of `camera`."""
DISPLAY_NAMES = {
    module: module for modules in EXTRAS.values() for module in modules
} | {
    "av": "PyAV",
    "cv2": "OpenCV",
}
"""Names by which users know the modules."""


def install_line(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'splatview[{extra}]'"


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    return find_spec(module) is not None


def require(subject: str, *modules: str, error: type[Exception]) -> None:
    """Raise `error` unless all of some modules are installed.

    Args:
        subject: what needs them, and the verb: "memory snapshots need".
        modules: the extra of the last one is the one to install.
    """
    absent = [DISPLAY_NAMES[module] for module in modules if not is_installed(module)]
    if absent:
        raise error(f"{subject} {' and '.join(absent)}: {_install(modules[-1])}")


@contextmanager
def importing(subject: str, module: str, *, error: type[Exception]) -> Iterator[None]:
    """Raise `error` where the import of a module, in the body of the `with`, fails; arguments as for `require`."""
    require(subject, module, error=error)
    try:
        yield
    except ImportError as e:  # installed, but not for this Python or numpy
        raise error(
            f"{subject} {DISPLAY_NAMES[module]}, which cannot be imported ({e}): {_install(module)}"
        ) from e


def _install(module: str) -> str:
    return install_line(
        next(extra for extra, modules in EXTRAS.items() if module in modules)
    )
