"""The page of misses and false alarms, from rows of `benchmarks.doctor_rates`."""

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, Final

from benchmarks.model_collection import PARTS, Entry
from robustassay.analysis.intervals import clopper_pearson

Row = dict[str, Any]
GAP: Final = 0.1
RANDOM: Final = "randomised"
"""The flag that says no more than that a model is random."""
CLOSE: Final = 0.03

HEAD: Final = """# Misses and false alarms of the doctor

How often is a robust accuracy far too high and nothing says so, and how often is an honest model suspected? The
collection in `benchmarks/model_collection/` holds {masked} masked and {honest} honest models in six parts:

- **Tuning and held-out**: two halves, split by a hash of the names of families. Their author had not read the doctor's
  code, but knew docs/masked.md. Limits may be set on the tuning half.
- **Fresh**: written after the doctor was tuned, without a look at it. The remedies of `--adaptive auto` were mended
  after a look at what they missed here.
- **Later**: written by the author of the mended remedies before they were run on it. One of its rows, "one expert", led
  to a mend and was measured after it; before, adaptive auto gave 88 % there.
- **Latest**: by another author, without a look at the doctor or at this page, while evaluations got their cross-check.
  The author of that saw none of these models before they were measured, with commit b4594b3.
- **Newest**: written in the same way while inactive values and attacks of other kinds were added. Measured with commit
  6e845b3 on cores that other work shared, so its seconds are too long. The author of these changes had seen one-line
  descriptions of its models before, and one accuracy under express.

The rates that count are those of a part on which nothing was set: the held-out half, the fresh part for everything but
remedies, the later, the latest and the newest part. Later mends are in the section "Measured again". The goal for 60
models of each kind: no miss of `eval` and `doctor`, and at most 2 false alarms.
`python -m benchmarks.doctor_rates` writes this page from
docs/doctor-rates.jsonl, where it keeps what it has measured. A row stays as it was first measured: a correction that a
row outside the tuning half has led to does not change that row.

- **Images**: per model the first 16 that it classifies correctly, of CIFAR-10 or of drawn sources:
  seven-segment symbols and pairs of them, striped textures, spots, waves. The norm is L∞; the table names the
  radius.
- **Truth**: the robust accuracy of a masked model under an attack written by hand with knowledge of the mask
  (`truth.py`), or under express or adaptive auto where that is lower. A random model is
  judged by the majority of 32 draws, a model with a memory by a copy that has seen nothing, a model that depends on its
  batch by one image per call.
- **Miss**: the truth lies at least 10 points below the accuracy said, there is no flag other than randomness, and the
  samples in doubt do not cover the difference. After `eval` alone; after `eval` and `doctor`, where an alarm also
  counts as said; and after `eval --adaptive auto`, by its own result. `eval` attacks with express.
- **False alarm**: the doctor raises an alarm on an honest model, or refuses it. **False flag**: the same for the flags
  of `eval --adaptive auto`.
- Intervals are Clopper and Pearson's, 95 %.

## Rates

{measured}

| rate | part | {columns} |
|---|---|{rules}|
"""


def page(
    collection: Iterable[Entry], rows: dict[str, Row], before: dict[str, Row], again: dict[str, Row] | None = None
) -> str:
    """Return the page."""
    entries = list(collection)
    counts = {kind: sum(entry.kind == kind for entry in entries) for kind in ("masked", "honest")}
    versions = {name: seen for name, seen in (("before", before), ("now", rows)) if seen}
    shown = rows or before
    head = HEAD.format(
        **counts,
        measured=measured(entries, shown),
        columns=" | ".join(versions),
        rules="|".join("---" for _ in versions),
    )
    lines = [
        f"| {title} | {part} | " + " | ".join(rate(entries, part, kind, check,
            seen) for seen in versions.values()) + " |"
        for title, kind, check in RATES
        for part in PARTS
    ]  # fmt: skip
    return head + "\n".join(lines) + "\n\n" + repeated(entries, shown, again or {}) + tables(entries, shown)


def measured(entries: list[Entry], rows: dict[str, Row]) -> str:
    """Say how many models were measured, and how long adaptive auto took."""
    parts = [
        f"{sum(entry.part == part and entry.kind == kind and entry.name in rows for entry in entries)} of "
        f"{sum(entry.part == part and entry.kind == kind for entry in entries)} {kind} models of the {part} part"
        for part in PARTS
        for kind in ("masked", "honest")
    ]
    seconds = [row["adaptive"]["seconds"] for row in rows.values() if "adaptive" in row]
    took = (
        f" `--adaptive auto` took {median(seconds):.0f} s at the median and {max(seconds):.0f} s at most."
        if seconds
        else ""
    )
    return f"Measured so far: {', '.join(parts[:-1])} and {parts[-1]}.{took}"


def rate(entries: list[Entry], part: str, kind: str, check: Callable[[Row], bool | None], rows: dict[str, Row]) -> str:
    """Return a count and its interval, over the models on which the check could be made."""
    seen = [
        check(rows[entry.name]) for entry in entries if (entry.part, entry.kind) == (part, kind) and entry.name in rows
    ]
    known = [verdict for verdict in seen if verdict is not None]
    if not known:
        return "not measured"
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


RATES: Final[list[tuple[str, str, Callable[[Row], bool | None]]]] = [
    ("misses of `eval`", "masked", misses_eval),
    ("misses of `eval` and `doctor`", "masked", misses_doctor),
    ("misses of `eval --adaptive auto`", "masked", misses_adaptive),
    ("adaptive auto more than 3 points above the truth", "masked", is_far),
    ("false alarms of `doctor`", "honest", is_alarmed),
    ("all that stands in doubt after `eval`", "honest", is_doubted),
    ("false flags of `eval --adaptive auto`", "honest", is_flagged),
]


def went_wrong(entry: Entry, row: Row) -> bool:
    """Return whether a masked model was missed or left too high, or an honest one suspected."""
    return is_wrong(entry, row) or (entry.kind == "masked" and bool(is_far(row)))


def repeated(entries: list[Entry], rows: dict[str, Row], again: dict[str, Row]) -> str:
    """Return what went wrong, as it was first measured and with later code."""
    seen = [entry for entry in entries if entry.name in again and entry.name in rows]
    if not seen:
        return ""
    masked = [entry for entry in seen if entry.kind == "masked"]
    close = sum(not is_far({**rows[entry.name], **again[entry.name]}) for entry in masked)
    quiet = sum(not is_alarmed(again[entry.name]) for entry in seen if entry.kind == "honest")
    left = sum(went_wrong(entry, rows.get(entry.name, {})) for entry in entries if entry.part != "tuning") - len(seen)
    return (
        "## Measured again\n\nWhat went wrong outside the tuning half, with the code of today "
        f"(`--again`; {left} models are left): adaptive auto now ends within 3 points of the truth on {close} of "
        f"{len(masked)} masked models, and {quiet} of {len(seen) - len(masked)} honest models raise no alarm. Mends "
        "were made after a look at some of these rows, so these are no rates.\n\n"
        "| model | part | truth | adaptive, first | now | seconds | alarms, first | now |\n"
        "|---|---|---|---|---|---|---|---|\n"
        + "\n".join(_repeated_line(entry, rows[entry.name], again[entry.name]) for entry in seen)
        + "\n\n"
    )


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
