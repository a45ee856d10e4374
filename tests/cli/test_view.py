"""``leakgauge bundle`` and ``leakgauge view``: what they print, refuse and serve, and to whom."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from leakgauge.cli.serving import LoopbackServer, serving
from support.command import run
from support.made_runs import make_records
from support.many_runs import write_audit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one run, ``night``, in ``runs``."""
    made = tmp_path_factory.mktemp("view")
    write_audit(made / "runs" / "night", make_records())
    return made


@pytest.fixture
def server(folder: Path) -> Iterator[LoopbackServer]:
    assert run("bundle", folder / "runs", "--out", folder / "page").returncode == 0
    with serving(folder / "page", 0) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def got(server: LoopbackServer, path: str, host: str | None = None) -> tuple[int, str]:
    """Return the status and the body of a request."""
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    link.request("GET", path, headers={"Host": host} if host else {})
    answer = link.getresponse()
    status, body = answer.status, answer.read().decode()
    link.close()
    return status, body


def test_bundle_prints_the_page_and_what_is_left_out(folder: Path, tmp_path: Path) -> None:
    ended = run("bundle", folder / "runs", "--out", tmp_path / "page")
    assert (ended.returncode, ended.stdout) == (0, f"runs: 1\nreport: {tmp_path}/page/index.html\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.yaml").write_text("")
    ended = run("bundle", folder / "runs", tmp_path / "bad", "--out", tmp_path / "page")
    assert ended.returncode == 2
    assert "runs: 1\n" in ended.stdout
    assert re.search(r"not shown: .*bad: .*checksum", ended.stderr)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("view", "RUNS", "--host", "0.0.0.0"), "error: --host is '0.0.0.0'; expected 127.0.0.1"),
        (("view", "RUNS", "--host", "192.168.1.2"), "served to this machine alone"),
        (("view", "RUNS", "--host", "::"), "error: --host is '::'"),
        (("view", "RUNS", "--port", "70000"), "error: --port is 70000; expected 0 to 65535"),
        (("view", "nowhere"), "error: no such folder: 'nowhere'"),
        (("bundle", "RUNS"), "--out"),
        (("bundle", "RUNS", "--out", "RUNS"), "holds other files (night)"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    folder: Path, words: tuple[str, ...], says: str
) -> None:
    ended = run(*(folder / "runs" if word == "RUNS" else word for word in words))
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert says in ended.stderr


def test_pages_are_served_at_an_address_that_others_do_not_know(server: LoopbackServer) -> None:
    path = urlsplit(server.address).path
    assert server.address.startswith("http://127.0.0.1:")
    assert len(path) > 12
    assert got(server, path)[0] == 200
    status, body = got(server, f"{path}reports/night.html")
    assert (status, "Strong leakage" in body) == (200, True)
    wrong = ("/", "/index.html", f"{path}reports/", f"{path}../", f"{path}..%2f..%2fetc/passwd")
    assert {got(server, each)[0] for each in wrong} == {404}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_of_another_name_is_refused(server: LoopbackServer, host: str) -> None:
    """A name that somebody points at 127.0.0.1 would let their page read ours."""
    path = urlsplit(server.address).path
    assert got(server, path, f"localhost:{server.server_port}")[0] == 200
    status, body = got(server, path, host or " ")
    assert status == 403
    assert "Strong" not in body


def test_only_this_machine_reaches_the_port(server: LoopbackServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", server.server_port))


def test_a_port_that_is_taken_is_refused(server: LoopbackServer, folder: Path) -> None:
    ended = run("view", folder / "runs", "--port", server.server_port)
    assert ended.returncode == 2
    assert f"error: --port {server.server_port} cannot be used" in ended.stderr


def test_ctrl_c_ends_view_with_code_0(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(server: LoopbackServer) -> None:
        assert server.files
        raise KeyboardInterrupt

    monkeypatch.setattr(LoopbackServer, "serve_forever", interrupted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = run("view", folder / "runs")
    assert ended.returncode == 0
    assert re.search(r"open: http://127.0.0.1:\d+/[\w-]{16}/ \(stop with Ctrl-C\)", ended.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.process
def test_view_ends_cleanly_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "leakgauge", "view", folder / "runs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert started.stdout is not None
    lines = [started.stdout.readline(), started.stdout.readline()]
    address = lines[1].split()[1]
    link = http.client.HTTPConnection(urlsplit(address).netloc, timeout=5)
    link.request("GET", urlsplit(address).path)
    assert link.getresponse().status == 200
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=20)
    assert started.returncode == 0
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
