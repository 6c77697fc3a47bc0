"""Checks of arguments. Each raises TypeError or ValueError, naming the bad value and the legal ones."""

from __future__ import annotations

from operator import index
from typing import Any

from splatview.adapters.metadata import check_tensor, check_text
from splatview_ipc.control.limits import MAX_NAME

MAX_STEP = 2**53


def number(name: str, value: Any, least: float, most: float) -> float:
    """Return a real number, which tensors and arrays of one element are too."""
    check_tensor(value, name)
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        found = float(value)
    except OverflowError:
        found = float("inf")
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is a {type(value).__name__}, not a number") from None
    if not least <= found <= most:
        raise ValueError(f"{name} is {found:g}; legal are {least:g} to {most:g}")
    return found


def whole(name: str, value: Any, least: int, most: int) -> int:
    check_tensor(value, name)
    try:
        if isinstance(value, bool):
            raise TypeError
        found = index(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}, not a whole number") from None
    if not least <= found <= most:
        raise ValueError(f"{name} is {found}; legal are {least} to {most}")
    return found


def stream_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name is a {type(name).__name__}, not a str")
    if not 1 <= len(name) <= MAX_NAME:
        shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
        raise ValueError(f"name {shown} has {len(name)} characters; legal are 1 to {MAX_NAME}")
    if "/" in name or not name.isprintable():
        raise ValueError(f"name {name!r} contains '/' or an unprintable character; "
                         "use letters, digits, '.', '-' and spaces")


def run(run: Any) -> str | None:
    """Return the id, name or process id of a run as text."""
    if run is None:
        return None
    if isinstance(run, bool) or not isinstance(run, (str, int)) or not 1 <= len(str(run)) <= MAX_NAME:
        raise ValueError(f"run is {run!r}, not a run's id, name or process id; `splatview status` lists them")
    check_text(str(run), "run")
    return str(run)
