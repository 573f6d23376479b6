"""Executes the notebooks of the documentation and writes each as a page of the site, with its outputs.

python -m tools.notebooks                # execute, write notebooks and pages
python -m tools.notebooks --check NAME   # execute one and write nothing; fails if a cell fails
"""

import argparse
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

FOLDER: Final = Path(__file__).parents[1] / "docs" / "notebooks"
NAMES: Final = ("first-steps", "audit")
SECONDS: Final = 900
"""Most seconds of a cell."""


def main() -> None:
    """Execute one notebook, or execute and write all."""
    options = argparse.ArgumentParser()
    options.add_argument("--check", choices=NAMES)
    chosen = options.parse_args()
    for name in (chosen.check,) if chosen.check else NAMES:
        notebook = executed(FOLDER / f"{name}.ipynb")
        if not chosen.check:
            (FOLDER / f"{name}.ipynb").write_text(nbformat.writes(notebook) + "\n")  # type: ignore[no-untyped-call]
            (FOLDER / f"{name}.md").write_text(page(name, notebook, FOLDER))


def executed(path: Path) -> Any:
    """Return a notebook with the outputs of all cells; what changes with every run is left out."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_removed_bar(output)]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def _is_removed_bar(output: Any) -> bool:
    """Say whether an output is the place of a progress bar, or a warning about the terminal."""
    return bool(output.get("data", {}).get("text/html") == "" or output.get("name") == "stderr")


def page(name: str, notebook: Any, folder: Path) -> str:
    """Return the Markdown of an executed notebook; its pictures are written beside it."""
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            parts += _outputs(cell, folder / "pictures" / f"{name}-{number}.png")
    notice = f"This page is the notebook [{name}.ipynb]({name}.ipynb), executed by `python -m tools.notebooks`."
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n{notice}\n{rest}\n"


def _outputs(cell: Any, picture: Path) -> Iterator[str]:
    for output in cell.outputs:
        content = output.get("data", {})
        if output.get("name") == "stdout":
            yield f"```text\n{output.text.rstrip()}\n```"
        elif "image/png" in content:
            picture.parent.mkdir(exist_ok=True)
            picture.write_bytes(base64.b64decode(content["image/png"]))
            yield f"![Output of the cell above](pictures/{picture.name})"
        elif "text/html" in content and "<style" not in content["text/html"]:  # a data frame brings its own style
            yield content["text/html"]
        elif "text/plain" in content:
            yield f"```text\n{content['text/plain']}\n```"


if __name__ == "__main__":
    main()
