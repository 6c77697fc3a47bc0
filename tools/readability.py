"""Measure how readable the project's Python files are, and hold the figures.

    python tools/readability.py                  check each part against tools/readability.toml
    python tools/readability.py --tighten        write better figures there as the new limits
    python tools/readability.py [NAME=]TREE ...  print figures of any trees, --by-folder of their folders

The limits only fall. A part that passes one of them shows which figure, and `--by-folder` shows where it comes from.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_name("readability.toml")
VAGUE = frozenset(Path(__file__).with_name("vague_words.txt").read_text().split())
"""Words that say nothing by themselves: `found` is vague, `found_names` is not."""
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
"""Verbs of which the first line of a function's docstring should have one."""
OPENINGS = ("Who ", "What ", "Whether ", "Where ", "That ", "How ", "Of ")
HIDING = re.compile(r"\b(somebody|nobody|whoever|anybody|guests?)\b", re.IGNORECASE)
MOST_COLUMNS = 100
MOST_STATEMENTS = 40
MOST_PARAMETERS = 6
MOST_ATTRIBUTES = 12
MOST_METHODS = 15
LONG_COMPREHENSION = 90
"""Characters of a comprehension above which it should be a loop."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NO_CODE = (COMMENT, NL, NEWLINE, INDENT, DEDENT, ENDMARKER)


@dataclass(frozen=True)
class Column:
    """A figure: a count, as a share of another count if `of` names one."""

    heading: str
    counted: str
    of: str = ""
    factor: int = 1
    limited: bool = True
    """Whether more of it is worse."""

    def value(self, counts: Counter[str]) -> float:
        """Return the figure, rounded as it is printed."""
        divisor = max(counts[self.of], 1) if self.of else 1
        return round(self.factor * counts[self.counted] / divisor, 1)


COLUMNS = (
    Column("code", "code lines", limited=False),
    Column("tok/line", "tokens", "code lines"),
    Column("stmts", "statements", limited=False),
    Column("tok/stmt", "tokens", "statements"),
    Column(">100%", "lines over 100 columns", "lines", 100),
    Column("ifexp", "conditional expressions", "statements", 1000),
    Column("tuple=", "tuple assignments (a, b = x, y)", "statements", 1000),
    Column("walrus", "chained assignments and walruses", "statements", 1000),
    Column("compr", "nested or long comprehensions", "statements", 1000),
    Column("lambda", "lambdas", "statements", 1000),
    Column("func", "functions", limited=False),
    Column("f>40st%", "functions of over 40 statements", "functions", 100),
    Column("f>6par%", "functions of over 6 parameters", "functions", 100),
    Column("vague%", "vague names", "names bound", 100),
    Column("doc%", "functions with a docstring", "functions", 100, limited=False),
    Column("docWh", "docstrings that open with Who, What, Where ..."),
    Column("noverb%", "first lines without a verb", "functions with a docstring", 100),
    Column("docwords", "words of docstrings", "docstrings", limited=False),
    Column("hiding", "words that hide the subject (nobody, whoever ...)"),
    Column("class", "classes", limited=False),
    Column("c>12at%", "classes of over 12 attributes", "classes", 100),
    Column("c>15me%", "classes of over 15 methods", "classes", 100),
    Column("twice", "class names that occur more than once"),
)


def is_vague(name: str) -> bool:
    """Return whether all words of a name are vague."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return bool(words) and all(word.lower() in VAGUE for word in words)


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield each assigned name and attribute, parameter and function name."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield getattr(node, "id", "") or getattr(node, "attr", "")


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, of a function or of a variable."""
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str)


def count_statements(node: ast.AST) -> int:
    """Count the statements of a node without its docstrings."""
    return sum(isinstance(n, ast.stmt) and not is_text(n) for n in ast.walk(node))


def count_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
    counts: Counter[str],
) -> None:
    """Count the docstring of a module, class or function, if it has one."""
    text = ast.get_docstring(node) or ""
    if not text:
        return
    counts["docstrings"] += 1
    counts["words of docstrings"] += len(text.split())
    counts["docstrings that open with Who, What, Where ..."] += text.startswith(
        OPENINGS
    )
    if isinstance(node, FUNCTIONS):
        words = re.findall(r"[a-z]+", text.partition("\n")[0].lower())
        counts["functions with a docstring"] += 1
        counts["first lines without a verb"] += VERBS.isdisjoint(
            word.rstrip("s") for word in words
        )


def count_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, counts: Counter[str]
) -> None:
    """Count a function, and whether it is long or takes many parameters."""
    parameters = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    names = {parameter.arg for parameter in parameters} - {"self", "cls"}
    # The definition itself is a statement too.
    is_long = count_statements(node) - 1 > MOST_STATEMENTS
    counts["functions"] += 1
    counts["functions of over 40 statements"] += is_long
    counts["functions of over 6 parameters"] += len(names) > MOST_PARAMETERS


def count_class(node: ast.ClassDef, counts: Counter[str]) -> None:
    """Count a class, and whether it has many attributes or methods."""
    methods = sum(isinstance(child, FUNCTIONS) for child in node.body)
    attributes = set()
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            attributes.add(child.target.id)
    for child in ast.walk(node):
        is_stored = isinstance(getattr(child, "ctx", None), ast.Store)
        if not is_stored or not isinstance(child, ast.Attribute):
            continue
        if ast.unparse(child.value) == "self":
            attributes.add(child.attr)
    counts[f"class {node.name}"] += 1
    counts["classes"] += 1
    counts["classes of over 12 attributes"] += len(attributes) > MOST_ATTRIBUTES
    counts["classes of over 15 methods"] += methods > MOST_METHODS


def count_expression(node: ast.AST, source: str, counts: Counter[str]) -> None:
    """Count the constructs that put several thoughts into one line."""
    counts["conditional expressions"] += isinstance(node, ast.IfExp)
    counts["lambdas"] += isinstance(node, ast.Lambda)
    counts["chained assignments and walruses"] += isinstance(node, ast.NamedExpr)
    if isinstance(node, ast.Assign):
        sides = (type(node.targets[0]), type(node.value))
        counts["tuple assignments (a, b = x, y)"] += sides == (ast.Tuple, ast.Tuple)
        counts["chained assignments and walruses"] += len(node.targets) > 1
    if isinstance(node, COMPREHENSIONS):
        loops = sum(isinstance(child, ast.comprehension) for child in ast.walk(node))
        text = " ".join((ast.get_source_segment(source, node) or "").split())
        is_hard = loops > 1 or len(text) > LONG_COMPREHENSION
        counts["nested or long comprehensions"] += is_hard


def count_tree(tree: ast.AST, source: str, counts: Counter[str]) -> set[int]:
    """Count all nodes of a file; return the numbers of the lines that docstrings take."""
    text_lines: set[int] = set()
    for node in ast.walk(tree):
        if is_text(node):
            assert isinstance(node, ast.Expr)
            text_lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, DOCUMENTED):
            count_docstring(node, counts)
        if isinstance(node, FUNCTIONS):
            count_function(node, counts)
        if isinstance(node, ast.ClassDef):
            count_class(node, counts)
        count_expression(node, source, counts)
    return text_lines


def count_file(source: str) -> Counter[str]:
    """Return all counts of a file's text."""
    tree = ast.parse(source)
    names = list(bound_names(tree))
    lines = source.splitlines()
    counts = Counter({"statements": count_statements(tree), "names bound": len(names)})
    counts["vague names"] = sum(map(is_vague, names))
    counts["lines"] = len(lines)
    counts["lines over 100 columns"] = sum(len(line) > MOST_COLUMNS for line in lines)
    counts["words that hide the subject (nobody, whoever ...)"] = len(
        HIDING.findall(source)
    )
    text_lines = count_tree(tree, source, counts)
    code_lines: set[int] = set()
    for token in generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.start[0] not in text_lines:
            counts["tokens"] += 1
            code_lines.update(range(token.start[0], token.end[0] + 1))
    counts["code lines"] = len(code_lines)
    return counts


def count_folders(tree: Path, left_out: frozenset[Path]) -> dict[str, Counter[str]]:
    """Return the counts of each folder of a tree, by its path in the tree."""
    folders: dict[str, Counter[str]] = {}
    for path in sorted(tree.rglob("*.py")) if tree.is_dir() else [tree]:
        if left_out.isdisjoint(path.parents):
            folder = str(path.relative_to(tree).parent)
            folders.setdefault(folder, Counter()).update(count_file(path.read_text()))
    return folders


def total(folders: dict[str, Counter[str]]) -> Counter[str]:
    """Return the sum over folders, with the class names that occur more than once."""
    counts = sum(folders.values(), Counter())
    same_names = [
        key for key, n in counts.items() if key.startswith("class ") and n > 1
    ]
    counts["class names that occur more than once"] = len(same_names)
    return counts


def print_head() -> None:
    headings = "".join(f"{column.heading:>9}" for column in COLUMNS)
    print(" " * 26 + headings)


def print_row(name: str, counts: Counter[str]) -> None:
    figures = "".join(f"{column.value(counts):9g}" for column in COLUMNS)
    print(f"{name:26}{figures}")


def print_trees(trees: list[str], by_folder: bool) -> None:
    """Print a row of figures for each tree, and for each of its folders."""
    print_head()
    for argument in trees:
        name, _, tree = argument.rpartition("=")
        folders = count_folders(Path(tree), frozenset())
        print_row(name or Path(tree).name, total(folders))
        if by_folder:
            for folder in folders:
                print_row(f"  {folder}", total({folder: folders[folder]}))
    for column in COLUMNS:
        share = f", per {column.factor} {column.of}" if column.of else ""
        print(f"{column.heading:>8}  {column.counted}{share}")


def read_limits() -> dict[str, dict[str, object]]:
    """Read the parts of the project: `trees`, `without`, and a limit for each figure."""
    return tomllib.loads(LIMITS.read_text())


def measure(part: dict[str, object]) -> Counter[str]:
    """Return the counts of a part of the project."""
    left_out = frozenset(ROOT / path for path in part.get("without", ()))  # type: ignore[attr-defined]
    folders: dict[str, Counter[str]] = {}
    for tree in part["trees"]:  # type: ignore[attr-defined]
        for folder, counts in count_folders(ROOT / tree, left_out).items():
            folders[f"{tree}/{folder}"] = counts
    return total(folders)


def check(tighten: bool) -> int:
    """Print the parts' figures and what passes its limit; return how many do."""
    parts = read_limits()
    failures = []
    print_head()
    for name, part in parts.items():
        counts = measure(part)
        print_row(name, counts)
        for column in COLUMNS:
            if not column.limited:
                continue
            value = column.value(counts)
            limit = float(part.get(column.heading, math.inf))  # type: ignore[arg-type]
            if value > limit:
                failures.append(
                    f"{name}: {value:g} {column.heading} ({column.counted}), at most "
                    f"{limit:g} (tools/readability.toml)"
                )
            elif tighten:
                part[column.heading] = value
    print(*failures, sep="\n", end="\n" if failures else "")
    if tighten:
        write_limits(parts)
    return len(failures)


def write_limits(parts: dict[str, dict[str, object]]) -> None:
    """Write the parts with their limits, below the comment that the file opens with."""
    lines = [line for line in LIMITS.read_text().splitlines() if line.startswith("#")]
    for name, part in parts.items():
        lines += ["", f"[{name}]"]
        for key, value in part.items():
            text = str(value).replace("'", '"') if isinstance(value, list) else value
            lines.append(f'"{key}" = {text}')
    LIMITS.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how readable the code is.")
    parser.add_argument("trees", nargs="*", metavar="[NAME=]TREE")
    parser.add_argument("--by-folder", action="store_true")
    parser.add_argument("--tighten", action="store_true")
    options = parser.parse_args()
    if options.trees:
        print_trees(options.trees, options.by_folder)
        return 0
    return int(check(options.tighten) > 0)


if __name__ == "__main__":
    sys.exit(main())
