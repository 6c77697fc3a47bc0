"""Command lines and environments of the programs that splatview starts.

None of them runs code from the current folder, which may be one where others write, such as /tmp: Python's option -P
keeps it, and a script's own folder, out of `sys.path`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # commands import this before anything else
if TYPE_CHECKING:
    from collections.abc import Mapping

_OURS = "splatview"
"""The value of PYTHONSAFEPATH where the user has not set it."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs `python -m MODULE ARGUMENTS` without the current folder in `sys.path`.

    `module` is one of splatview's own, for example "splatview_viewer". Start it with `environment()`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def code_command(program: str, *arguments: str) -> list[str]:
    """Return the command line that runs `python -c PROGRAM ARGUMENTS`; start it with `environment()` too."""
    return [sys.executable, "-P", "-c", program, *arguments]


def environment(base: Mapping[str, str] | None = None, /, **more: str) -> dict[str, str]:
    """Return the environment for a `command`: `base` (default: this process's) and `more`, with a safe module path.

    PYTHONPATH keeps its absolute entries. PYTHONSAFEPATH keeps the current folder away from the interpreters that
    libraries start.
    """
    env = {**(os.environ if base is None else base), **more}
    env["PYTHONSAFEPATH"] = env.get("PYTHONSAFEPATH") or _OURS
    _keep_absolute_entries(env)
    return env


def restore_user_environment() -> None:
    """Undo what `environment` did to this process's environment, before the user's own code runs in it.

    That code may start Python scripts, which find modules in their folders as usual.
    """
    if os.environ.get("PYTHONSAFEPATH") == _OURS:
        del os.environ["PYTHONSAFEPATH"]


def forget_current_folder() -> None:
    """Remove from this process's `sys.path` what depends on where the program was started; for entry points.

    That is the script's folder or, with `python -m`, the current folder, and relative entries of PYTHONPATH, of which
    an empty one is the current folder. Modules that are loaded already stay.
    """
    if not sys.flags.safe_path:
        del sys.path[:1]
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if not os.path.isabs(entry):
            try:
                sys.path.remove(os.path.abspath(entry))  # as the site module has written it
            except (ValueError, OSError):  # not in the path, or the current folder was deleted
                continue
    _keep_absolute_entries(os.environ)


def _keep_absolute_entries(env: dict[str, str] | os._Environ[str]) -> None:
    entries = [e for e in env.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(e)]
    if entries:
        env["PYTHONPATH"] = os.pathsep.join(entries)
    else:
        env.pop("PYTHONPATH", None)
