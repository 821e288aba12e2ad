"""Images in tar archives: shards of webdataset, and packed folders."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.photos import picture, write_classes

from tsadapt.data.open import open_dataset
from tsadapt.data.rows import plain_arrays
from tsadapt.data.types import Roles
from tsadapt.errors import UserError


def png(label, seed=0):
    file = io.BytesIO()
    picture(label, seed).save(file, "PNG")
    return file.getvalue()


def packed(path, members):
    """A tar with these (name, bytes)."""
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """Two shards as webdataset's ShardWriter names them: 000000.png, 000000.cls, 000000.json."""
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        members = []
        for i in range(3):
            key = f"{3 * shard + i:06d}"
            about = {"label": ["ant", "bee", "cow"][i], "id": f"photo-{key}"}
            members += [(f"{key}.png", png(i, shard)), (f"{key}.cls", str(i * 5).encode()),
                        (f"{key}.json", json.dumps(about).encode())]  # fmt: skip
        packed(f"train-{shard:04d}.tar", members)
    return tmp_path


@pytest.mark.parametrize("name", ["train-*.tar", "train-{0000..0001}.tar"])
def test_shards_are_read_in_place(shards, name):
    dataset = open_dataset(name)
    domain = dataset.train
    assert dataset.name == str(shards / name)
    assert domain.row_names == tuple(f"{i:06d}.png" for i in range(6))
    assert domain.classes == ("0", "5", "10")
    assert domain.y.tolist() == [0, 1, 2, 0, 1, 2]
    for row in range(6):
        expected = np.asarray(picture(row % 3, row // 3)).transpose(2, 0, 1)
        assert np.array_equal(domain.x.decode(row, 1).numpy(), expected)
    assert domain.x.fingerprint == open_dataset("train-*.tar").train.x.fingerprint
    assert len(open_dataset("train-0001.tar").train) == 3


def test_the_label_and_the_name_may_be_entries_of_the_json(shards):
    domain = open_dataset("train-*.tar", roles=Roles("id", "label")).train
    assert domain.classes == ("ant", "bee", "cow")
    assert domain.row_names[:2] == ("photo-000000", "photo-000001")
    assert domain.id_column == "id"
    with pytest.raises(UserError, match=r"000000.png has no 'species': expected a member .species beside it, or"):
        open_dataset("train-*.tar", roles=Roles(label="species"))
    packed(
        "only.tar", [("a.png", png(0)), ("a.json", b'{"label": "x"}'), ("b.png", png(1)), ("b.json", b'{"label": 7}')]
    )
    assert open_dataset("only.tar").train.classes == ("7", "x")


def test_text_labels_and_keys_that_repeat_in_every_shard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for shard, label in enumerate((b"dog\n", b"cat")):
        packed(f"s{shard}.tar", [("./0.PNG", png(shard)), ("./0.txt", label)])
    domain = open_dataset("s*.tar", roles=Roles(label="txt")).train
    assert domain.row_names == ("s0/0.PNG", "s1/0.PNG")
    assert [domain.classes[i] for i in domain.y] == ["dog", "cat"]
    assert open_dataset("s*.tar").train.y is None  # .txt is a caption unless the user says otherwise


def test_a_packed_folder_is_read_as_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_classes(tmp_path / "photos", n=2)
    with tarfile.open("photos.tar", "w") as tar:
        tar.add("photos")
    archive, folder = open_dataset("photos.tar").train, open_dataset("photos").train
    assert archive.classes == folder.classes
    assert archive.y.tolist() == folder.y.tolist()
    assert archive.row_names == tuple(f"photos/{name}" for name in folder.row_names)
    assert archive.x.fingerprint == folder.x.fingerprint
    with tarfile.open("flat.tar", "w") as tar:
        tar.add("photos/ant", "new")
    assert open_dataset("flat.tar").train.y is None


def test_shards_without_torch(shards):
    with plain_arrays():
        assert isinstance(open_dataset("train-0000.tar").test.y, np.ndarray)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("a.txt", b"x")], "has no images. Expected members that end in .jpg"),
        ([("a.png", png(0)), ("a.cls", b"1"), ("b.png", png(0))], "b.png has no .cls beside it, but others do"),
        ([("a.png", png(0)), ("a.cls", b" \n")], "the cls of a.png is empty"),
        ([("a.png", png(0)), ("a.cls", b"\xff")], "the cls of a.png cannot be read"),
        ([("a.png", png(0)), ("a.cls", b"1" * (1 << 21))], "has 2,097,152 bytes, expected text"),
        ([("a.png", png(0)), ("a.json", b"{")], "the json of a.png cannot be read"),
        ([("a.png", png(0)), ("a.json", b"[1]")], "the json of a.png cannot be read: it is a list"),
        ([("a.l.png", png(0)), ("a.r.png", png(0)), ("a.cls", b"1")], "a.l.png and a.r.png are images of one sample"),
        ([("a.png", png(0)), ("a.json", b'{"y": "x"}'), ("b.png", png(0)), ("b.json", b"{}")], "b.png has no 'y'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_shard_is_said(tmp_path, members, said):
    with pytest.raises(UserError, match=said):
        open_dataset(packed(tmp_path / "a.tar", members))


def test_compressed_and_damaged_archives(tmp_path):
    whole = packed(tmp_path / "a.tar", [("a.png", png(0)), ("b.png", png(1))]).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(png(0)) + 700])
    with tarfile.open(tmp_path / "zipped.tar", "w:gz") as tar:
        tar.add(tmp_path / "a.tar", "a.png")
    for name in ("cut.tar", "zipped.tar"):
        with pytest.raises(UserError, match=rf"{name} cannot be read: .*complete, uncompressed tar"):
            open_dataset(tmp_path / name)


def test_links_are_left_out_and_named(tmp_path):
    with tarfile.open(packed(tmp_path / "a.tar", [("a.png", png(0)), ("b.png", png(1))]), "a") as tar:
        link = tarfile.TarInfo("c.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    domain = open_dataset(Path(tmp_path / "a.tar")).train
    assert domain.row_names == ("a.png", "b.png")
    assert "ignored 1 member, links or sparse files: c.png" in domain.notes[0]
