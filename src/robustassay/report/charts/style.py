"""The colours and fonts that all pictures share, and the function that opens and writes a figure."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from robustassay.errors import BadRequest
from robustassay.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito without yellow: readable with all kinds of colour vision.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: Final = ("-", "--", "-.", ":")  # for prints in grey, and for more curves than colours
MARKS: Final = "osD^vPX"
DPI: Final = 160

LOOK: Final[Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "svg.hashsalt": "assay",  # the same figure gives the same file
    "svg.fonttype": "none",  # text stays text
}


@contextmanager
def figure_of(size: tuple[float, float], path: Path, dpi: int = DPI) -> "Iterator[Figure]":
    """Open a figure of a size in inches, and write it to `path` when the block ends."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise BadRequest("A picture needs matplotlib: pip install 'robustassay[plots]'.") from None
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = path.suffix.removeprefix(".")
        stamp = {"Date": None} if kind == "svg" else {"Software": None}  # the same figure gives the same file
        content = io.BytesIO()
        figure.savefig(content, format=kind, dpi=dpi, metadata=stamp)
        write_atomically(path, content.getvalue())


def title_with_note(title: str, note: str) -> str:
    """Write a title and a line below it; either may be empty."""
    return "\n".join(filter(None, (title, note)))
