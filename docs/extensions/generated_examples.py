"""The pages of the examples: docstring, picture and source of each.

A page says `<!-- made by docs/extensions/generated_examples.py: NAME -->`, and the list
of all `LIST`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = ROOT / "docs" / "examples"
PICTURES = ROOT / "docs" / "pictures" / "examples"
_MARK = "<!-- made by docs/extensions/generated_examples.py: {} -->"


class Script(NamedTuple):
    """An example's file, taken apart."""

    summary: str
    """The first line of its docstring."""
    description: str
    """The rest of it."""
    source: str
    """What follows the docstring."""


def script_of(path: Path) -> Script:
    """Take a script apart."""
    text = path.read_text()
    module = ast.parse(text)
    summary, _, description = (ast.get_docstring(module) or "").partition("\n")
    docstring_end = module.body[0].end_lineno or 0
    source = "\n".join(text.splitlines()[docstring_end:])
    return Script(summary, description.strip(), source.strip())


def _picture_of(name: str) -> Iterator[str]:
    """Yield the lines that show an example's picture, if it has one."""
    if (PICTURES / f"{name}.webp").is_file():
        yield f"![What the viewer shows](../pictures/examples/{name}.webp)"
        yield ""


def _page_of_script(name: str) -> Iterator[str]:
    script = script_of(EXAMPLES / f"{name}.py")
    yield script.summary
    yield ""
    yield from script.description.splitlines()
    yield ""
    yield from _picture_of(name)
    yield f"`examples/{name}.py`:"
    yield ""
    yield from _code_block(script.source)


def _page_of_notebook(name: str) -> Iterator[str]:
    """Yield the cells of a notebook, without the title."""
    first, *cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]
    yield "".join(first["source"]).partition("\n")[2]
    yield ""
    yield from _picture_of(name)
    yield f"`examples/{name}.ipynb`:"
    yield ""
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            yield from _code_block(source)
        else:
            yield source
        yield ""


def _code_block(source: str) -> Iterator[str]:
    yield "```python"
    yield from source.splitlines()
    yield "```"


def _list() -> Iterator[str]:
    """Yield the table of all examples."""
    yield "| example | what it does |"
    yield "|---|---|"
    for page in sorted(PAGES.glob("*.md")):
        name = page.stem
        if name == "index":
            continue
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        yield f"| [{title}]({name}.md) | {_summary_of(name)} |"


def _summary_of(name: str) -> str:
    script = EXAMPLES / f"{name}.py"
    if script.is_file():
        return script_of(script).summary
    return "Look at tensors in a notebook."


def fill(text: str, name: str) -> str:
    """Return the text of a page with its part in place of the comment."""
    if name == "index":
        return text.replace(_MARK.format("LIST"), "\n".join(_list()))
    lines = _page_of_script
    if (EXAMPLES / f"{name}.ipynb").is_file():
        lines = _page_of_notebook
    return text.replace(_MARK.format(name), "\n".join(lines(name)))


def _fill_source(app: Sphinx, page: str, source: list[str]) -> None:
    folder, _, name = page.rpartition("/")
    if folder == "examples":
        source[0] = fill(source[0], name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx fill the pages when it reads them."""
    app.connect("source-read", _fill_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
