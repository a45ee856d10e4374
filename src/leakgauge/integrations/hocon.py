"""Read HOCON, the format of NVFlare's job templates, with the parser that NVFlare uses."""

import re
from collections.abc import Mapping
from typing import Any

from leakgauge.core.checks import InputError, require
from leakgauge.core.extras import install_command

_INCLUDE = re.compile(r"^\s*include\b\s*([\"(]|url|file|package|required)", re.MULTILINE | re.I)


def parse_hocon(text: str) -> Any:
    """Return what HOCON holds; a part that it includes from elsewhere is refused, not read.

    Raises:
        InputError: with the reason alone: it is not HOCON, includes another file, or pyhocon is not
            installed.
    """
    require(
        _INCLUDE.search(text) is None,
        "includes another file, which is not read; write its content in place of the include",
    )
    try:
        from pyhocon import ConfigFactory
        from pyhocon.exceptions import ConfigException
        from pyparsing import ParseBaseException
    except ImportError as error:
        raise InputError(
            "is HOCON, which needs pyhocon; install it with pip install pyhocon or "
            f"{install_command('nvflare')}, or convert the file to JSON"
        ) from error
    try:
        return _plain(ConfigFactory.parse_string(text))
    except (ConfigException, ParseBaseException, RecursionError, ValueError) as error:
        raise InputError(f"is not HOCON: {' '.join(str(error).split())[:200]}") from error


def _plain(value: Any) -> Any:
    """Return mappings and lists in place of pyhocon's own, with keys without their quotes."""
    if isinstance(value, Mapping):
        return {str(key).strip('"'): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
