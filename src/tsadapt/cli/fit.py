"""tsadapt fit: train."""

import dataclasses
import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from tsadapt.cli.options import File, MaybeText, Texts, given_settings, setting_options
from tsadapt.config import DATA, NETWORK, OBJECTIVE, OPTIMISATION, RUN, SHORTHANDS, RunConfig, read_file, read_toml
from tsadapt.errors import UserError, printable

__all__ = ["Fit", "option_group", "set_settings", "show"]


def option_group(title: str, options: list[tuple[str, Any, Any]]) -> tuple[str, Any, Any]:
    """A group of options under a heading of its own, without a prefix to their names."""
    made = dataclasses.make_dataclass(
        title.title().replace(" ", ""), [(n, kind, dataclasses.field(default=d)) for n, kind, d in options], frozen=True
    )
    return title.replace(" ", "_"), Annotated[made, tyro.conf.arg(help="")], dataclasses.field(default=made())


def objective_options() -> list[tuple[str, Any, Any]]:
    """Flags that are short for several settings, or name a term's setting in full."""

    def described(text: str, metavar: str | None = None, hint: str = "") -> Any:
        return tyro.conf.arg(help=text, help_behavior_hint=hint, metavar=metavar)

    set_text = "Set one term only, where several share a setting's name; may be repeated."
    return [
        *((name, Annotated[bool, described(one.help)], False) for name, one in SHORTHANDS.items() if one.kind is bool),
        ("preset", Annotated[MaybeText, described(SHORTHANDS["preset"].help, "NAME", "(default: none)")], None),
        ("no_mi", Annotated[bool, described("With --tsa, leave out mutual information.")], False),
        ("set", Annotated[Texts, described(set_text, "TERM.NAME=VALUE")], ()),
    ]


def set_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """What --set names, as TERM.NAME, with the words that stand for the values.

    >>> set_settings(("tsa.mean-shift=false",))
    {'tsa.mean_shift': 'false'}
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or "." not in name:
            raise UserError(f"--set is {text!r}, expected TERM.NAME=VALUE, such as tsa.lambda0=0.5.")
        term, _, setting = name.strip().rpartition(".")
        found[f"{term}.{setting.replace('-', '_')}"] = value
    return found


def _groups() -> list[tuple[str, Any, Any]]:
    options = setting_options()
    options[OBJECTIVE] = objective_options() + options[OBJECTIVE]
    return [option_group(title, options[title]) for title in (DATA, OBJECTIVE, NETWORK, OPTIMISATION, RUN)]


Settings = dataclasses.make_dataclass("Settings", _groups(), frozen=True)


@dataclass(frozen=True)
class Fit(Settings):  # type: ignore[misc,valid-type]
    """Train a classifier on a labelled SOURCE and an unlabelled TARGET; the same command resumes a stopped run.

    SOURCE and TARGET are a folder of class folders, a flat folder of images (target), a pattern ("photos/2024-*/*"), a
    list file with lines "path label", - for such lines on standard input, an .npz (x, y, classes), an .npy, a .csv or
    .parquet with a label column, tar shards, hf:PATH, or a name such as office31:amazon (tsadapt list datasets). Target
    labels, if there are any, are only used to evaluate.

    Example: tsadapt fit photos/labelled photos/new --tsa --out runs/photos
    """

    source: Annotated[tyro.conf.Positional[MaybeText], tyro.conf.arg(metavar="SOURCE", help_behavior_hint="")] = None
    """The labelled domain."""
    target: Annotated[tyro.conf.Positional[MaybeText], tyro.conf.arg(metavar="TARGET", help_behavior_hint="")] = None
    """The domain to adapt to; it needs no labels."""
    out: File = None
    """Folder of the run. (default: runs/HASH)"""
    overwrite: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Replace a different run in that folder."""
    config: File = None
    """TOML file with settings, such as a run's config.toml; flags take precedence."""
    tensorboard: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Write TensorBoard events too (extra: track)."""
    keep_memory: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Keep TSA's memory in the run's folder, for pictures of augmented features."""
    quiet: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Hide progress."""

    def given(self) -> dict[str, Any]:
        """The settings that were given as flags."""
        groups = [getattr(self, f.name) for f in fields(Settings)]
        found = given_settings(groups)
        objective: Any = getattr(self, OBJECTIVE)
        if objective.mi and objective.no_mi:
            raise UserError("--mi and --no-mi contradict each other.")
        found |= set_settings(objective.set)
        found |= {"preset": objective.preset} if objective.preset is not None else {}
        found |= {"tsa": True} if objective.tsa else {}
        return found | ({"mi": True} if objective.mi else {"mi": False} if objective.no_mi else {})

    def to_config(self, **defaults: Any) -> RunConfig:
        """The run's config: the file's settings, on top of them what was given, below them `defaults`."""
        from tsadapt.objectives.objective import setting_named, with_settings

        flags, file = self.given(), self._file_settings()
        if "backbone" in file and "backbone" not in flags:
            from tsadapt.models.encoders import refuse_code

            refuse_code(str(file["backbone"]), str(self.config))
        given = defaults | file | flags
        for name in [name for name in given if "." in name and isinstance(given[name], str)]:
            given[name] = setting_named(name).parse(given[name])
        source, target = self._domains(given)
        given = {name: value for name, value in given.items() if name not in ("source", "target")}
        if source == target == "-":
            raise UserError("SOURCE and TARGET are both standard input (-), which can be one of them.")
        if source is None or target is None:
            verb = type(self).__name__.lower()
            raise UserError(
                f"{verb} needs a SOURCE and a TARGET, for example: tsadapt {verb} photos/labelled photos/new --tsa"
            )
        return with_settings(RunConfig(source, target), _note, **given)

    def _domains(self, given: dict[str, Any]) -> tuple[str | None, str | None]:
        """SOURCE and TARGET, from the command or else the file; a source-free run has TARGET alone."""
        source, target = self.source, self.target
        if given.get("source_free") is None:
            return source or given.get("source"), target or given.get("target")
        if target is not None:
            raise UserError(
                f"--source-free {given['source_free']} takes the place of a SOURCE: give the TARGET alone, for example:"
                " tsadapt fit --source-free runs/photos photos/newer"
            )
        return given.get("source", "none"), source or given.get("target")

    def _file_settings(self) -> dict[str, Any]:
        return {} if self.config is None else read_toml(read_file(self.config), str(self.config))

    def __call__(self) -> int:
        """Train, and say how it went; under torchrun, as one of its processes."""
        from tsadapt.training.launch import joined

        with joined() as processes:
            return self._run(processes is None or processes.first)

    def _run(self, speaks: bool) -> int:
        config = self.to_config()
        from tsadapt.runs.fit import Interrupted, train_run

        try:
            out, metrics = train_run(
                config, self.out, overwrite=self.overwrite, quiet=self.quiet, tensorboard=self.tensorboard,
                keep_memory=self.keep_memory,
            )  # fmt: skip
        except Interrupted as stopped:
            if speaks:
                print(printable(f"tsadapt: {stopped}"), file=sys.stderr)
            return 130
        if not speaks:
            return 0
        if "source" in metrics["last"]:
            show(metrics["last"]["source"], "source")
        show(metrics["last"]["target"], "target")
        if (few := metrics["last"].get("target_labels")) is not None:
            _show_few(few)
        if "selected" in metrics:
            selected = metrics["selected"]
            show(selected["target"], f"selected by {selected['by']}, step {selected['step']}: target")
        if "oracle" in metrics:
            best = metrics["oracle"]
            print(f"oracle (best by target labels), step {best['step']}: target accuracy {best['accuracy']:.1%}")
        print(printable(f"run: {out}"))
        return 0


def show(metrics: dict[str, Any], role: str) -> None:
    """One line on the metrics of a domain."""
    head = printable(f"{role} {metrics['data']} ({metrics['split']}, {metrics['rows']} rows)")
    if "accuracy" in metrics:
        print(f"{head}: accuracy {metrics['accuracy']:.1%}, mean of classes {metrics['mean_class_accuracy']:.1%}")
    else:
        most = sorted(metrics["predicted_share"].items(), key=lambda item: -item[1])[:5]
        shares = ", ".join(f"{printable(name)} {share:.0%}" for name, share in most)
        print(f"{head}: no labels; predicted most: {shares}")


def _show_few(few: dict[str, Any]) -> None:
    """One line on the labelled target rows."""
    if few["used_in_training"]:
        print(f"target labels: {few['rows']} rows, trained on, and left out of what is measured")
    else:
        interval = f"{few['low']:.1%} to {few['high']:.1%}"
        print(f"target labels: accuracy {few['accuracy']:.1%} ({interval}) on {few['rows']} rows, not trained on")


def _note(text: str) -> None:
    print(printable(f"note: {text}"), file=sys.stderr)
