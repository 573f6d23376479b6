"""The exception that becomes an error response."""

from typing import final


@final
class HttpError(Exception):
    """Ends the handling of a request; the client receives the status and the message, never a stack trace."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after
