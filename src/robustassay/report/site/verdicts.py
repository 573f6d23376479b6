"""One sentence that says what a number is worth: of the best model of a report, and of one model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from robustassay.report import formatting
from robustassay.report.site.board import by_models
from robustassay.report.site.content import Content
from robustassay.report.site.models import ReportedModel
from robustassay.results.models import ModelResult, ThreatRanking

Trust = Literal["good", "note", "warning"]
"""Earned by strong attacks, an upper bound, or doubtful."""


@final
@dataclass(frozen=True)
class Verdict:
    """A sentence, and how far its number can be trusted."""

    trust: Trust
    subject: str  # the model it is about
    page: str
    text: str


def trust_in(result: ModelResult) -> Trust:
    """Say how far the robust accuracy of one model can be trusted; zero cannot be too high."""
    if not result.robust.count:
        return "good"
    if result.warnings:
        return "warning"
    return "good" if result.evidence.earned else "note"


def model_verdict(result: ModelResult) -> str:
    """Say in a sentence or two what was found about one model under one threat, and why to believe it."""
    rate = f"{formatting.percent(result.robust.value)} ({formatting.span(result.robust.interval())})"
    where = f"under {result.threat}, from {formatting.percent(result.clean.value)} without an attack"
    return f"{_said(result, rate, where)} {_reason(result)}"


def _said(result: ModelResult, rate: str, where: str) -> str:
    if not result.robust.count:
        return f"is not robust: no sample stands {where}."
    at_most = "" if trust_in(result) == "good" else "at most "
    return f"keeps {at_most}{rate} {where}."


def _reason(result: ModelResult) -> str:
    """Say why the number can be believed, or what speaks against it."""
    if result.warnings and result.robust.count:
        return f"Do not rely on it yet: {formatting.few_flags(result.warnings)}."
    attacks = formatting.listed([one.label for one in reversed(result.counted)][:3])
    more = len(result.counted) - 3
    by = attacks if more <= 0 else f"{attacks} and {more} more"
    if not result.robust.count:
        return f"Every success of {by} was verified on a fresh forward pass."
    if not result.evidence.earned:
        return f"It is an upper bound by {by}: a stronger attack may lower it."
    test = result.evidence.self_test.rate
    return (
        f"The evidence is {result.evidence.label}: {by}, with every success verified and {test.count} of {test.total} "
        "planted examples found. No warnings."
    )


def best_verdict(content: Content) -> Verdict | None:
    """Name the most robust model under the threat that most models share, and what its lead is worth."""
    rankings = by_models([ranking for ranking in content.rankings if ranking.models])
    if not rankings:
        return None
    ranking = rankings[0]
    clear = [result for result in ranking.models if not result.warnings]
    best = (clear or ranking.models)[0]
    model = content.models[best.model_id]
    if len(ranking.models) == 1 or not best.robust.count:
        text = model_verdict(best)
    else:
        text = f"is the most robust of {len(ranking.models)} models: it {model_verdict(best)}"
    ahead = [one for one in ranking.models[: ranking.models.index(best)] if one.robust.value > best.robust.value]
    text += _ahead(ahead, content.models) + _ties(ranking, best, content.models)
    return Verdict(trust_in(best), model.label, model.page, text)


def _ahead(ahead: Sequence[ModelResult], models: Mapping[str, ReportedModel]) -> str:
    """Name the models with a higher number that has warnings."""
    if not ahead:
        return ""
    names = formatting.listed([models[one.model_id].label for one in ahead[:3]])
    verb, number = ("shows", "that number has") if len(ahead) == 1 else ("show", "those numbers have")
    return f" {names} {verb} more, but {number} warnings."


def _ties(ranking: ThreatRanking, best: ModelResult, models: Mapping[str, ReportedModel]) -> str:
    """Name the models that do not differ significantly from the best one."""
    letters = ranking.letters
    own = set(letters.get(best.model_id, ""))
    same = [
        models[one.model_id].label
        for one in ranking.models
        if one is not best and own & set(letters.get(one.model_id, "")) and (best.warnings or not one.warnings)
    ]
    if not same or not best.robust.count:
        return ""
    names = formatting.listed(same) if len(same) <= 3 else f"{same[0]} and {len(same) - 1} others"
    return f" On {formatting.count(ranking.samples, 'sample')} it does not differ significantly from {names}."
