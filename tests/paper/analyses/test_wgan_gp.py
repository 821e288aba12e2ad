from dataclasses import replace

import pytest
import torch
from paper.analyses.wgan_gp import LATENT, Critic, GanConfig, Generator, gradient_penalty, images_for_gan, train_gan

from tsadapt.errors import UserError

TINY = GanConfig(width=2, steps=6, batch_size=8)


def pixels(n=40, channels=1, size=16):
    """A bright square on a dark ground, somewhere."""
    random = torch.Generator().manual_seed(0)
    images = torch.zeros(n, channels, size, size, dtype=torch.uint8)
    for i in range(n):
        top, left = torch.randint(size - 6, (2,), generator=random).tolist()
        images[i, :, top : top + 6, left : left + 6] = 255
    return images


@pytest.mark.parametrize("channels", [1, 3])
def test_shapes_and_ranges(channels):
    made = Generator(channels, 4)(torch.randn(5, LATENT))
    assert made.shape == (5, channels, 32, 32)
    assert made.abs().max() <= 1
    assert Critic(channels, 4)(made).shape == (5,)
    assert not [m for m in Critic(channels, 4).modules() if "Norm" in type(m).__name__]


@pytest.mark.parametrize(("slope", "expected"), [(1.0, 0.0), (2.0, 10.0), (0.0, 10.0), (0.5, 2.5)])
def test_the_penalty_of_linear_critics(slope, expected):
    a = torch.randn(12)
    a = slope * a / a.norm()
    real, fake = torch.randn(7, 3, 2, 2), torch.randn(7, 3, 2, 2)
    found = gradient_penalty(lambda x: x.flatten(1) @ a, real, fake, torch.rand(7))
    assert found.item() == pytest.approx(expected, abs=1e-4)


def test_the_penalty_looks_between_the_images_and_reaches_the_critic():
    seen = []

    def critic(x):
        seen.append(x.detach())
        return (weight * x).flatten(1).sum(1)

    weight = torch.ones(1, requires_grad=True)
    real, fake = torch.zeros(2, 4), torch.ones(2, 4)
    gradient_penalty(critic, real, fake, torch.tensor([0.25, 1.0])).backward()
    assert torch.equal(seen[0], torch.tensor([[0.25] * 4, [1.0] * 4]))
    # (2w − 1)²·10 at w = 1, for the norm of four equal numbers is 2w.
    assert weight.grad.item() == pytest.approx(10 * 2 * (2 - 1) * 2)


def test_images_are_resized_and_scaled():
    images = images_for_gan(torch.full((2, 1, 8, 8), 255, dtype=torch.uint8))
    assert images.shape == (2, 1, 32, 32)
    assert torch.allclose(images, torch.ones_like(images))
    assert images_for_gan(torch.zeros(1, 3, 32, 32)).unique().tolist() == [-1]


def test_a_stopped_training_ends_with_the_same_bits(tmp_path, monkeypatch):
    whole = train_gan(pixels(), TINY, tmp_path / "whole", quiet=True)
    from paper.analyses import wgan_gp

    steps, step = [], wgan_gp._Gan.step

    def dies(self):
        if len(steps) == 4:
            raise RuntimeError("killed")
        steps.append(self.at)
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(wgan_gp._Gan, "step", dies)
        with pytest.raises(RuntimeError):
            train_gan(pixels(), TINY, tmp_path / "two", save_every=3, quiet=True)
    resumed = train_gan(pixels(), TINY, tmp_path / "two", save_every=3, quiet=True)
    for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert not any(p.requires_grad for p in resumed.parameters())
    assert not resumed.training
    again = train_gan(pixels(), TINY, tmp_path / "two", quiet=True)  # done: nothing is trained
    assert torch.equal(next(again.parameters()), next(whole.parameters()))


def test_sheets_and_records(tmp_path):
    sheets = []
    config = GanConfig(width=2, steps=20, batch_size=4)
    train_gan(
        pixels(), config, tmp_path / "gan", quiet=True, sheet=lambda images, path: sheets.append(path), sheet_every=8
    )
    assert [path.name for path in sheets] == ["samples-000008.png", "samples-000016.png", "samples-000020.png"]
    assert '"distance"' in (tmp_path / "gan" / "records.json").read_text()


def test_another_training_in_the_folder_is_refused(tmp_path):
    train_gan(pixels(), TINY, tmp_path / "gan", quiet=True)
    with pytest.raises(UserError, match="seed"):
        train_gan(pixels(), GanConfig(width=2, steps=6, batch_size=8, seed=1), tmp_path / "gan", quiet=True)
    with pytest.raises(UserError, match="images"):
        train_gan(pixels(30), TINY, tmp_path / "gan", quiet=True)
    with pytest.raises(UserError, match="pixels"):
        train_gan(pixels().flip(0), TINY, tmp_path / "gan", quiet=True)  # the same images in another order
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="no generator"):
        train_gan(pixels(), TINY, tmp_path / "else", quiet=True)


def test_the_critic_learns_to_tell_them_apart(tmp_path):
    import json

    config = GanConfig(width=4, steps=30, batch_size=16, lr=1e-3)
    train_gan(pixels(), config, tmp_path / "gan", quiet=True)
    records = json.loads((tmp_path / "gan" / "records.json").read_text())
    assert records[-1]["distance"] > 0.1


def test_divergence_is_told_and_not_saved(tmp_path):
    with pytest.raises(UserError, match="diverged at step 1"):
        train_gan(pixels(), replace(TINY, lr=1e30), tmp_path / "gan", save_every=1, quiet=True)
    assert not [*tmp_path.rglob("*.pt")]


@pytest.mark.parametrize("wrong", [{"width": 0}, {"steps": 0}, {"batch_size": 1}, {"lr": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        GanConfig(**wrong)


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train_gan(pixels(), TINY, tmp_path / "gan", quiet=True)
    assert torch.equal(torch.rand(1), expected)
