"""DMRL: DANN on rows and on mixtures of rows, which are classified as mixtures."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tsadapt.core import (
    domain_loss,
    mixed_label_loss,
    mixed_prediction_distance,
    mixed_rows,
    mixing_share,
    reverse_gradient,
)
from tsadapt.objectives.base import METHODS, Outputs
from tsadapt.objectives.methods.dann import DANN
from tsadapt.settings import setting

__all__ = ["DMRL"]


@dataclass(frozen=True)
class Mixture:
    """Mixtures of one domain's inputs: partners (B,), the share λ of the row itself, and the mixed inputs (B, …)."""

    partner: Tensor
    share: float
    inputs: Tensor

    @classmethod
    def drawn(cls, x: Tensor, alpha: float, generator: torch.Generator) -> "Mixture":
        """Every row with another one of the batch, or with itself, by one λ for all."""
        share = mixing_share(alpha, generator)
        partner = torch.randperm(len(x), generator=generator).to(x.device)
        return cls(partner, share, mixed_rows(x, partner, share))


@METHODS.register("dmrl")
class DMRL(DANN):
    """Dual mixup: DANN, and mixtures of two inputs of one domain, to be classified and aligned as well.

        x̃ = λ x_i + (1 − λ) x_j,   λ ~ Beta(α, α), one for each domain and batch
        L = L_d(f_s, f_t) + L_d(f̃_s, f̃_t)                                        domains, of rows and of mixtures
            + mean [λ CE(z̃_s, y_i) + (1 − λ) CE(z̃_s, y_j)]                       mixed labels in the source
            + mean |softmax z̃_t − softmax(λ z_i + (1 − λ) z_j)|                   mixed logits in the target

    All weights are 1, as published. Whatever comes into the network is mixed: pixels, rows of a table, features of a
    frozen backbone. The source term and TSA see the rows as they are. The mixtures go through the network together or
    one domain by one, like the rows, and leave no trace in the running averages.
    """

    paper = "Wu et al., ECCV 2020"
    practice = (
        "It is DANN that also trains on blends of two rows of the same domain: a blend of a source cat and a source "
        "dog should be predicted as part cat, part dog, and a blend of two target rows as the blend of their "
        "predictions. It assumes that blends of inputs make sense, as they do for pixels and for features of a "
        "backbone, and less for tables with codes or counts. It helps where DANN's features turn erratic between the "
        "few rows that they have seen. It hurts where DANN does, with uneven classes, and it flattens predictions, "
        "so fewer of them look certain. Raise `--mixup-alpha` for blends nearer the middle."
    )
    cost = "two passes, the second of mixed rows; a discriminator on both"
    terms = ("domain", "mixed_domain", "mixed_ce", "mixed_consistency")

    mixup_alpha: float = setting(0.2, "α of the Beta(α, α) from which DMRL draws the share of a blend.", above=0)

    def losses(self, out: Outputs) -> dict[str, Tensor]:
        """DANN's term, and those of the mixtures."""
        rows = super().losses(out)
        _, target = out.both()
        source_mix, target_mix = self.mixtures(out)
        (f_s, z_s), (f_t, z_t) = self.forwarded(out, source_mix, target_mix)
        d = self.discriminator(reverse_gradient(torch.cat([f_s, f_t]), self.alpha(out)))
        d_s, d_t = d.split([len(f_s), len(f_t)])
        return {
            **rows,
            "mixed_domain": domain_loss(d_s, d_t, smoothing=self.domain_smoothing),
            "mixed_ce": mixed_label_loss(z_s, out.labels(), source_mix.partner, source_mix.share),
            "mixed_consistency": mixed_prediction_distance(z_t, target.logits, target_mix.partner, target_mix.share),
        }

    def mixtures(self, out: Outputs) -> tuple[Mixture, Mixture]:
        """Those of the source and of the target in this step, each with a λ and pairs of its own."""
        x_s, x_t = out.inputs
        assert x_t is not None
        generator = out.generator().clone_state()  # other terms draw what they would without this one
        source_mix, target_mix = (Mixture.drawn(x, self.mixup_alpha, generator) for x in (x_s, x_t))
        return source_mix, target_mix

    @staticmethod
    def forwarded(
        out: Outputs, source_mix: Mixture, target_mix: Mixture
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Features and logits of the mixtures, which share batch normalisation if the rows did."""
        x_s, x_t = source_mix.inputs, target_mix.inputs
        if len(out.extracted) > 1:
            return out.network(x_s), out.network(x_t)
        f, z = out.network(torch.cat([x_s, x_t]))
        rows = len(x_s)
        return (f[:rows], z[:rows]), (f[rows:], z[rows:])
