"""A machine that only trains: the trainer's side without the viewer's packages."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.programs import ROOT, Programs

from splatview_ipc.system.optional_packages import install_line

PAGE = ROOT / "docs" / "guides" / "training_machine.md"
MODULES = {"imgui-bundle": "imgui_bundle", "cuda-bindings": "cuda", "pillow": "PIL"}
"""Modules whose packages have other names."""
VIEWER_PACKAGES = (
    "moderngl",
    "glfw",
    "imgui-bundle",
    "Pillow",
    "aiohttp",
    "simplejpeg",
    "zstandard",
)
SCRIPT = """
import signal, sys, threading
for name in sys.argv[1].split():
    sys.modules[name] = None  # importing it fails
import torch
def hooks():
    return [
        *map(signal.getsignal, sorted(signal.valid_signals())),
        sys.excepthook,
        sys.unraisablehook,
        threading.excepthook,
    ]
hooks_before = hooks()
torch_before = dict(vars(torch))
tensor_before = dict(vars(torch.Tensor))
import splatview
from splatview.cli.main import main
picture = torch.rand(4, 4, 3)
splatview.publish(picture, "image", meta={"step": 1})
splatview.log(1, loss=0.5)
splatview.annotate("image", boxes=torch.ones(1, 4))
splatview.publish_cameras(torch.eye(4), 4 * torch.eye(3), 4, 4)
splatview.publish_memory()
assert torch.equal(splatview.frames("image", timeout=30).latest().tensor, picture)
assert hooks() == hooks_before
assert all(vars(torch)[name] is value for name, value in torch_before.items())
assert dict(vars(torch.Tensor)) == tensor_before
assert main(["status"]) == 0
from splatview.cli import doctor
from splatview_viewer.__main__ import main as run_viewer
for command in sys.argv[2].split():
    assert main([command]) == 2
for command in sys.argv[3].split():
    assert run_viewer([command]) == 2
finding = doctor.check_viewer()
print(finding.detail, finding.advice)
print(doctor.CHECKS["opengl"]().detail)
"""
"""Arguments: the modules that are not there, commands of the trainer's side that start
a viewer, and commands of the viewer."""
VIEWING = ("demo", "camera")
VIEWER_COMMANDS = ("serve", "shot", "video", "export", "memory", "grab", "window")


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
    lists = (" ".join(names) for names in (modules, VIEWING, VIEWER_COMMANDS))
    program = programs.python("-c", SCRIPT, *lists)
    output, error_output = program.communicate()
    assert program.returncode == 0, error_output
    assert "image" in output
    needs = f"needs {', '.join(VIEWER_PACKAGES)}"
    advice = f"the viewer {needs}: {install_line()}"
    assert error_output.splitlines() == [
        *(f"splatview {command}: {advice}" for command in VIEWING),
        *(f"splatview: {advice}" for _ in VIEWER_COMMANDS),
    ]
    assert f"it {needs} {install_line()}" in output
    assert "not tried without the viewer's packages" in output
