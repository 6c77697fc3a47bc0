"""CUDA draws by the rules of the installed gsplat, and never waits for it to compile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.programs import Programs
from support.renderer_cases import GSPLAT_1_5, GSPLAT_1_6
from support.wait import PATIENCE_S

from splatview_viewer.render.base import Rules
from splatview_viewer.render.gsplat import rules
from splatview_viewer.render.gsplat.rules import followed_rules, rules_of

CPU = torch.device("cpu")
OPERATORS = """
import torch
def rasterization(*args, **options):
    return torch.full((1, 16, 16, 3), {alpha}), None, None
def fully_fused_projection(*args, **options):
    return (torch.full((1, 1), 0.003),)
"""
FAILING = "raise IndexError('list index out of range')"


@pytest.fixture(autouse=True)
def ask_anew() -> None:
    followed_rules.cache_clear()


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, bool], None]:
    """Put a gsplat of some version first on the path, with or without operators."""
    imported = {name for name in sys.modules if name.split(".")[0] == "gsplat"}
    for name in imported | {"gsplat", "gsplat.csrc"}:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]
    monkeypatch.syspath_prepend(tmp_path)

    def write(installed: str, program: str, has_operators: bool) -> None:
        (tmp_path / "gsplat").mkdir()
        (tmp_path / "gsplat" / "__init__.py").write_text(program)
        if has_operators:
            (tmp_path / "gsplat" / "csrc.py").touch()
        info = tmp_path / f"gsplat-{installed}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: gsplat\nVersion: {installed}\n")

    return write


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ("1.5.3", GSPLAT_1_5),
        ("1.5.3+pt24cu124", GSPLAT_1_5),
        ("1.6.0rc1", GSPLAT_1_6),
        ("1.6.0", GSPLAT_1_6),
        ("2.0", GSPLAT_1_6),
    ],
)
def test_version_tells_the_rules(installed: str, expected: Rules) -> None:
    assert rules_of(installed) == expected


def test_gsplat_without_operators_is_not_imported(
    install: Callable[[str, str, bool], None],
) -> None:
    """It would compile them."""
    install("1.6.0", FAILING, False)
    followed = followed_rules(CPU)
    assert followed == (GSPLAT_1_6, "gsplat 1.6.0, by its version")
    assert "gsplat" not in sys.modules


@pytest.mark.parametrize(
    ("alpha", "rules", "source"),
    [
        ("0.98", Rules(0.98, 0.003), "gsplat 1.7.0, which was asked"),
        ("0.2", GSPLAT_1_6, "gsplat 1.7.0, by its version"),
    ],
)
def test_gsplat_with_operators_is_asked(
    install: Callable[[str, str, bool], None], alpha: str, rules: Rules, source: str
) -> None:
    """An answer that cannot be is not taken."""
    install("1.7.0", OPERATORS.format(alpha=alpha), True)
    assert followed_rules(CPU) == (rules, source)


def test_gsplat_that_raises_at_its_import_is_known_by_its_version(
    install: Callable[[str, str, bool], None],
) -> None:
    install("1.5.3", FAILING, True)
    followed = followed_rules(CPU)
    assert followed == (GSPLAT_1_5, "gsplat 1.5.3, by its version")


def test_without_gsplat_the_rules_are_those_of_1_5_3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    def find_spec(name: str) -> None:
        return None

    monkeypatch.setattr(rules, "version", version)
    monkeypatch.setattr(rules.importlib.util, "find_spec", find_spec)
    followed = followed_rules(CPU)
    assert followed == (GSPLAT_1_5, "gsplat 1.5.3, for none is installed")


@pytest.mark.programs
def test_missing_driver_is_reported_without_torch(programs: Programs) -> None:
    program = (
        "import sys; from splatview_viewer.render.gsplat.gpus import obstacle; "
        "print(obstacle()); print('torch' in sys.modules)"
    )
    # With no GPU visible a machine that has some is like one that has none.
    process = programs.code(program, CUDA_VISIBLE_DEVICES="")
    output, _ = process.communicate(timeout=PATIENCE_S)
    lines = output.splitlines()
    assert lines[0].startswith("gsplat needs CUDA, and ")
    assert lines[1] == "False"
