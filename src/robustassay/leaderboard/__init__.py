"""The leaderboard: entries made from records, beside what others published, and the rules for being admitted.

Measured numbers are never typed in: an entry is a card, which says what a model is, and the records of its runs.
"""

from robustassay.leaderboard.board import Board, boards
from robustassay.leaderboard.card import EntryCard, External, card_of_zoo
from robustassay.leaderboard.entry import Accuracy, Entry, measured_entry
from robustassay.leaderboard.gather import Gathered, gather
from robustassay.leaderboard.model_info import read_folder, to_model_info
from robustassay.leaderboard.submission import Submission, add
from robustassay.leaderboard.writing import write

__all__ = [
    "Accuracy",
    "Board",
    "Entry",
    "EntryCard",
    "External",
    "Gathered",
    "Submission",
    "add",
    "boards",
    "card_of_zoo",
    "gather",
    "measured_entry",
    "read_folder",
    "to_model_info",
    "write",
]
