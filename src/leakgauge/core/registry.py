"""Names for functions and classes: built in, registered by a package, or ``MODULE:NAME``."""

import functools
import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.parsing import Key, Notation, keys_of, kinds_of, read_settings, required_of
from leakgauge.core.user_code import function_of, one_line


@dataclass(frozen=True)
class Choice:
    """A named function or class with its settings.

    Attributes:
        what: the kind of thing, for messages.
        text: the user's text, without spaces around it.
        make: the function or class behind the name.
        settings: its arguments, from the text.
        built_in: whether leakgauge itself brings the name.
    """

    what: str
    text: str
    make: Callable[..., Any]
    settings: Mapping[str, Any]
    built_in: bool

    def call(self, **supplied: Any) -> Any:
        """Return ``make`` called with the settings and those of ``supplied`` that it takes.

        Raises:
            InputError: a function or class that is not built in fails.
        """
        arguments = inspect.signature(self.make).parameters
        taken = {key: value for key, value in supplied.items() if key in arguments}
        try:
            return self.make(**self.settings, **taken)
        except InputError:
            raise
        except Exception as error:
            if self.built_in:
                raise
            raise InputError(f"{self.what} {self.text!r} failed: {one_line(error)}") from error


@dataclass(frozen=True)
class Registry:
    """The known names of one kind of thing, which users write as ``NAME[:key=value,...]``.

    Attributes:
        what: the kind in one word for messages, such as ``"defense"``.
        places: ``"module:attribute"`` for each built-in name; imported on first use.
        group: the entry point group in which other packages register their own names.

    ``supplied`` are arguments that the caller gives, which are not settings.
    """

    what: str
    places: Mapping[str, str]
    group: str

    def names(self) -> tuple[str, ...]:
        """Return all names, the built-in ones first."""
        return (*self.places, *(name for name in registered(self.group) if name not in self.places))

    def load(self, name: str) -> Callable[..., Any]:
        """Return the function or class of a built-in or registered name, or of ``MODULE:NAME``.

        Raises:
            InputError: the name is not known, or its module cannot be imported.
        """
        if name in self.places:
            module, _, attribute = self.places[name].partition(":")
            make: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
            return make
        if name in registered(self.group):
            return _loaded(registered(self.group)[name], self.what)
        if ":" not in name:
            require_known(name, self.names(), f"{self.what} {name!r} is not known")
        return function_of(name, self.what)

    def keys(self, name: str, *, supplied: Collection[str] = ()) -> Mapping[str, Key]:
        """Return the settings of a name, with their defaults; none for other words.

        Raises:
            InputError: a package's name cannot be imported.
        """
        return keys_of(self.load(name), supplied) if name in self.names() else {}

    def notation(self, *words: str, supplied: Collection[str] = ()) -> Notation:
        """Return the notation that users may write; ``words`` are more names, without settings."""
        return Notation(
            lambda: (*words, *self.names()), partial(self.keys, supplied=supplied), own=True
        )

    def read(self, text: str, *, supplied: Collection[str] = ()) -> Choice:
        """Return the function or class that ``text`` names, with its settings.

        The text is such as ``prune:rate=0.99`` or ``my_module:build:rate=0.5``.

        Raises:
            InputError: the name, a key or a value is not known, or a setting is missing.
        """
        name, rest = self._split(text)
        make = self.load(name)
        kinds = kinds_of(make, supplied)
        settings = read_settings(name, rest, kinds, self.what)
        left = [key for key in required_of(make) if key not in settings and key not in supplied]
        for key in left:
            require(
                key in kinds,
                f"{self.what} {text!r} needs {key!r}, which is neither a number nor a word; "
                "give it a default",
            )
        written = [*(rest or "").split(","), *(f"{key}=..." for key in left)]
        require(
            not left,
            f"{self.what} {text!r} does not say {', '.join(map(repr, left))}; write "
            f"{name}:{','.join(part.strip() for part in written if part.strip())}",
        )
        return Choice(self.what, text.strip(), make, settings, name in self.places)

    def _split(self, text: str) -> tuple[str, str | None]:
        """Return the name, or ``MODULE:NAME``, and the text of the settings after it."""
        name, colon, rest = (part.strip() for part in text.partition(":"))
        known = name in self.places or name in registered(self.group)
        attribute, again, settings = (part.strip() for part in rest.partition(":"))
        if known or not attribute.isidentifier():
            return name, rest if colon else None
        return f"{name}:{attribute}", settings if again else None


@functools.cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def _loaded(point: EntryPoint, what: str) -> Callable[..., Any]:
    try:
        make: Callable[..., Any] = point.load()
    except Exception as error:
        raise InputError(
            f"{what} {point.name!r} is registered as {point.value!r}, which cannot be imported: "
            f"{one_line(error)}"
        ) from error
    return make
