"""Measure how readable the project's Python files are, and hold the figures.

    python tools/readability.py                  check each part against tools/readability.toml
    python tools/readability.py --tighten        write better figures there as the new limits
    python tools/readability.py [NAME=]TREE ...  print figures of any trees, --by-folder of their folders

The limits only fall. Where a part passes one, the lines that do so are printed: those
that HEAD lacks, or else those of the worst files. `tools/vague_words.txt` lists the
words that do not make a name by themselves, `tools/verbs.txt` the verbs.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens
from typing import TYPE_CHECKING, NamedTuple

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
SLACK = 0.1
"""How far a figure may pass its limit: figures are rounded, and limits are today's."""
MOST_PRINTED = 8
"""Lines and files that are printed of one figure that passes its limit."""
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

    def excess(self, counts: Counter[str], limit: float) -> float:
        """Return how many more are counted than the limit allows for the same `of`."""
        if not self.of:
            return counts[self.counted]
        return counts[self.counted] - limit / self.factor * counts[self.of]


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


class Offence(NamedTuple):
    """A line that a figure counts."""

    counted: str
    """What counts it: `Column.counted`."""
    line: int
    text: str
    """The line without its indentation, or the vague name."""


@dataclass(slots=True)
class FileCounts:
    """All that is counted of a file."""

    lines: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    offences: list[Offence] = field(default_factory=list)

    def count(
        self, counted: str, line: int, *, if_: bool = True, text: str = ""
    ) -> None:
        """Count a line, if a condition holds."""
        if if_:
            self.counts[counted] += 1
            text = text or self.lines[line - 1].strip()
            self.offences.append(Offence(counted, line, text))


def is_vague(name: str) -> bool:
    """Return whether all words of a name are vague."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return bool(words) and all(word.lower() in VAGUE for word in words)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each assigned name and attribute, parameter and function name, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, of a function or of a variable."""
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str)


def count_statements(node: ast.AST) -> int:
    """Count the statements of a node without its docstrings."""
    return sum(isinstance(n, ast.stmt) and not is_text(n) for n in ast.walk(node))


def count_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
    file: FileCounts,
) -> None:
    """Count the docstring of a module, class or function, if it has one."""
    text = ast.get_docstring(node) or ""
    if not text:
        return
    line = node.body[0].lineno
    file.counts["docstrings"] += 1
    file.counts["words of docstrings"] += len(text.split())
    is_obscure = text.startswith(OPENINGS)
    file.count("docstrings that open with Who, What, Where ...", line, if_=is_obscure)
    if isinstance(node, FUNCTIONS):
        words = re.findall(r"[a-z]+", text.partition("\n")[0].lower())
        has_verb = not VERBS.isdisjoint(word.rstrip("s") for word in words)
        file.counts["functions with a docstring"] += 1
        file.count("first lines without a verb", line, if_=not has_verb)


def count_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, file: FileCounts
) -> None:
    """Count a function, and whether it is long or takes many parameters."""
    parameters = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    names = {parameter.arg for parameter in parameters} - {"self", "cls"}
    # The definition itself is a statement too.
    is_long = count_statements(node) - 1 > MOST_STATEMENTS
    has_many = len(names) > MOST_PARAMETERS
    file.counts["functions"] += 1
    file.count("functions of over 40 statements", node.lineno, if_=is_long)
    file.count("functions of over 6 parameters", node.lineno, if_=has_many)


def count_class(node: ast.ClassDef, file: FileCounts) -> None:
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
    line = node.lineno
    text = f"class {node.name}: {len(attributes)} attributes, {methods} methods"
    file.count(f"class {node.name}", line)
    file.counts["classes"] += 1
    has_many = len(attributes) > MOST_ATTRIBUTES
    file.count("classes of over 12 attributes", line, if_=has_many, text=text)
    has_many = methods > MOST_METHODS
    file.count("classes of over 15 methods", line, if_=has_many, text=text)


def count_expression(
    node: ast.expr | ast.Assign, source: str, file: FileCounts
) -> None:
    """Count the constructs that put several thoughts into one line."""
    line = node.lineno
    is_chained = isinstance(node, ast.NamedExpr)
    if isinstance(node, ast.Assign):
        sides = (type(node.targets[0]), type(node.value))
        is_pair = sides == (ast.Tuple, ast.Tuple)
        file.count("tuple assignments (a, b = x, y)", line, if_=is_pair)
        is_chained = len(node.targets) > 1
    file.count("conditional expressions", line, if_=isinstance(node, ast.IfExp))
    file.count("lambdas", line, if_=isinstance(node, ast.Lambda))
    file.count("chained assignments and walruses", line, if_=is_chained)
    if isinstance(node, COMPREHENSIONS):
        loops = sum(isinstance(child, ast.comprehension) for child in ast.walk(node))
        text = " ".join((ast.get_source_segment(source, node) or "").split())
        is_hard = loops > 1 or len(text) > LONG_COMPREHENSION
        file.count("nested or long comprehensions", line, if_=is_hard)


def count_tree(tree: ast.AST, source: str, file: FileCounts) -> set[int]:
    """Count all nodes of a file; return the numbers of the lines that docstrings take."""
    text_lines: set[int] = set()
    for node in ast.walk(tree):
        if is_text(node):
            assert isinstance(node, ast.Expr)
            text_lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, DOCUMENTED):
            count_docstring(node, file)
        if isinstance(node, FUNCTIONS):
            count_function(node, file)
        if isinstance(node, ast.ClassDef):
            count_class(node, file)
        if isinstance(node, (ast.expr, ast.Assign)):
            count_expression(node, source, file)
    return text_lines


def count_file(source: str) -> FileCounts:
    """Count all of a file's text."""
    tree = ast.parse(source)
    file = FileCounts(source.splitlines())
    file.counts["statements"] = count_statements(tree)
    file.counts["lines"] = len(file.lines)
    for name, line in bound_names(tree):
        file.counts["names bound"] += 1
        file.count("vague names", line, if_=is_vague(name), text=name)
    for line, text in enumerate(file.lines, 1):
        is_wide = len(text) > MOST_COLUMNS
        file.count("lines over 100 columns", line, if_=is_wide)
        for _ in HIDING.findall(text):
            file.count("words that hide the subject (nobody, whoever ...)", line)
    text_lines = count_tree(tree, source, file)
    code_lines: set[int] = set()
    for token in generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.start[0] not in text_lines:
            file.counts["tokens"] += 1
            code_lines.update(range(token.start[0], token.end[0] + 1))
    file.counts["code lines"] = len(code_lines)
    return file


def count_folders(tree: Path, left_out: frozenset[Path]) -> dict[str, Counter[str]]:
    """Return the counts of each folder of a tree, by its path in the tree."""
    folders: dict[str, Counter[str]] = {}
    for path in python_files(tree, left_out):
        folder = str(path.relative_to(tree).parent)
        counts = count_file(path.read_text()).counts
        folders.setdefault(folder, Counter()).update(counts)
    return folders


def python_files(tree: Path, left_out: frozenset[Path]) -> list[Path]:
    """List the Python files of a tree, or a file itself, by their paths."""
    if not tree.is_dir():
        return [tree]
    return [p for p in sorted(tree.rglob("*.py")) if left_out.isdisjoint(p.parents)]


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


class Part:
    """A part of the project, with the counts of its files."""

    def __init__(self, name: str, entries: dict[str, object]) -> None:
        """Count the files of the part that tools/readability.toml describes so."""
        self.name = name
        self.entries = entries
        self.files: dict[str, FileCounts] = {}
        """By path in the project."""
        left_out = frozenset(ROOT / path for path in entries.get("without", ()))  # type: ignore[attr-defined]
        for tree in entries["trees"]:  # type: ignore[attr-defined]
            for path in python_files(ROOT / tree, left_out):
                relative = str(path.relative_to(ROOT))
                self.files[relative] = count_file(path.read_text())
        self.counts = total({path: file.counts for path, file in self.files.items()})

    def limit(self, column: Column) -> float:
        return float(self.entries.get(column.heading, math.inf))  # type: ignore[arg-type]

    def offenders(self, column: Column) -> list[str]:
        """Return lines to print: what HEAD lacks, or else what the worst files have."""
        limit = self.limit(column)
        growths: dict[str, float] = {}
        head_files: dict[str, FileCounts] = {}
        for path in set(changed_files()) & set(self.files):
            head_files[path] = file_of_head(path)
            growth = column.excess(self.files[path].counts, limit)
            growth -= column.excess(head_files[path].counts, limit)
            if growth > 0:
                growths[path] = growth
        if growths:
            printed = ["  new since HEAD:"]
        else:
            printed = ["  in the worst files:"]
            for path, file in self.files.items():
                growths[path] = column.excess(file.counts, limit)
            head_files.clear()
        worst_files = sorted(growths, key=growths.__getitem__, reverse=True)
        for path in worst_files[:MOST_PRINTED]:
            if growths[path] > 0:
                printed += self._offending_lines(path, column, head_files.get(path))
        return printed[: MOST_PRINTED + 1]

    def _offending_lines(
        self, path: str, column: Column, head_file: FileCounts | None
    ) -> list[str]:
        """Return lines to print of a file: what HEAD lacks there, or the file's figure."""
        file = self.files[path]
        old_lines: Counter[tuple[str, str]] = Counter()
        old_figure = ""
        if head_file is not None:
            old_lines.update((old.counted, old.text) for old in head_file.offences)
            old_figure = f", {column.value(head_file.counts):g} in HEAD"
        printed: list[str] = []
        for offence in file.offences:
            key = (offence.counted, offence.text)
            if self._counts(column, offence) and old_lines[key] <= 0:
                printed.append(f"    {path}:{offence.line}: {offence.text}")
            old_lines[key] -= 1
        figure = f"{column.value(file.counts):g} {column.heading}{old_figure}"
        return printed or [f"    {path}: {figure}"]

    def _counts(self, column: Column, offence: Offence) -> bool:
        """Return whether an offence is one of those that a column counts."""
        if column.heading != "twice":
            return offence.counted == column.counted
        is_class = offence.counted.startswith("class ")
        return is_class and self.counts[offence.counted] > 1


def git(*arguments: str) -> str:
    """Return what git prints; nothing where it fails, as outside a repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def changed_files() -> list[str]:
    """List the paths that differ from HEAD, those that git does not know yet too."""
    untracked = git("ls-files", "--others", "--exclude-standard")
    return (git("diff", "--name-only", "HEAD") + untracked).splitlines()


def file_of_head(path: str) -> FileCounts:
    """Count a file as it is in HEAD; a new one is empty there."""
    return count_file(git("show", f"HEAD:{path}"))


def check(tighten: bool) -> int:
    """Print the parts' figures and what passes its limit; return how many do."""
    limits = read_limits()
    failures = []
    print_head()
    for name, entries in limits.items():
        part = Part(name, entries)
        print_row(name, part.counts)
        for column in COLUMNS:
            if not column.limited:
                continue
            value = column.value(part.counts)
            limit = part.limit(column)
            if value > round(limit + SLACK, 1):
                text = (
                    f"{name}: {value:g} {column.heading} ({column.counted}), at most "
                    f"{limit:g} and {SLACK} more (tools/readability.toml)"
                )
                failures.append("\n".join([text, *part.offenders(column)]))
            elif tighten:
                entries[column.heading] = min(value, limit)
    print(*failures, sep="\n", end="\n" if failures else "")
    if any("vague" in text for text in failures):
        print("Vague words: tools/vague_words.txt")
    if tighten:
        write_limits(limits)
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
