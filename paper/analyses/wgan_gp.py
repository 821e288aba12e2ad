"""A small generator of images, trained as a Wasserstein GAN with gradient penalty (Gulrajani et al., 2017).

Critic: minimise E D(G(z)) − E D(x) + 10·E (‖∇_x̂ D(x̂)‖₂ − 1)², x̂ = x + u (G(z) − x), u ~ U(0, 1) for each image.
Generator, after five steps of the critic: minimise −E D(G(z)), z ~ N(0, I).

Shapes: B images (B, channels, 32, 32) with values from −1 to 1; z (B, 128).
"""

import copy
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt.data.loader import RowStream, seeded
from tsadapt.errors import UserError
from tsadapt.files import write_json
from tsadapt.progress import StepProgress
from tsadapt.runs import checkpoint
from tsadapt.runs.folder import RunFolder
from tsadapt.training.runtime import stop_signals

__all__ = ["LATENT", "SIZE", "Critic", "GanConfig", "Generator", "gradient_penalty", "images_for_gan", "train_gan"]

SIZE, LATENT = 32, 128
PENALTY, CRITIC_STEPS = 10.0, 5
LOG_EVERY = 10
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class GanConfig:
    """What the result of a GAN's training depends on, beside the images.

    The authors take four times this width, a rate of 1e-4 and 200,000 steps. For a few thousand steps that rate is too
    small: at this width, five times as much was at 200 steps where it was at 1,300 (house numbers, judged by eye).
    """

    width: int = 32
    steps: int = 2000
    batch_size: int = 64
    lr: float = 5e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width < 1 or self.steps < 1 or self.batch_size < 2 or not self.lr > 0:
            raise ValueError(f"{self}: expected width and steps from 1, a batch_size from 2 and a positive lr.")


class Generator(nn.Module):
    """z (B, 128) → images (B, channels, 32, 32): a dense layer to 4×4, then three transposed convolutions."""

    def __init__(self, channels: int, width: int = 32) -> None:
        super().__init__()
        self.width = width

        def doubled(inputs: int, outputs: int) -> nn.Module:
            return nn.ConvTranspose2d(inputs, outputs, 5, stride=2, padding=2, output_padding=1)

        self.dense = nn.Sequential(nn.Linear(LATENT, 16 * 4 * width), nn.BatchNorm1d(16 * 4 * width), nn.ReLU())
        self.convolutions = nn.Sequential(
            doubled(4 * width, 2 * width), nn.BatchNorm2d(2 * width), nn.ReLU(),
            doubled(2 * width, width), nn.BatchNorm2d(width), nn.ReLU(),
            doubled(width, channels), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z: Tensor) -> Tensor:
        """Images from −1 to 1."""
        images: Tensor = self.convolutions(self.dense(z).view(-1, 4 * self.width, 4, 4))
        return images


class Critic(nn.Module):
    """Images (B, channels, 32, 32) → (B,): three strided convolutions without normalisation, and a dense layer."""

    def __init__(self, channels: int, width: int = 32) -> None:
        super().__init__()

        def halved(inputs: int, outputs: int) -> list[nn.Module]:
            return [nn.Conv2d(inputs, outputs, 5, stride=2, padding=2), nn.LeakyReLU(0.2)]

        self.layers = nn.Sequential(
            *halved(channels, width), *halved(width, 2 * width), *halved(2 * width, 4 * width),
            nn.Flatten(), nn.Linear(16 * 4 * width, 1),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """How real the images look."""
        scores: Tensor = self.layers(images)
        return scores[:, 0]


def gradient_penalty(critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, u: Tensor) -> Tensor:
    """10·E (‖∇_x̂ D(x̂)‖₂ − 1)² at x̂ = real + u (fake − real), u (B,); differentiable in the critic's weights.

    >>> a = torch.tensor([0.6, 0.8])
    >>> x = torch.zeros(3, 2)
    >>> round(gradient_penalty(lambda x: x @ a, x, x + 1, torch.rand(3)).item(), 4)  # ‖a‖ = 1
    0.0
    >>> round(gradient_penalty(lambda x: x @ (2 * a), x, x + 1, torch.rand(3)).item(), 4)
    10.0
    """
    between = (real + u.view(-1, *(1,) * (real.ndim - 1)) * (fake - real)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norm = (gradient.flatten(1).square().sum(1) + 1e-12).sqrt()
    return PENALTY * (norm - 1).square().mean()


def images_for_gan(pixels: Tensor) -> Tensor:
    """Pixels from 0 to 255, (N, channels, H, W) → float images from −1 to 1 at 32×32."""
    x = pixels.to(torch.float32, copy=True)
    if x.shape[2:] != (SIZE, SIZE):
        x = F.interpolate(x, (SIZE, SIZE), mode="bilinear", align_corners=False, antialias=True)
    return x.clamp_(0, 255).div_(127.5).sub_(1)


class _Gan:
    """Both networks on their way."""

    def __init__(self, images: Tensor, config: GanConfig) -> None:
        self.images, self.config, self.at = images, config, 0
        channels = images.shape[1]
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(config.seed)
            self.generator, self.critic = Generator(channels, config.width), Critic(channels, config.width)
        self.generator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.critic.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizers = [
            torch.optim.Adam(net.parameters(), lr=config.lr, betas=(0.5, 0.9)) for net in (self.generator, self.critic)
        ]
        self.stream = RowStream(len(images), config.batch_size, config.seed, salt=20)

    def step(self) -> dict[str, float]:
        """Five steps of the critic and one of the generator; everything random is a function of (seed, step)."""
        self.at += 1
        random = seeded(self.config.seed, 21, self.at)
        b = self.config.batch_size
        metrics = {}
        for i in range(CRITIC_STEPS):
            rows = self.stream.rows_at((self.at - 1) * CRITIC_STEPS + i + 1)
            real = images_for_gan(self.images.index_select(0, rows))
            with torch.no_grad():
                fake = self.generator(torch.randn(b, LATENT, generator=random))
            self.optimizers[1].zero_grad()
            scores = self.critic(torch.cat([real, fake]))
            distance = scores[:b].mean() - scores[b:].mean()
            penalty = gradient_penalty(self.critic, real, fake, torch.rand(b, generator=random))
            (penalty - distance).backward()
            self.optimizers[1].step()
            metrics = {"distance": float(distance.detach()), "penalty": float(penalty.detach())}
        self.optimizers[0].zero_grad()
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(torch.randn(b, LATENT, generator=random))).mean()
        loss.backward()
        self.critic.requires_grad_(True)
        self.optimizers[0].step()
        return metrics | {"generator": float(loss.detach())}

    def state(self) -> dict[str, Any]:
        networks = {"generator": self.generator.state_dict(), "critic": self.critic.state_dict()}
        return {"step": self.at, **networks, "optimizers": [o.state_dict() for o in self.optimizers]}

    def load(self, state: dict[str, Any]) -> None:
        self.at = state["step"]
        self.generator.load_state_dict(state["generator"])
        self.critic.load_state_dict(state["critic"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def train_gan(
    pixels: Tensor,
    config: GanConfig,
    out: Path,
    *,
    save_every: int = 100,
    sheet: Callable[[Tensor, Path], None] | None = None,
    sheet_every: int = 500,
    quiet: bool = False,
) -> Generator:
    """Train on images (N, channels, H, W) with pixels from 0 to 255, or go on in `out`; the generator, frozen.

    Losses go to OUT/records.json, and `sheet` is called with 64 samples (always of the same z) and a path in OUT.
    """
    digest = hashlib.sha256(pixels.contiguous().numpy().tobytes()).hexdigest()[:16]
    settings = {**asdict(config), "images": [*pixels.shape], "pixels": digest}
    _claim(out, settings)
    with RunFolder(out).lock():
        return _train(_Gan(pixels, config), out, save_every, sheet, sheet_every, quiet)


def _train(
    gan: _Gan, out: Path, save_every: int, sheet: Callable[[Tensor, Path], None] | None, sheet_every: int, quiet: bool
) -> Generator:
    config = gan.config
    found, damaged = checkpoint.latest(out / "checkpoints")
    for path in damaged:
        path.unlink()
    records: list[dict[str, Any]] = []
    if found is not None:
        gan.load(found[1]["gan"])
        records = found[1]["records"]
    z = torch.randn(64, LATENT, generator=seeded(config.seed, 22))
    with stop_signals() as stop, StepProgress(config.steps, gan.at, quiet) as progress:
        while gan.at < config.steps:
            terms = gan.step()
            if not all(map(math.isfinite, terms.values())):
                raise UserError(
                    f"the generator diverged at step {gan.at}: {terms}. Take a smaller lr, and another folder."
                )
            if gan.at % LOG_EVERY == 0:
                records.append({"step": gan.at, **{name: round(value, 5) for name, value in terms.items()}})
            progress.advance(gan.at, terms if gan.at % LOG_EVERY == 0 else None)
            last, stopping = gan.at == config.steps, stop.asked  # read once: the message matches what was saved
            if sheet is not None and (gan.at % sheet_every == 0 or last):
                sheet(sample(gan.generator, z), out / f"samples-{gan.at:06d}.png")
            if gan.at % save_every == 0 or last or stopping:
                checkpoint.save(out / "checkpoints", gan.at, {"gan": gan.state(), "records": records})
                write_json(out / "records.json", records)
            if stopping and not last:
                raise KeyboardInterrupt(f"stopped at step {gan.at}; the same command goes on from there ({out})")
    return frozen(gan.generator)


@torch.no_grad()
def sample(generator: Generator, z: Tensor) -> Tensor:
    """Images of z, with the averages of batch normalisation; the generator is left as it was."""
    training = generator.training
    images: Tensor = generator.eval()(z)
    generator.train(training)
    return images


def frozen(module: M) -> M:
    """A copy in evaluation mode, whose parameters take no gradient; the module is left as it was."""
    return copy.deepcopy(module).eval().requires_grad_(False)


def _claim(out: Path, settings: dict[str, Any]) -> None:
    """Make the folder this training's, or refuse one that is another's."""
    path = out / "gan.json"
    if path.exists():
        there = json.loads(path.read_text(encoding="utf-8"))
        differ = [name for name in settings if there.get(name) != settings[name]]
        if differ:
            changed = ", ".join(f"{name} (there {there.get(name)}, here {settings[name]})" for name in differ)
            raise UserError(f"{out} holds a generator trained otherwise: {changed}. Choose another folder.")
        return
    if out.exists() and any(not p.name.startswith(".") for p in out.iterdir()):
        raise UserError(f"{out} is not empty and holds no generator: choose another folder.")
    write_json(path, settings)
