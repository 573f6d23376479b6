"""BibTeX of a report: the report itself, and the papers of the attacks in it."""

import re
from collections.abc import Iterable
from importlib import resources
from typing import Final

from robustassay.registry import lookup

PAPERS: Final = "papers.bib"
"""The papers of the attacks, each under arxiv- and its number."""


def references(title: str, day: str, version: str, names: Iterable[str]) -> str:
    """Write BibTeX entries for a report and for the papers of the attacks in it."""
    report = {
        "title": f"{{{_plain(title)}}}",
        "year": day[:4],
        "note": f"Report by robustassay {version}, runs of {day}",
    }
    known = papers()
    numbers = dict.fromkeys(number for name in names for number in _papers(name))
    entries = [_entry("robustness-report", report), *(known.get(number) or _unknown(number) for number in numbers)]
    return "\n".join(entries)


def papers() -> dict[str, str]:
    """Return the entry of each known paper, by its number on arXiv."""
    text = (resources.files("robustassay.report") / "assets" / PAPERS).read_text(encoding="utf-8")
    return {found[2]: found[1] for found in re.finditer(r"(@misc\{arxiv-([\d.]+),.*?\n\}\n)", text, re.DOTALL)}


def _papers(name: str) -> tuple[str, ...]:
    """Return the arXiv numbers of an attack; one that was passed in Python names none."""
    from robustassay import attacks  # brings torch, which most pages do not need

    return tuple(lookup("attack", name).info.papers) if name in attacks.attack_names() else ()


def _unknown(number: str) -> str:
    """Write an entry without author and title, for a paper that nobody has added to the file."""
    return _entry(
        f"arxiv-{number}", {"eprint": number, "archivePrefix": "arXiv", "url": f"https://arxiv.org/abs/{number}"}
    )


def _entry(key: str, fields: dict[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}", ""])


def _plain(text: str) -> str:
    """Leave out what TeX would read as a command: a model's name may come from other people."""
    return "".join(letter if letter not in "\\{}$%&#_^~" else " " for letter in text)
