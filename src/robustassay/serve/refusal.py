"""A request that is refused, with the status and the sentence its sender gets."""

from typing import final


@final
class Refusal(Exception):
    """Raised anywhere while a request is handled; never a stack trace to the client."""

    def __init__(self, status: int, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after = status, sentence, retry_after
