"""Rules of the house: imports between packages, public names, sizes of files, and the rules of the tests themselves."""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ipc", "splatview", "viewer_app")
"""Each folder at the top that holds a package. import-linter knows what they may import (pyproject.toml)."""
HEAVY = (
    "torch",
    "numpy",
    "zmq",
    "msgspec",
    "moderngl",
    "glfw",
    "imgui_bundle",
    "gsplat",
    "gsply",
    "PIL",
    "tyro",
)
PRIVATE_NAMES = ROOT / "tests" / "private_names.txt"
"""Private names of the product that tests use today, one a line. The list may only shrink."""
MOST_STATEMENTS = 520
"""Statements of one file; docstrings, line breaks and blank lines are free."""
MOST_FUNCTION_STATEMENTS = 70
MOST_PARAMETERS = 8
PUBLIC_OPTIONS = {"splatview/api/publish.py": ("publish",)}
"""Functions of the public API, by file, that have an option for each of their features."""
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Attributes of syntax trees that hold statements."""
MOST_CASES = 12
"""Values in one parameter list of a test."""


@dataclass
class Source:
    """Answers what the rules ask of one file."""

    path: Path
    statements: int
    imports: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Module and names of each absolute import; no names for `import module`."""
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(
        default_factory=list
    )
    calls: list[ast.Call] = field(default_factory=list)
    attributes: set[tuple[str, str]] = field(default_factory=set)
    """(object, attribute) of each access; the object is "" where it is no plain name."""
    read_names: set[str] = field(default_factory=set)
    """Plain names whose values are used."""

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def count_statements(tree: ast.AST) -> int:
    """Count the statements below a node; docstrings are none."""
    count = 0
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        is_docstring = isinstance(node, ast.Expr) and isinstance(
            node.value, ast.Constant
        )
        count += isinstance(node, ast.stmt) and not is_docstring
        # Expressions, which are most nodes, hold no statements.
        for block in BLOCKS:
            nodes += getattr(node, block, ())
    return count


@pytest.fixture(autouse=True, scope="module")
def no_collections() -> Iterator[None]:
    """Syntax trees are millions of objects, which each collection would visit."""
    gc.disable()
    yield
    syntax_tree.cache_clear()
    parsed.cache_clear()
    gc.enable()


@functools.cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def parsed(path: Path) -> Source:
    tree = syntax_tree(path)
    source = Source(path, count_statements(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            source.imports += [(a.name, ()) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            source.imports.append(
                (node.module or "", tuple(a.name for a in node.names))
            )
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            source.functions.append(node)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                source.read_names.add(node.id)
        elif isinstance(node, ast.Call):
            source.calls.append(node)
        elif isinstance(node, ast.Attribute):
            source.attributes.add(
                (node.value.id if isinstance(node.value, ast.Name) else "", node.attr)
            )
    return source


def sources(*folders: str) -> list[Source]:
    return [
        parsed(path)
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


# ---- the product


def _parameter_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters += [
        arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None
    ]
    return {argument.arg for argument in parameters}


def _documented_names(docstring: str) -> list[str]:
    """Return the names that the section `Args:` of a docstring describes."""
    _, _, section = docstring.partition("\nArgs:\n")
    # The section ends at the first line that is not indented.
    lines = re.split(r"^(?=\S)", section, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^    \*{0,2}(\w+):", lines, flags=re.MULTILINE)


def test_described_arguments_exist() -> None:
    """A parameter that is renamed keeps no description by its old name."""
    unknown_names = []
    for source in sources(*FOLDERS):
        for function in source.functions:
            names = _documented_names(ast.get_docstring(function) or "")
            # The names of further keywords are those of a TypedDict.
            if function.args.kwarg is None:
                unknown = set(names) - _parameter_names(function)
                unknown_names += [
                    f"{source.name} {function.name}: {n}" for n in unknown
                ]
    assert not unknown_names


def test_only_kinds_compare_names_of_kinds() -> None:
    """A kind's `KIND` declares what other rooms must know of it."""
    viewer = ROOT / "viewer_app" / "splatview_viewer"
    names = "|".join(
        path.name for path in (ROOT / "ipc" / "splatview_ipc" / "kinds").glob("*.py")
    )
    compared = re.compile(rf'\.kind (==|!=) "({names.replace(".py", "")})"')
    matches = []
    for path in viewer.rglob("*.py"):
        if path.relative_to(viewer).parts[0] == "kinds":
            continue
        lines = path.read_text().splitlines()
        matches += [f"{path}: {line}" for line in lines if compared.search(line)]
    assert not matches


@pytest.mark.programs
@pytest.mark.parametrize("module", ["splatview", "splatview_ipc"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    """Exactly what `import splatview` loads beyond a bare interpreter."""
    program = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert loaded - {"__future__"} == {module}


@pytest.mark.programs
def test_the_command_line_loads_nothing_heavy() -> None:
    program = (
        "import sys; from splatview.cli.main import main; main(['--help']); "
        f"print('LOADED', *[m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_the_public_surface() -> None:
    import splatview

    assert splatview.__all__ == [
        "Window",
        "__version__",
        "annotate",
        "close",
        "controls",
        "draw",
        "errors",
        "frames",
        "gl",
        "grab",
        "log",
        "paused",
        "publish",
        "publish_cameras",
        "publish_memory",
        "renderer",
        "selection",
        "show",
        "wait_while_paused",
    ]
    for name in splatview.__all__:
        assert getattr(splatview, name) is not None
    assert set(dir(splatview)) >= set(splatview.__all__)
    with pytest.raises(AttributeError, match=r"'no_such_name'.*publish"):
        splatview.no_such_name  # noqa: B018


def run_time_imports(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """Return the modules that a file imports, also inside functions; not for types alone."""
    imported = set()
    nodes: list[ast.AST] = [syntax_tree(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                imported.add(name if name in modules else node.module)
        for block in BLOCKS:
            nodes += getattr(node, block, ())
    return imported & modules.keys()


def test_no_files_import_each_other_in_a_circle_at_run_time() -> None:
    modules = {}
    for folder in FOLDERS:
        root = ROOT if folder == "splatview" else ROOT / folder
        for path in (ROOT / folder).rglob("*.py"):
            components = path.relative_to(root).with_suffix("").parts
            if components[-1] == "__init__":
                components = components[:-1]
            modules[".".join(components)] = path
    graph = {name: run_time_imports(path, modules) for name, path in modules.items()}
    sorter = graphlib.TopologicalSorter(graph)
    try:
        sorter.prepare()
    except graphlib.CycleError as e:
        pytest.fail(f"a circle of files: {' -> '.join(e.args[1])}")


def test_constants_of_a_module_are_bound_once_and_used() -> None:
    """Find the copies that a division of a file leaves behind."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            tree = syntax_tree(path)
            constants = []
            for statement in tree.body:
                target = getattr(statement, "targets", [None])[0]
                if isinstance(target, ast.Name):
                    constants.append(target.id)
            assert len(set(constants)) == len(constants), path
            read = parsed(path).read_names
            for name in constants:
                is_private = name.startswith("_") and not name.startswith("__")
                assert not is_private or name in read, f"{path}: {name}"


def test_files_and_signatures_stay_small() -> None:
    for source in sources(*FOLDERS, "tests", "benchmarks", "examples"):
        assert source.statements <= MOST_STATEMENTS, (
            f"{source.name} has {source.statements} statements: is it about one thing?"
        )
        for node in source.functions:
            statements = count_statements(node) - 1
            assert statements <= MOST_FUNCTION_STATEMENTS, (
                f"{source.name}: {node.name} has {statements} statements: make steps"
            )
            count = (
                len(node.args.args)
                + len(node.args.kwonlyargs)
                + len(node.args.posonlyargs)
            )
            count -= any(a.arg in ("self", "cls") for a in node.args.args[:1])
            if node.name in PUBLIC_OPTIONS.get(source.name, ()):
                continue
            assert count <= MOST_PARAMETERS, (
                f"{source.name}: {node.name} has {count} parameters: make a dataclass"
            )


def test_nothing_is_unpickled() -> None:
    """No path from outside leads to pickle; checkpoints are read with weights_only=True."""
    for source in sources(*FOLDERS):
        for call in source.calls:
            called = ast.unparse(call.func)
            assert called not in (
                "pickle.load",
                "pickle.loads",
                "marshal.loads",
                "eval",
                "exec",
            ), source.name
            if called == "torch.load":
                safe = [
                    k
                    for k in call.keywords
                    if k.arg == "weights_only" and ast.unparse(k.value) == "True"
                ]
                assert safe, (
                    f"{source.name} loads with torch.load without weights_only=True"
                )


def test_publishing_calls_no_collective() -> None:
    """A rank that publishes waits for no other: nothing there is torch.distributed's."""
    for source in sources("ipc", "splatview"):
        imported = {module for module, _ in source.imports}
        assert not any(module.startswith("torch.distributed") for module in imported)
        used = {attribute for _, attribute in source.attributes}
        assert "distributed" not in used, source.name


def test_promises_of_security_name_tests_that_exist() -> None:
    section = (
        (ROOT / "SECURITY.md")
        .read_text()
        .partition("\n## Promises and tests\n")[2]
        .partition("\n## ")[0]
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| promise"))
    ]
    assert rows
    pattern = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
    for promise, tests in rows:
        named = pattern.findall(tests)
        assert named, f"{promise}: names no tests: {tests}"
        remainder = pattern.sub("", tests).strip(", ")
        assert not remainder, f"{promise}: not a list of tests: {tests}"
        for path, name in named:
            assert (ROOT / path).is_file(), f"{promise}: no file {path}"
            assert name in {node.name for node in parsed(ROOT / path).functions}, (
                f"{promise}: {path} has no {name}"
            )


def test_the_documentation_names_files_that_exist() -> None:
    """Every path in backquotes; below the sharing's package where it begins with no folder at the top.

    Some pages are about other projects, whose files they name. NAME stands for any.
    """
    docs = ROOT / "docs"
    pages_of_others = {
        docs / "other_viewers.md",
        docs / "quickstart.md",
        *(docs / "recipes").glob("*.md"),
    }
    paths = {ROOT / "CONTRIBUTING.md", *docs.rglob("*.md")} - pages_of_others
    pages = "".join(path.read_text() for path in paths)
    named = set(re.findall(r"`(\w[\w.-]*/[\w./-]*|[\w-]+\.py)`", pages))
    assert named
    roots = (
        ROOT,
        ROOT / "ipc" / "splatview_ipc",
        ROOT / "viewer_app" / "splatview_viewer",
        ROOT / "splatview" / "api",
    )
    paths_of_files = [path for path in named if "NAME" not in path]
    missing = sorted(
        path
        for path in paths_of_files
        if not any((root / path).exists() for root in roots)
    )
    assert not missing, f"documents name what is not there: {missing}"


# ---- the tests


def _outside_support() -> list[Source]:
    return [source for source in sources("tests") if "support" not in source.path.parts]


def test_tests_neither_sleep_nor_read_a_clock() -> None:
    """`support.wait` has the only clock: a test waits for a state, not for a time."""
    forbidden = {
        "sleep",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
    }
    uses = []
    for source in _outside_support():
        names = {attribute for owner, attribute in source.attributes if owner == "time"}
        for module, imported_names in source.imports:
            if module == "time":
                names |= set(imported_names)
        uses += [f"{source.name}: time.{name}" for name in sorted(names & forbidden)]
    assert not uses, "use support.wait:\n" + "\n".join(uses)


def test_parameter_lists_are_short() -> None:
    for source in _outside_support():
        for call in source.calls:
            if ast.unparse(call.func) == "pytest.mark.parametrize" and isinstance(
                call.args[1], (ast.List, ast.Tuple)
            ):
                count = len(call.args[1].elts)
                assert count <= MOST_CASES, (
                    f"{source.name}:{call.lineno} has {count} values, at most {MOST_CASES}"
                )


def test_tests_use_no_new_private_names() -> None:
    """Names that begin with an underscore, of objects other than `self`, and of modules of the product."""
    used = set()
    for source in _outside_support():
        defined_names = {
            attribute
            for owner, attribute in source.attributes
            if owner in ("self", "cls")
        }
        defined_names |= {node.name for node in source.functions}
        used |= {
            attribute
            for owner, attribute in source.attributes
            if owner not in ("self", "cls")
        } - defined_names
        for module, names in source.imports:
            if module.partition(".")[0] in (
                "splatview",
                "splatview_ipc",
                "splatview_viewer",
            ):
                used |= {
                    component
                    for name in names
                    for component in (*module.split("."), name)
                }
    used = {name for name in used if name.startswith("_") and not name.endswith("__")}
    listed = set(PRIVATE_NAMES.read_text().split())
    assert not used - listed, (
        f"private names of the product: {sorted(used - listed)}; test what is public"
    )
    assert not listed - used, (
        f"no test uses these any more: remove them from {PRIVATE_NAMES.name}: {listed - used}"
    )
