"""SECURITY.md: each promise in its table names tests, and they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _rows() -> list[tuple[str, str]]:
    """Return (promise, tests) for each row of the tables under the heading "Promises and tests"."""
    section = (ROOT / "SECURITY.md").read_text().partition("\n## Promises and tests\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()
             if line.startswith("|") and not line.startswith(("|---", "| promise"))]
    assert cells and all(len(row) == 2 for row in cells)
    return [(promise, tests) for promise, tests in cells]


@pytest.mark.parametrize(("promise", "tests"), [pytest.param(*row, id=row[0][:60]) for row in _rows()])
def test_promise_has_tests_that_exist(promise: str, tests: str) -> None:
    named = _TEST.findall(tests)
    assert named and _TEST.sub("", tests).strip(", ") == "", f"{promise}: not a list of tests: {tests}"
    for path, name in named:
        functions = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text()))
                     if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        assert name in functions, f"{promise}: {path} has no {name}"
