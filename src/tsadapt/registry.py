"""Names for things: terms, methods, networks, validators. A name is taken once, and a misspelt one gets the nearest.

A registry may have a *room*: a package whose modules are imported when a name is first asked for, so that a new file
there is found by itself. Third parties add their own through entry points of the group `tsadapt.<kind>`.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Generic, Literal, TypeVar

from tsadapt.errors import UserError, unknown
from tsadapt.settings import Setting, described, setting

__all__ = ["Outline", "Registry", "room_outlines", "third_party"]

T = TypeVar("T")
S = TypeVar("S")


class Registry(Generic[T]):
    """A mapping from names to things of one kind.

    >>> colours = Registry("colour")
    >>> _ = colours.register("red")(str)
    >>> colours["red"] is str, list(colours)
    (True, ['red'])
    """

    def __init__(self, kind: str, room: str | None = None) -> None:
        self.kind, self.room = kind, room
        self._things: dict[str, T] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[S], S]:
        """Decorator that puts a thing under `name`; raises if the name is taken."""

        def put(thing: S) -> S:
            if name in self._things:
                raise ValueError(f"{self.kind} {name!r} is registered already, as {self._things[name]!r}.")
            self._things[name] = thing  # type: ignore[assignment]
            if isinstance(thing, type) and self.room is not None:
                thing.registered_names = (*vars(thing).get("registered_names", ()), name)  # type: ignore[attr-defined]
            return thing

        return put

    def __getitem__(self, name: str) -> T:
        self._find_all()
        if name not in self._things:
            raise UserError(unknown(self.kind, name, list(self)))
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        self._find_all()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        self._find_all()
        return iter(sorted(self._things))

    def forget(self, name: str) -> None:
        """Take a name out again: for tests."""
        self._things.pop(name, None)

    def _find_all(self) -> None:
        """Import the room, and what third parties offer, once."""
        if self._complete:
            return
        self._complete = True  # modules of the room may ask for each other's things
        try:
            if self.room is not None:
                for module in iter_modules(import_module(self.room).__path__):
                    import_module(f"{self.room}.{module.name}")
            for name, thing in third_party(self.kind):
                if self._things.get(name) is not thing:  # loading it may have registered it by itself
                    self.register(name)(thing)
        except BaseException:
            self._complete = False
            raise


def third_party(kind: str) -> Iterator[tuple[str, Any]]:
    """What other packages offer of a kind, by name; the group of source terms is tsadapt.source_term."""
    for entry in _entry_points().select(group=f"tsadapt.{kind.replace(' ', '_')}"):
        try:
            yield entry.name, entry.load()
        except Exception as error:  # of somebody else's code, all kinds
            package = getattr(getattr(entry, "dist", None), "name", "an installed package")
            raise UserError(
                f"The {kind} {entry.name!r} of {package} cannot be loaded ({entry.value}): {type(error).__name__}:"
                f" {error}. Repair or uninstall {package}."
            ) from error


@cache
def _entry_points() -> Any:
    """Those of all installed packages, which takes a while to read."""
    from importlib.metadata import entry_points

    return entry_points()


@dataclass(frozen=True)
class Outline:
    """What --help needs to know of a registered class: its name, the first line of its docstring, its settings."""

    name: str
    summary: str
    settings: dict[str, Setting]


def room_outlines(room: str) -> dict[str, Outline]:
    """The registered classes of a room, read from its files without importing them, which would take seconds of torch.

    A class is found by its decorator `@….register("name")`; settings of its bases in the room, and beside it, are its
    own, too. What cannot be read that way (a default that is computed, a base from elsewhere) is imported after all.
    """
    try:
        return _read_outlines(room)
    except (NameError, ValueError, TypeError, AttributeError, SyntaxError, KeyError):
        return _imported_outlines(room)


def _imported_outlines(room: str) -> dict[str, Outline]:
    """The same by importing every file of the room."""
    found = {}
    for module in iter_modules(import_module(room).__path__):
        for thing in vars(import_module(f"{room}.{module.name}")).values():
            if isinstance(thing, type) and thing.__module__ == f"{room}.{module.name}":
                for name in vars(thing).get("registered_names", ()):
                    summary = (thing.__doc__ or "").partition("\n")[0]
                    found[name] = Outline(name, summary, getattr(thing, "settings", {}))
    return dict(sorted(found.items()))


def _read_outlines(room: str) -> dict[str, Outline]:
    spec = find_spec(room)
    assert spec is not None
    folders = sorted(Path(folder) for folder in spec.submodule_search_locations or ())
    classes = _classes_in(folders)
    bases = _classes_in([folder.parent for folder in folders]) | classes
    found = {}
    for node in classes.values():
        for name in _registered_names(node):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            found[name] = Outline(name, summary, _settings(node, bases))
    return dict(sorted(found.items()))


def _classes_in(folders: list[Path]) -> dict[str, ast.ClassDef]:
    """The classes that are written in the files of some folders, by name."""
    classes: dict[str, ast.ClassDef] = {}
    for file in [file for folder in folders for file in sorted(folder.glob("*.py"))]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
            if node.name in classes:
                raise ValueError(f"two classes called {node.name}")
            classes[node.name] = node
    return classes


def _registered_names(node: ast.ClassDef) -> list[str]:
    calls = [d for d in node.decorator_list if isinstance(d, ast.Call) and isinstance(d.func, ast.Attribute)]
    return [ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func).endswith(".register")]


KNOWN_BASES = ("SourceTerm", "TargetTerm", "Method")
"""Bases without settings of their own, from outside the rooms."""


def _settings(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, Setting]:
    """The settings of a class and of its bases, the bases' first."""
    found: dict[str, Setting] = {}
    for base in map(ast.unparse, node.bases):
        if base not in KNOWN_BASES:
            found |= _settings(classes[base], classes)
    words: dict[str, Any] = {"setting": setting, "Literal": Literal}
    declared = [line for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Call)]
    for line in declared:
        name, call = ast.unparse(line.target), line.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "setting":
            kind, value = (eval(ast.unparse(part), words) for part in (line.annotation, call))
            found[name] = described(name, kind, value)
    return found
