import os
import pickle

import pytest
import torch
from safetensors.torch import save_file

from tsadapt.errors import UserError
from tsadapt.models import backbones
from tsadapt.models.backbones import backbone_names, for_inference, make_backbone
from tsadapt.models.networks import Architecture, build

TINY = "test_efficientnet"


def features(backbone, x):
    with torch.no_grad():
        return backbone.module.eval()(x)


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", [TINY, "test_resnet", "torchvision:resnet18", "torchvision:mobilenet_v2"])
def test_features_without_a_classifier(name, images):
    torch.manual_seed(0)
    backbone = make_backbone(name, "none", 32)
    assert features(backbone, images).shape == (3, backbone.dim)
    assert (backbone.size, backbone.trained) == (32, False)
    quick = for_inference(backbone.module, 32)
    with torch.no_grad():
        torch.testing.assert_close(quick(images), features(backbone, images), rtol=1e-3, atol=1e-4)


def test_a_transformer_of_another_size():
    assert make_backbone("test_vit", "none", 96).size == 96


@pytest.mark.parametrize("kind", ["safetensors", "pth", "wrapped", "module"])
@pytest.mark.parametrize("name", [TINY, "torchvision:mobilenet_v2"])
def test_weights_from_a_file_of_the_whole_network(tmp_path, images, kind, name):
    """The file has a classifier too, of any number of classes."""
    torch.manual_seed(1)
    ours = make_backbone(name, "none", 32)
    state = {key: value.clone() for key, value in ours.module.state_dict().items()}
    head = "classifier.1" if "torchvision" in name else "classifier"
    state |= {f"{head}.weight": torch.randn(21, ours.dim), f"{head}.bias": torch.randn(21)}
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        save_file(state, path)
    elif kind == "wrapped":
        torch.save({"epoch": 3, "state_dict": state}, path)
    else:
        torch.save({f"module.{k}" if kind == "module" else k: v for k, v in state.items()}, path)
    torch.manual_seed(2)
    loaded = make_backbone(name, str(path), 32)
    assert loaded.trained
    assert torch.equal(features(loaded, images), features(ours, images))
    assert loaded.fingerprint() == ours.fingerprint()
    assert make_backbone(name, "none", 32).fingerprint() != ours.fingerprint()


def test_weights_that_do_not_fit_are_listed(tmp_path):
    state = make_backbone(TINY, "none").module.state_dict()
    state["conv_stem.weight"] = torch.zeros(7, 7)
    state["new.weight"] = state.pop("bn1.bias")
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(
        UserError,
        match=r"does not fit .*1 missing \(bn1.bias\); 1 unexpected \(new.weight\); 1 of the wrong shape"
        r" \(conv_stem.weight \(7, 7\) for .*torchvision:NAME",
    ):
        make_backbone(TINY, str(tmp_path / "w.pth"))


def test_unexpected_tensors_are_refused(tmp_path):
    state = make_backbone(TINY, "none").module.state_dict()
    torch.save({**state, "extra.weight": torch.zeros(2)}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"1 unexpected \(extra.weight\)"):
        make_backbone(TINY, str(tmp_path / "w.pth"))


def test_files_before_batches_were_counted(tmp_path):
    state = make_backbone(TINY, "none").module.state_dict()
    torch.save({k: v for k, v in state.items() if "num_batches" not in k}, tmp_path / "w.pth")
    make_backbone(TINY, str(tmp_path / "w.pth"))


class Evil:
    def __reduce__(self):
        return (os.system, ("touch owned",))


@pytest.mark.parametrize(
    "data", [pickle.dumps({"a": Evil()}, protocol=2), b"", b"no weights", pickle.dumps({1: 2}, protocol=2)]
)
def test_a_file_of_something_else_runs_nothing(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pth").write_bytes(data)
    (tmp_path / "w.safetensors").write_bytes(data)
    for name in ("w.pth", "w.safetensors"):
        with pytest.raises(UserError, match=r"cannot be loaded as weights|contains no state_dict"):
            make_backbone(TINY, name)
    assert not (tmp_path / "owned").exists()


def test_without_a_network_there_is_one_clear_error(tmp_path, monkeypatch):
    def no_names(*_):
        raise OSError("no network")

    monkeypatch.setattr(backbones.os, "environ", {})
    monkeypatch.setattr(backbones.socket, "getaddrinfo", no_names)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", no_names)
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for name in ("resnet18", "torchvision:resnet18"):
        with pytest.raises(UserError, match=rf"The weights of {name} cannot be downloaded .*--weights FILE"):
            make_backbone(name, None)


def test_mistakes():
    with pytest.raises(UserError, match="Did you mean 'resnet50'"):
        make_backbone("resnett50", None)
    with pytest.raises(UserError, match="Unknown torchvision network 'resnet49'"):
        make_backbone("torchvision:resnet49", None)
    with pytest.raises(UserError, match=r"No weights at nowhere\.pth"):
        make_backbone("resnet50", "nowhere.pth")
    with pytest.raises(UserError, match=r"resnet18\.foo .*tag"):
        make_backbone("resnet18.foo", "none")
    with pytest.raises(UserError, match="auxiliary classifiers"):
        make_backbone("torchvision:googlenet", "none")
    with pytest.raises(UserError, match="no linear classifier"):
        make_backbone("torchvision:squeezenet1_0", "none")
    with pytest.raises(UserError, match="does not take images of 3 pixels"):
        make_backbone("torchvision:vit_b_32", "none", 3)
    names = backbone_names()
    assert {"resnet50", "resnet101", "convnext_tiny", "torchvision:mobilenet_v2"} <= set(names)


def test_a_backbone_becomes_part_of_the_network_and_learns_slowly_if_it_was_trained(images):
    backbone = make_backbone(TINY, "none", 32)
    model = build(Architecture("mlp", 3, backbone.dim, 16), backbone=backbone)
    raw = (images * 40 + 120).clamp(0, 255).to(torch.uint8)
    model.eval()
    f, z = model(raw)
    assert (f.shape, z.shape) == ((3, 16), (3, 3))
    mean, std = (torch.tensor(v)[:, None, None] for v in (backbone.mean, backbone.std))
    torch.testing.assert_close(f, model.bottleneck(features(backbone, (raw / 255 - mean) / std)), rtol=1e-4, atol=1e-5)
    assert [group["lr"] for group in model.parameter_groups(1.0)] == [1.0]
    model.pretrained = True
    assert [group["lr"] for group in model.parameter_groups(1.0)] == [0.1, 1.0]
