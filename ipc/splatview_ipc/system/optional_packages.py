"""Packages that only some commands need: those of the viewer, and of extras.

Nothing is imported to look for a package. Callers raise errors of their own kinds for
one that is missing, with the text that is made here.
"""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRAS: dict[str, tuple[str, ...]] = {
    "memory": ("numba", "duckdb"),
    "video": ("av",),
    "camera": ("cv2", "onnxruntime"),
}
"""Modules by the extra that installs them. `camera-gpu` installs those of `camera`."""
VIEWER_MODULES = (
    "moderngl",
    "glfw",
    "imgui_bundle",
    "PIL",
    "aiohttp",
    "simplejpeg",
    "zstandard",
)
"""Modules that come with splatview and that publishing can do without. The viewer draws
without gsplat as well."""
DISPLAY_NAMES = {
    "imgui_bundle": "imgui-bundle",
    "PIL": "Pillow",
    "numba": "numba",
    "duckdb": "duckdb",
    "av": "PyAV",
    "cv2": "OpenCV",
    "onnxruntime": "onnxruntime",
}
"""Names by which users know the modules."""


def install_line(extra: str = "") -> str:
    """Return the command that installs splatview from where it came from.

    Only a package index knows the bare name, so an installation from a checkout, a file
    or a repository is named by its address.

    Args:
        extra: what is installed with it; by default only what it always needs.
    """
    suffix = ""
    if extra:
        suffix = f"[{extra}]"
    origin = _origin()
    if origin is None:
        return f"pip install {shlex.quote(f'splatview{suffix}')}"
    url = origin["url"]
    if "dir_info" in origin:
        folder = unquote(urlsplit(url).path)
        option = ""
        if origin["dir_info"].get("editable"):
            option = "-e "
        return f"pip install {option}{shlex.quote(f'{folder}{suffix}')}"
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"pip install {shlex.quote(f'splatview{suffix} @ {url}')}"


def _origin() -> dict[str, Any] | None:
    """Return the installation's direct URL (PEP 610), or None for an index's."""
    # Only errors and `doctor` need it, and it imports the readers of e-mail.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution("splatview").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return json.loads(text) if text else None


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    return find_spec(module) is not None


def missing_viewer_packages() -> list[str]:
    """Return the names of the viewer's packages that are not installed."""
    return [
        DISPLAY_NAMES.get(module, module)
        for module in VIEWER_MODULES
        if not is_installed(module)
    ]


def lack_of_viewer() -> str:
    """Return a line about packages that the viewer lacks; "" if it lacks none."""
    missing = missing_viewer_packages()
    if not missing:
        return ""
    return f"the viewer needs {', '.join(missing)}: {install_line()}"


def require(subject: str, *modules: str, error: type[Exception]) -> None:
    """Raise `error` unless all of some modules are installed.

    Args:
        subject: what needs them, and the verb: "memory snapshots need".
        modules: the extra of the last one is the one to install.
        error: the class of the exception.
    """
    missing = [DISPLAY_NAMES[module] for module in modules if not is_installed(module)]
    if missing:
        install = _install_line_of(modules[-1])
        raise error(f"{subject} {' and '.join(missing)}: {install}")


@contextmanager
def importing(subject: str, module: str, *, error: type[Exception]) -> Iterator[None]:
    """Raise `error` where the body of the `with` fails to import a module.

    The arguments are those of `require`.
    """
    require(subject, module, error=error)
    try:
        yield
    except ImportError as e:
        # The module is installed, but not for this Python or NumPy.
        name = DISPLAY_NAMES[module]
        install = _install_line_of(module)
        message = f"{subject} {name}, which cannot be imported ({e}): {install}"
        raise error(message) from e


def _install_line_of(module: str) -> str:
    extras = (extra for extra, modules in EXTRAS.items() if module in modules)
    return install_line(next(extras))
