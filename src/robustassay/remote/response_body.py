"""Reads the body of a response: never more bytes than the limit, compressed or not."""

import zlib
from collections.abc import AsyncIterator
from typing import Any, Final

from robustassay.remote.response_formats import MalformedResponse

ACCEPTED: Final = "gzip"
"""The only content encoding that is asked for and decoded: it can be decoded in bounded pieces everywhere."""

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


async def read_body(response: Any, most: int) -> bytes:
    """Return the decoded body of an httpx response; raise `MalformedResponse` where it is too long or damaged."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return await _limited(response.aiter_raw(), most)
    if encoding == ACCEPTED:
        return _gunzip(await _limited(response.aiter_raw(), most), most)
    raise MalformedResponse("the response has a content encoding other than gzip, which was not asked for")


async def _limited(pieces: AsyncIterator[bytes], most: int) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > most:
            raise _too_long(most)
    return bytes(body)


def _gunzip(content: bytes, most: int) -> bytes:
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    try:
        decoded = decoder.decompress(content, most + 1)
    except zlib.error as error:
        raise MalformedResponse("the response is no valid gzip") from error
    if len(decoded) > most:
        raise _too_long(most)
    if not decoder.eof or decoder.unused_data:
        raise MalformedResponse("the response is no single, complete gzip")
    return decoded


def _too_long(most: int) -> MalformedResponse:
    return MalformedResponse(
        f"the response has more than {most} bytes: raise [limits] max_response_bytes if it is right"
    )
