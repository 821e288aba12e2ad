"""tsadapt fit: train."""

import sys
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import tyro

from tsadapt.cli.options import File, Number, Text, Whole
from tsadapt.config import RunConfig, read_config
from tsadapt.errors import UserError

__all__ = ["Fit", "show"]


@dataclass(frozen=True)
class Fit:
    """Train a classifier on a labelled SOURCE and an unlabelled TARGET; the same command resumes a stopped run.

    SOURCE and TARGET are a folder of class folders, a flat folder of images (target), a list file with lines
    "path label", an .npz (x, y, classes), an .npy, a .csv or .parquet with a label column, or a name such as
    office31:amazon (tsadapt list datasets). Labels of the target, if it has any, only judge the result.

    Example: tsadapt fit photos/labelled photos/new --tsa --out runs/photos
    """

    source: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="SOURCE", help_behavior_hint="")] = None
    """The labelled domain."""
    target: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="TARGET", help_behavior_hint="")] = None
    """The domain to adapt to; its labels are not needed."""
    method: Text = None
    """Method of adaptation (source-only; tsadapt list methods)."""
    tsa: bool = False
    """Transferable semantic augmentation in place of the cross-entropy, with mutual information."""
    mi: bool = False
    """Mutual-information maximisation on the target."""
    no_mi: bool = False
    """Leave out mutual information, for ablations of --tsa."""
    source_term: Literal["ce", "isda", "tsa", "sampled"] | None = None
    """What takes the place of the source cross-entropy."""
    lambda0: Number = None
    """Strength of the augmentation at the end of training (0.25)."""
    beta: Number = None
    """Weight of mutual information (0.1)."""
    term_weight: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=NUMBER: a factor for a term of the objective, 0 leaves it out (tsadapt list methods names the terms)."""
    reversal: Literal["progress", "iteration"] | None = None
    """How the reversed gradient of adversarial methods grows: over the run, or over 10,000 steps as in CDAN's code."""
    entropy_grad: Literal["none", "reversed"] | None = None
    """Whether CDAN+E's weights carry a gradient."""
    class_prior: Text = None
    """Class shares that MI aims for: uniform, source, or a JSON file {class: share}."""
    estimator: Literal["memory", "iterative"] | None = None
    """Where TSA's statistics come from."""
    samples: Whole = None
    """Copies drawn for each feature by --source-term sampled (8)."""
    no_mean_shift: bool = False
    """Ablation: leave out the shift between the class means."""
    no_covariance: bool = False
    """Ablation: leave out the target's covariance."""
    policy: Literal["skip", "official", "global"] | None = None
    """What happens to a class without pseudo-labels."""
    network: Text = None
    """Network (tsadapt list networks); chosen by the data unless given."""
    bottleneck: Whole = None
    """Features of the MLP's hidden layer (256)."""
    backbone: Text = None
    """For photographs: a network of timm, or torchvision:NAME (resnet50; tsadapt list backbones)."""
    weights: Text = None
    """The backbone's weights: a .safetensors or .pth file, or none for random ones; downloaded unless given."""
    freeze_backbone: bool = False
    """Compute the backbone's features once and train on them: the default on a CPU."""
    no_freeze_backbone: bool = False
    """Train the backbone too: the default on a GPU."""
    image_size: Whole = None
    """Side of the images that the backbone takes, in pixels."""
    augment: Literal["random-crop", "center-crop"] | None = None
    """How training images are cut, with the backbone trained: VisDA-2017's protocol takes the centre."""
    ten_crop: bool = False
    """Evaluate on ten crops of every image, with the backbone trained."""
    steps: Whole = None
    """Training steps (1,000 for features and tables, 1,500 to 3,000 for digits, 5,000 with the backbone trained)."""
    batch_size: Whole = None
    """Rows of each domain in a step (64; 32 with the backbone trained)."""
    target_batch_size: Whole = None
    """Rows of the target in a step, if another number."""
    lr: Number = None
    """First learning rate (0.01; 0.02 for the smallest digit network)."""
    weight_decay: Number = None
    """Weight decay (0.001; 0.0005 for larger digit networks)."""
    separate_bn: bool = False
    """Forward the two domains apart, so that they do not share batch normalisation."""
    holdout: Number = None
    """Share of each class of the source that is kept out of training, for validators (fit 0, sweep 0.1)."""
    target_share: Number = None
    """Share of the target's rows that training may see (1); all of them are judged."""
    target_draw: Literal["uniform", "oracle-stratified"] | None = None
    """How that share is drawn; oracle-stratified draws it within each class, which looks at target labels."""
    candidates: Whole = None
    """Steps of the run, evenly spaced, that validators choose among (1: the last step alone)."""
    seed: Whole = None
    """Seed of everything random (0)."""
    precision: Literal["fp32", "bf16"] | None = None
    """Precision of the forward pass."""
    device: Text = None
    """auto, cpu, cuda, …"""
    workers: Whole = None
    """Processes that decode images (one a core, eight at most)."""
    log_every: Whole = None
    """Steps between two lines of records.jsonl (50)."""
    checkpoint_every: Whole = None
    """Steps between two checkpoints (200)."""
    out: File = None
    """Folder of the run, or of the sweep (runs/HASH)."""
    overwrite: bool = False
    """Replace another run in that folder."""
    config: File = None
    """TOML file with settings, such as a run's config.toml; what is given here takes precedence."""
    tensorboard: bool = False
    """Write TensorBoard events too (extra: track)."""
    keep_memory: bool = False
    """Keep TSA's memory in the run's folder, for pictures of augmented features."""
    quiet: bool = False
    """No progress."""

    def to_config(self) -> RunConfig:
        """The run's config: the file's settings, and on top of them what was given."""
        if self.mi and self.no_mi:
            raise UserError("--mi and --no-mi contradict each other.")
        if self.tsa and self.source_term not in (None, "tsa"):
            raise UserError(f"--tsa and --source-term {self.source_term} contradict each other.")
        if self.freeze_backbone and self.no_freeze_backbone:
            raise UserError("--freeze-backbone and --no-freeze-backbone contradict each other.")
        known = {f.name for f in fields(RunConfig)}
        flags = ("mi", "separate_bn", "freeze_backbone", "ten_crop")
        given: dict[str, Any] = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name in known and f.name not in flags and getattr(self, f.name) not in (None, ())
        }
        if self.tsa:
            given |= {"source_term": "tsa", "mi": True}
        given |= {"mi": True} if self.mi else {"mi": False} if self.no_mi else {}
        given |= {"mean_shift": False} if self.no_mean_shift else {}
        given |= {"covariance": "none"} if self.no_covariance else {}
        given |= {name: True for name in ("separate_bn", "freeze_backbone", "ten_crop") if getattr(self, name)}
        given |= {"freeze_backbone": False} if self.no_freeze_backbone else {}
        if self.config is not None:
            return read_config(self.config, **given)
        if self.source is None or self.target is None:
            verb = type(self).__name__.lower()
            raise UserError(
                f"{verb} needs a SOURCE and a TARGET, for example: tsadapt {verb} photos/labelled photos/new --tsa"
            )
        return replace(RunConfig(self.source, self.target), **given)

    def run(self) -> int:
        """Train, and say how it went."""
        config = self.to_config()
        from tsadapt.runs.fit import Interrupted, fit

        try:
            out, metrics = fit(
                config,
                self.out,
                overwrite=self.overwrite,
                quiet=self.quiet,
                tensorboard=self.tensorboard,
                keep_memory=self.keep_memory,
            )
        except Interrupted as stopped:
            print(f"tsadapt: {stopped}", file=sys.stderr)
            return 130
        show(metrics["last"]["source"], "source")
        show(metrics["last"]["target"], "target")
        if "selected" in metrics:
            selected = metrics["selected"]
            show(selected["target"], f"selected by {selected['by']}, step {selected['step']}: target")
        if "oracle" in metrics:
            best = metrics["oracle"]
            print(f"oracle (best by target labels), step {best['step']}: target accuracy {best['accuracy']:.1%}")
        print(f"run: {out}")
        return 0


def show(said: dict[str, Any], role: str) -> None:
    """One line on what was said of a domain."""
    head = f"{role} {said['data']} ({said['split']}, {said['rows']} rows)"
    if "accuracy" in said:
        print(f"{head}: accuracy {said['accuracy']:.1%}, mean of classes {said['mean_class_accuracy']:.1%}")
    else:
        most = sorted(said["predicted_share"].items(), key=lambda item: -item[1])[:5]
        print(f"{head}: no labels; predicted most: {', '.join(f'{name} {share:.0%}' for name, share in most)}")
