"""Code blocks of Markdown pages, and checks of what they call.

A line `<!-- not run: REASON -->` above a Python block has it only checked: that it
parses, and that the names and keywords of splatview in it exist. A comment that begins
with `<!-- setup` holds Python that runs before the blocks below it and is not shown.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import splatview
from splatview.api.annotate import OverlayOptions
from support.programs import ROOT

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|:{3,})(?P<info>.*)$")
_NOT_RUN = re.compile(r"^ *<!-- not run: (?P<reason>.+) -->$")
_PROGRAM_LINE = re.compile(r" *(\w+=\S* )*(make|pip|python|\S*/?splatview) ")
_COMMENT = re.compile(r"(^|\s)#.*")
_CONTROL = re.compile(r"[|&;()]+")
_OPEN_FUNCTIONS = ("log",)
"""Functions that take keywords of any name on purpose."""
_UNPACKED_KEYWORDS = {"annotate": set(OverlayOptions.__annotations__)}
"""Keywords that the signature of a function does not list."""
SHELL_LANGUAGES = ("", "console", "sh", "bash", "shell")
DATA_LANGUAGES = ("text", "nginx", "toml", "json", "yaml", "ini", "diff", "dockerfile")
PYTHON_LANGUAGES = ("python", "py")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, or a setup comment."""

    page: Path
    line: int
    """Of its first line of code, from 1."""
    language: str
    code: str
    skip_reason: str = ""
    """Why it is not run; "" if it is."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def all_pages() -> list[Path]:
    """Return the pages that users read: README.md and those below docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    lines = page.read_text().splitlines()
    index = 0
    while index < len(lines):
        start = index
        fence = _FENCE.match(lines[index])
        index += 1
        if lines[start].strip() == "<!-- setup":
            end = "-->"
            language = "python"
            indent = 0
        elif fence is not None:
            end = fence["mark"]
            language = fence["info"].strip()
            indent = len(fence["indent"])
        else:
            continue
        while index < len(lines) and lines[index].strip() != end:
            index += 1
        code = "\n".join(line[indent:] for line in lines[start + 1 : index])
        reason = _NOT_RUN.match(lines[start - 1]) if start else None
        skip_reason = reason["reason"] if reason is not None else ""
        yield Block(page, start + 2, language, code, skip_reason)
        index += 1


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}


def run_python(blocks: list[Block]) -> None:
    """Run the blocks of a page one after the other, in one namespace."""
    namespace = {"__name__": "__main__"}
    for block in blocks:
        # Tracebacks then have the page's lines.
        source = "\n" * (block.line - 1) + block.code
        exec(compile(source, str(block.page), "exec"), namespace)


def unknown_names(code: str) -> Iterator[str]:
    """Yield the names and keywords of splatview in Python code that do not exist."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and _is_splatview(node.value):
            yield from _unknown_attribute(node.attr)
        if isinstance(node, ast.Call):
            yield from _unknown_keywords(node)


def _unknown_attribute(name: str) -> Iterator[str]:
    if not hasattr(splatview, name):
        yield f"splatview.{name}"


def _unknown_keywords(call: ast.Call) -> Iterator[str]:
    """Yield the keywords that a function of splatview does not have."""
    callee = call.func
    if not isinstance(callee, ast.Attribute) or not _is_splatview(callee.value):
        return
    function = getattr(splatview, callee.attr, None)
    if function is None or callee.attr in _OPEN_FUNCTIONS:
        return
    parameters = set(inspect.signature(function).parameters)
    parameters |= _UNPACKED_KEYWORDS.get(callee.attr, set())
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in parameters:
            yield f"splatview.{callee.attr}({keyword.arg}=)"


def _is_splatview(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "splatview"


def command_lines(block: Block) -> Iterator[list[str]]:
    """Yield the tokens of each command of a block for a shell.

    A block with lines that begin with "$ " has its commands there, and output between.
    One without a language may be a drawing: only lines with a program count.
    """
    has_prompts = re.search(r"^ *\$ ", block.code, re.MULTILINE) is not None
    command = ""
    for line in block.code.replace("\\\n", " ").splitlines():
        if command:
            command += "\n" + line
        elif has_prompts:
            command = line.lstrip()[2:] if line.lstrip().startswith("$ ") else ""
        elif block.language or _PROGRAM_LINE.match(line):
            command = line
        if command and _is_complete(command):
            yield from _split_commands(_COMMENT.sub("", command))
            command = ""
    assert not command, f"{block.place}: a quotation mark is missing"


def _is_complete(command: str) -> bool:
    """Return whether a command ends here: no quotation goes on in the next line."""
    try:
        shlex.split(_COMMENT.sub("", command))
    except ValueError:
        return False
    return True


def _split_commands(line: str) -> Iterator[list[str]]:
    """Yield the tokens of the commands of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    tokens: list[str] = []
    is_redirected = False
    for token in lexer:
        if _CONTROL.fullmatch(token):
            yield tokens
            tokens = []
            is_redirected = False
        elif token[0] in "<>":
            is_redirected = True
        elif not is_redirected:
            tokens.append(token)
    yield tokens
