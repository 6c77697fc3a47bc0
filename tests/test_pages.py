"""The pages below docs/ and the README: their code runs, and what they name exists."""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import json
import logging
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import generated_examples
import generated_keys
import generated_pages
import pytest
from support.page_blocks import (
    DATA_LANGUAGES,
    PYTHON_LANGUAGES,
    SHELL_LANGUAGES,
    Block,
    all_pages,
    anchors_of,
    blocks_of,
    command_lines,
    run_python,
    unknown_names,
)
from support.programs import ROOT

import splatview
from splatview.cli import doctor
from splatview.cli.main import SUMMARIES, main
from splatview_ipc.system import entry
from splatview_ipc.system.variables import INTERNAL_NAMES, VARIABLES
from splatview_viewer.kinds import shown_kinds

DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = {str(path.relative_to(ROOT)): path for path in all_pages()}
BLOCKS = [block for path in PAGES.values() for block in blocks_of(path)]
_DIRECTIVE = re.compile(r"\{[\w-]+\}.*")
_VARIABLE = re.compile(r"\bSPLATVIEW_[A-Z_]+\b")
_PROMISE = re.compile(
    r"\b(?:never|at most|bounded|waits? (?:for no|neither))\b", re.IGNORECASE
)
_FIGURE = re.compile(
    r"[\d.,]*\d ?(?:[µum]?s|seconds?|minutes?|Hz|(?:times|pictures|frames) a second|pictures/s"
    r"|%|bytes|[kKMG]i?B)(?!\w)"
)
_PROOF = re.compile(r"\btests/\w+|\bperformance\.md|\bsecurity\.md", re.IGNORECASE)
_PAGES_WITH_SOURCES = ("docs/other_viewers.md", "docs/performance.md")
"""Their figures have a source or a run beside them."""
_SOURCE = re.compile(r"\]\(https://")
"""A link to the page or file of another project whose figure it is."""


def _python_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that run."""
    return [
        block
        for block in BLOCKS
        if block.page == page
        and block.language in PYTHON_LANGUAGES
        and not block.skip_reason
    ]


@pytest.mark.parametrize(
    "page", [name for name, path in PAGES.items() if _python_blocks(path)]
)
def test_python_blocks_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run them in order, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("splatview")
    level = logger.level
    try:
        run_python(_python_blocks(PAGES[page]))
    finally:
        logger.setLevel(level)


def test_python_blocks_name_what_exists() -> None:
    """Check also blocks that are not run."""
    unknown = []
    for block in BLOCKS:
        if block.language in PYTHON_LANGUAGES:
            names = unknown_names(block.code)
            unknown += [f"{block.place}: {name}" for name in names]
    assert not unknown


def test_other_blocks_have_a_language_that_is_checked() -> None:
    for block in BLOCKS:
        languages = (*PYTHON_LANGUAGES, *SHELL_LANGUAGES, *DATA_LANGUAGES)
        is_directive = _DIRECTIVE.fullmatch(block.language)
        assert is_directive or block.language in languages, (
            f"{block.place}: {block.language!r}; expected one of {', '.join(languages)}"
        )
        if block.language == "json":
            json.loads(block.code)
        if block.language == "toml":
            tomllib.loads(block.code)


# ---- commands


def _splatview_arguments(tokens: list[str]) -> list[str] | None:
    """Return the arguments of `splatview` among the tokens; None if it is not run.

    It may follow the tokens of a launcher, such as srun or ssh.
    """
    for index, token in enumerate(tokens):
        if token.rpartition("/")[2] != "splatview":
            continue
        arguments = tokens[index + 1 :]
        follows_launcher = bool(arguments) and arguments[0] in SUMMARIES
        if index == 0 or follows_launcher:
            return arguments
    return None


def _check_splatview(arguments: list[str]) -> None:
    """Check that the command's parser takes its arguments."""
    if not arguments or arguments[0].startswith("-"):
        assert arguments[:1] in (["--help"], ["--version"], [])
        return
    command, *options = arguments
    assert command in SUMMARIES, f"no command {command!r}"
    if "--help" not in options:
        kind = generated_pages.options_classes()[command]
        entry.parse_options(kind, f"splatview {command}", options)


def _check_others(tokens: list[str]) -> None:
    """Check that a target of make, a module, an extra and a file exist."""
    if tokens[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {w for w in tokens[1:] if w.isalpha() and w.islower()} <= set(targets)
    if "-m" in tokens and Path(tokens[0]).name.startswith("python"):
        module = tokens[tokens.index("-m") + 1]
        if module.partition(".")[0] in ("splatview", "benchmarks"):
            # nerfstudio's module cannot be imported here; its file is enough.
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").is_file() or path.is_dir(), module
    for token in tokens:
        extras = re.match(r"splatview\[([\w,-]+)\]", token)
        if extras is not None:
            all_extras = set(PROJECT["optional-dependencies"])
            assert set(extras[1].split(",")) <= all_extras, token
        if re.fullmatch(r"(tools|examples|benchmarks|tests)/[\w/]+\.\w+", token):
            assert (ROOT / token).is_file(), token


def test_commands_parse(capsys: pytest.CaptureFixture[str]) -> None:
    """Parse every `splatview` line of a block by the command's own parser."""
    help_text = Block(DOCS / "command_line.md", 1, "", "\n".join(_page_lines()))
    checked = set()
    for block in [*BLOCKS, help_text]:
        if block.language not in SHELL_LANGUAGES:
            continue
        for tokens in command_lines(block):
            while tokens and re.match(r"\w+=|\$|sudo$|nohup$|nice$|exec$", tokens[0]):
                tokens = tokens[1:]
            line = shlex.join(tokens)
            if not tokens or line in checked:
                continue
            checked.add(line)
            arguments = _splatview_arguments(tokens)
            try:
                if arguments is not None:
                    _check_splatview(arguments)
                _check_others(tokens)
            except (SystemExit, AssertionError) as error:
                message = capsys.readouterr().err
                pytest.fail(f"{block.place}: {line}\n{error}\n{message}")
    assert checked


@functools.cache
def _page_lines() -> list[str]:
    """Return the lines of the page of commands, with the examples of their help."""
    return "\n".join(generated_pages.commands()).splitlines()


@functools.cache
def _page_options() -> dict[str, set[str]]:
    """Return the options that the page has for each command, such as "--port"."""
    options: dict[str, set[str]] = {}
    for line in _page_lines():
        if line.startswith("## splatview "):
            options[line.split()[-1]] = set()
        elif line.startswith("`"):
            command = list(options)[-1]
            options[command] |= set(re.findall(r"`(--[\w-]+)", line))
    return options


def test_the_page_of_commands_has_what_their_help_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command, kind in generated_pages.options_classes().items():
        with pytest.raises(SystemExit):
            entry.parse_options(kind, f"splatview {command}", ["--help"])
        text = capsys.readouterr().out
        # A line of the box, whose frame may be drawn with spaces.
        lines = re.findall(r"^[│ ] (--?\w.*?)(?:  |│|$)", text, re.MULTILINE)
        options = set(re.findall(r"--[\w-]+", " ".join(lines))) - {"--help"}
        assert options
        assert _page_options()[command] == options


def test_options_within_sentences_exist() -> None:
    """Check commands in backquotes, such as `splatview serve --web`."""
    for name, path in PAGES.items():
        for command, arguments in re.findall(
            r"`splatview (\w+)([^`\n]*)`", path.read_text()
        ):
            options = set(re.findall(r"--[a-z][\w-]*", arguments)) - {"--help"}
            unknown = options - _page_options().get(command, set())
            assert not unknown, f"{name}: splatview {command} {unknown}"


# ---- what the product has


def test_the_page_of_keys_has_every_kind() -> None:
    assert set(generated_keys.KEYS_OF_KINDS) == set(shown_kinds())
    page = generated_pages.fill((DOCS / "keys.md").read_text())
    assert "| `K` | Set a keyframe here |" in page


def test_every_public_name_is_on_a_page() -> None:
    text = (DOCS / "api.md").read_text()
    missing = [
        name
        for name in splatview.__all__
        if not re.search(rf"\bsplatview\.{name}\b", text)
    ]
    assert not missing


def test_public_names_within_sentences_exist() -> None:
    for name, path in PAGES.items():
        for attribute in re.findall(r"`splatview\.(\w+)", path.read_text()):
            exists = hasattr(splatview, attribute) or importlib.util.find_spec(
                f"splatview.{attribute}"
            )
            assert exists, f"{name}: splatview.{attribute}"


def _named_variables(paths: Iterator[Path]) -> set[str]:
    names = set()
    for path in paths:
        names |= set(_VARIABLE.findall(path.read_text()))
    return names


def test_every_environment_variable_is_in_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Find the table in --help and on the page of the configuration, too."""
    table = {variable.name for variable in VARIABLES}
    sources: list[Path] = []
    for folder in ("splatview", "ipc", "viewer_app"):
        sources += (ROOT / folder).rglob("*.py")
    product = _named_variables(path for path in sources if path.name != "variables.py")
    assert product == table | set(INTERNAL_NAMES)
    main(["--help"])
    assert table <= set(_VARIABLE.findall(capsys.readouterr().out))
    page = generated_pages.fill((DOCS / "configuration.md").read_text())
    assert table <= set(_VARIABLE.findall(page))
    pages = _named_variables(iter(PAGES.values()))
    assert pages - table <= set(INTERNAL_NAMES)


def test_troubleshooting_has_a_section_for_each_line_of_doctor() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    headings = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert headings == set(doctor.CHECKS)


# ---- what pages name


def test_tests_and_benchmarks_that_pages_name_exist() -> None:
    """Find what a figure or a promise names as `tests/x.py::test_y`."""
    for name, path in PAGES.items():
        text = path.read_text()
        for file, test in re.findall(r"\b(tests/[\w/]+\.py)(?:::(\w+))?", text):
            assert (ROOT / file).is_file(), f"{name}: {file}"
            if test:
                has_test = f"def {test}(" in (ROOT / file).read_text()
                assert has_test, f"{name}: {file} has no {test}"
        for file in re.findall(r"\bbenchmarks/[\w/]+\.(?:py|json)", text):
            assert (ROOT / file).is_file(), f"{name}: {file}"


def _sections() -> Iterator[tuple[str, str]]:
    """Yield the sections of pages without their code, each behind page and heading."""
    for name, path in PAGES.items():
        if name in _PAGES_WITH_SOURCES:
            continue
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for section in re.split(r"\n(?=#)", text):
            heading = section.strip().partition("\n")[0]
            yield f"{name}, {heading}", section


def test_sections_that_promise_name_what_holds_it() -> None:
    """Find a test, or a link to figures or to security's tests, beside a promise."""
    for section_name, section in _sections():
        promise = _PROMISE.search(" ".join(section.split()))
        if promise is None or _PROOF.search(section):
            continue
        pytest.fail(
            f"{section_name}: names no test for {promise[0]!r}; name one as "
            "(test: `tests/x.py::test_y`), or say less"
        )


def test_figures_name_what_holds_them() -> None:
    """Find a test, a row or a source in a figure's paragraph or in one beside it."""
    for section_name, section in _sections():
        paragraphs = re.split(r"\n\s*\n", section)
        for index, paragraph in enumerate(paragraphs):
            figure = _FIGURE.search(" ".join(paragraph.split()))
            nearby = "\n".join(paragraphs[max(0, index - 1) : index + 2])
            if figure is None or _PROOF.search(nearby) or _SOURCE.search(nearby):
                continue
            pytest.fail(
                f"{section_name}: names no test for {figure[0]!r}; name one as (test: "
                "`tests/x.py::test_y`), link a row of performance.md or a source, "
                "or say less"
            )


def test_links_of_the_readme_lead_to_files_and_headings() -> None:
    """Check what `make docs` does not, which reads the pages alone."""
    readme = ROOT / "README.md"
    for target in re.findall(r"\]\(([^)\s]+)\)", readme.read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        page = ROOT / (name or "README.md")
        assert page.is_file(), target
        assert not anchor or anchor in anchors_of(page), target


def test_every_example_has_a_page() -> None:
    pages = {path.stem for path in (DOCS / "examples").glob("*.md")} - {"index"}
    examples = {
        path.stem
        for path in (ROOT / "examples").iterdir()
        if path.suffix in (".py", ".ipynb")
    }
    assert pages == examples
    for name in pages:
        text = (DOCS / "examples" / f"{name}.md").read_text()
        assert "```python" in generated_examples.fill(text, name)


def test_every_page_is_in_a_table_of_contents() -> None:
    names = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    listed = {"index"}
    for path in DOCS.rglob("*.md"):
        for block in blocks_of(path):
            if block.language != "{toctree}":
                continue
            folder = str(path.parent.relative_to(DOCS))
            for line in block.code.splitlines():
                # A line may be "Title <page>".
                entry_name = re.sub(r".*<(.+)>", r"\1", line.strip())
                pattern = str(Path(folder) / entry_name)
                listed |= set(fnmatch.filter(names, pattern))
    assert names == listed
