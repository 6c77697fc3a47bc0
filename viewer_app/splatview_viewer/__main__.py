"""Run the commands `splatview serve`, `shot`, `video`, `export` and `memory`.

`python -m splatview_viewer` also runs the programs that `splatview` starts for itself
(`_PROGRAMS`), which are not typed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_PROGRAMS: dict[str, str] = {
    "grab": "splatview_viewer.app.grab",
    "window": "splatview_viewer.app.window_program",
}
"""By name, the module whose `main(args)` it is."""


def main(args: list[str] | None = None) -> int:
    """Run a command, and return its exit status.

    0 when all went well, 2 for anything that a message can explain.
    """
    # Threads of torch's on the CPU wait for each other in loops: ten times slower where
    # a trainer uses all cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault(
        "THP_MEM_ALLOC_ENABLE", "1"
    )  # pages of 2 MiB for large tensors: copies take half the time
    if args is None:
        from splatview_ipc.system.entry import run

        return run(lambda: main(sys.argv[1:]))
    import logging

    from splatview_ipc.system import entry
    from splatview_ipc.system.optional_packages import lack_of_viewer

    lack = lack_of_viewer()
    if lack:
        print(f"splatview: {lack}", file=sys.stderr)
        return 2
    from splatview_viewer.core.errors import (
        GpuLostError,
        PrintableFormatter,
        ViewerError,
        error_text,
        of_opengl,
    )

    assert logging.lastResort is not None
    logging.lastResort.setFormatter(
        PrintableFormatter()
    )  # streams and pages are named by others
    try:
        if args and args[0] in _PROGRAMS:
            _allow_descriptors()
            return import_module(_PROGRAMS[args[0]]).main(args[1:])
        asked = list[int]()
        with entry.handle_signals(
            lambda number, _: asked.append(number)
        ):  # an interrupted import may keep its lock for ever
            begin(args)
            from splatview_viewer.app.commands import parse

            command = parse(args)
        if asked:
            return 128 + asked[0]
        _allow_descriptors()
        command.execute()
    except ViewerError as e:
        print(f"splatview: {e}", file=sys.stderr)
        if isinstance(e, GpuLostError):
            os._exit(
                2
            )  # at the end of Python, objects of the lost driver would be released
        return 2
    except Exception as e:
        if not of_opengl(e):
            raise
        print(
            f"splatview: {error_text(e)}; update the graphics driver", file=sys.stderr
        )
        return 2
    return 0


def begin(args: list[str]) -> None:
    """Begin with what takes longest, before the options are read.

    Reading them takes long as well.
    """
    if args[:1] in (["serve"], ["memory"]) and "--sql" not in args:
        from pathlib import Path

        from splatview_viewer.kinds.snapshot import expect

        for path in args[1:]:
            if not path.startswith("-") and os.path.exists(path):
                expect(Path(path))


def _allow_descriptors() -> None:
    """Allow this process as many descriptors as it may have.

    A trainer's expandable segments come as one for each 20 MiB.
    """
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
