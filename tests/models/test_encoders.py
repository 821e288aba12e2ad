"""Somebody's own encoder: from a file, an entry point or memory; told apart by code and weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tsadapt.errors import UserError
from tsadapt.models.backbones import Origin
from tsadapt.models.encoders import BACKBONES, encoder_again, find_backbone, in_memory, module_origin, one_path

FILE = """
from torch import nn
from pathlib import Path

Path("was_run").touch()


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 5, 3), nn.Identity()
        self.size = 16

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


def make():
    return Small()


def described():
    small = Small()
    small.mean, small.std, small.size, small.resize = (0, 0.5, 1), [1, 2, 3], 20, 30
    small.interpolation = "bicubic"
    return small


def number():
    return 3


def raises():
    raise KeyError("no luck")


def leaves():
    raise SystemExit


def maps():
    return nn.Conv2d(3, 5, 3)


def one_row():
    class Flat(nn.Module):
        def forward(self, x):
            return x.reshape(1, -1)

    return Flat()


def fails():
    return nn.Linear(7, 7)


def wrong_mean():
    small = Small()
    small.mean = 0.5
    return small


def wrong_std():
    small = Small()
    small.std = (1, 0, 1)
    return small


def wrong_size():
    small = Small()
    small.size = "large"
    return small


def wrong_resize():
    small = Small()
    small.resize = 8
    return small


def wrong_interpolation():
    small = Small()
    small.interpolation = "nearest"
    return small


a_text = "no function"
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("enc.py").write_text(FILE)
    torch.manual_seed(0)
    return tmp_path


class Scaled(nn.Module):
    """An encoder of this program."""

    def __init__(self, by=1.0):
        super().__init__()
        self.by, self.conv, self.size = by, nn.Conv2d(3, 4, 3), 8

    def forward(self, x):
        return self.by * self.conv(x).mean((2, 3))


def test_a_function_of_a_file_and_its_defaults(here):
    found = find_backbone("enc.py:make", None)
    assert (found.name, found.dim, found.trained) == (f"{here}/enc.py:make", 5, True)
    assert (found.size, found.resize, found.interpolation) == (16, 18, "bilinear")
    assert found.mean == (0.485, 0.456, 0.406)
    assert found.origin is not None
    assert found.origin.function == "make"
    assert not find_backbone("enc.py:make", "none").trained
    assert one_path("enc.py:make") == one_path(f"{here}/../{here.name}/enc.py:make") == found.name


def test_its_attributes_say_how_images_are_prepared():
    found = find_backbone("enc.py:described", None)
    assert (found.mean, found.std) == ((0.0, 0.5, 1.0), (1.0, 2.0, 3.0))
    assert (found.size, found.resize, found.interpolation) == (20, 30, "bicubic")
    smaller = find_backbone("enc.py:described", None, 10)
    assert (smaller.size, smaller.resize) == (10, 15)


def test_weights_must_fit_but_for_layers_that_became_an_identity():
    state = {"conv.weight": torch.randn(5, 3, 3, 3).half(), "conv.bias": torch.randn(5), "fc.weight": torch.ones(9, 5)}
    save_file(state, "w.safetensors")
    module = find_backbone("enc.py:make", "w.safetensors").module
    assert module.conv.weight.dtype == torch.float32
    assert torch.equal(module.conv.weight, state["conv.weight"].float())
    save_file({**state, "new.weight": torch.ones(1)}, "w.safetensors")
    with pytest.raises(UserError, match=r"does not fit .*enc\.py:make: tensors 1 unexpected \(new\.weight\)\.$"):
        find_backbone("enc.py:make", "w.safetensors")
    with pytest.raises(UserError, match="No weights at nowhere"):
        find_backbone("enc.py:make", "nowhere.pth")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.py:make", "No file at nowhere.py"),
        ("enc.py", "expected FILE.py:FUNCTION, such as enc.py:make"),
        ("enc.py:", "expected FILE.py:FUNCTION"),
        ("enc.py:mak", "Unknown function 'mak'. Did you mean 'make'?"),
        ("enc.py:a_text", "Unknown function 'a_text'"),
        ("enc.py:raises", "its function failed: KeyError: 'no luck'"),
        ("enc.py:leaves", "its function failed: SystemExit"),
        ("enc.py:number", "returned int, expected a torch.nn.Module"),
        ("enc.py:maps", r"returns a tensor of shape \(2, 5, 222, 222\) for 2 images of 224 pixels"),
        ("enc.py:one_row", r"returns a tensor of shape \(1, 301056\) for 2 images"),
        ("enc.py:fails", "does not take images of 224 pixels: "),
        ("enc.py:wrong_mean", "has mean = 0.5, expected three numbers"),
        ("enc.py:wrong_std", r"has std = \(1, 0, 1\), expected numbers above zero"),
        ("enc.py:wrong_size", "has size = 'large', expected the side"),
        ("enc.py:wrong_resize", "has resize = 8, expected the short side .* 16 pixels"),
        ("enc.py:wrong_interpolation", "has interpolation = 'nearest', expected bilinear or bicubic"),
        ("syntax.py:make", r"syntax.py is not valid Python: .* \(line 2\)"),
        ("broken.py:make", "broken.py cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("memory:0123", "a network of a Python program: pass it as"),
    ],
)
def test_mistakes_get_one_line(name, said):
    Path("syntax.py").write_text("x = 1\ndef make(:\n    pass\n")
    Path("broken.py").write_text("import no_such_thing\n")
    with pytest.raises(UserError, match=said) as caught:
        find_backbone(name, None)
    assert "\n" not in str(caught.value)


def test_the_fingerprint_is_of_code_and_weights_not_of_the_place(here):
    def fingerprint(name, seed=0):
        torch.manual_seed(seed)
        return find_backbone(name, None).fingerprint()

    first = fingerprint("enc.py:make")
    assert fingerprint("enc.py:make", seed=1) != first
    assert fingerprint("enc.py:described") != first
    Path("elsewhere").mkdir()
    Path("elsewhere/moved.py").write_text(FILE)
    assert fingerprint("elsewhere/moved.py:make") == first
    Path("enc.py").write_text(FILE.replace(".mean((2, 3))", ".sum((2, 3))"))
    assert fingerprint("enc.py:make") != first


def test_it_is_taken_again_only_if_it_is_the_same():
    found = find_backbone("enc.py:make", None)
    again = encoder_again("enc.py:make", found.name, found.origin)
    assert {*again.state_dict()} == {*found.module.state_dict()}
    Path("was_run").unlink()
    with pytest.raises(UserError, match=r"which it never imports. Give it: --backbone .*enc\.py:make"):
        encoder_again(None, found.name, found.origin)
    with pytest.raises(UserError, match="not with resnet18"):
        encoder_again("resnet18", found.name, found.origin)
    with pytest.raises(UserError, match="is not the encoder that the run was trained with"):
        encoder_again("enc.py:described", found.name, found.origin)
    Path("enc.py").write_text(FILE + "# changed\n")
    with pytest.raises(UserError, match="is not the encoder that the run was trained with"):
        encoder_again("enc.py:make", found.name, found.origin)
    assert not Path("was_run").exists(), "code was run before its digest was compared"


def test_a_module_is_copied_and_told_apart_by_code_values_and_weights():
    module = Scaled()
    found = find_backbone(module, None)
    assert found.module is not module
    assert (found.name, found.dim, found.size) == ("Scaled (in memory)", 4, 8)
    assert in_memory(module) == in_memory(module.eval())
    fresh = Scaled()  # with other weights
    assert in_memory(fresh) != in_memory(module)
    assert module_origin(fresh) == module_origin(module) == found.origin
    assert module_origin(Scaled(by=2.0)) != found.origin

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean((2, 3))

    class Most(nn.Module):
        def forward(self, x):
            return x.amax((2, 3))

    Most.__qualname__ = Mean.__qualname__
    assert module_origin(Most()) != module_origin(Mean()) == module_origin(Mean())
    wider = Scaled()
    wider.conv = nn.Conv2d(3, 4, 3, dilation=2)  # the same shapes
    assert module_origin(wider) != found.origin
    with pytest.raises(UserError, match=r"backbone=module in tsadapt\.load"):
        encoder_again(None, found.name, found.origin)
    with pytest.raises(UserError, match="run it once"):
        in_memory(nn.LazyLinear(3))


def test_an_entry_point():
    def make():
        return Scaled()

    BACKBONES.register("theirs")(make)
    BACKBONES.register("resnet18")(make)
    try:
        found = find_backbone("theirs", None)
        assert (found.name, found.dim) == ("theirs", 4)
        encoder_again("theirs", found.name, found.origin)
        with pytest.raises(UserError, match="is not the encoder"):
            encoder_again("theirs", found.name, Origin(found.origin.function, "another"))
        with pytest.raises(UserError, match="a backbone called resnet18, as timm has"):
            find_backbone("resnet18", "none")
    finally:
        BACKBONES.forget("theirs")
        BACKBONES.forget("resnet18")
    with pytest.raises(UserError, match="Unknown backbone 'theirs'"):
        find_backbone("theirs", None)
