"""A bound on values that name each other repeatedly, as the objects of a pickle can.

Ten lists that each hold the one before ten times are a file of 200 bytes, and a walk
through them meets ten thousand million values. Once `check_repeats` has passed, any
walk is as short as the file.
"""

from __future__ import annotations

from typing import Any

from splatview_viewer.core.errors import FileError

LEAST_VALUES = 1_000_000
"""Values that a walk may meet in any file: less than a second of work."""
_CONTAINERS = (dict, list, tuple, set, frozenset)


def check_repeats(root: Any, file_bytes: int) -> None:
    """Check how many values a walk through mappings and lists meets.

    A value counts as often as it is named.

    Raises:
        FileError: more than a file of `file_bytes` bytes holds, or something that holds
            itself.
    """
    limit = LEAST_VALUES + file_bytes
    if not isinstance(root, _CONTAINERS):
        return
    sizes: dict[int, int | None] = {}
    """Values met in a container, by its id; None while it is being counted."""
    path = [root]
    while path:
        container = path[-1]
        children = _children(container)
        if id(container) not in sizes:
            sizes[id(container)] = None
            path += [child for child in children if id(child) not in sizes]
            if any(sizes.get(id(child), 0) is None for child in children):
                raise FileError("made to be read without end: it holds itself")
            continue
        path.pop()
        if sizes[id(container)] is not None:
            continue
        size = len(container) + sum(sizes[id(child)] or 0 for child in children)
        if size > limit:
            raise FileError(
                "made to exhaust time or memory: the same values are named again and "
                f"again in it, more than {limit:,} in all; no program writes that of "
                f"itself into a file of {file_bytes:,} bytes"
            )
        sizes[id(container)] = size


def _children(container: Any) -> list[Any]:
    """Return the containers that a container holds."""
    if isinstance(container, dict):
        values = container.values()
    else:
        values = container
    return [value for value in values if isinstance(value, _CONTAINERS)]
