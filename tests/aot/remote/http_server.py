"""A cache on HTTP, as small as one can be, with every mistake that a server can make."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[["Handler"], bool]
"""Answers a request, and says whether it did."""


class Server(ThreadingHTTPServer):
    """Bytes by path."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.held: dict[str, bytes] = {}
        self.log: list[str] = []
        """Methods and paths of all requests."""
        self.headers: list[dict[str, str]] = []
        self.behaviour: Behaviour = lambda handler: False
        self.is_ending = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/kernels"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that break off are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def _handle(self) -> None:
        self.server.log.append(f"{self.command} {self.path}")
        self.server.headers.append(dict(self.headers.items()))
        self._body = b""
        if self.server.behaviour(self):
            return
        if self.command == "PUT":
            self.server.held[self.path] = self.body()
            self.answer(201)
        else:
            held = self.server.held.get(self.path)
            self.answer(200 if held is not None else 404, held or b"")

    def body(self) -> bytes:
        """What was sent."""
        size = int(self.headers.get("Content-Length", 0))
        self._body += self.rfile.read(size - len(self._body))
        return self._body

    def answer(self, status: int, data: bytes = b"", **headers: str) -> bool:
        """Answers, and gives True, as a behaviour does."""
        self.body()  # What is left of it would be taken for the next request.
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if self.command != "HEAD" else b"")
        return True

    def wait(self) -> bool:
        """Says nothing until the test is over."""
        self.server.is_ending.wait(30)
        self.close_connection = True
        return True

    def drip(self, data: bytes, pause: float = 0.05) -> bool:
        """Sends one byte after another, headers included."""
        answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        self.close_connection = True
        with suppress(OSError):
            for byte in answer:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.is_ending.is_set():
                    break
                time.sleep(pause)
        return True


def checking(handler: Handler) -> bool:
    """As bazel-remote does: blobs have to have the digests that they go by, and compression is not understood."""
    if handler.command == "PUT" and "/cas/" in handler.path:
        data = handler.body()
        if hashlib.sha256(data).hexdigest() != handler.path.rpartition("/")[2]:
            return handler.answer(400)
        handler.server.held[handler.path] = data
        return handler.answer(200)
    return False


@contextmanager
def serving() -> Iterator[Server]:
    """A server that works within the context."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.is_ending.set()
            server.shutdown()
            thread.join()
