"""Writes the lock files in locks/: the packages that the set-up commands install, with the hashes of all files.

    python -m tools.lock https://INDEX/simple

Versions are those of constraints.txt and tests/oracles.txt. The packages of `make run` are found
from the requirements of the installed packages; the rest of the constraints is for `make test`. torch has no hash: its
build, and the packages of that build, depend on the machine.
"""

import argparse
import re
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

LINK = re.compile(r"/([^/#\"]+)#sha256=([0-9a-f]{64})")
BUILD = ("hatchling", "editables")
"""The packages that build this package; no installed package requires them."""


def main() -> None:
    """Write the three lock files."""
    options = argparse.ArgumentParser()
    options.add_argument("index", help="address of a package index")
    index = options.parse_args().index.rstrip("/")
    pins, oracles = read_pins(Path("constraints.txt")), read_pins(Path("tests/oracles.txt"))
    torch = pins.pop("torch")
    running = set(closure(["robustassay", "torch", *BUILD])) & set(pins)
    write(Path("locks/run.txt"), {name: pins[name] for name in sorted(running)}, index)
    write(Path("locks/test.txt"), {name: pins[name] for name in sorted(set(pins) - running)}, index)
    write(Path("locks/oracles.txt"), {name: oracles[name] for name in sorted(oracles)}, index)
    print(f"torch {torch} is pinned in constraints.txt alone")


def read_pins(file: Path) -> dict[str, str]:
    """Read `name==version` lines."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): version for name, version in pairs}


def closure(names: Iterable[str]) -> Iterator[str]:
    """Yield packages and everything that they require on this machine, without extras."""
    todo, seen = list(names), set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name in seen:
            continue
        seen.add(name)
        yield name
        try:
            wanted = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue
        todo += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]


def write(file: Path, pins: dict[str, str], index: str) -> None:
    """Write a lock file for pip --require-hashes."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(partial(hashes, index), pins, pins.values()))
    blocks = [
        " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{value}" for value in values)])
        for (name, version), values in zip(pins.items(), found, strict=True)
    ]
    file.parent.mkdir(exist_ok=True)
    file.write_text("# Written by `python -m tools.lock`; do not edit.\n" + "\n".join(blocks) + "\n")


def hashes(index: str, name: str, version: str) -> list[str]:
    """Return the SHA-256 of every file of a release from a package index."""
    with urllib.request.urlopen(f"{index}/{name}/") as answer:
        links = LINK.findall(answer.read().decode())
    values = sorted({value for filename, value in links if _version(filename) == Version(version)})
    assert values, f"the index has no file of {name} {version}"
    return values


def _version(filename: str) -> Version | None:
    try:
        return parse_wheel_filename(filename)[1] if filename.endswith(".whl") else parse_sdist_filename(filename)[1]
    except ValueError:
        return None


if __name__ == "__main__":
    main()
