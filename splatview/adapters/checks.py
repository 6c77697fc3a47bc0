"""Checks of arguments and metadata. Each raises TypeError or ValueError, naming the bad value and the legal ones."""

from __future__ import annotations

from difflib import SequenceMatcher
from operator import index
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.limits import MAX_META_BYTES, MAX_META_TEXT, MAX_NAME
from splatview_ipc.kinds.gaussians import SH_DEGREE, activated_of
from splatview_ipc.kinds.rules import check_meta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_STEP = 2**53
PUBLISH_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "kind": str,
    "copy": bool,
    "live": bool,
    "shard": (tuple, list),
    "layout": str,
    "activated": (bool, tuple, list),
    "sh_degree": int,
    "antialiased": bool,
}
"""Options of `publish` and the types of their values: a value of another type is not meant for that option."""
_LIKE = 0.8
_LIKE_LONG = 0.75
_LIKE_SWAPPED = 0.75
"""Likeness (difflib) from which on a word counts as a misspelt option: cop, copyy; antialiasing; cpoy."""
_LONG_OPTION = 10
"""Letters of a long option."""
_MAX_USUAL_KEYS = 1000
_usual_keys: set[str] = set()
"""Names of metadata that are no misspelling, whatever their values: to check them at every call takes too long."""


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
    text_bytes = 0
    for key, value in meta.items():
        if key not in _usual_keys:
            _check_key(key, value)
        if type(value) not in (bool, int, float, str):
            value = _as_metadata(key, value)
            meta = {**meta, key: value}
        if type(value) is int and not -(2**63) < value < 2**63:
            raise ValueError(f"{key}={value} does not fit 64 bits")
        if type(value) is str:
            if len(value) > MAX_META_TEXT:
                raise ValueError(
                    f"{key} is a text of {len(value)} characters; at most {MAX_META_TEXT} travel"
                )
            text_bytes += check_text(value, key)
    if text_bytes > MAX_META_BYTES:
        raise ValueError(
            f"the texts of the metadata have {text_bytes} bytes together; at most {MAX_META_BYTES} travel, of which a "
            "letter takes 1 to 4: shorten them"
        )
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


def _check_key(key: str, value: Any) -> None:
    """Check a name of metadata that was not used before. Raises TypeError for a misspelt option of `publish`."""
    if not (key.isascii() and key.isidentifier() and len(key) <= 40):
        raise ValueError(
            f"metadata is called {key[:60]!r}; legal are up to 40 letters from a to z, digits and "
            "'_', the first no digit"
        )
    option = None if key in PUBLISH_OPTIONS else near_miss(key, PUBLISH_OPTIONS)
    if option is None:
        if len(_usual_keys) < _MAX_USUAL_KEYS:
            _usual_keys.add(key)
        return
    if getattr(value, "ndim", None) == 0:
        value = _as_metadata(key, value)
    if value is None or isinstance(value, PUBLISH_OPTIONS[option]):
        raise TypeError(
            f"publish has no option {key!r}: did you mean {option}={shown(value)}? Metadata needs a name that is less "
            "like an option's"
        )


def near_miss(word: str, options: Iterable[str]) -> str | None:
    """Return the option of which a word is a misspelling; None where it is a word of its own.

    A misspelling has a letter too many, too few or in another case, or two in the other's place; of long options the
    end may be another.
    """
    letters = word.lower()
    for option in options:
        likeness = SequenceMatcher(None, letters, option).ratio()
        is_long = len(option) >= _LONG_OPTION
        least = _LIKE_LONG if is_long else _LIKE
        has_same_letters = sorted(letters) == sorted(option)
        if has_same_letters and likeness >= _LIKE_SWAPPED:
            return option
        if letters[:1] == option[:1] and likeness > least:
            return option
    return None


def _as_metadata(key: str, value: Any) -> Any:
    """Return a value of another type as one that travels. Raises TypeError."""
    if key == "activated" and isinstance(value, (tuple, list)):
        return _activated_pair(value)
    if isinstance(value, (tuple, list)) and len(value) <= 16:
        if all(type(v) in (int, float) for v in value):
            return tuple(map(float, value))
    check_tensor(value, key)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 0) == 0:
        value = item()  # of NumPy scalars and tensors of one element
    if type(value) not in (bool, int, float, str):
        raise TypeError(
            f"{key} is a {type(value).__name__}; metadata can be bool, int, float, str or up "
            "to 16 floats"
        )
    return value


def shown(value: Any) -> str:
    """Return a value for an error, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def check_tensor(value: Any, what: str) -> None:
    """As `splatview.adapters.tensors.check_values`, which needs torch: a tensor has loaded it."""
    if hasattr(type(value), "__torch_function__"):
        from splatview.adapters.tensors import check_values

        check_values(value, what)


def check_text(text: str, what: str) -> int:
    """Return the bytes of a text in UTF-8. Raises ValueError for one that UTF-8 cannot hold."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as e:
        raise ValueError(
            f"{what} is {text[:60]!r}, whose character {e.start} is half of a surrogate pair; legal is "
            "what UTF-8 can hold: text.encode('utf-8', 'replace').decode() has '?' there"
        ) from None
