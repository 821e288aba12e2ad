"""The tasks and methods of a benchmark, from what a user types, and what is refused before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsadapt.config import RunConfig
from tsadapt.data.hugging_face import HUGGING_FACE
from tsadapt.data.open import FAMILIES, open_dataset
from tsadapt.data.paths import absolute_path
from tsadapt.data.patterns import is_pattern
from tsadapt.data.types import Dataset, match_labels
from tsadapt.errors import UserError
from tsadapt.objectives.named import objective_named
from tsadapt.objectives.objective import setting_named
from tsadapt.training.setup import source_roles, target_roles

__all__ = ["Task", "Truth", "checked", "named_methods", "parse_task", "parse_variant"]


@dataclass(frozen=True)
class Task:
    """A labelled source and a target, by a name."""

    name: str
    source: str
    target: str


@dataclass(frozen=True)
class Truth:
    """The fingerprints of a target's rows and labels: a run that was judged by others is judged again.

    `photographs` says whether rows are images that are read on demand.
    """

    rows: str
    labels: str | None
    photographs: bool = False


def parse_task(text: str) -> Task:
    """A task of NAME=SOURCE:TARGET, or of SOURCE:TARGET, which is its own name. Both may have colons of their own.

    >>> parse_task("small=digits:uci:digits:mnist-5k")
    Task(name='small', source='digits:uci', target='digits:mnist-5k')
    """
    name, equals, both = text.partition("=")
    if not equals or _is_pair(text):
        name, both = text, text
    parts = both.split(":")
    halves = [(":".join(parts[:i]), ":".join(parts[i:])) for i in range(1, len(parts))]
    found = [pair for pair in halves if all(map(_is_data, pair))]
    found = found or (halves if len(halves) == 1 else [])
    if len(found) != 1 or not all(found[0]) or not name.strip():
        hint = "neither half is a file, a folder or a dataset's name" if not found else "it can be split in two ways"
        raise UserError(
            f"--task is {text!r}, expected NAME=SOURCE:TARGET, such as a=photos/labelled:photos/new"
            f"{'' if len(halves) < 2 else f': {hint}'}."
        )
    return Task(name.strip(), *found[0])


def _is_pair(text: str) -> bool:
    """Whether it is two paths that exist, one of which has a = in it."""
    parts = text.split(":")
    return any(all(map(_is_data, (":".join(parts[:i]), ":".join(parts[i:])))) for i in range(1, len(parts)))


def _is_data(name: str) -> bool:
    family, colon, member = name.partition(":")
    known = colon and member and ":" not in member and family in (*FAMILIES, HUGGING_FACE)
    return bool(known) or absolute_path(name).exists() or (is_pattern(name) and ":" not in name)


def parse_variant(text: str) -> tuple[str, dict[str, Any]]:
    """A method with settings of its own: NAME=METHOD,SETTING=VALUE,…

    >>> parse_variant("gentle=cdan+e+tsa,lambda0=0.1")
    ('gentle', {'method': 'cdan+e', 'tsa': True, 'lambda0': 0.1})
    """
    name, equals, rest = text.partition("=")
    method, *words = [word.strip() for word in rest.split(",")]
    if not equals or not name.strip() or not method or not all("=" in word for word in words):
        raise UserError(f"--variant is {text!r}, expected NAME=METHOD,SETTING=VALUE,… such as small=tsa,lambda0=0.1.")
    settings = objective_named(method)
    for word in words:
        setting, _, value = word.partition("=")
        setting = setting.strip().replace("-", "_")
        settings[setting] = setting_named(setting).parse(value)
    return name.strip(), settings


def named_methods(
    methods: Sequence[str], variants: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """The settings of all methods by their names, in the order given, variants last."""
    found = {name: objective_named(name) for name in methods}
    for name, settings in (variants or {}).items():
        if name in found:
            raise UserError(f"--variant is called {name}, as a method of --methods is: choose another name.")
        found[name] = dict(settings)
    if not found:
        raise UserError("A benchmark needs methods, for example: --methods source-only,adabn,cdan+e,cdan+e+tsa")
    return found


def checked(tasks: Sequence[Task], config: RunConfig | None = None) -> dict[str, Truth]:
    """What each task's runs are judged by; a task without labels to judge by is refused.

    `config` says how tables are read.
    """
    config = config or RunConfig("", "")
    opened: dict[str, Dataset] = {}
    found = {}
    for task in tasks:
        for name in (task.source, task.target):
            if name not in opened:
                first = name == task.source
                columns = None if first else _columns(opened[task.source])
                opened[name] = open_dataset(name, columns, source_roles(config) if first else target_roles(config))
        source, target = opened[task.source], opened[task.target]
        if target.test.y is None:
            raise UserError(
                f"The target of task {task.name}, {task.target}, has no labels, and a benchmark measures accuracy: give"
                " it labels, or compare without them with tsadapt sweep and tsadapt select."
            )
        if source.train.classes is None or source.train.y is None:
            raise UserError(f"The source of task {task.name}, {task.source}, has no labels: nothing can learn from it.")
        if (match_labels(target.test, source.train.classes)[0] < 0).all():
            raise UserError(
                f"The target of task {task.name}, {task.target}, has none of the source's classes"
                f" ({', '.join(source.train.classes[:3])}, …): its accuracy cannot be measured."
            )
        found[task.name] = Truth(target.test.fingerprint(), target.test.label_fingerprint(), target.test.kind == "file")
    return found


def _columns(source: Dataset) -> tuple[str, ...] | None:
    return source.train.columns
