"""What may be asked: one statement that reads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from splatview_viewer.errors import ViewerError

if TYPE_CHECKING:
    import duckdb

LEGAL = "SELECT, WITH, FROM, VALUES, EXPLAIN, DESCRIBE, SHOW and SUMMARIZE"
"""What a query may begin with."""
FUNCTIONS = ("at_peak", "generate_series", "json_each", "json_tree", "live_at", "range", "repeat", "unnest")
"""What may stand after FROM like a table and is called. Others open files, change how DuckDB works, run what no one
has looked at (`query`), or take addresses of memory (`arrow_scan`)."""
_NODES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")
"""What a query consists of, as DuckDB names it. WITH may hold DELETE, INSERT, UPDATE and COPY as well."""
MAX_GROWN = 100_000
"""Characters or elements that a function of GROWING may make of less. DuckDB bounds what a query takes, but not a text
or list while it is made, and it makes some thousand at a time."""
GROWING = {
    "repeat": {"a, n": "len(a) * n"},
    "lpad": {"a, n, b": "n"},
    "rpad": {"a, n, b": "n"},
    "list_resize": {"a, n": "n", "a, n, b": "n"},
    "array_resize": {"a, n": "n", "a, n, b": "n"},
    "range": {"n": "n", "a, n": "n - a", "a, n, b": "abs((n - a) / b)"},
    "generate_series": {"n": "n", "a, n": "n - a", "a, n, b": "abs((n - a) / b)"},
}
"""Functions that make a long text or list of little: what they take, and how long what they make becomes. `n` is what
is guarded: were it the call, DuckDB might make the constant before it looks whether it is wanted."""
_FORMATS = ("format", "printf")
"""And those to which a text says so: how wide a number is to become."""
_WIDE = re.compile(r"[0-9]{4}|\*|\{[^}]*\{")
MAX_SQL = 100_000
"""Characters of a query."""
_BLANK = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_EXPLAIN = re.compile(rf"{_BLANK}explain\b{_BLANK}(?:analyze\b{_BLANK})?", re.IGNORECASE | re.DOTALL)
_OPTIONS = re.compile(rf"\([^()]*\){_BLANK}", re.DOTALL)
_WORD = re.compile(rf"{_BLANK}(\w+)", re.DOTALL)


class QueryError(ViewerError):
    """A query that is not one, that is refused, that took too long or was interrupted."""


def check(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise QueryError unless this is one statement that only reads."""
    if len(sql) > MAX_SQL:
        raise QueryError(f"the query has {len(sql):,} characters; at most {MAX_SQL:,} are legal")
    kinds = _kinds(con, sql)
    if not kinds:
        raise QueryError(f"there is no statement; it begins with one of {LEGAL}")
    if len(kinds) > 1:
        raise QueryError(f"{len(kinds)} statements; one at a time")
    if kinds[0] == "EXPLAIN":
        _check_tree(con, _explained(con, sql))
    elif kinds[0] == "SELECT":
        _check_tree(con, sql)
    else:
        word = _WORD.match(sql)
        raise QueryError(f"{word[1].upper() if word else kinds[0]} is refused: a snapshot can only be read. A query "
                         f"begins with {LEGAL}")


def guard(con: duckdb.DuckDBPyConnection) -> None:
    """Have the functions of GROWING refuse to make more than MAX_GROWN, whatever their arguments come to be."""
    for name, forms in GROWING.items():
        bodies = []
        for takes, size in forms.items():
            guarded = (f"CASE WHEN {size} > {MAX_GROWN} THEN error('{name}: more than {MAX_GROWN} characters or "
                       "elements') ELSE n END")
            given = ", ".join(guarded if t == "n" else t for t in takes.split(", "))
            bodies.append(f"({takes}) AS system.main.{name}({given})")
        con.execute(f"CREATE TEMP MACRO {name}{', '.join(bodies)}")


def wrap(con: duckdb.DuckDBPyConnection, sql: str, wanted: str, grouped: str = "") -> str | None:
    """`SELECT wanted ... grouped` of the answer to a query that was checked; None where it cannot be asked so."""
    import duckdb

    text = f"SELECT {wanted} FROM (\n{sql.strip().rstrip(';')}\n) AS answer {grouped}"
    try:
        return text if _kinds(con, text) == ["SELECT"] else None
    except (QueryError, duckdb.Error):
        return None


def _explained(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The query behind EXPLAIN. It is one that reads: EXPLAIN ANALYZE does what it explains."""
    start = _EXPLAIN.match(sql)
    rest = sql[start.end():] if start else ""
    options = _OPTIONS.match(rest)
    for inner in [rest] + ([rest[options.end():]] if options else []):
        try:
            kinds = _kinds(con, inner)
        except QueryError:
            continue
        if kinds == ["SELECT"]:
            return inner
        break
    raise QueryError("EXPLAIN takes a query that reads: EXPLAIN SELECT ..., EXPLAIN ANALYZE SELECT ...")


def _check_tree(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise QueryError if a query takes rows from a function that is none of FUNCTIONS, has a part that writes, or goes
    past what `guard` guards."""
    [(answer,)] = con.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    try:
        tree = json.loads(answer)
    except RecursionError:
        raise QueryError("the query is nested too deeply") from None
    if tree.get("error"):
        raise QueryError(f"refused: what this does cannot be seen before it is done ({tree.get('error_message')})")
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            kind = node.get("type")
            if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
                raise QueryError(f"{kind.partition('_')[0]} is refused: a snapshot can only be read")
            if kind == "TABLE_FUNCTION":
                name = str(node["function"].get("function_name"))
                if name.casefold() not in FUNCTIONS:
                    raise QueryError(f"the function {name} is refused; legal after FROM are {', '.join(FUNCTIONS)}")
            if kind == "FUNCTION":
                _check_call(node)
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _check_call(node: dict[str, Any]) -> None:
    name = str(node.get("function_name")).casefold()
    if name in GROWING and len(node.get("qualified_name", {}).get("path", ())) + bool(node.get("schema")) > 1:
        raise QueryError(f"{name} is called without the name of a schema")
    if name in _FORMATS:
        first = next(iter(node.get("arguments") or node.get("children") or ()), {})
        text = first.get("expression", first).get("literal", {}).get("text")
        if not isinstance(text, str) or _WIDE.search(text):
            raise QueryError(f"{name} takes a text in quotes that asks for at most 999 places, without * and "
                             "{} within {}")


def _kinds(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The kinds of the statements in a text, as DuckDB names them."""
    import duckdb

    try:
        statements = con.extract_statements(sql)
    except duckdb.Error as e:
        raise QueryError(str(e).strip()) from None
    kinds = []
    for statement in statements:
        try:
            kinds.append(statement.type.name)
        except ValueError:  # one that DuckDB's own list does not know
            kinds.append("OTHER")
    return kinds
