"""Names of the servers on the command line. Importing this module loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakgauge.core.checks import require, require_known
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.inversion.servers.server import Server

HONEST = "honest"
"""The server that sends the model as it is."""

_HERE = "leakgauge.inversion.servers"

SERVERS = {
    "robbing": f"{_HERE}.robbing:Robbing",
    "curious": f"{_HERE}.curious:Curious",
    "quantile": f"{_HERE}.quantile:Quantile",
    "fishing": f"{_HERE}.fishing:Fishing",
}
"""Import path of each active server, which is imported on first use."""

REGISTRY = Registry("server", SERVERS, "leakgauge.inversion_servers")

NOTATION = REGISTRY.notation(HONEST)
"""What users may write for a server."""

HELP = (
    f"who sends the model, as NAME[:key=value,...]: {HONEST} (alters nothing), or an active "
    f"server that alters it so that updates give records away: {', '.join(SERVERS)}; or your own, "
    "MODULE:NAME[:key=value,...]"
)
"""Help text of the command line."""


def server_of(text: str) -> Server | None:
    """Return the active server of ``NAME[:key=value,...]``; None for the honest one.

    Args:
        text: such as ``honest``, ``robbing:bins=500`` or ``my_module:Mine``.

    Raises:
        InputError: the name, a key or a value is not known, or the name makes no server.

    >>> server_of("honest") is None, server_of("robbing:bins=500").bins
    (True, 500)
    >>> server_of("robing")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: server 'robing' is not known; did you mean 'robbing'?
    """
    from leakgauge.inversion.servers.server import Server

    if text.strip() == HONEST:
        return None
    if ":" not in text:
        names = (HONEST, *REGISTRY.names())
        require_known(text.strip(), names, f"server {text.strip()!r} is not known")
    made = REGISTRY.read(text).call()
    require(
        isinstance(made, Server),
        f"server {text!r} made {type(made).__name__}; expected a "
        "leakgauge.inversion.servers.server.Server",
    )
    assert isinstance(made, Server)
    return made
