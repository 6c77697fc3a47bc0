"""What `publish_memory` takes, checked. Each raises TypeError or ValueError, naming what is wrong and what is legal."""

from __future__ import annotations

from typing import Any

from splatview.adapters.metadata import check_tensor

MOST_HZ = 100.0
MOST_STEP = 2**53
HOST = -1
"""Instead of a device's ordinal: only the host's memory."""


def ordinal(device: Any) -> int | None:
    """A device's ordinal, HOST, or None."""
    if device is None:
        return None
    legal = 'legal are None, an ordinal such as 0, "cuda:0", a torch.device, and "cpu"'
    if isinstance(device, bool) or not (isinstance(device, (int, str)) or type(device).__name__ == "device"):
        raise TypeError(f"device is a {type(device).__name__}; {legal}")
    import torch

    try:
        parsed = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError:
        raise ValueError(f"device is {device!r}; {legal}") from None
    if parsed.type == "cpu":
        return HOST
    if parsed.type != "cuda" or (isinstance(device, int) and device < 0):
        raise ValueError(f"device is {device!r}; {legal}")
    if parsed.index is not None and torch.cuda.is_initialized() and parsed.index >= torch.cuda.device_count():
        raise ValueError(f"device is {device!r}, and there are {torch.cuda.device_count()} GPUs; {legal}")
    return parsed.index


def frequency(hz: Any) -> float:
    """Looks in a second."""
    if isinstance(hz, bool) or not isinstance(hz, (int, float)):
        raise TypeError(f"hz is a {type(hz).__name__}, not a number")
    if not 0 < hz <= MOST_HZ:
        raise ValueError(f"hz is {hz!r}; legal is more than 0, at most {MOST_HZ:g}")
    return float(hz)


def entries(count: Any) -> int:
    """Entries of the trace."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"max_entries is a {type(count).__name__}, not a whole number")
    if not 1 <= count <= 10**8:
        raise ValueError(f"max_entries is {count}; legal are 1 to {10**8}")
    return count


def number(step: Any) -> float:
    """A step's number."""
    check_tensor(step, "step")
    try:
        value = float(step)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"step is a {type(step).__name__}, not a number") from None
    except OverflowError:
        value = float("inf")
    if not -MOST_STEP <= value <= MOST_STEP:
        raise ValueError(f"step is {value}; legal are numbers up to 2**53")
    return value
