"""Pictures of the samples of a run: small ones that all runs on a dataset share, and three images side by side."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from robustassay.report.site.gallery import GalleryBuilder, class_name, is_drawable
from robustassay.report.site.samples import SampleTable

if TYPE_CHECKING:
    from robustassay.data import Dataset

ACROSS: Final = 10
"""A sheet holds ten rows of ten small pictures, which the browser loads when a row is seen."""
SIDE: Final = 32
TRIPLET_BYTES: Final = 8_000_000
SHEET_BYTES: Final = 5_000_000
"""Limits of all such pictures together."""


@final
@dataclass(eq=False)
class SamplePictures:
    """Draws pictures until the limits of bytes are reached."""

    builder: GalleryBuilder
    files: dict[str, bytes] = field(default_factory=dict)
    sheets: dict[str, dict[str, int]] = field(default_factory=dict)  # place of each sample, by the data's hash
    triplets: dict[str, dict[str, int]] = field(default_factory=dict)  # magnification by key of the run and sample
    _sheet_bytes: int = 0
    _triplet_bytes: int = 0

    def draw(self, tables: Sequence[SampleTable]) -> None:
        """Draw the small pictures of all tables, and three images for each sample whose adversarial image was kept."""
        by_data: dict[str, list[SampleTable]] = {}
        for table in tables:
            by_data.setdefault(table.run.spec["data"]["sha256"], []).append(table)
        for sha256, together in by_data.items():
            dataset = self.builder.dataset(together[0].run)
            if dataset is not None and is_drawable(dataset):
                self._draw_sheets(sha256, dataset, together)
        kept = [table for table in tables if table.run.has_images]
        for at, table in enumerate(kept):
            dataset = self.builder.dataset(table.run)
            if dataset is not None and is_drawable(dataset):
                share = (TRIPLET_BYTES - self._triplet_bytes) // (len(kept) - at)
                self._draw_triplets(table, dataset, share)

    def to_json(self, table: SampleTable) -> dict[str, Any]:
        """Return what the page of a run needs to find its pictures and to name its classes."""
        sha256 = table.run.spec["data"]["sha256"]
        places, factors = self.sheets.get(sha256, {}), self.triplets.get(table.run.key, {})
        dataset = self.builder.dataset(table.run)
        samples = [str(one) for one in table.rows["sample_id"]]
        found: dict[str, Any] = {"classes": {label: class_name(dataset, label) for label in sorted(table.labels)}}
        if any(sample in places for sample in samples):
            found["sheets"] = f"images/{_folder(list(self.sheets).index(sha256))}"
            found["place"] = [places.get(sample, -1) for sample in samples]
        if factors:
            found["triplets"] = f"images/{table.name.removeprefix('samples-')}"
            found["factor"] = [factors.get(sample, 0) for sample in samples]
        return found

    def _draw_sheets(self, sha256: str, dataset: "Dataset", tables: Sequence[SampleTable]) -> None:
        rows = {sample: row for row, sample in enumerate(dataset.ids)}
        wanted = dict.fromkeys(sample for table in tables for sample in table.rows["sample_id"] if sample in rows)
        samples, each = sorted(wanted, key=rows.__getitem__), ACROSS * ACROSS
        places: dict[str, int] = {}
        for start in range(0, len(samples), each):
            part = samples[start : start + each]
            sheet = _sheet(dataset, [rows[sample] for sample in part])
            if self._sheet_bytes + len(sheet) > SHEET_BYTES:
                break
            self._sheet_bytes += len(sheet)
            self.files[f"images/{_folder(len(self.sheets))}/{start // each}.jpg"] = sheet
            places |= {sample: start + at for at, sample in enumerate(part)}
        self.sheets[sha256] = places

    def _draw_triplets(self, table: SampleTable, dataset: "Dataset", share: int) -> None:
        rows = {sample: row for row, sample in enumerate(dataset.ids)}
        folder = f"images/{table.name.removeprefix('samples-')}"
        images = table.run.images()
        used, factors = 0, self.triplets.setdefault(table.run.key, {})
        for at, sample in _broken_first(table.rows):
            if sample not in rows or sample not in images:
                continue
            strip, factor = _triplet(dataset.images([rows[sample]])[0], images[sample])
            if used + len(strip) > share:
                break
            used += len(strip)
            self.files[f"{folder}/{at}.png"] = strip
            factors[sample] = factor
        self._triplet_bytes += used


def _folder(number: int) -> str:
    return f"small-{number}"


def _broken_first(rows: Any) -> Iterator[tuple[int, str]]:
    """Yield broken samples, the nearest to the decision boundary first; others have no adversarial image to show."""
    broken = rows[rows["outcome"] == "b"]
    order = broken["margin"].abs().sort_values(kind="stable").index
    yield from ((int(at), str(rows["sample_id"][at])) for at in order)


def _sheet(dataset: "Dataset", rows: Sequence[int]) -> bytes:
    from PIL import Image

    from robustassay.report.site.pictures import to_image

    sheet = Image.new("RGB", (ACROSS * SIDE, ACROSS * SIDE), (128, 128, 128))
    for at, image in enumerate(dataset.images(list(rows))):
        small = to_image(image).convert("RGB")
        small.thumbnail((SIDE, SIDE))
        left, top = (SIDE - small.width) // 2, (SIDE - small.height) // 2
        sheet.paste(small, (SIDE * (at % ACROSS) + left, SIDE * (at // ACROSS) + top))
    file = io.BytesIO()
    sheet.save(file, "JPEG", quality=80, optimize=True)
    return file.getvalue()


def _triplet(x0: Any, x_adv: Any) -> tuple[bytes, int]:
    """Return the original, the magnified change and the adversarial image side by side, and the magnification."""
    from PIL import Image

    from robustassay.report.site.pictures import magnified, to_image

    change, factor = magnified(x0, x_adv)
    parts = [to_image(one) for one in (x0, change, x_adv)]
    width, height = parts[0].size
    strip = Image.new(parts[0].mode, (3 * width, height))
    for at, part in enumerate(parts):
        strip.paste(part, (at * width, 0))
    file = io.BytesIO()
    strip.save(file, "PNG", optimize=True)
    return file.getvalue(), factor
