"""Texts for users who look for a run that is not there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from splatview_ipc.control.run_folder import default_folder, list_runs
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER_OF_USER = re.compile(r"splatview-([0-9]{1,10})")


def explain_missing_run(root: Path, text: str) -> str:
    """Return the names and process ids of the live runs if `text` names none of them.

    Returns "" if it names one.
    """
    runs = [run.description for run in list_runs(root)]
    if any(run.is_called(text) for run in runs):
        return ""
    names = [f"{printable(run.name)} ({run.pid})" for run in runs if not run.hidden]
    if names:
        return f"there are: {', '.join(names)}"
    return (
        "there are none: start one (splatview.publish(tensor) in a training script, or "
        "splatview demo)"
    )


def other_places(root: Path) -> str:
    """Return where else runs are, for users; "" if nothing speaks for another place.

    Args:
        root: the runtime folder of this process.
    """
    if root != default_folder() and list_runs(default_folder()):
        return (
            f"{default_folder()} has runs: set SPLATVIEW_RUNTIME_DIR alike for the "
            "training and the viewer"
        )
    if not _FOLDER_OF_USER.fullmatch(root.name):
        return ""
    names = sorted(os.listdir(root.parent))
    matches = [_FOLDER_OF_USER.fullmatch(name) for name in names if name != root.name]
    users = [match[1] for match in matches if match is not None]
    if not users:
        return ""
    return (
        f"{root.parent} has folders of other users (user id {', '.join(users)}): a "
        f"viewer shows the runs of its own user alone (user id {os.getuid()})"
    )
