"""Serves the files of a folder to browsers of this machine, and to nobody else."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from leakgauge.core.checks import InputError, require

LOOPBACK = "127.0.0.1"
_NAMES = (LOOPBACK, "localhost")
_INDEX = "index.html"
_LARGEST_PORT = 65535


class LoopbackServer(ThreadingHTTPServer):
    """A server of the HTML files of a folder, at an address with a random word.

    Other users of the machine reach the port too; they do not know the word.

    Attributes:
        files: the files by address.
        address: address of the page.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        word = secrets.token_urlsafe(12)
        paths = {one.relative_to(folder).as_posix(): one for one in folder.rglob("*.html")}
        self.files = {f"/{word}/{name}": path for name, path in paths.items()}
        self.files[f"/{word}/"] = paths[_INDEX]
        self.address = f"http://{LOOPBACK}:{self.server_port}/{word}/"


class _Handler(BaseHTTPRequestHandler):
    server: LoopbackServer

    def do_GET(self) -> None:
        """Send a file of the folder."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _NAMES:
            self.send_error(HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 alone")
            return
        path = self.server.files.get(self.path.partition("?")[0])
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = path.read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Say nothing: the terminal shows the address."""


def require_loopback(host: str, port: int) -> None:
    """Refuse any host but this machine's own address, and a port that does not exist.

    Raises:
        InputError: the host or the port is another.
    """
    require(
        host in _NAMES,
        f"--host is {host!r}; expected {LOOPBACK}: reports are about private records and are "
        "served to this machine alone; to share them, send the folder of leakgauge bundle",
    )
    require(0 <= port <= _LARGEST_PORT, f"--port is {port}; expected 0 to {_LARGEST_PORT}")


@contextmanager
def serving(folder: Path, port: int) -> Iterator[LoopbackServer]:
    """Yield a server of a folder that is bound to its port and closed at the end.

    Raises:
        InputError: the port is taken.
    """
    try:
        server = LoopbackServer(folder, port)
    except OSError as error:
        raise InputError(
            f"--port {port} cannot be used ({error.strerror}); choose another, or 0 for a free one"
        ) from error
    try:
        yield server
    finally:
        server.server_close()
