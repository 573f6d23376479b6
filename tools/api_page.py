"""Writes docs/api.md: the public names of assay with their signatures and docstrings.

python -m tools.api_page
"""

import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import robustassay as ra
from robustassay import data, doctor, errors, report

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "api.md"

HEAD: Final = """# Python interface

Made by `python -m tools.api_page` from the docstrings. `import robustassay as ra` gives the names of the first part;
nothing heavy is loaded before one of them is used. Whatever is not on this page may change without notice.
"""

FIRST: Final = ("evaluate", "Result", "Search", "Execution")
"""Names that every user meets; the others follow in the order of the package."""

MORE: Final = {
    "robustassay.data": (data, ("load", "from_arrays", "names", "Dataset")),
    "robustassay.doctor": (doctor, ("diagnose", "Diagnosis", "IndicatorResult")),
    "robustassay.report": (report, ("build",)),
}
"""Rooms whose names are public in addition to those of the package."""

BAR: Final = "&#124;"
"""The escape of a bar inside a table."""


def main() -> None:
    """Write the page if it changed."""
    if not PAGE.exists() or PAGE.read_text() != page():
        PAGE.write_text(page())


def page() -> str:
    """Return the page: every public name, then the exception tree."""
    parts = [HEAD, "## robustassay\n"]
    wanted = [*FIRST, *(name for name in ra.__all__ if name not in (*FIRST, "__version__"))]
    parts += [entry(f"robustassay.{name}", getattr(ra, name)) for name in wanted]
    for room, (module, names) in MORE.items():
        parts.append(f"## {room}\n\n{summary(module)}\n")
        parts += [entry(f"{room}.{name}", getattr(module, name)) for name in names]
    parts.append(f"## robustassay.errors\n\n```text\n{inspect.cleandoc(errors.__doc__ or '')}\n```")
    return "\n".join(parts) + "\n"


def entry(path: str, value: Any) -> str:
    """Return the section of one name: a function, a class or a module."""
    if isinstance(value, types.ModuleType):
        return f"### {path}\n\n{inspect.cleandoc(value.__doc__ or '')}\n"
    if inspect.isclass(value):
        members = "".join(f"- {line}\n" for line in methods(value))
        return f"### {path}\n\n{signature(path, value)}{text(value)}\n{members}"
    return f"### {path}\n\n{signature(path, value)}{text(value)}"


def signature(path: str, value: Any) -> str:
    """Return a signature with names and defaults; types are left out, because Python versions differ."""
    shown = []
    parameters = list(inspect.signature(value).parameters.values())
    for at, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and parameters[at - 1].kind is not parameter.KEYWORD_ONLY:
            shown.append("*")
        given = parameter.default
        plain = isinstance(given, str | int | float | bool | tuple) or given is None
        default = "" if given is parameter.empty else f"={given!r}" if plain else "=..."
        shown.append(f"{parameter.name}{default}")
    wrapped = textwrap.fill(f"{path}({', '.join(shown)})", 110, subsequent_indent="    ")
    return f"```text\n{wrapped}\n```\n\n"


def text(value: Any) -> str:
    """Return a docstring with its arguments as a table."""
    told, _, arguments = inspect.cleandoc(value.__doc__ or "").partition("\nArgs:\n")
    if not arguments:
        return f"{told.strip()}\n"
    rows = re.findall(r"^(\w+): (.*?)(?=^\w+: |\Z)", textwrap.dedent(arguments), re.MULTILINE | re.DOTALL)
    lines = [f"| `{name}` | {' '.join(about.split()).replace('|', BAR)} |" for name, about in rows]
    return "\n".join([told.strip(), "", "| argument | |", "|---|---|", *lines]) + "\n"


def methods(cls: type[Any]) -> Iterator[str]:
    """List the public fields, properties and methods of a class, each with the first line of its docstring."""
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name, member in inspect.getmembers(cls):
        if name.startswith("_") or name in fields or not getattr(member, "__doc__", None):
            continue
        if isinstance(member, property) or inspect.isroutine(member):
            call = "" if isinstance(member, property) else "()"
            yield f"`{name}{call}`: {summary(member)}"


def summary(value: Any) -> str:
    """Return the first line of a docstring."""
    return inspect.cleandoc(value.__doc__ or "").splitlines()[0]


if __name__ == "__main__":
    main()
