"""Tables that fit a phone: rows too long for its width become blocks there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_FEWEST_COLUMNS = 3
_MOST_CHARACTERS = 60
"""Rows with more do not fit beside each other at 390 pixels."""
_BLANKS = ("", "-")


def _has_long_rows(table: nodes.table) -> bool:
    """Return whether a row has many columns and much text."""
    for row in table.findall(nodes.row):
        text = row.astext()
        if len(row) >= _FEWEST_COLUMNS and len(text) > _MOST_CHARACTERS:
            return True
    return False


def _is_of_marks(table: nodes.table) -> bool:
    """Return whether columns are centred: their marks stay beneath each other."""
    return any(
        "text-center" in entry["classes"] for entry in table.findall(nodes.entry)
    )


def _titles(table: nodes.table) -> list[str]:
    """Return what stands above each column; nothing without such a row."""
    for head in table.findall(nodes.thead):
        return [entry.astext() for entry in head.findall(nodes.entry)]
    return []


def _label_cells(row: nodes.row, titles: list[str]) -> None:
    """Put each column's title into its cell; pages.css shows it on phones alone."""
    entries = row.findall(nodes.entry)
    for index, (entry, title) in enumerate(zip(entries, titles, strict=True)):
        if entry.astext() in _BLANKS:
            entry["classes"].append("blank")
            continue
        paragraph = entry.next_node(nodes.paragraph)
        if paragraph is not None and index > 0 and title:
            paragraph.insert(0, nodes.inline("", title, classes=["column-title"]))


def _mark(_app: Sphinx, document: nodes.document, _name: str) -> None:
    """Mark the tables with long rows, and those of marks."""
    for table in document.findall(nodes.table):
        if _is_of_marks(table):
            table["classes"].append("marks")
            continue
        titles = _titles(table)
        if not titles or not _has_long_rows(table):
            continue
        table["classes"].append("long-rows")
        for body in table.findall(nodes.tbody):
            for row in body.findall(nodes.row):
                _label_cells(row, titles)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension to Sphinx."""
    app.connect("doctree-resolved", _mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
