"""Messages between a trainer and its render worker, by pipes.

The worker gets its settings as the first line of stdin, and writes its news to stdout,
one a line. Pictures and requests go over its run instead.
"""

from __future__ import annotations

import msgspec


class WorkerReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report of the worker, of which the trainer tells viewers."""

    fault_text: str = ""
    """Why the function cannot be imported as its file is now, for users; "": it can."""
    is_changed: bool = False
    """Pictures that were drawn until now are outdated: the function is another one."""
    has_drawn: bool = False
    """A picture was drawn."""


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scene that a render worker draws, and how it does."""

    run: str
    """Id of the trainer's run."""
    run_name: str
    scene: str
    """Name of the scene, a stream of that run."""
    function: str
    """ "package.module:function"."""
    module: str = ""
    """ "package.module:function" that makes the module; "": there is none."""
    path: tuple[str, ...] = ()
    """`sys.path` of the trainer."""
    limit_s: float = 10.0
    """Seconds that a picture may take: the worker ends itself after that."""
    first_limit_s: float = 60.0
    """The same for what may compile: an import, and a worker's first picture."""
