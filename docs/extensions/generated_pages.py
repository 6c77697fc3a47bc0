"""Parts of pages that are made from the code, put in place of their comments.

A page says where: `<!-- made by docs/extensions/generated_pages.py: PART -->`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from generated_keys import keys

from splatview.camera.command import CameraCommand
from splatview.cli.doctor import Doctor
from splatview.cli.main import SUMMARIES
from splatview.cli.status import Status
from splatview.demo.command import Demo
from splatview_ipc.system import entry
from splatview_ipc.system.variables import VARIABLES
from splatview_viewer.app.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

_OPTION = re.compile(r"(?<![\w`-])--[a-z][a-z-]*")
_MARK = re.compile(r"<!-- made by docs/extensions/generated_pages\.py: (\w+) -->")


_CLASSES: dict[str, type] = {
    **COMMANDS,
    "status": Status,
    "doctor": Doctor,
    "demo": Demo,
    "camera": CameraCommand,
}


def options_classes() -> dict[str, type]:
    """Return the dataclass of each command's options, in the order of the help."""
    return {name: _CLASSES[name] for name in SUMMARIES}


def option_names(field: dataclasses.Field[Any], hint: Any) -> list[str]:
    """Return how an option is typed, with its value; an argument by its value alone."""
    metadata = getattr(hint, "__metadata__", ())
    metavar = ""
    for item in metadata:
        metavar = getattr(item, "metavar", None) or metavar
    if tyro.conf.Positional in metadata:
        return [metavar]
    name = field.name.replace("_", "-")
    is_flag = isinstance(field.default, bool)
    if not is_flag:
        return [f"--{name} {metavar or _type_name(hint)}"]
    if tyro.conf.FlagCreatePairsOff in metadata:
        return [f"--{name}"]
    return [f"--{name}", f"--no-{name}"]


def _type_name(hint: Any) -> str:
    """Return the value's name of an option that names none, as tyro does."""
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return "{" + ",".join(get_args(part)) + "}"
    if isinstance(hint, type):
        return hint.__name__.upper()
    return str(hint).partition(" ")[0].rpartition(".")[2].upper()


def _default_text(field: dataclasses.Field[Any]) -> str:
    """Return the default of an option as a sentence; "" where it has none to tell."""
    default = field.default
    is_said_by_help = "Default:" in field.metadata["help"]
    if is_said_by_help or default is dataclasses.MISSING:
        return ""
    if default is None or default is False or default == ():
        return ""
    if default is True:
        return " Default: on."
    return f" Default: `{default}`."


def _with_code(text: str) -> str:
    """Return a help text with its options in backquotes, as pages have them."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        is_example = line.startswith("    ")
        if not is_example:
            lines[index] = _OPTION.sub(lambda match: f"`{match[0]}`", line)
    return "\n".join(lines)


def commands() -> Iterator[str]:
    """Yield the lines that describe all commands."""
    for name, options in options_classes().items():
        yield f"## splatview {name}"
        yield ""
        yield _with_code(inspect.cleandoc(options.__doc__ or ""))
        yield ""
        entry.set_help_of_fields(options)
        hints = get_type_hints(options, include_extras=True)
        fields = dataclasses.fields(options)
        for field in fields:
            names = option_names(field, hints[field.name])
            yield ", ".join(f"`{n}`" for n in names)
            yield f": {_with_code(field.metadata['help'])}{_default_text(field)}"
            yield ""


def variables() -> Iterator[str]:
    """Yield the lines that describe the environment variables."""
    for variable in VARIABLES:
        values = variable.values.split(", ")
        yield ", ".join(f"`{variable.name}={value}`" for value in values)
        yield f": {variable.meaning} Default: {variable.default}."
        yield ""


_PARTS = {"commands": commands, "variables": variables, "keys": keys}


def fill(text: str) -> str:
    """Return a page's text with its parts in place of their comments."""
    return _MARK.sub(lambda match: "\n".join(_PARTS[match[1]]()), text)


def _fill_source(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx fill pages when it reads them."""
    app.connect("source-read", _fill_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
