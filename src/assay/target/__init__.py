"""The only door to a model: what an attacker may see of it, and the ledger of what was seen."""

from assay.target.boxes import DecisionBox, NoRowsLeft, ScoreBox
from assay.target.ledger import Ledger
from assay.target.network import Network
from assay.target.pool import Pool
from assay.target.whitebox import WhiteBox

__all__ = ["DecisionBox", "Ledger", "Network", "NoRowsLeft", "Pool", "ScoreBox", "WhiteBox"]
