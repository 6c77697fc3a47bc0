"""`numba`, imported so that it reads no settings from the current folder.

numba takes settings from a file `.numba_config.yaml` in the current folder if PyYAML is installed, at its import and
whenever it compiles. One of them names the folder of its cache, and what lies in the cache is unpickled: where others
may write, the file would run their code. There is no way to switch that off but to hide PyYAML while numba is imported.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.errors import ViewerError
from splatview_viewer.memory.needs import TIMELINE

if sys.modules.get("numba") is None and not TYPE_CHECKING:
    warnings.filterwarnings("ignore", message="A Numba config file is found")  # it is, and stays unread
    present = {name: module for name, module in sys.modules.items() if name == "yaml"}
    sys.modules["yaml"] = None  # an import of it fails
    try:
        with needed(TIMELINE, "numba", error=ViewerError):
            import numba
    finally:
        del sys.modules["yaml"]
        sys.modules.update(present)
else:
    import numba

from numba import types
from numba.core.caching import FunctionCache
from numba.core.options import DefaultOptions

__all__ = ["DefaultOptions", "FunctionCache", "numba", "types"]
