"""The first code of every program that splatview starts: `python .../ipc/_start.py MODULE [ARGUMENTS]`.

Python puts the folder of a script, and with `-m` or `-c` the current folder, before the standard library. Modules that
other users leave in such a folder would then run as the user who types `splatview shot` there. This file removes its
own folder before it imports anything, and the current folder is never added. `child_process.environment` removes the
entries of PYTHONPATH that depend on the current folder, since Python reads those before any file.

`splatview` is taken from where this file belongs to, also where it is not installed or another version is: a program
and those it starts are always of one version. Other modules beside that folder stay out of reach.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # never added where PYTHONSAFEPATH is set

import os
import runpy
from importlib.util import module_from_spec, spec_from_file_location


def _import_own_package() -> None:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = spec_from_file_location("splatview", os.path.join(folder, "__init__.py"),
                                   submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    module = sys.modules["splatview"] = module_from_spec(spec)
    spec.loader.exec_module(module)


_import_own_package()
if __name__ == "__main__":
    del sys.argv[0]  # runpy replaces the next one, the module's name, by the path of its file
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # while modules are imported; later each program handles it
        sys.exit(130)
