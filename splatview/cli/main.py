"""The command line `splatview`: answer a command, or become the viewer program.

The viewer answers `serve`, `shot`, `video`, `export` and `memory`. It is started as a program,
never imported: nothing that draws can come near a training script.
"""

from __future__ import annotations

import os
import sys
from itertools import chain

_GROUPS = {
    "Watch a training": {
        "serve": "show running trainings, or files, in a window or in browsers",
        "demo": "train a small Gaussian scene and watch it",
    },
    "Keep pictures and films": {
        "shot": "draw one stream or file into a picture, without screen or viewer",
        "video": "film a scene along a camera path, into an mp4 or PNGs",
    },
    "Hand scenes on": {
        "export": "write a scene for others: ply, spz, or a page that shows it",
    },
    "See where GPU memory goes": {
        "memory": "look into a memory snapshot of PyTorch's, or ask it in SQL",
    },
    "Watch a camera": {
        "camera": "show a webcam, a video or a stream, and what a detector finds",
    },
    "Look after the machine": {
        "status": "list the runs, streams and viewers of this machine",
        "doctor": "test all that splatview needs, and say how to mend what is missing",
    },
}
"""Commands with a line of help each, by what a user wants, in the order of the help."""
SUMMARIES = dict(chain.from_iterable(group.items() for group in _GROUPS.values()))
"""A line of help for each command."""
_OPTIONS = ("--help", "--version")
_VIEWER_COMMANDS = ("serve", "shot", "video", "export", "memory")
_WATCHED_COMMANDS = ("demo", "camera")
"""Commands of our own that start a viewer."""
_MODULES = {
    "status": "splatview.cli.status",
    "doctor": "splatview.cli.doctor",
    "demo": "splatview.demo.command",
    "camera": "splatview.camera.command",
}
"""Modules of our own commands, each with a function `main`."""

_USAGE = """usage: splatview COMMAND [options]

A window into a running PyTorch process, from another process.
In your training script:

    import splatview
    splatview.publish(tensor)        # an image, or a Gaussian scene's tensors

and in another terminal: splatview serve, or in a notebook: splatview.show()

{commands}
Options:
    -V, --version    print the version
    -h, --help       print this; `splatview COMMAND --help` has options and examples

Packages that only memory, video and camera need are extras: `splatview doctor`
prints the line that installs them.

Environment variables:
{variables}
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code.

    2 stands for a request that cannot be met; stderr has the reason.

    Args:
        argv: the command and its options; None for those of this process.
    """
    if argv is not None:
        return _run_command(argv)
    _leave_out_folders_of_others()
    from splatview_ipc.system.entry import run

    return run(lambda: _run_command(sys.argv[1:]))


def _leave_out_folders_of_others() -> None:
    """Take folders out of `sys.path` in which other users may write modules.

    These are the script's folder (with `python -m` the current folder) and the relative
    entries of PYTHONPATH. Nothing may be imported before.
    """
    if not sys.flags.safe_path:
        del sys.path[:1]
    entries = os.environ.get("PYTHONPATH")
    if not entries:
        return
    for folder in entries.split(os.pathsep):
        if os.path.isabs(folder):
            continue
        try:
            # The site module has written it as an absolute path.
            sys.path.remove(os.path.abspath(folder))
        except (ValueError, OSError):
            # It is not in the path, or the current folder was deleted.
            continue


def _run_command(args: list[str]) -> int:
    """Run one command; return its exit code."""
    if args[:1] == ["help"] and len(args) > 1:
        return _run_command([args[1], "--help"])
    if not args or args[0] in ("-h", "--help", "help"):
        from splatview_ipc.system.variables import VARIABLES

        variables = [f"    {v.name:<21} {v.summary}" for v in VARIABLES]
        print(_USAGE.format(commands=_list_commands(), variables="\n".join(variables)))
        return 0 if args else 2
    if args[0] in ("-V", "--version"):
        from splatview import __version__

        print(f"splatview {__version__}")
        return 0
    command, *options = args
    if command in _VIEWER_COMMANDS:
        _become_viewer(command, options)
    if command not in _MODULES:
        _print_unknown(command)
        return 2
    return _run_own(command, options)


def _print_unknown(word: str) -> None:
    """Print that a word is no command or option, and the nearest one."""
    from splatview_ipc.system.terminal import printable
    from splatview_ipc.system.usage import did_you_mean

    if word.startswith("-"):
        fault = f"there is no option {word}.{did_you_mean(word, _OPTIONS)}"
    else:
        fault = (
            f"{word!r} is not a command.{did_you_mean(word, SUMMARIES)} "
            f"Expected {', '.join(SUMMARIES)}."
        )
    print(f"splatview: {printable(fault)} See: splatview --help", file=sys.stderr)


def _list_commands() -> str:
    """Return the commands in their groups, as lines of the help."""
    lines = []
    for title, commands in _GROUPS.items():
        lines.append(f"{title}:")
        lines += [f"    {name:<8} {text}" for name, text in commands.items()]
    return "\n".join(lines)


def _become_viewer(command: str, options: list[str]) -> None:
    """Replace this program by the viewer."""
    from splatview_ipc.system import child_program

    program = child_program.command("splatview_viewer", command, *options)
    environment = child_program.environment()
    sys.stdout.flush()
    os.execve(program[0], program, environment)


def _run_own(command: str, options: list[str]) -> int:
    """Run a command of this package; return its exit code."""
    from importlib import import_module

    from splatview_ipc.control.errors import IpcError
    from splatview_ipc.system.optional_packages import lack_of_viewer

    lack = lack_of_viewer() if command in _WATCHED_COMMANDS else ""
    if lack:
        print(f"splatview {command}: {lack}", file=sys.stderr)
        return 2
    try:
        return import_module(_MODULES[command]).main(options)
    except IpcError as error:
        from splatview_ipc.system.terminal import printable_lines

        print(f"splatview {command}: {printable_lines(error)}", file=sys.stderr)
        return 2
