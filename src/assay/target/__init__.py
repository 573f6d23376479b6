"""The only door to a model: what an attacker may see of it, and the ledger of what was seen."""

from assay.target.boxes import DecisionBox, NoRowsLeft, ScoreBox, WhiteBox
from assay.target.ledger import Ledger
from assay.target.network import Network

__all__ = ["DecisionBox", "Ledger", "Network", "NoRowsLeft", "ScoreBox", "WhiteBox"]
