"""The exceptions of assay.

AssayError                    the base class of all
├── BadRequest                the request is not possible; exit code 2
│   ├── UnknownName           there is no such attack, model, dataset, ...; the message names similar ones
│   ├── BadData               images or labels that would make results wrong
│   ├── BadModel              a model that cannot be evaluated
│   ├── BadWeights            a weights file that is damaged, unsafe, or does not match its card
│   └── WrongFolder           the output folder belongs to another run
├── EvaluationFailed          the evaluation started and failed; exit code 1
│   ├── ModelFailed           the model raised an error or returned NaN during a run
│   └── StoreFailed           results could not be written or read
└── Interrupted               interrupted; finished work is kept; exit code 130

Each message is one sentence that says what is wrong and what to do about it.
"""

import difflib
from collections.abc import Iterable


class AssayError(Exception):
    """Base class of all exceptions of assay."""

    exit_code = 1


class BadRequest(AssayError):
    """The request is not possible."""

    exit_code = 2


class UnknownName(BadRequest):
    """There is no such name; the message names similar ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        similar = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"the names are {', '.join(known) or 'none'}."
        super().__init__(f"There is no {kind} called {name!r}: {hint}")


class BadData(BadRequest):
    """Images or labels that would make results wrong."""


class BadModel(BadRequest):
    """A model that cannot be evaluated."""


class BadWeights(BadRequest):
    """A weights file that is damaged, unsafe, or does not match its card."""


class WrongFolder(BadRequest):
    """The output folder belongs to another run."""


class EvaluationFailed(AssayError):
    """The evaluation started and failed."""


class ModelFailed(EvaluationFailed):
    """The model raised an error or returned NaN during a run."""


class StoreFailed(EvaluationFailed):
    """Results could not be written or read."""


class Interrupted(AssayError):
    """Interrupted; finished work is kept, and the same call resumes it."""

    exit_code = 130
