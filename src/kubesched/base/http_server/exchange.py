"""One request and its response, as tracked by a connection."""

from __future__ import annotations

import asyncio

from kubesched.base.http_server.messages import Refusal, Request


class Exchange:
    """A request from the end of its head until its response is written."""

    __slots__ = (
        "arrival",
        "body",
        "closes",
        "is_accepted",
        "is_begun",
        "is_complete",
        "is_streaming",
        "keeps_alive",
        "refusal",
        "request",
        "size",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.is_begun = False
        """Whether `Application.begin` was called."""
        self.is_accepted = False
        """Whether `Application.begin` accepted the body."""
        self.is_complete = False
        """Whether the request has been received completely."""
        self.keeps_alive = False
        """Whether the client allows another request on the connection."""
        self.closes = True
        """Whether the connection closes after the response; decided when the response is."""
        self.is_streaming = False
        self.refusal: Refusal | None = None
        self.body: bytes | bytearray = b""
        self.size = 0
        """Length of the body so far, as charged to the budget."""
        self.arrival: asyncio.Future[None] | None = None
        """Done when the request is complete; set for a task that waits for its body."""

    def add_body(self, part: bytes) -> None:
        self.size += len(part)
        if not self.body:
            self.body = part
            return
        if isinstance(self.body, bytes):
            # A list of parts would cost 50 bytes per body byte if the chunks are tiny.
            self.body = bytearray(self.body)
        self.body += part

    def clear_body(self) -> None:
        self.body = b""
        self.size = 0

    def complete(self) -> None:
        self.is_complete = True
        if self.arrival is not None and not self.arrival.done():
            self.arrival.set_result(None)

    def fail(self, refusal: Refusal) -> None:
        """Answer with this refusal; the rest of the request is not received."""
        self.refusal = refusal
        self.keeps_alive = False
        self.complete()
