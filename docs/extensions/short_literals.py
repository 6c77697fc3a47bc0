"""Names in backquotes that stay on one line: a break in `--record-disk` misleads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_MOST_CHARACTERS = 26
"""Longer words may break, so that a phone shows all of them."""


def _mark(_app: Sphinx, document: nodes.document, _name: str) -> None:
    """Give literals whose words are short a class, which pages.css knows."""
    for literal in document.findall(nodes.literal):
        words = literal.astext().split()
        if all(len(word) <= _MOST_CHARACTERS for word in words):
            literal["classes"].append("short")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension to Sphinx."""
    app.connect("doctree-resolved", _mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
