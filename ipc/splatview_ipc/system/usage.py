"""Explain command lines that do not fit a command's options, in one line.

tyro parses them. It answers a mistake with a frame of several lines and the whole help
of an option; here is one line that names the bad word, what is legal and what to type.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_NUMBER_TYPES = {int: "a whole number", float: "a number"}


@dataclass(frozen=True, slots=True)
class _Option:
    """One option or positional argument of a command."""

    flag: str
    """The option as it is typed, such as --max-fps; a positional's metavar."""
    metavar: str
    value_types: tuple[Any, ...]
    """Types that a value may have, Literals among them."""
    is_positional: bool
    is_required: bool
    takes_many: bool

    @property
    def takes_value(self) -> bool:
        """Tell whether a value follows the option."""
        return bool not in self.value_types

    def explain_value(self, value: str) -> str | None:
        """Return what is wrong with the value of an option; None if it is legal."""
        expected = []
        for value_type in self.value_types:
            if get_origin(value_type) is Literal:
                choices = get_args(value_type)
                if value in choices:
                    return None
                expected.extend(choices)
            elif value_type in _NUMBER_TYPES:
                if _is_number(value, value_type):
                    return None
                expected.append(_NUMBER_TYPES[value_type])
            elif value_type is not type(None):
                return None
        return f"{self.flag} is {value!r}; expected {' or '.join(expected)}."


def did_you_mean(misspelt: str, legal: Iterable[str]) -> str:
    """Return a sentence that names the legal word nearest to a misspelt one, or ""."""
    # Dashes that all options begin with would make any two of them alike.
    legal_words = {option.lstrip("-"): option for option in legal}
    nearest = get_close_matches(misspelt.lstrip("-").lower(), legal_words, n=1)
    if not nearest:
        return ""
    return f" Did you mean {legal_words[nearest[0]]}?"


def explain_mistake(kind: Any, args: Sequence[str]) -> str | None:
    """Return what is wrong with the arguments of a command, as one sentence.

    Args:
        kind: the dataclass of the command's options.
        args: the arguments that tyro refuses.

    Returns:
        The sentence; None for a mistake that is not of the usual ones.
    """
    options = list(_options(kind))
    flags = {option.flag: option for option in options if not option.is_positional}
    positionals = [option for option in options if option.is_positional]
    positional_values = []
    pending = list(args)
    while pending:
        argument = pending.pop(0)
        is_flag = argument.startswith("-") and argument.lstrip("-")[:1].isalpha()
        if not is_flag:
            positional_values.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        option = flags.get(_positive(flag.replace("_", "-"), flags))
        if option is None:
            return f"there is no option {flag}.{did_you_mean(flag, flags)}"
        if not option.takes_value:
            continue
        if not equals:
            if not pending or pending[0] in flags:
                return f"{option.flag} needs a value: {option.flag} {option.metavar}."
            value = pending.pop(0)
        fault = option.explain_value(value)
        if fault:
            return fault
    return _explain_count(positional_values, positionals)


def _explain_count(
    positional_values: list[str], positionals: list[_Option]
) -> str | None:
    """Return what is wrong with the number of positional arguments."""
    required = [option for option in positionals if option.is_required]
    if len(positional_values) < len(required):
        return f"{required[len(positional_values)].metavar} is missing."
    takes_any_number = any(option.takes_many for option in positionals)
    if takes_any_number or len(positional_values) <= len(positionals):
        return None
    excess = positional_values[len(positionals)]
    if not positionals:
        return f"{excess!r} is one argument too many; expected options alone."
    expected = " ".join(option.metavar for option in positionals)
    return f"{excess!r} is one argument too many; expected {expected}."


def _positive(flag: str, flags: dict[str, _Option]) -> str:
    """Return the option that `--no-OPTION` turns off; another flag as it is."""
    positive = flag.replace("--no-", "--", 1)
    option = flags.get(positive)
    if option is None or option.takes_value:
        return flag
    return positive


def _is_number(text: str, number_type: type[int] | type[float]) -> bool:
    try:
        number_type(text)
    except ValueError:
        return False
    return True


def _options(kind: Any) -> Iterator[_Option]:
    """Yield the options of a dataclass as tyro names them."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        marks: tuple[Any, ...] = ()
        if get_origin(hint) is Annotated:
            hint, *annotations = get_args(hint)
            marks = tuple(annotations)
        is_positional = tyro.conf.Positional in marks
        metavars = [getattr(mark, "metavar", None) for mark in marks]
        metavar = next(filter(None, metavars), "VALUE")
        flag = "--" + field.name.replace("_", "-")
        value_types: tuple[Any, ...] = (hint,)
        if get_origin(hint) in (Union, UnionType):
            value_types = get_args(hint)
        yield _Option(
            flag=metavar if is_positional else flag,
            metavar=metavar,
            value_types=value_types,
            is_positional=is_positional,
            is_required=field.default is dataclasses.MISSING,
            takes_many=get_origin(hint) is tuple,
        )
