"""The contract of everything that is minimised: loss = source term + Σ target terms + the method's terms.

Each is a class in a file of its own, in one of three rooms: source_terms/, target_terms/, methods/. It declares its
settings, names its statistics, and gives tensors; it never calls backward, moves a tensor, reads a file or sees a
target label. What must survive a restart is a parameter or a persistent buffer.

Shapes: B samples of a domain, K features, C classes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.core import FeatureMemory, IterativeMoments
from tsadapt.core.merged import ShardedMemory
from tsadapt.core.processes import Processes
from tsadapt.registry import Registry
from tsadapt.settings import Setting, declared_settings

__all__ = [
    "METHODS",
    "SOURCE_TERMS",
    "TARGET_TERMS",
    "ClassStatistics",
    "Context",
    "Head",
    "Method",
    "Outputs",
    "SourceTerm",
    "StatisticsRequest",
    "Step",
    "TargetTerm",
    "Term",
    "View",
]

ClassStatistics = FeatureMemory | ShardedMemory | IterativeMoments
Estimator = Literal["memory", "iterative"]
Domain = Literal["source", "target"]


@dataclass(frozen=True)
class View:
    """One domain's half of the batch: `features` (B, K), `logits` (B, C), `index` (B,); `labels` of the source only.

    With several heads, `logits` are the combined ones: those that predict.
    """

    features: Tensor
    logits: Tensor
    index: Tensor
    labels: Tensor | None = None


@dataclass(frozen=True)
class Head:
    """A head linear in its features, which TSA maps over: features and logits of both domains, W (C, K) and b (C,)."""

    source: View
    target: View | None
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Outputs:
    """What a step knows: both views (the target's only if something asked for it), the heads, progress = t/T.

    `extracted` are the features as they left the extractor: every gradient that reaches it passes through them.
    `classify` gives the logits of every head for features (B, K) of a term's own making. `statistics` finds the shared
    statistics that a term asked for, by domain, estimator and head. `generator` gives the random numbers of this
    forward pass, a function of the seed and the step. `inputs` are what came into the network, of the source and of the
    target, and `network` gives features (B, K) and combined logits (B, C) of inputs of a term's own making; running
    averages of batch normalisation do not take these in. `second` are the target's inputs in another random view, if a
    term `needs_views` and the data has them. `again` marks the batch of a step at weights that were moved up a slope:
    what a term remembers of its rows, it has taken in before. `labelled` are further target rows whose labels were
    given to train on, as every head sees them; empty without such rows. `found` is what one term has computed of this
    batch that another would compute again.
    """

    source: View
    target: View | None
    heads: tuple[Head, ...]
    progress: float
    extracted: tuple[Tensor, ...]
    classify: Callable[[Tensor], tuple[Tensor, ...]]
    statistics: Callable[[Domain, Estimator, int], ClassStatistics]
    generator: Callable[[], torch.Generator]
    inputs: tuple[Tensor, Tensor | None]
    network: Callable[[Tensor], tuple[Tensor, Tensor]]
    second: Tensor | None = None
    again: bool = False
    labelled: tuple[View, ...] = ()
    found: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def both(self) -> tuple[View, View]:
        """Source and target, for a term that needs both."""
        if self.target is None:
            raise ValueError("the target was not forwarded")
        return self.source, self.target

    def labels(self) -> Tensor:
        """The source's labels (B,)."""
        assert self.source.labels is not None
        return self.source.labels

    def through(self, weight: Tensor, bias: Tensor | None) -> "Outputs":
        """The same with another linear head in place of the network's only one: W (C, K), b (C,), gradients kept.

        Dropout right before the network's head has no part in it.
        """

        def seen(view: View) -> View:
            return replace(view, logits=F.linear(view.features, weight, bias))

        source, target = seen(self.source), None if self.target is None else seen(self.target)
        return replace(
            self,
            source=source,
            target=target,
            heads=(Head(source, target, weight, bias),),
            labelled=tuple(map(seen, self.labelled)),
            classify=lambda f: (F.linear(f, weight, bias),),
            network=lambda x: _with_logits(self.network(x)[0], weight, bias),
        )


def _with_logits(features: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    return features, F.linear(features, weight, bias)


@dataclass(frozen=True)
class Context:
    """What a term is made for.

    K features (`dim`), those of each head (`head_dims`), C classes and their names, the rows of both domains, the share
    of each class among the source's labels (C,), the steps of the run, the rows of both domains in a batch, and the
    width of a discriminator. `copy_extractor` gives a copy of what turns inputs into features, as it is now, and
    `network` the whole network itself, from inputs to features (B, K) and combined logits (B, C). `class_shares`
    estimates the share of each class (C,) in the target, without its labels; None where nothing can. `processes` are
    those that train together, and share out the rows of memories; None if there is one. All else is the same in each.
    Rows of memories are kept in `memory_dtype`, or as what `memory_rows` makes for n rows of K features. `known_labels`
    (n,) has the labels of the target rows that are trained on with them, −1 for all others; None without such rows.
    """

    dim: int
    head_dims: tuple[int, ...]
    classes: tuple[str, ...]
    sizes: tuple[int, int]
    source_share: Tensor
    steps: int
    batch_sizes: tuple[int, int]
    discriminator_width: int
    copy_extractor: Callable[[], nn.Module]
    network: Callable[[], nn.Module] = nn.Identity
    class_shares: Callable[[], Tensor] | None = None
    processes: Processes | None = None
    memory_dtype: torch.dtype = torch.float32
    memory_rows: Callable[[int, int], Tensor] | None = None
    known_labels: Tensor | None = None

    def pseudo_labels(self, index: Tensor, guess: Tensor) -> Tensor:
        """The labels (B,) that target rows count under: those that are known, else what the network guesses."""
        if self.known_labels is None:
            return guess
        known = self.known_labels[index.to(self.known_labels.device)].to(guess.device)
        return torch.where(known >= 0, known, guess)


@dataclass(frozen=True)
class StatisticsRequest:
    """Class-wise statistics that a term reads; terms that ask for the same share one object, written once a step.

    `memory` keeps the latest feature of every row, `iterative` accumulates batch by batch. `covariance` says whether
    the term uses the spread of the classes, or their means alone.
    """

    domain: Domain
    estimator: Estimator = "memory"
    covariance: bool = False


class Term(nn.Module):
    """A part of the objective. Its settings are annotated attributes:

        beta: float = setting(0.1, "Weight of the term.", at_least=0)

    and become attributes of each object. `paper` is where it comes from, with its year. `practice` tells a practitioner
    in a paragraph what it assumes, when it helps and when it hurts, and `cost` what a step takes: forward and backward
    passes, and what else is large. `needs_views` is 2 for a term that compares two views of the target's rows, and
    `needs_package` names what has to be installed for it, with the extra that does.
    """

    paper: ClassVar[str] = ""
    practice: ClassVar[str] = ""
    cost: ClassVar[str] = "one pass"
    settings: ClassVar[dict[str, Setting]] = {}
    needs_target: bool = True
    needs_views: ClassVar[int] = 1
    needs_package: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = declared_settings(cls)
        inherited = {k: v for base in cls.__bases__ for k, v in getattr(base, "settings", {}).items()}
        cls.settings = {**inherited, **own}
        for name, one in own.items():
            setattr(cls, name, one.default)

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__()
        self.context = context
        for name, value in settings.items():
            if name not in self.settings:
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
            setattr(self, name, value)

    @classmethod
    def resolved(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Its settings as a config keeps them: what a user named (a file, say) replaced by what it stands for."""
        return settings

    @classmethod
    def check_classes(cls, settings: dict[str, Any], classes: tuple[str, ...]) -> None:
        """Refuse settings that do not fit the classes of the source, before anything is trained."""

    def statistics(self) -> list[StatisticsRequest]:
        """The class-wise statistics that it reads."""
        return []

    def describe(self, out: Outputs) -> Mapping[str, float | list[float]]:
        """Values to log beside the loss."""
        return {}

    def notes(self) -> list[str]:
        """Warnings before training, from the source alone."""
        return []

    def remarks(self, predicted_share: Tensor) -> list[str]:
        """Warnings about the result, from the predicted class shares (C,) of the target."""
        return []


class SourceTerm(Term):
    """A loss of labelled source features, in place of the cross-entropy: one value for each head, summed.

    `linear` says whether it relies on logits that are linear in the features, as TSA does.
    """

    needs_target = False
    linear: ClassVar[bool] = False

    def constrain(self, linear_layers: Sequence[nn.Linear]) -> None:
        """Put right, in place, what must hold of the heads that it trains: before the first iteration and after each.

        A head of unit rows, say: then the network that predicts is the one that the term has trained.
        """

    def forward(self, out: Outputs) -> Tensor:
        """The loss, summed over the heads."""
        return torch.stack([self.of_head(i, head, out) for i, head in enumerate(out.heads)]).sum()

    def of_head(self, i: int, head: Head, out: Outputs) -> Tensor:
        """The loss of head i."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")


class TargetTerm(Term):
    """A loss of unlabelled target features or predictions, with its weight in it; `linear` as in a source term."""

    linear: ClassVar[bool] = False

    def forward(self, out: Outputs) -> Tensor:
        """The loss, ready to be summed with the others."""
        raise NotImplementedError(f"{type(self).__name__} has no loss")


class Step(Protocol):
    """What an alternating method may do within one iteration; statistics and schedules advance once, whatever it does.

    A method that names `phases` has an optimizer for each, with its own momentum, saved and resumed with the run.
    """

    extractor: nn.Module
    heads: nn.Module
    linear_layers: Sequence[nn.Linear]
    progress: float

    def forward(self, source_extractor: nn.Module | None = None) -> Outputs:
        """The batch of this iteration through the network as it is now.

        With `source_extractor` the source's features are that extractor's, and the network sees the target alone.
        """

    def source(self, out: Outputs) -> dict[str, Tensor]:
        """The source term and the target terms, by name."""

    def descend(
        self,
        more: Callable[[Outputs], dict[str, Tensor]] | None = None,
        only: Sequence[nn.Module] | None = None,
        phase: str | None = None,
        out: Outputs | None = None,
    ) -> Outputs:
        """One optimizer step on the source term, the target terms and what `more` makes of the outputs.

        `out` is the batch, if it was forwarded already. In a run with `sdat` the weights first move up the slope of the
        source and target terms, and the gradient of all is taken there. What comes back is the batch before that.
        """

    def minimize(
        self, terms: dict[str, Tensor], only: Iterable[nn.Module] | None = None, phase: str | None = None
    ) -> None:
        """One optimizer step on the sum of the terms.

        With `only`, the parameters of all other modules stay; with `phase`, the optimizer of that phase takes the step.
        """


class Method(Term):
    """What brings the two domains together: named terms beside any source term and any target terms.

    `terms` are their names, `heads` how many heads the network has, and `phases` the names of an alternating method's
    optimizers. `separate_bn` says whether the two domains are normalised apart where a run does not say, and
    `target_statistics` whether the trained network is normalised by the target (`models.normalisation`). `linear` says
    whether the source's logits stay linear in the features: else TSA has nothing to augment; `augments` says when it
    has, if not in all steps. One that overrides `update` and learns the source by `step.descend` says so by `descends`,
    and then goes with `sdat`.

    A method with a head of its own making shows it to all terms by `seen`, and by `finish` leaves the weights that
    predict in the network's linear layers, so that a trained network needs no method.
    """

    terms: ClassVar[tuple[str, ...]] = ()
    heads: ClassVar[int] = 1
    phases: ClassVar[tuple[str, ...]] = ()
    separate_bn: ClassVar[bool] = False
    target_statistics: ClassVar[bool] = False
    linear: ClassVar[bool] = True
    augments: ClassVar[str] = ""
    descends: ClassVar[bool] = False

    def seen(self, out: Outputs) -> Outputs:
        """What all terms see of a forward pass: the network's outputs, unless the method has a head of its own."""
        return out

    def rate(self, phase: str) -> float:
        """The learning rate of a phase beside the run's; the steps on all terms together have no phase."""
        return 1.0

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """The method's terms, each ready to be summed."""
        raise NotImplementedError(f"{type(self).__name__} has no losses")

    def prepare(self, step: Step) -> None:
        """What a method with a head of its own does to the network's linear layers before an iteration."""

    def finish(self, step: Step, out: Outputs) -> None:
        """What it does to them after an iteration, so that they predict; `out` is what the terms saw."""

    def update(self, step: Step) -> None:
        """One iteration. Methods that alternate between objectives override it; all others minimise one sum."""
        self.prepare(step)
        self.finish(step, step.descend(self.losses))


SOURCE_TERMS: Registry[type[SourceTerm]] = Registry("source term", "tsadapt.objectives.source_terms")
TARGET_TERMS: Registry[type[TargetTerm]] = Registry("target term", "tsadapt.objectives.target_terms")
METHODS: Registry[type[Method]] = Registry("method", "tsadapt.objectives.methods")
