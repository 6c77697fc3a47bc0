"""The viewer's commands and their options; what `--help` prints comes from here."""

from __future__ import annotations

import sys

from splatview_ipc.system import entry
from splatview_viewer.app.commands.export import Export
from splatview_viewer.app.commands.memory import Memory
from splatview_viewer.app.commands.pictures import Shot, Video
from splatview_viewer.app.commands.serve import Serve

COMMANDS = {
    "serve": Serve,
    "shot": Shot,
    "video": Video,
    "export": Export,
    "memory": Memory,
}


def parse(args: list[str]) -> Serve | Shot | Video | Export | Memory:
    """Return the command that arguments name; print help or what is wrong, and exit."""
    if not args or args[0] not in COMMANDS:
        sys.exit(f"splatview: the first argument names one of {', '.join(COMMANDS)}")
    return entry.parse_options(COMMANDS[args[0]], f"splatview {args[0]}", args[1:])
