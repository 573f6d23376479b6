"""Pins what others build on: import direction, public names, the exception tree, documented commands."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import robustassay as ra
from robustassay import errors

SOURCE = Path(ra.__file__).parent
ROOT = SOURCE.parent.parent

# Each room may import itself and the rooms above it.
ROOMS = [
    "errors",
    "files",
    "names",
    "registry",
    "rng",
    "eps",
    "memory",
    "data",
    "models",
    "certification",
    "defenses",
    "threat",
    "target",
    "attacks",
    "remote",
    "records",
    "store",
    "analysis",
    "evaluation",
    "doctor",
    "serve",
    "leaderboard",
    "studies",
    "report",
    "train",
    "cli",
]


def rooms_imported_by(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "robustassay":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("robustassay."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("robustassay.")}
    return found - {"__version__"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    if path.parent == SOURCE and path.name in ("__init__.py", "__main__.py"):
        return  # the public surface and the command may name any room
    allowed = set(ROOMS[: ROOMS.index(room_of(path)) + 1])
    assert rooms_imported_by(path) <= allowed


def test_the_import_check_sees_every_form(tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text("from robustassay.cli import main\nimport robustassay.report\nfrom robustassay import studies\n")
    assert rooms_imported_by(probe) == {"cli", "report", "studies"}


def test_public_names():
    assert sorted(ra.__all__) == [
        "L0",
        "L1",
        "L2",
        "LInf",
        "LabelList",
        "LeastLikely",
        "RandomTarget",
        "Result",
        "ThreatModel",
        "__version__",
        "attacks",
        "defenses",
        "evaluate",
        "load_model",
    ]
    for name in ra.__all__:
        assert getattr(ra, name) is not None
    assert callable(ra.evaluate)
    with pytest.raises(AttributeError):
        ra.nonsense  # noqa: B018


def test_exception_tree_is_drawn_in_its_docstring():
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+)  ", errors.__doc__ or "", re.MULTILINE)
    defined = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert sorted(drawn) == sorted(defined)
    depth = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^([│├└─ ]*)([A-Z]\w+)  ", line):
            depth[match[2]] = len(match[1]) // 4
    for name, level in depth.items():
        assert len(getattr(errors, name).__mro__) - len(errors.AssayError.__mro__) == level


def test_exit_codes():
    assert errors.BadRequest.exit_code == errors.BadWeights.exit_code == 2
    assert errors.EvaluationFailed.exit_code == errors.StoreFailed.exit_code == 1
    assert errors.Interrupted.exit_code == 130


def test_every_command_is_documented():
    from robustassay.cli import app

    commands = [name for name in app if not name.startswith("-")]
    assert {"run", "eval", "list", "report", "train"} <= set(commands)
    readme = (ROOT / "README.md").read_text()
    for command in commands:
        assert f"assay {command}" in readme, f"README does not mention `assay {command}`"
        assert app[command].help, f"`assay {command}` has no help"


def test_help_needs_no_torch():
    code = "import sys; from robustassay.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_no_registry_name_is_taken_twice():
    from robustassay.registry import register

    assert "pgd" in ra.attacks.attack_names()
    with pytest.raises(ValueError, match="two classes claim"):
        register("attack", "pgd")(type("Other", (), {}))


def test_files_stay_small():
    """A file over 300 lines usually has two reasons to exist."""
    long = {str(path): n for path in SOURCE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 300}
    assert not long
