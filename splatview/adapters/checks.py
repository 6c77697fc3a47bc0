"""Checks of arguments and metadata.

Each raises TypeError or ValueError that names the bad value and the legal ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from operator import index
from typing import TYPE_CHECKING, Any

from splatview.adapters.value_texts import short_repr, type_text
from splatview_ipc.control.limits import MAX_META_BYTES, MAX_META_TEXT, MAX_NAME
from splatview_ipc.kinds.gaussians import SH_DEGREE, SH_REST_COUNTS, parse_activated
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
    "meta": dict,
    "render": str,
    "module": str,
}
"""Options of `publish` and the types of their values.

A keyword with a value of another type is not a misspelling of that option.
"""
_DRAWING_OPTIONS = ("layout", "activated", "sh_degree", "antialiased")
"""Options that frames carry as metadata, so that no metadata may have these names."""
_SIMILAR = 0.8
_SIMILAR_LONG = 0.75
_SIMILAR_SWAPPED = 0.75
"""Similarity (difflib) from which on a word counts as a misspelt option.

Examples: cop, copyy; antialiasing; cpoy.
"""
_MAX_SH_DEGREE = len(SH_REST_COUNTS) - 1
_LONG_OPTION = 10
"""Letters of a long option."""
_NO_PARTS = {"": "nothing", ".": "'.'", "..": "'..'"}
"""What stands in no name as a part between slashes, and the words for it."""
_META_TYPES = (int, float, bool, str)
_MAX_ENTRIES = 24
_MAX_FLOATS = 16
_MAX_CHECKED_KEYS = 1000
_checked_keys: set[str] = set()
"""Legal names of metadata. To check them at every call takes too long."""
_checked_keywords: set[str] = set()
"""Loose keywords of `publish` that are no misspelling, whatever their values."""


def real(
    name: str,
    value: Any,
    minimum: float,
    maximum: float,
    convert: Callable[[Any], float] = float,
) -> float:
    """Return a real number, which tensors and arrays of one element are too."""
    check_tensor(value, name)
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        converted = convert(value)
    except OverflowError:
        converted = float("inf")
    except (TypeError, ValueError, RuntimeError):
        expected = "whole number" if convert is index else "number"
        raise TypeError(f"{name} is {type_text(value)}, not a {expected}") from None
    if not minimum <= converted <= maximum:
        raise ValueError(f"{name} is {converted}; expected {minimum} to {maximum}")
    return converted


def integer(name: str, value: Any, minimum: int, maximum: int) -> int:
    """Return a whole number, which tensors and arrays of one element are too."""
    return int(real(name, value, minimum, maximum, index))


def step(value: Any) -> float:
    """Return the number of a step, an int as it is."""
    if type(value) is int and -MAX_STEP <= value <= MAX_STEP:
        return value
    return real("step", value, -MAX_STEP, MAX_STEP)


def stream_name(name: Any) -> None:
    """Raise TypeError or ValueError unless a value may be a stream's name."""
    if not isinstance(name, str):
        raise TypeError(f"name is {type_text(name)}, not a str")
    name_text("name", name, MAX_NAME)


def name_text(label: str, name: str, max_length: int) -> None:
    """Raise ValueError unless a text may be the name of a stream or a scalar.

    Args:
        label: what it is, for the message.
        name: parts with "/" between them: folders, and the name within them.
        max_length: characters.
    """
    if not 1 <= len(name) <= max_length:
        excerpt = repr(name[:40])
        if len(name) > 40:
            excerpt += "..."
        raise ValueError(
            f"{label} {excerpt} has {len(name)} characters; expected 1 to {max_length}"
        )
    if not name.isprintable():
        raise ValueError(
            f"{label} {name!r} contains an unprintable character; use letters, digits, "
            "'.', '-', spaces, and '/' after a folder"
        )
    for part in name.split("/"):
        if part in _NO_PARTS:
            raise ValueError(
                f"{label} {name!r} has {_NO_PARTS[part]} between its slashes or at an "
                "end; expected a folder and a name, such as 'train/loss'"
            )


def run(run: Any) -> str | None:
    """Return the id, name or process id of a run as text."""
    if run is None:
        return None
    is_legal_type = isinstance(run, (str, int)) and not isinstance(run, bool)
    if not is_legal_type or not 1 <= len(str(run)) <= MAX_NAME:
        raise ValueError(
            f"run is {short_repr(run)}, not a run's id, name or process id; `splatview status` "
            "lists them"
        )
    check_text(str(run), "run")
    return str(run)


# ---- options of `publish`


def activation(value: Any) -> bool | tuple[bool, bool]:
    """Return the option `activated`: one bool, or a pair for scales and opacities."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        scales, opacities = parse_activated(value)
    except ValueError as error:
        raise TypeError(str(error)) from None
    return scales if isinstance(value, bool) else (scales, opacities)


def with_drawing_options(
    meta: dict[str, Any], sh_degree: Any, antialiased: Any
) -> dict[str, Any]:
    """Return metadata with the options of Gaussians that may change at each call."""
    meta = meta.copy()
    if sh_degree is not None:
        if type(sh_degree) is not int or not 0 <= sh_degree <= _MAX_SH_DEGREE:
            sh_degree = _checked_degree(sh_degree)
        meta["sh_degree"] = sh_degree
    if antialiased is not None:
        if type(antialiased) is not bool:
            antialiased = checked_bool("antialiased", antialiased)
        meta["antialiased"] = antialiased
    return meta


def _checked_degree(sh_degree: Any) -> int:
    """Return an SH degree, which NumPy's numbers and tensors of one element are too."""
    degree = _plain_value("sh_degree", sh_degree)
    check_meta({"sh_degree": degree}, SH_DEGREE)
    return degree


def checked_bool(name: str, value: Any) -> bool:
    """Return a bool, which NumPy's bools, 0 and 1 are too."""
    checked = _plain_value(name, value)
    if checked not in (False, True):
        raise TypeError(f"{name} is {short_repr(value)}, not True or False")
    return bool(checked)


def loose_keywords(keywords: Mapping[str, Any]) -> None:
    """Raise TypeError for a keyword of `publish` that is a misspelt option."""
    for key, value in keywords.items():
        if key not in _checked_keywords:
            _check_keyword(key, value)


def _check_keyword(key: str, value: Any) -> None:
    """Check a keyword that was not used before."""
    option = near_miss(key, PUBLISH_OPTIONS)
    if isinstance(value, Mapping):
        option = "meta"
    if option is None:
        if len(_checked_keywords) < _MAX_CHECKED_KEYS:
            _checked_keywords.add(key)
        return
    if getattr(value, "ndim", None) == 0:
        value = _plain_value(key, value)
    if value is None or isinstance(value, PUBLISH_OPTIONS[option]):
        raise TypeError(
            f"publish has no option {key!r}: did you mean {option}={short_repr(value)}? "
            f"Its options are {', '.join(PUBLISH_OPTIONS)}; what is shown beside the "
            f"picture goes into meta={{{key!r}: ...}}"
        )


def near_miss(word: str, options: Iterable[str]) -> str | None:
    """Return the option of which a word is a misspelling; None for a word of its own.

    A misspelling has a letter too many, too few or in another case, or two that are
    swapped. Long options may end differently.
    """
    letters = word.lower()
    for option in options:
        similarity = SequenceMatcher(None, letters, option).ratio()
        threshold = _SIMILAR
        if len(option) >= _LONG_OPTION:
            threshold = _SIMILAR_LONG
        has_same_letters = sorted(letters) == sorted(option)
        if has_same_letters and similarity >= _SIMILAR_SWAPPED:
            return option
        if letters[:1] == option[:1] and similarity > threshold:
            return option
    return None


# ---- metadata


def metadata(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with every value of a type that travels."""
    if type(meta) is not dict:
        meta = _as_dict(meta)
    text_bytes = 0
    for key, value in meta.items():
        if key not in _checked_keys:
            _check_key(key)
        value_type = type(value)
        if value_type is float:
            continue
        if value_type not in _META_TYPES:
            value = _plain_value(key, value)
            value_type = type(value)
            meta = {**meta, key: value}
        if value_type is int:
            if not -(2**63) < value < 2**63:
                raise ValueError(f"{key}={value} does not fit 64 bits")
        elif value_type is str:
            if len(value) > MAX_META_TEXT:
                raise ValueError(
                    f"{key} is a text of {len(value)} characters; at most "
                    f"{MAX_META_TEXT} travel"
                )
            text_bytes += check_text(value, key)
    if text_bytes and text_bytes > MAX_META_BYTES:
        raise ValueError(
            f"the texts of the metadata have {text_bytes} bytes together; at most "
            f"{MAX_META_BYTES} travel, of which a letter takes 1 to 4: shorten them"
        )
    if len(meta) > _MAX_ENTRIES:
        raise ValueError(
            f"metadata {', '.join(meta)}: at most {_MAX_ENTRIES} entries travel"
        )
    return meta


def _as_dict(meta: Any) -> dict[str, Any]:
    if not isinstance(meta, Mapping):
        raise TypeError(
            f"meta is {type_text(meta)}, not a mapping from names to values, such "
            "as {'step': 7}"
        )
    return dict(meta)


def _check_key(key: Any) -> None:
    """Check a name of metadata that was not used before."""
    is_name = isinstance(key, str) and key.isascii() and key.isidentifier()
    if not is_name or len(key) > 40:
        raise ValueError(
            f"metadata is called {short_repr(key)}; expected up to 40 letters from a to "
            "z, digits and '_', the first no digit"
        )
    if key in _DRAWING_OPTIONS:
        raise ValueError(
            f"metadata is called {key!r}, which is an option of its own: give "
            f"publish(..., {key}=...)"
        )
    if key == "color":
        raise ValueError(
            "metadata is called 'color', a name that splatview uses itself"
        )
    if len(_checked_keys) < _MAX_CHECKED_KEYS:
        _checked_keys.add(key)


def _plain_value(key: str, value: Any) -> Any:
    """Return a value of another type as one that travels. Raises TypeError."""
    is_short_list = isinstance(value, (tuple, list)) and len(value) <= _MAX_FLOATS
    if is_short_list and all(type(item) in (int, float) for item in value):
        return tuple(map(float, value))
    check_tensor(value, key)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 0) == 0:
        # NumPy scalars and tensors of one element.
        value = item()
    if type(value) not in (bool, int, float, str):
        raise TypeError(
            f"{key} is {type_text(value)}; metadata can be bool, int, float, str "
            f"or up to {_MAX_FLOATS} floats"
        )
    return value


# ---- parts of several checks


def check_tensor(value: Any, name: str) -> None:
    """Raise TypeError for a tensor without values of its own.

    Does what `splatview.adapters.tensors.check_values` does, which needs torch. Only a
    tensor has loaded torch.
    """
    if hasattr(type(value), "__torch_function__"):
        from splatview.adapters.tensors import check_values

        check_values(value, name)


def check_text(text: str, name: str) -> int:
    """Return the bytes of a text in UTF-8; raise ValueError if UTF-8 cannot hold it."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} is {text[:60]!r}, whose character {error.start} is half of a "
            "surrogate pair; expected what UTF-8 can hold: text.encode('utf-8', "
            "'replace').decode() has '?' there"
        ) from None
