"""Names for things: methods, networks, datasets. A name is taken once, and a misspelt one is answered with the nearest.

Third parties add their own through entry points of the group `tsadapt.<kind>`, without touching this package.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from tsadapt.errors import UserError, unknown

__all__ = ["Registry"]


T = TypeVar("T")
S = TypeVar("S")


class Registry(Generic[T]):
    """A mapping from names to things of one kind.

    >>> colours = Registry("colour")
    >>> _ = colours.register("red")(str)
    >>> colours["red"] is str, list(colours)
    (True, ['red'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}
        self._looked_outside = False

    def register(self, name: str) -> Callable[[S], S]:
        """Decorator that puts a thing under `name`; raises if the name is taken."""

        def put(thing: S) -> S:
            if name in self._things:
                raise ValueError(f"{self.kind} {name!r} is registered already, as {self._things[name]!r}.")
            self._things[name] = thing  # type: ignore[assignment]
            return thing

        return put

    def __getitem__(self, name: str) -> T:
        self._look_outside()
        if name not in self._things:
            raise UserError(unknown(self.kind, name, list(self)))
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        self._look_outside()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        self._look_outside()
        return iter(sorted(self._things))

    def _look_outside(self) -> None:
        if not self._looked_outside:
            self._looked_outside = True
            for entry in entry_points(group=f"tsadapt.{self.kind}"):
                thing = entry.load()
                if self._things.get(entry.name) is not thing:  # loading it may have registered it by itself
                    self.register(entry.name)(thing)
