"""The extras of the distribution: packages that only some commands need, and the error for one that is missing.

    require("detecting people needs", "cv2", error=DetectorError)              # before anything is opened
    with needed("films need", "av", error=FileError):                          # where it is imported
        import av

Nothing is imported to look for a package. `viewer_app` and `splatview` raise errors of their own kinds with this text.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRAS: dict[str, tuple[str, ...]] = {"memory": ("numba", "duckdb"), "video": ("av",), "camera": ("cv2", "onnxruntime")}
"""Modules that an extra installs, by its name. `camera-gpu` installs the modules of `camera`."""
_NAMES = {"av": "PyAV", "cv2": "OpenCV"}
"""Names of modules that users know by another name."""


def name_of(module: str) -> str:
    """Return the name by which users know a module."""
    return _NAMES.get(module) or module


def install_line(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'splatview[{extra}]'"


def installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    return find_spec(module) is not None


def missing(extra: str) -> list[str]:
    """Return the names of an extra's packages that are not installed."""
    return [name_of(module) for module in EXTRAS[extra] if not installed(module)]


def require(subject: str, *modules: str, error: type[Exception], also: tuple[str, ...] = ()) -> None:
    """Raise `error` unless all of some modules of one extra are installed.

    Args:
        subject: what needs them, and the verb: "memory snapshots need".
        also: modules of the same extra that the error names too if they are missing.
    """
    if not all(map(installed, modules)):
        names = [name_of(m) for m in (*modules, *also) if not installed(m)]
        raise error(f"{subject} {' and '.join(names)}: {install_line(_extra_of(modules[0]))}")


def require_one(subject: str, *modules: str, error: type[Exception]) -> str:
    """Return the first of some modules that is installed; raise `error`, as `require`, if none is."""
    for module in modules:
        if installed(module):
            return module
    raise error(f"{subject} {' or '.join(map(name_of, modules))}: {install_line(_extra_of(modules[-1]))}")


@contextmanager
def needed(subject: str, module: str, *, error: type[Exception]) -> Iterator[None]:
    """Raise `error` where the import of a module, in the body of the `with`, fails; arguments as for `require`."""
    require(subject, module, error=error)
    try:
        yield
    except ImportError as e:  # installed, but not for this Python or numpy
        raise error(f"{subject} {name_of(module)}, which cannot be imported ({e}): "
                    f"{install_line(_extra_of(module))}") from e


def _extra_of(module: str) -> str:
    return next(extra for extra, modules in EXTRAS.items() if module in modules)
