"""Checks of arguments and metadata. Each raises TypeError or ValueError, naming the bad value and the legal ones."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.limits import MAX_META_TEXT, MAX_NAME
from splatview_ipc.kinds.gaussians import SH_DEGREE, activated_of
from splatview_ipc.kinds.rules import check_meta

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_STEP = 2**53


def number(
    name: str,
    value: Any,
    least: float,
    most: float,
    convert: Callable[[Any], float] = float,
) -> float:
    """Return a real number, which tensors and arrays of one element are too."""
    check_tensor(value, name)
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        found = convert(value)
    except OverflowError:
        found = float("inf")
    except (TypeError, ValueError, RuntimeError):
        what = "whole number" if convert is index else "number"
        raise TypeError(f"{name} is a {type(value).__name__}, not a {what}") from None
    if not least <= found <= most:
        raise ValueError(f"{name} is {found}; legal are {least} to {most}")
    return found


def step(value: Any) -> float:
    """Return the number of a step, an int as it is."""
    exact = type(value) is int and -MAX_STEP <= value <= MAX_STEP
    return value if exact else number("step", value, -MAX_STEP, MAX_STEP)


def whole(name: str, value: Any, least: int, most: int) -> int:
    return int(number(name, value, least, most, index))


def stream_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name is a {type(name).__name__}, not a str")
    if not 1 <= len(name) <= MAX_NAME:
        shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
        raise ValueError(
            f"name {shown} has {len(name)} characters; legal are 1 to {MAX_NAME}"
        )
    if "/" in name or not name.isprintable():
        raise ValueError(
            f"name {name!r} contains '/' or an unprintable character; "
            "use letters, digits, '.', '-' and spaces"
        )


def run(run: Any) -> str | None:
    """Return the id, name or process id of a run as text."""
    if run is None:
        return None
    if (
        isinstance(run, bool)
        or not isinstance(run, (str, int))
        or not 1 <= len(str(run)) <= MAX_NAME
    ):
        raise ValueError(
            f"run is {run!r}, not a run's id, name or process id; `splatview status` lists them"
        )
    check_text(str(run), "run")
    return str(run)


def metadata(meta: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with every value of a type that travels."""
    for key, value in meta.items():
        if not (key.isascii() and key.isidentifier() and len(key) <= 40):
            raise ValueError(
                f"metadata is called {key[:60]!r}; legal are up to 40 letters from a to z, digits and "
                "'_', the first no digit"
            )
        if key == "activated" and isinstance(value, (tuple, list)):
            value = _activated_pair(value)
            meta = {**meta, key: value}
        elif type(value) not in (bool, int, float, str):
            if (
                isinstance(value, (tuple, list))
                and len(value) <= 16
                and all(type(v) in (int, float) for v in value)
            ):
                value = tuple(map(float, value))
            else:
                check_tensor(value, key)
                if (
                    callable(item := getattr(value, "item", None))
                    and getattr(value, "ndim", 0) == 0
                ):
                    value = item()  # of NumPy scalars and tensors of one element
                if type(value) not in (bool, int, float, str):
                    raise TypeError(
                        f"{key} is a {type(value).__name__}; metadata can be bool, int, float, str or up "
                        "to 16 floats"
                    )
            meta = {**meta, key: value}
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise ValueError(f"{key}={value} does not fit 64 bits")
        if type(value) is str:
            if len(value) > MAX_META_TEXT:
                raise ValueError(
                    f"{key} is a text of {len(value)} characters; at most {MAX_META_TEXT} travel"
                )
            check_text(value, key)
    if "sh_degree" in meta:
        check_meta(meta, SH_DEGREE)
    if len(meta) > 24 or "color" in meta:
        raise ValueError(
            f"metadata {', '.join(meta)}: at most 24 entries, none named color"
        )
    return meta


def _activated_pair(value: Any) -> tuple[float, float]:
    """Return what `activated` says of scales and of opacities as it travels."""
    try:
        scales, opacities = activated_of(value)
    except ValueError as e:
        raise TypeError(str(e)) from None
    return float(scales), float(opacities)


def check_tensor(value: Any, what: str) -> None:
    """As `splatview.adapters.tensors.check_values`, which needs torch: a tensor has loaded it."""
    if hasattr(type(value), "__torch_function__"):
        from splatview.adapters.tensors import check_values

        check_values(value, what)


def check_text(text: str, what: str) -> None:
    """Raise ValueError for a text that UTF-8 cannot hold."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(
            f"{what} is {text[:60]!r}, whose character {e.start} is half of a surrogate pair; legal is "
            "what UTF-8 can hold: text.encode('utf-8', 'replace').decode() has '?' there"
        ) from None
