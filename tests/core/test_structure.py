"""Pins what others build on: import contracts, public names, the exception tree, documented commands."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools.import_contracts import declared_imports

import robustassay as ra
from robustassay import errors

SOURCE = Path(ra.__file__).parent
ROOT = SOURCE.parent.parent

LINTER = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """Check the import contracts in the pyproject.toml of a folder against the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "NO_COLOR": "1"}
    return subprocess.run([LINTER, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True)


def test_imports_are_the_declared_ones():
    done = lint(ROOT, SOURCE.parent)
    assert done.returncode == 0, done.stdout


PLANTED = {
    "threat imports cli": ("threat/norms.py", "from robustassay.cli import main\n", "declare the allowed import"),
    "analysis imports torch": ("analysis/fairness.py", "import torch\n", "not allowed to import torch"),
    "an attack imports a peer": ("attacks/gradient/pgd.py", "import foolbox\n", "not allowed to import foolbox"),
    "a package is new": ("unknown/__init__.py", "from robustassay import errors\n", "package unknown is not declared"),
    "an attack imports the ledger's module": (
        "attacks/gradient/pgd.py",
        "from robustassay.target.ledger import Ledger\n",
        "robustassay.attacks.gradient.pgd -> robustassay.target.ledger",
    ),
    "the doctor imports a service": (
        "doctor/remedies.py",
        "from robustassay.remote.service import Service\n",
        "robustassay.doctor.remedies -> robustassay.remote.service",
    ),
    "data imports a web framework": ("data/npz.py", "import fastapi\n", "not allowed to import fastapi"),
}


@pytest.fixture(scope="module")
def copy_of_the_package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("*.safetensors", "*.webp", "assets", "__pycache__")
    shutil.copytree(SOURCE, folder / "robustassay", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("name", PLANTED)
def test_the_import_check_finds_a_planted_violation(name, copy_of_the_package):
    place, line, message = PLANTED[name]
    path = copy_of_the_package / "robustassay" / place
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(line + (before or ""))
    try:
        done = lint(copy_of_the_package, copy_of_the_package)
    finally:
        path.unlink() if before is None else path.write_text(before)
    assert done.returncode == 1
    assert message in " ".join(done.stdout.split()), done.stdout


def test_contributing_shows_the_declared_imports():
    """The table of packages in CONTRIBUTING.md is the one that the import check uses."""
    declared = declared_imports(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    shown = {}
    for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines():
        if found := re.fullmatch(r"\| `(\w+)(?:\.py|/)` \|.*\| ([^|]*) \|", line):
            shown[found[1]] = tuple(re.findall(r"\w+", found[2]))
    assert shown == declared


def test_public_names():
    assert sorted(ra.__all__) == [
        "Execution",
        "L0",
        "L1",
        "L2",
        "LInf",
        "LabelList",
        "LeastLikely",
        "RandomTarget",
        "Result",
        "Search",
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
        getattr(ra, "nonsense")  # noqa: B009, a type checker reports the name


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
