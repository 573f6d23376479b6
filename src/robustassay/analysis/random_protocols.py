"""The robust accuracy of a random model under three protocols: one draw, any of several draws, and their majority.

The verification of a claim counts in how many fresh draws the point reaches the goal. An attacker who may submit a
point several times needs one success only; a service that answers with the majority of draws is harder to mislead.
"""

from dataclasses import asdict, dataclass
from typing import Final, final

import pandas as pd

TRIES: Final = 9
"""Draws per point where there are several; odd, so that a majority exists."""


@final
@dataclass(frozen=True)
class RandomProtocols:
    """Expected robust accuracies, by what decides about a point; a sample without a verified point counts as robust."""

    one_draw: float
    any_of_several: float
    majority: float
    tries: int = TRIES

    @property
    def summary(self) -> str:
        """All three in one sentence."""
        return (
            f"Robust accuracy of this random model: {self.one_draw:.1%} if one draw decides, "
            f"{self.any_of_several:.1%} if the attacker needs one of {self.tries} draws, "
            f"{self.majority:.1%} if the majority of {self.tries} draws decides."
        )

    def to_json(self) -> dict[str, float]:
        """Return the numbers."""
        return asdict(self)


def random_protocols(records: pd.DataFrame, tries: int = TRIES) -> RandomProtocols | None:
    """Compute the expected accuracies; None if the model is not random, or no point was verified."""
    if not records["redrawn"].notna().any():
        return None
    from scipy.special import bdtr

    right = records["clean_ok"].to_numpy(bool)
    share = records["redrawn"].where(records["success"].astype(bool), 0.0).fillna(0.0).to_numpy(float)
    return RandomProtocols(
        one_draw=float((right * (1 - share)).mean()),
        any_of_several=float((right * (1 - share) ** tries).mean()),
        majority=float((right * bdtr(tries // 2, tries, share)).mean()),
        tries=tries,
    )
