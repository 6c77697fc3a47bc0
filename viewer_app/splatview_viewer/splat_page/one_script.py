"""Joins modules of JavaScript into one script, for a page that is a single file.

Browsers refuse modules that lie beside a page on a disk. Each module becomes a function
that returns what the module exports; so names that it keeps to itself stay apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORT = re.compile(
    r'^import \{(?P<names>[^}]*)\} from "\./(?P<module>[\w.]+)";$', re.MULTILINE
)
_EXPORT = re.compile(
    r"^export (?=(?:async )?(?:function|const|let|class) (?P<name>\w+))", re.MULTILINE
)
_OTHER = re.compile(r"^(?:import|export)\b(?![.(]).*", re.MULTILINE)


def one_script(modules: Mapping[str, str], main: str) -> str:
    """Return the text of one module that does what `main` does.

    Args:
        modules: texts by the names of files. They import names from each other as
            `import {name} from "./file.js";` does, in no circle, and export functions,
            classes and variables where they are declared.
        main: the file that the page would load.

    Raises:
        KeyError: there is no such module.
        ValueError: an import or an export of another form.
    """
    functions: dict[str, str] = {}
    _add(main, modules, functions)
    text = "\n".join(["const modules = {};", *functions.values()])
    for ending in ("</script", "<!--"):
        if ending in text.lower():
            raise ValueError(f"{ending!r} in a script would end it inside a page")
    return text


def _add(name: str, modules: Mapping[str, str], functions: dict[str, str]) -> None:
    """Add the function of a module after those of all that it imports."""
    if name in functions:
        return
    text = modules[name]
    for match in _IMPORT.finditer(text):
        _add(match["module"], modules, functions)
    functions[name] = _function(name, text)


def _function(name: str, text: str) -> str:
    """Return the statement that runs a module and keeps its exports."""
    exported = [match["name"] for match in _EXPORT.finditer(text)]
    body = _EXPORT.sub("", _IMPORT.sub(_taking, text))
    other = _OTHER.search(body)
    if other:
        raise ValueError(f"{name}: {other[0]!r} cannot be joined into one script")
    returned = f"return {{{', '.join(exported)}}};"
    return f'modules["{name}"] = (() => {{\n{body}\n{returned}\n}})();'


def _taking(match: re.Match[str]) -> str:
    """Return the statement that takes what was imported."""
    names = match["names"].replace(" as ", ": ")
    return f'const {{{names}}} = modules["{match["module"]}"];'
