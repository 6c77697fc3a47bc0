"""The program that compiles kernels for the viewer: `python -m splatview_viewer.memory.timeline._compiler NAME...`

Importing a module of kernels compiles them, and numba keeps them on disk. A line is printed after each module. It ends
with an error where kernels cannot be kept: what is compiled here is of no use then.
"""

from __future__ import annotations

import importlib
import sys

from splatview_viewer.files.program_limits import end_with_viewer


def main(modules: list[str]) -> None:
    """Compile modules, by their names in this package or by full names."""
    end_with_viewer()
    from splatview_viewer.memory import _compile

    _compile.must_keep = True
    for name in modules:
        importlib.import_module(name if "." in name else f"{__package__}.{name}")
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
