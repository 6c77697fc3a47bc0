"""A machine that only trains: the trainer's side without the viewer's packages."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.programs import ROOT, Programs

PAGE = ROOT / "docs" / "guides" / "training_machine.md"
MODULES = {"imgui-bundle": "imgui_bundle", "cuda-bindings": "cuda", "pillow": "PIL"}
"""Modules whose packages have other names."""
SCRIPT = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None  # importing it fails
import torch
import splatview
from splatview.cli.main import main
picture = torch.rand(4, 4, 3)
splatview.publish(picture, "image", meta={"step": 1})
splatview.log(1, loss=0.5)
splatview.annotate("image", boxes=torch.ones(1, 4))
splatview.publish_cameras(torch.eye(4), 4 * torch.eye(3), 4, 4)
splatview.publish_memory()
assert torch.equal(splatview.frames("image", timeout=30).latest().tensor, picture)
assert main(["status"]) == 0
"""
"""Argument: the modules that are not there."""


def test_trainer_needs_only_the_packages_that_its_page_names(
    programs: Programs,
) -> None:
    packages = re.search(r"^\$ pip install (torch .*)$", PAGE.read_text(), re.MULTILINE)
    assert packages is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = {Requirement(text).name for text in project["dependencies"]}
    absent = {canonicalize_name(name) for name in installed} - set(packages[1].split())
    assert "moderngl" in absent
    # Packaging is PyTorch's and Python's own tools' as well.
    modules = [MODULES.get(name, name) for name in sorted(absent - {"packaging"})]
    program = programs.python("-c", SCRIPT, " ".join(modules))
    output, error_output = program.communicate()
    assert program.returncode == 0, error_output
    assert "image" in output
