"""The leaderboard: entries made from records, beside what others published, and the rules for being admitted.

Measured numbers are never typed in: an entry is a card, which says what a model is, and the records of its runs.
"""

from assay.leaderboard.board import Board, boards
from assay.leaderboard.card import EntryCard, External, card_of_zoo
from assay.leaderboard.entry import Entry, Number, measured
from assay.leaderboard.gather import Gathered, gather
from assay.leaderboard.model_info import read_folder, to_model_info
from assay.leaderboard.submission import Submission, add
from assay.leaderboard.writing import write

__all__ = [
    "Board",
    "Entry",
    "EntryCard",
    "External",
    "Gathered",
    "Number",
    "Submission",
    "add",
    "boards",
    "card_of_zoo",
    "gather",
    "measured",
    "read_folder",
    "to_model_info",
    "write",
]
