"""Pages of studies, with their figures and tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay.names import slug
from robustassay.report.site.heat_maps import HeatMap, TransferRate

PAGE: Final = "study.md"
_COPIED_SUFFIXES: Final = {".png", ".svg", ".csv"}
_ACTIVE: Final = re.compile(
    rb"<\s*(\w+:)?(script|foreignobject|iframe|embed|object|handler|animate\w*|set)\b|javascript:|<!entity"
    rb"|[\s\"'/]on\w+\s*=|href\s*=\s*[\"']?\s*(?![\"'#\s]|data:image/)",
    re.IGNORECASE,
)


@final
@dataclass(frozen=True)
class StudyPage:
    """The folder of one study, and its page on the site."""

    folder: Path
    name: str
    title: str

    @property
    def page(self) -> str:
        """The path of its page."""
        return f"studies/{self.name}/index.html"

    def html(self) -> str:
        """Convert the Markdown page of the study to HTML; HTML inside it is escaped."""
        from markdown_it import MarkdownIt

        text = (self.folder / PAGE).read_text(encoding="utf-8")
        reader = MarkdownIt("commonmark", {"html": False}).enable("table")
        html: str = reader.render(text.removeprefix("\ufeff"))
        html = re.sub(r"<h1>.*?</h1>", "", html, count=1, flags=re.DOTALL)
        html = html.replace("<h2>", "<h3>").replace("</h2>", "</h3>").replace("<h1>", "<h2>").replace("</h1>", "</h2>")
        html = re.sub(
            r'<img src="([a-z][a-z0-9+.-]*:|//)[^"]*"', '<img src="#"', html, flags=re.IGNORECASE
        )  # elsewhere
        html = re.sub(r'href="[\w-]+\.md"', 'href="#"', html)  # pages of the study that are not on the site
        html = html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
        for verdict, sign in (("does not hold", "warning"), ("cannot be said", "note"), ("holds", "good")):
            html = html.replace(f"<td>{verdict}</td>", f'<td class="verdict {sign}">{verdict}</td>')
        return html

    def files(self) -> list[Path]:
        """List the figures and tables that the page may link to, by their path in the folder."""
        found = [path for subfolder in ("figures", "tables") for path in (self.folder / subfolder).glob("*")]
        found += list(self.folder.glob("*.csv"))
        return sorted(
            path.relative_to(self.folder)
            for path in found
            if path.suffix in _COPIED_SUFFIXES and _is_inside(path, self.folder) and not _is_active(path)
        )

    def heat_maps(self) -> list[HeatMap]:
        """Read the transfer matrices of the study: one row per source, one column per target."""
        tables = [path for path in sorted(self.folder.glob("transfer-*.csv")) if _is_inside(path, self.folder)]
        return [found for path in tables if (found := self._heat_map(path))]

    def _heat_map(self, path: Path) -> HeatMap | None:
        try:
            rates = pd.read_csv(path, index_col=0).astype(float)
        except (OSError, ValueError):
            return None
        cells = [
            TransferRate(str(source), str(target), float(value), page=self.page)
            for source, row in rates.iterrows()
            for target, value in row.items()
            if pd.notna(value)
        ]
        way = path.stem.removeprefix("transfer-").replace("-", " ")
        return HeatMap(f"{way}, from {self.title}", tuple(cells)) if cells else None


def find_studies(places: Sequence[Path]) -> tuple[StudyPage, ...]:
    """Find the pages of studies in these places or below them, each once."""
    pages = [path for place in places for path in sorted(place.rglob(PAGE)) if _is_inside(path, path.parent)]
    folders = dict.fromkeys(path.parent for path in pages)
    found: list[StudyPage] = []
    for folder in folders:
        plain = slug(folder.resolve().name.lower(), keep="").strip("-") or "study"
        again = sum(study.name == plain or study.name.startswith(f"{plain}-") for study in found)
        found.append(StudyPage(folder, f"{plain}-{again + 1}" if again else plain, _title(folder / PAGE)))
    return tuple(found)


def _is_inside(path: Path, folder: Path) -> bool:
    """Say whether a path is a regular file in a folder: a link could publish any file that the user can read."""
    return path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(folder.resolve())


def _is_active(path: Path) -> bool:
    """Say whether an SVG file could run a script or load something; files of other kinds cannot."""
    return path.suffix == ".svg" and bool(_ACTIVE.search(path.read_bytes().replace(b"\0", b"")))


def _title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), path.parent.name)
