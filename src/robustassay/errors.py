"""Everything assay raises on purpose.

AssayError                    catch this one to catch them all
├── BadRequest                what was asked for cannot be done; exit code 2
│   ├── UnknownName           no such attack, model, dataset, ...; names the nearest known ones
│   ├── BadData               images or labels that would make every number wrong
│   ├── BadModel              a model that cannot be judged as it is
│   ├── BadWeights            a weights file that is damaged, unsafe, or not the one its card promises
│   └── WrongFolder           the output folder belongs to another run
├── EvaluationFailed          the evaluation started and could not go on; exit code 1
│   ├── ModelFailed           the model raised or returned NaN in the middle of a run
│   └── StoreFailed           results could not be written or read back
└── Interrupted               stopped on request, finished work is safe; exit code 130

Each message is one sentence that says what is wrong and what to do about it.
"""

import difflib
from collections.abc import Iterable


class AssayError(Exception):
    """Base of everything assay raises on purpose."""

    exit_code = 1


class BadRequest(AssayError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class UnknownName(BadRequest):
    """A name that no registry knows."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known) or 'none'}."
        super().__init__(f"There is no {kind} called {name!r}: {hint}")


class BadData(BadRequest):
    """Images or labels that would make every number wrong."""


class BadModel(BadRequest):
    """A model that cannot be judged as it is."""


class BadWeights(BadRequest):
    """A weights file that is damaged, unsafe, or not the one its card promises."""


class WrongFolder(BadRequest):
    """The output folder belongs to another run."""


class EvaluationFailed(AssayError):
    """The evaluation started and could not go on."""


class ModelFailed(EvaluationFailed):
    """The model raised or returned NaN in the middle of a run."""


class StoreFailed(EvaluationFailed):
    """Results could not be written or read back."""


class Interrupted(AssayError):
    """Stopped on request; finished work is safe and the same call resumes it."""

    exit_code = 130
