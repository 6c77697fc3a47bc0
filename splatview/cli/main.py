"""The command line. `serve`, `shot`, `video` and `memory` are the viewer program's; the rest is answered here.

The viewer is started as a program, never imported: nothing that draws can come near a training script.
"""

from __future__ import annotations

import os
import sys

_VIEWER = {
    "serve": "show running trainings, or files, in a window or in browsers",
    "shot": "draw one stream or file into a picture, without screen or viewer",
    "video": "film a scene along a camera path, into an mp4 or PNGs",
    "memory": "look into a memory snapshot of PyTorch's, or ask it in SQL",
}
_OWN = {
    "status": "list the runs, streams and viewers of this machine",
    "doctor": "test all that splatview needs, and say how to mend what is missing",
    "demo": "train a small Gaussian scene and watch it",
    "camera": "show a webcam, a video or a stream, and what a detector finds",
}

_USAGE = """usage: splatview COMMAND [options]

A window into a running PyTorch process, from another process.
In your training script:

    import splatview
    splatview.publish(tensor)        # an image, or a Gaussian scene's tensors

and in another terminal: splatview serve, or in a notebook: splatview.show()

commands:
{commands}

`splatview COMMAND --help` tells more.
Packages that only memory, video and camera need: pip install 'splatview[all]'.
Environment: SPLATVIEW_RUNTIME_DIR (where runs are found), SPLATVIEW_NAME (what
a run is called), SPLATVIEW_STRICT=1 (faults raise), SPLATVIEW_DISABLE=1
(publish does nothing).
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit code. 2 means that what was asked for cannot be done, and stderr says why."""
    if argv is not None:
        return _main(argv)
    # Before anything else is imported: other users may write modules into the script's folder (with `python -m` the
    # current folder) and into relative entries of PYTHONPATH.
    if not sys.flags.safe_path:
        del sys.path[:1]
    given = os.environ.get("PYTHONPATH")
    for folder in given.split(os.pathsep) if given else ():
        try:
            if not os.path.isabs(folder):
                sys.path.remove(
                    os.path.abspath(folder)
                )  # as the site module has written it
        except (
            ValueError,
            OSError,
        ):  # not in the path, or the current folder was deleted
            continue
    from splatview_ipc.system.entry import run

    return run(lambda: _main(sys.argv[1:]))


def _main(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        commands = (
            f"    {name:<8} {text}" for name, text in {**_VIEWER, **_OWN}.items()
        )
        print(_USAGE.format(commands="\n".join(commands)))
        return 0 if args else 2
    if args[0] == "--version":
        from splatview import __version__

        print(f"splatview {__version__}")
        return 0
    command = args[0]
    rest = args[1:]
    if command in _VIEWER:
        from splatview_ipc.system import child_program

        program = child_program.command("splatview_viewer", command, *rest)
        environment = child_program.environment()
        sys.stdout.flush()
        os.execve(program[0], program, environment)
    if command not in _OWN:
        print(
            f"splatview: {command!r} is not a command; legal are {', '.join([*_VIEWER, *_OWN])}",
            file=sys.stderr,
        )
        return 2
    from importlib import import_module

    from splatview_ipc.control.errors import IpcError

    try:
        if command in ("camera", "demo"):
            module = f"splatview.{command}.command"
        else:
            module = f"splatview.cli.{command}"
        return import_module(module).main(rest)
    except IpcError as e:
        from splatview_ipc.system.terminal import printable_lines

        print(f"splatview {command}: {printable_lines(e)}", file=sys.stderr)
        return 2
