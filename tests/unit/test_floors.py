"""The house: imports go downwards only, and the lowest floor carries nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest


PACKAGE = Path(__file__).parents[2] / "trl_prism"
CORE = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in sorted(PACKAGE.glob("core/**/*.py"))
]


@pytest.mark.parametrize("module", [name for name in CORE if not name.endswith("__init__")])
def test_core_imports_no_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return names | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_downwards(file):
    floors = ["core", "ports", "answers", "domains", "questions", "trainers", "parts", "self_play"]
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = imported(file)
    assert not any(name.split(".")[0] == "prism_lab" for name in names), "the library must not know the lab"
    if own in floors:
        above = floors[floors.index(own) + 1 :]
        climbed = {name for name in names for floor in above if name.startswith(f"trl_prism.{floor}")}
        assert not climbed, f"{own} imports from above: {climbed}"


def test_no_file_is_long():
    lengths = {file.name: len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def test_public_names():
    code = (
        "import sys, trl_prism; trl_prism.vote; trl_prism.VisitMemory; assert 'torch' not in sys.modules\n"
        "for name in trl_prism.__all__: assert getattr(trl_prism, name) is not None, name\n"
        "assert not hasattr(trl_prism, 'nothing')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
