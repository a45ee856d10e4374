"""``leakgauge view DIR...``: many runs as one page, served to this machine alone."""

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.serving import LOOPBACK

EXAMPLES = (
    "leakgauge view leakgauge-runs",
    "leakgauge view audit-before audit-after --port 8000",
)


def view(
    runs: Annotated[
        list[Path], typer.Argument(help="the --out of finished runs, or folders that hold them")
    ],
    port: Annotated[int, typer.Option(help="port of the page; 0 takes a free one")] = 0,
    host: Annotated[
        str, typer.Option(help="address to serve at; any but this machine's own is refused")
    ] = LOOPBACK,
) -> None:
    """Show many runs in a browser of this machine: the page that bundle writes, until Ctrl-C."""
    import contextlib
    import tempfile

    from leakgauge.cli.bundling import bundled
    from leakgauge.cli.serving import require_loopback, serving

    require_loopback(host, port)
    with tempfile.TemporaryDirectory(prefix="leakgauge-view-") as folder:
        written = bundled(runs, Path(folder))
        with serving(Path(folder), port) as server:
            print(f"runs: {written.runs}")
            print(f"open: {server.address} (stop with Ctrl-C)", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
