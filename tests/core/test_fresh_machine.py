"""What the tests themselves need of a machine that never ran them: no home folder, and a browser where CI runs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

HOME = """
import os
from pathlib import Path

import matplotlib.font_manager


def test_home():
    home = Path.home()
    assert not list(home.iterdir())
    (home / ".peer").write_text("mine")
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(f"{home}\\n")
"""


def run(*arguments: str, cwd: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Run tests in a process of their own, as on a machine of which only these variables are known."""
    known = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
    request = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(request, cwd=cwd, env={**known, **changes}, capture_output=True, text=True)


@pytest.mark.long
def test_workers_share_no_home_and_leave_the_users_alone(tmp_path):
    user, seen, project = tmp_path / "user", tmp_path / "seen", tmp_path / "project"
    user.mkdir()
    project.mkdir()
    shutil.copy(TESTS / "conftest.py", project)
    (project / "test_home.py").write_text(HOME)
    done = run("-n", "2", "--dist", "each", cwd=project, HOME=str(user), SEEN=str(seen))
    assert done.returncode == 0, done.stdout
    homes = {Path(line) for line in seen.read_text().splitlines()}
    assert len(homes) == 2, "one for each worker"
    assert not [home for home in homes if home.exists()], "they are gone when the tests end"
    assert not list(user.iterdir())


@pytest.mark.parametrize(
    ("ci", "code", "outcome"), [("true", 1, "1 error"), pytest.param("", 0, "1 skipped", marks=pytest.mark.long)]
)
@pytest.mark.long
def test_without_chromium_the_site_is_not_tested_and_ci_fails(ci, code, outcome, tmp_path):
    one = "tests/report/test_site.py::test_without_scripts_the_numbers_are_still_there"
    done = run("-p", "no:xdist", one, cwd=TESTS.parent, CI=ci, HOME=str(tmp_path), PATH=str(tmp_path))
    assert (done.returncode, outcome in done.stdout) == (code, True), done.stdout
    assert "No chromium: install it, or name it in ASSAY_CHROMIUM." in done.stdout
    assert "Traceback" not in done.stdout
