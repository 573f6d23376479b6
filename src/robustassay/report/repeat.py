"""The command line that repeats an evaluation: one run, or the runs of several attacks on one model."""

import shlex
from pathlib import Path

from robustassay.report.site.command import RepeatCommand, is_loadable, repeat
from robustassay.results.identity import ADAPTIVE
from robustassay.results.runs import StoredRun, find_runs


def repeat_evaluation(folder: Path) -> RepeatCommand:
    """Write one command for all runs of a folder; remedies and confirming runs become options of it."""
    runs = find_runs([folder])
    first = [run for run in runs if not run.confirms] or list(runs)
    loadable = is_loadable(first[0].spec["model"])
    commands = [repeat(run, _samples(run), loadable) for run in first]
    words = [shlex.split(one.command) for one in commands if one.command is not None]
    if len(words) < len(commands):
        return next(one for one in commands if one.command is None)
    at = words[0].index("--attack") + 1
    attacks = dict.fromkeys(one[at] for one in words)
    options = ["--confirm"] if any(run.confirms and not _is_remedy(run) for run in runs) else []
    options += ["--adaptive", "auto"] if any(map(_is_diagnosed, runs)) else []
    options += ["--keep-images"] if any(run.has_images for run in first) else []
    return RepeatCommand(shlex.join([*words[0][:at], *attacks, *words[0][at + 1 :], *options]), commands[0].note)


def _samples(run: StoredRun) -> int:
    return len(run.read()) + len(run.failures())


def _is_remedy(run: StoredRun) -> bool:
    return "remedy" in run.manifest.get(ADAPTIVE, {})


def _is_diagnosed(run: StoredRun) -> bool:
    return "indicators" in run.manifest.get(ADAPTIVE, {})
