"""The card of an entry: who made the model, how, and where it was published."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

from robustassay import shards
from robustassay.eps import parse_eps
from robustassay.errors import BadData, BadRequest
from robustassay.models.card import ModelCard

CARD: Final = "card.json"
_LONGEST: Final = 5_000
_MOST_BYTES: Final = 1 << 20
_ACTIVE_LINK: Final = re.compile(r"\s*(javascript|data|vbscript|file)\s*:", re.IGNORECASE)

# The papers of the recipes that made the embedded models; the weights are ours, the methods theirs.
METHODS: Final[Mapping[str, tuple[str, str, str]]] = {
    "pgd": ("1706.06083", "ICLR 2018", "Madry et al."),
    "pgd-l2": ("1706.06083", "ICLR 2018", "Madry et al."),
    "trades": ("1901.08573", "ICML 2019", "Zhang et al."),
    "alp": ("1803.06373", "arXiv, Mar 2018", "Kannan et al."),
    "deepdefense": ("1803.00404", "NeurIPS 2018", "Yan et al."),
    "ensemble-adv": ("1705.07204", "ICLR 2018", "Tramèr et al."),
    "adp": ("1901.08846", "ICML 2019", "Pang et al."),
    "rse": ("1712.00673", "ECCV 2018", "Liu et al."),
    "gaussian": ("1902.02918", "ICML 2019", "Cohen et al."),
    "ibp": ("1906.06316", "ICLR 2020", "Zhang et al."),
}


@final
@dataclass(frozen=True, kw_only=True)
class External:
    """An accuracy that others measured with their own attack; there are no records of it here."""

    accuracy: float
    norm: str
    eps: float
    by: str
    link: str = ""

    def __post_init__(self) -> None:
        _check(isinstance(self.by, str) and bool(self.by), "by", "a name of who or what measured it", self.by)
        _check(_is_rate(self.accuracy), "accuracy", "a number from 0 to 1", self.accuracy)


@final
@dataclass(frozen=True, kw_only=True)
class EntryCard:
    """The card of a model on a leaderboard; `name` identifies its entry."""

    name: str
    title: str = ""
    authors: str = ""
    link: str = ""
    venue: str = ""
    architecture: str = ""
    parameters: int | None = None
    additional_data: bool | None = None  # trained on more than its dataset; None where nobody says
    number_forward_passes: int = 1
    reported: float | None = None  # the robust accuracy its authors claim
    external: tuple[External, ...] = ()
    footnote: str = ""

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and bool(re.fullmatch(r"[\w+=|:-][\w.+=|:-]{0,199}", self.name))
        _check(named, "name", "a name without blanks or slashes", self.name)
        for field in ("title", "authors", "link", "venue", "architecture", "footnote"):
            _check(_is_text(getattr(self, field)), field, f"text of at most {_LONGEST} letters", getattr(self, field))
        _check(not _ACTIVE_LINK.match(self.link), "link", "an address of a page", self.link)
        _check(self.parameters is None or _is_count(self.parameters), "parameters", "a whole number", self.parameters)
        _check(_is_count(self.number_forward_passes), "number_forward_passes", "a whole number", self.parameters)
        known = self.additional_data is None or isinstance(self.additional_data, bool)
        _check(known, "additional_data", "true or false", self.additional_data)
        _check(self.reported is None or _is_rate(self.reported), "reported", "a number from 0 to 1", self.reported)

    @property
    def year(self) -> int | None:
        """The year in its venue."""
        found = re.search(r"\b(19|20)\d\d\b", self.venue)
        return int(found[0]) if found else None

    def to_json(self) -> str:
        """Write the card as the text of a JSON file."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a card from its file."""
        try:
            text = shards.read_limited(path, _MOST_BYTES).decode("utf-8")
        except (OSError, ValueError) as error:
            raise BadData(f"The card {path} cannot be read ({error}): write one, or mend it.") from error
        return cls.from_json(text)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a card, or raise an error that says what is wrong with it."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadData(f"The card is not JSON ({error}): mend it.") from error
        if not isinstance(content, dict):
            raise BadData("The card is not a JSON object: write its fields between braces.")
        unknown = content.keys() - {field.name for field in dataclasses.fields(cls)}
        if unknown or "name" not in content:
            told = f"does not know {', '.join(sorted(unknown))}" if unknown else "lacks a name"
            raise BadData(f"The card {told}: its fields are {', '.join(f.name for f in dataclasses.fields(cls))}.")
        try:
            others = tuple(_external(one) for one in content.pop("external", ()))
        except (TypeError, AttributeError, BadRequest) as error:
            raise BadData(f"The card's external evaluations cannot be read ({error}): mend them.") from error
        return cls(**content, external=others)


def card_of_zoo(model: ModelCard) -> EntryCard:
    """Make the leaderboard card of an embedded model from its model card."""
    number, venue, authors = METHODS.get(model.recipe, ("", "", ""))
    shape = ", ".join(f"{key} {value}" for key, value in model.architecture.items() if key != "name")
    return EntryCard(
        name=model.name,
        title=model.title,
        authors=f"method: {authors}; weights: assay" if authors else "assay",
        link=f"https://arxiv.org/abs/{number}" if number else "",
        venue=venue,
        architecture=f"{model.architecture['name']} ({shape})" if shape else str(model.architecture["name"]),
        parameters=model.parameters,
        additional_data=False if model.training_data.startswith("CIFAR-10 training set") else None,
        footnote=model.notes,
    )


def _external(content: Mapping[str, Any]) -> External:
    return External(**{**content, "eps": parse_eps(content.get("eps"))})


def _check(fits: bool, field: str, wanted: str, found: object) -> None:
    if not fits:
        raise BadData(f"The card's {field} must be {wanted}, not {repr(found)[:200]}.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
