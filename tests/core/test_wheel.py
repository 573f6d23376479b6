"""The wheel holds all that the package needs: it is installed elsewhere and used outside a checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_BYTES = 45 << 20
"""README states the size; most of it is the zoo."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder that the wheel was installed to, without its dependencies, which are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, timeout=300)
    return folder


def assay(installed: Path, folder: Path, *words: str) -> str:
    """Run the installed command in a folder that is no checkout, with an empty home folder."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", str(installed / "bin" / "assay"), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_small_enough_and_holds_every_kind_of_file(wheel):
    assert wheel.stat().st_size < MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    for ending in (".safetensors", ".webp", ".html.jinja", ".css", "py.typed", "licenses/LICENSE"):
        assert any(name.endswith(ending) for name in names), ending
    assert not [name for name in names if name.startswith(("tests/", "tools/", "benchmarks/", "docs/"))]


def test_the_installed_wheel_evaluates_a_model_outside_a_checkout(installed, tmp_path):
    shown = assay(
        installed, tmp_path, "eval", "resnet20-natural", "--attack", "fgsm", "--limit", "4", "--device", "cpu"
    )
    assert "resnet20-natural" in shown
    assert any(tmp_path.iterdir()), "the run is stored below the folder"


@pytest.mark.long
def test_the_showcase_runs_outside_a_checkout(installed, tmp_path):
    assay(installed, tmp_path, "run")
    assert (tmp_path / "report" / "index.html").is_file()
