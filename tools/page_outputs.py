"""Runs the Python blocks of the tutorial and writes below each what it prints.

python -m tools.page_outputs
"""

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Final

PAGES: Final = (Path(__file__).parents[1] / "docs" / "tutorial.md",)
BLOCK: Final = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)
"""A block of code, with the output below it if there is one."""


def renewed(text: str, namespace: dict[str, Any]) -> str:
    """Run all blocks in the present folder, in one namespace, and return the page with their outputs."""

    def run(found: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found["code"], "a page of the documentation", "exec"), namespace)
        shown = f"\n```text\n{printed.getvalue().rstrip()}\n```\n" if printed.getvalue().strip() else ""
        return f"```python\n{found['code']}```\n{shown}"

    return BLOCK.sub(run, text)


def main() -> None:
    """Write the pages anew."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as scratch:
            before = Path.cwd()
            os.chdir(scratch)
            try:
                text = renewed(page.read_text(), {"__name__": "page_of_the_docs"})
            finally:
                os.chdir(before)
        page.write_text(text)


if __name__ == "__main__":
    main()
