"""The page of misses and false alarms, from rows of `benchmarks.doctor_rates`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from statistics import median
from typing import Any, Final

from benchmarks.doctor_rates_text import HEAD, WRITTEN
from benchmarks.model_collection import HALVES, LATER, PARTS, Entry
from robustassay.analysis.intervals import clopper_pearson

Row = dict[str, Any]
GAP: Final = 0.1
RANDOM: Final = "randomised"
"""The flag that says no more than that a model is random."""
CLOSE: Final = 0.03
NEWEST: Final = LATER[-3:]
"""The parts on which nothing was set: the last one has honest models only."""


def page(
    collection: Iterable[Entry], rows: dict[str, Row], before: dict[str, Row], again: dict[str, Row] | None = None
) -> str:
    """Return the page."""
    entries = list(collection)
    counts = {kind: sum(entry.kind == kind for entry in entries) for kind in ("masked", "honest")}
    groups: dict[str, Collection[str]] = {
        **{part: (part,) for part in PARTS},
        f"{LATER[0]} to {LATER[-1]}": LATER,
        f"{NEWEST[0]} to {NEWEST[-1]}": NEWEST,
    }
    later = [entry for entry in entries if entry.part in LATER]
    head = HEAD.format(
        **counts,
        written="\n".join(f"| {part} | {written} | {use} |" for part, (written, use) in WRITTEN.items()),
        seconds=seconds_of_adaptive(rows),
        rates=f"{rates_table(entries, rows, groups)}\n{right_alarms(later, rows)}\n{without_result(later, rows)}",
        before=rates_table(entries, before, {half: (half,) for half in HALVES}),
    )
    return head + repeated(entries, rows, again or {}) + tables(entries, rows)


def rates_table(entries: list[Entry], rows: dict[str, Row], groups: Mapping[str, Collection[str]]) -> str:
    """Return the rates of parts, or of several together: a row each, with how many of its models were measured."""
    titles = ["part", *("measured" if title is None else title for title, _, _ in RATES)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, parts in groups.items():
        chosen = [entry for entry in entries if entry.part in parts]
        cells = [
            how_many(chosen, kind, rows) if check is None else rate(chosen, kind, check, rows)
            for _, kind, check in RATES
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def right_alarms(entries: list[Entry], rows: dict[str, Row]) -> str:
    """Name the models written as honest on which an alarm was right."""
    honest = [entry for entry in entries if entry.kind == "honest" and entry.name in rows]
    alarmed = [entry for entry in honest if is_alarmed(rows[entry.name])]
    right = [entry for entry in alarmed if is_right(rows[entry.name])]
    if not right:
        return ""
    names = quoted([entry.name for entry in right])
    return (
        f"\nOf the {len(alarmed)} alarms on honest models of the later parts {len(right)} were right: adaptive auto "
        f"breaks 10 points or more of the images that express left, so these models are masked, unlike what their "
        f"authors meant ({names}). The table counts them as false all the same.\n"
    )


def is_right(row: Row) -> bool:
    """Return whether adaptive auto lies at least 10 points below express: all that it breaks is verified."""
    said, found = (row.get(stage, {}).get("accuracy") for stage in ("express", "adaptive"))
    return said is not None and found is not None and said - found >= GAP - 1e-9


def how_many(entries: list[Entry], kind: str, rows: dict[str, Row]) -> str:
    """Return how many models of a kind were measured, and of how many."""
    names = [entry.name for entry in entries if entry.kind == kind]
    return f"{sum(name in rows for name in names)} of {len(names)} {kind}"


def seconds_of_adaptive(rows: dict[str, Row]) -> str:
    """Say how long adaptive auto took."""
    seconds = [row["adaptive"]["seconds"] for row in rows.values() if "adaptive" in row]
    if not seconds:
        return "Nothing was measured so far."
    return (
        f"`--adaptive auto` took {median(seconds):.0f} s at the median and {max(seconds):.0f} s at most, often on "
        "cores that other work shared."
    )


def rate(entries: list[Entry], kind: str, check: Callable[[Row], bool | None], rows: dict[str, Row]) -> str:
    """Return a count and its interval, over the models of a kind on which the check could be made."""
    seen = [check(rows[entry.name]) for entry in entries if entry.kind == kind and entry.name in rows]
    known = [verdict for verdict in seen if verdict is not None]
    if not known:
        return "–"
    low, high = (float(end) for end in clopper_pearson(sum(known), len(known)))
    return f"{sum(known)} of {len(known)} ({low:.1%} to {high:.1%})"


def truth_of(row: Row) -> float | None:
    """Return the accuracy under the attack written by hand, or under a verified attack that was stronger."""
    stages = ("truth", "express", "adaptive")
    found = {stage: float(row[stage]["accuracy"]) for stage in stages if "accuracy" in row.get(stage, {})}
    return min(found.values()) if "truth" in found else None


def is_silent(row: Row, stage: str) -> bool | None:
    """Return whether a result lies far above the truth and does not say so; None where one of them is missing."""
    truth, result = truth_of(row), row.get(stage)
    if truth is None or result is None:
        return None
    if "accuracy" not in result:
        return False
    least = result["accuracy"] - result["doubtful"] / row["images"]
    return not warnings(result) and least - truth >= GAP - 1e-9


def warnings(result: Row) -> list[str]:
    """Return the flags that cast doubt on the accuracy."""
    return [flag for flag in result["flags"] if flag != RANDOM]


def misses_eval(row: Row) -> bool | None:
    """Return whether `eval` alone misses."""
    return is_silent(row, "express")


def misses_doctor(row: Row) -> bool | None:
    """Return whether `eval` misses and the doctor has no alarm."""
    silent, alarm = is_silent(row, "express"), is_alarmed(row)
    return None if silent is None or alarm is None else silent and not alarm


def misses_adaptive(row: Row) -> bool | None:
    """Return whether `eval --adaptive auto` misses."""
    return is_silent(row, "adaptive")


def is_far(row: Row) -> bool | None:
    """Return whether adaptive auto ends more than 3 points above the truth."""
    truth, said = truth_of(row), row.get("adaptive", {}).get("accuracy")
    return None if truth is None or said is None else said - truth > CLOSE


def is_alarmed(row: Row) -> bool | None:
    """Return whether the doctor raised an alarm or refused the model."""
    return bool(row["doctor"].get("alarms", True)) if "doctor" in row else None


def is_flagged(row: Row) -> bool | None:
    """Return whether adaptive auto flagged the model or refused it."""
    if "adaptive" not in row:
        return None
    return "flags" not in row["adaptive"] or bool(warnings(row["adaptive"]))


def is_doubted(row: Row) -> bool | None:
    """Return whether express puts every standing sample in doubt."""
    said = row.get("express", {})
    if "accuracy" not in said:
        return None
    return bool(0 < round(said["accuracy"] * row["images"]) <= said["doubtful"])


RATES: Final[list[tuple[str | None, str, Callable[[Row], bool | None] | None]]] = [
    (None, "masked", None),
    ("misses of `eval`", "masked", misses_eval),
    ("of `eval` and `doctor`", "masked", misses_doctor),
    ("of adaptive auto", "masked", misses_adaptive),
    ("adaptive auto too high", "masked", is_far),
    (None, "honest", None),
    ("false alarms", "honest", is_alarmed),
    ("false flags", "honest", is_flagged),
    ("all that stands in doubt", "honest", is_doubted),
]
"""Columns of the table of rates: title, kind of models, and the check; without a check, how many were measured."""


REPEATED: Final = {"masked": "adaptive", "honest": "doctor"}
"""The stage that is measured again where something went wrong."""


def went_wrong(entry: Entry, row: Row) -> bool:
    """Return whether a masked model was missed, refused or left too high, or an honest one suspected."""
    return is_wrong(entry, row) or (entry.kind == "masked" and (bool(is_far(row)) or not_attacked(row) is not None))


def not_attacked(row: Row) -> str | None:
    """Return why adaptive auto gave no accuracy, if it was called: it refused the model, or ended in an error."""
    return next((reason for reason in ("refused", "error") if reason in row.get("adaptive", {})), None)


def without_result(entries: list[Entry], rows: dict[str, Row]) -> str:
    """Name the masked models on which adaptive auto gave no accuracy."""
    found = {
        reason: [e.name for e in entries if e.kind == "masked" and not_attacked(rows.get(e.name, {})) == reason]
        for reason in ("refused", "error")
    }
    return (
        f"On {sum(map(len, found.values()))} masked models of the later parts adaptive auto gave no accuracy; they "
        f"count neither as misses nor as too high. Refused: {quoted(found['refused'])}. Ended in an error: "
        f"{quoted(found['error'])}."
    )


def quoted(names: list[str]) -> str:
    """List names, or say that there are none."""
    return ", ".join(f'"{name}"' for name in names) or "none"


def repeated(entries: list[Entry], rows: dict[str, Row], again: dict[str, Row]) -> str:
    """Return what went wrong, as it was first measured and with later code."""
    wrong = [entry for entry in entries if entry.part != "tuning" and went_wrong(entry, rows.get(entry.name, {}))]
    seen = [entry for entry in wrong if REPEATED[entry.kind] in again.get(entry.name, {})]
    if not seen:
        return ""
    masked = [entry for entry in seen if entry.kind == "masked"]
    close = sum(is_far({**rows[entry.name], **again[entry.name]}) is False for entry in masked)
    quiet = sum(not is_alarmed(again[entry.name]) for entry in seen if entry.kind == "honest")
    return (
        "## Measured again\n\nWhat went wrong outside the tuning half, with the code of today "
        f"(`--again`; {len(wrong) - len(seen)} models are left): adaptive auto now ends within 3 points of "
        f"the truth on {close} of {len(masked)} masked models, and {quiet} of {len(seen) - len(masked)} honest models "
        "raise no alarm. Mends were made after a look at some of these rows, so these are no rates."
        f"{asked_again(entries, rows, again)}\n\n"
        "| model | part | truth | adaptive, first | now | seconds | alarms, first | now |\n"
        "|---|---|---|---|---|---|---|---|\n"
        + "\n".join(_repeated_line(entry, rows[entry.name], again[entry.name]) for entry in seen)
        + "\n\n"
    )


def asked_again(entries: list[Entry], rows: dict[str, Row], again: dict[str, Row]) -> str:
    """Say on how many models of the newest parts the doctor raised an alarm first, and does today."""
    both = [
        e
        for e in entries
        if e.part in NEWEST and "doctor" in rows.get(e.name, {}) and "doctor" in again.get(e.name, {})
    ]
    told = []
    for kind in ("masked", "honest"):
        chosen = [entry.name for entry in both if entry.kind == kind]
        first, now = (sum(bool(is_alarmed(found[name])) for name in chosen) for found in (rows, again))
        told.append(f"{now} of {len(chosen)} {kind} models, first {first}")
    parts = ", ".join(part for part in NEWEST if any(entry.part == part for entry in both))
    return f" The doctor of today raises an alarm on {' and '.join(told)}, of the parts {parts}." if both else ""


def _repeated_line(entry: Entry, first: Row, now: Row) -> str:
    truth = truth_of({**first, **now})
    facts = [entry.name, entry.part, "-" if truth is None else f"{100 * truth:.0f}"]
    if entry.kind == "honest":
        return "| " + " | ".join([*facts, "-", "-", "-", alarms(first), alarms(now)]) + " |"
    seconds = f"{now['adaptive']['seconds']:.0f}"
    return "| " + " | ".join([*facts, outcome(first, "adaptive"), outcome(now, "adaptive"), seconds, "-", "-"]) + " |"


def tables(entries: list[Entry], rows: dict[str, Row]) -> str:
    """Return one table per kind."""
    return "\n\n".join(
        f"## {kind.capitalize()} models\n\n"
        "Accuracies in per cent; in parentheses the samples in doubt; `!` marks a flag, **bold** a miss or a false "
        "alarm. A dash means: not measured.\n\n"
        "| model | family | part | made | classes | shape | eps | express | truth | adaptive | seconds | alarms |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        + "\n".join(line(entry, rows.get(entry.name, {})) for entry in entries if entry.kind == kind)
        for kind in ("masked", "honest")
    ) + "\n"  # fmt: skip


def line(entry: Entry, row: Row) -> str:
    """Return one line of a table."""
    shape = "x".join(map(str, entry.shape))
    name = f"**{entry.name}**" if is_wrong(entry, row) else entry.name
    truth = "-" if entry.kind == "honest" else outcome(row, "truth")
    seconds = f"{row['adaptive']['seconds']:.0f}" if "adaptive" in row else "-"
    facts = [name, entry.family, entry.part, entry.made, f"{entry.classes}", shape, f"{255 * entry.eps:.3g}/255"]
    return (
        "| "
        + " | ".join([*facts, outcome(row, "express"), truth, outcome(row, "adaptive"), seconds, alarms(row)])
        + " |"
    )


def is_wrong(entry: Entry, row: Row) -> bool:
    """Return whether the model is a miss of the doctor or of adaptive auto, or a false alarm."""
    if entry.kind == "honest":
        return bool(is_alarmed(row))
    return bool(misses_doctor(row) or misses_adaptive(row))


def outcome(row: Row, stage: str) -> str:
    """Return what a stage said."""
    found = row.get(stage)
    if found is None:
        return "-"
    if "accuracy" not in found:
        return "refused" if "refused" in found else "error"
    doubt = f" ({found['doubtful']})" if found.get("doubtful") else ""
    return f"{100 * found['accuracy']:.0f}{doubt}{' !' if warnings({'flags': [], **found}) else ''}"


def alarms(row: Row) -> str:
    """Return the doctor's alarms."""
    found = row.get("doctor")
    if found is None:
        return "-"
    return ", ".join(found["alarms"]) if "alarms" in found else outcome(row, "doctor")


def summary(row: Row) -> str:
    """Return a row in one line of a terminal."""
    parts = [f"{stage} {outcome(row, stage)}" for stage in ("express", "truth", "adaptive") if stage in row]
    seconds = sum(row[stage]["seconds"] for stage in ("express", "truth", "doctor", "adaptive") if stage in row)
    found = [f"alarms: {alarms(row) or 'none'}"] if "doctor" in row else []
    return f"{row['name']}: {', '.join([*parts, *found])}; {seconds:.0f} s"
