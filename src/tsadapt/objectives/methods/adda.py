"""ADDA: an extractor of the target's own that learns to give its rows features like the source's."""

from typing import Any, Literal

import torch
from torch import Tensor

from tsadapt.core import domain_loss, inverted_domain_loss
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, Context, Outputs, Step
from tsadapt.objectives.methods.discriminating import Discriminating
from tsadapt.objectives.methods.pretrained import Pretrained
from tsadapt.settings import setting

__all__ = ["ADDA"]


@METHODS.register("adda")
class ADDA(Pretrained, Discriminating):
    """Adversarial discriminative adaptation: the target gets an extractor of its own, trained against a discriminator.

    The first share of the steps trains the network on the source (`pretraining`). Then its extractor F_s is copied and
    stays as it is, the head stays as well, and the network's extractor F_t goes on alone, on the target:

        D minimises     −½ mean log D(F_s(x_s)) − ½ mean log(1 − D(F_t(x_t)))
        F_t minimises   −mean log D(F_t(x_t))           (inverted labels, not a reversed gradient)

    Both learn at a fifth of the run's rate, as in the published code: at the whole rate, F_t leaves the head behind.
    D looks at the logits, as there, or at the features. The source term, TSA too, moves nothing after
    the first stage; target terms go on to move F_t. What is trained is the target's network: source rows went
    through F_s, which predictions do not need. Each extractor normalises its own domain.
    """

    paper = "Tzeng et al., CVPR 2017"
    terms = ("domain", "inverted")
    phases = ("discriminator", "target")
    separate_bn = True
    descends = True
    augments = "in the pretraining"
    usual_pretraining = 0.5
    cost = "one pass; after the pretraining, one of the target and one forward of the source"
    practice = """It assumes that the target's features can be moved, as a whole, onto the source's without mixing up
    the classes: nothing ties a row to its class. It helps where one network suits both domains badly, because it gives
    the target another. It hurts where the classes have other shares in the target, and where they can be exchanged: the
    extractor then fools the discriminator with wrong classes. Few steps, or a target term beside it, keep it near the
    source's network. The source's accuracy falls, for the network becomes the target's."""

    discriminated: Literal["logits", "features"] = setting("logits", "What ADDA's discriminator looks at.")

    adversarial_rate: float = setting(0.2, "Learning rate of ADDA's second stage beside the first's.", above=0)

    copied: Tensor

    def __init__(self, context: Context, **settings: Any) -> None:
        super().__init__(context, **settings)
        self.source_extractor = context.copy_extractor().requires_grad_(False)
        self.register_buffer("copied", torch.tensor(False))
        if not [*self.source_extractor.parameters()]:
            raise UserError(
                "adda trains another extractor for the target, but this network has none: its features are its inputs."
                " Use the network mlp."
            )

    def inputs(self, context: Context) -> int:
        """C logits, or K features."""
        return len(context.classes) if self.discriminated == "logits" else context.dim

    def rate(self, phase: str) -> float:
        """Less than the run's for both networks of the second stage."""
        return self.adversarial_rate if phase else 1.0

    def mapped(self, out: Outputs) -> Tensor:
        """Logits or features."""
        source, target = out.both()
        views = (source.logits, target.logits) if self.discriminated == "logits" else (source.features, target.features)
        return torch.cat(views)

    def update(self, step: Step) -> None:
        """A step on the source, or one of D and one of F_t."""
        if self.pretrains(step.progress):
            step.descend()
            return
        if not self.copied:
            self.source_extractor.load_state_dict(step.extractor.state_dict())
            self.copied.fill_(True)
        out = step.forward(self.source_extractor)
        sizes = [len(view.index) for view in out.both()]
        d_s, d_t = self.discriminator(self.mapped(out).detach()).split(sizes)
        domain = domain_loss(d_s, d_t, smoothing=self.domain_smoothing)
        step.minimize({"domain": domain}, only=[self.discriminator], phase="discriminator")
        d_t = self.discriminator(self.mapped(out)).split(sizes)[1]
        inverted = {"inverted": inverted_domain_loss(d_t)}
        step.minimize({**step.source(out), **inverted}, only=[step.extractor], phase="target")
