"""Small copies of the layouts in which the benchmarks come."""

import io
import tarfile

import pytest
from tests.photos import CLASSES, write_classes

from tsadapt.data.benchmarks import BENCHMARKS
from tsadapt.data.open import dataset_names, open_dataset
from tsadapt.errors import UserError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TSADAPT_DATA", str(tmp_path))
    return tmp_path


def lines(folder, classes=CLASSES, n=8, first=0):
    return "\n".join(f"{folder}/{c}/{i:02d}.png {k + first}" for k, c in enumerate(classes) for i in range(n))


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("office31:amazon", "office31/amazon/images"),
        ("office31:webcam", "Office-31/webcam"),
        ("office31:dslr", "office31/domain_adaptation_images/dslr/images"),
        ("office-home:Art", "OfficeHomeDataset_10072016/Art"),
        ("office-home:RealWorld", "office-home/Real World"),
        ("office-home:realworld", "OfficeHome/Real_World"),
        ("visda:synthetic", "visda-2017/train"),
        ("visda:real", "VisDA/validation"),
        ("office-caltech:caltech10", "office_caltech_10/caltech"),
        ("pacs:art_painting", "PACS/art_painting"),
        ("pacs:sketch", "pacs/pacs_data/sketch"),
    ],
)
def test_class_folders(root, name, folder):
    write_classes(root / folder)
    domain = open_dataset(name).train
    assert domain.classes == CLASSES
    assert domain.y.tolist() == [0, 1, 2] * 8
    assert domain.name.lower() == name.lower()
    assert "has 24 images, expected" in domain.notes[-1]


@pytest.mark.parametrize(
    ("name", "images", "listed", "text"),
    [
        ("office31:amazon", "office31/amazon/images", "office31/image_list/amazon.txt", lines("amazon/images")),
        ("office31:webcam", "office/webcam/images", "office/webcam_31_list.txt", lines("/data/office/webcam/images")),
        ("office-home:RealWorld", "OfficeHome/Real World", "OfficeHome/image_list/Real_World.txt", lines("Real World")),
        ("visda:synthetic", "visda/train", "visda/train/image_list.txt", lines(".")),
        ("visda:real", "visda/validation", "visda/image_list/validation.txt", lines("validation")),
        ("pacs:photo", "pacs/kfold/photo", "pacs/pacs_label/photo_test_kfold.txt", lines("photo", first=1)),
    ],
)
def test_official_lists(root, name, images, listed, text):
    write_classes(root / images, n=9)
    (root / listed).parent.mkdir(parents=True, exist_ok=True)
    (root / listed).write_text(text)
    domain = open_dataset(name).train
    assert (len(domain), domain.classes) == (24, CLASSES)  # the list has eight of the nine images a class
    assert domain.x.decode(23, 1).shape == (3, 30, 40)
    assert not any("not found" in note for note in domain.notes)


def test_an_archive_is_read_where_it_lies(root, tmp_path_factory):
    loose = tmp_path_factory.mktemp("loose")
    for domain in ("webcam", "dslr"):
        write_classes(loose / domain, n=5, tint=50 if domain == "dslr" else 80)
    with tarfile.open(root / "office-caltech-10.tar", "w") as tar:
        tar.add(loose, arcname=".")
    packed = open_dataset("office-caltech:webcam").train
    folder = open_dataset(str(loose / "webcam")).train
    assert (packed.row_names, packed.y.tolist()) == (folder.row_names, folder.y.tolist())
    assert packed.fingerprint() == folder.fingerprint()
    with pytest.raises(UserError, match="office-caltech:amazon was not found"):
        open_dataset("office-caltech:amazon")
    (root / "office-caltech-10.tar").write_bytes(b"no archive at all" * 50)
    with pytest.raises(UserError, match=r"cannot be read.*uncompressed tar"):
        open_dataset("office-caltech:webcam")


def test_a_class_called_like_a_domain_is_not_taken_for_it(root):
    write_classes(root / "visda" / "validation", classes=("bus", "train"))
    with pytest.raises(UserError, match="visda:synthetic was not found"):
        open_dataset("visda:synthetic")
    assert open_dataset("visda:real").train.classes == ("bus", "train")


def test_what_is_not_here_says_where_to_get_it(root, monkeypatch):
    with pytest.raises(UserError, match=r"visda:real was not found.*ai.bu.edu/visda-2017.*TSADAPT_DATA"):
        open_dataset("visda:real")
    (root / "features").mkdir()
    (root / "features" / "pacs_photo.npz").touch()
    with pytest.raises(UserError, match="features:pacs_photo"):
        open_dataset("pacs:photo")
    with pytest.raises(UserError, match="Did you mean 'amazon'"):
        open_dataset("office31:amazn")
    monkeypatch.delenv("TSADAPT_DATA")
    with pytest.raises(UserError, match="TSADAPT_DATA is not set"):
        open_dataset("office31:amazon")


def test_the_published_counts():
    counts = {f"{name}:{d}": n for name, b in BENCHMARKS.items() for d, n in b.domains.items()}
    assert counts["office31:amazon"] + counts["office31:webcam"] + counts["office31:dslr"] == 4110
    assert sum(n for name, n in counts.items() if name.startswith("office-home")) == 15588
    assert counts["visda:synthetic"] + counts["visda:real"] == 207785
    assert sum(n for name, n in counts.items() if name.startswith("office-caltech")) == 2533
    assert sum(n for name, n in counts.items() if name.startswith("pacs")) == 9991
    assert set(counts) < set(dataset_names())


def packed(root, *members):
    """An archive of (name, type, size, further header) members, each with a small image as its data."""
    from tests.photos import picture

    buffer = io.BytesIO()
    picture(0, 0).save(buffer, "PNG")
    with tarfile.open(root / "pacs.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, headers in members:
            info = tarfile.TarInfo(name)
            info.type, info.pax_headers, info.linkname = kind, headers, "photo/dog/1.png"
            info.size = len(buffer.getvalue()) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(buffer.getvalue()) if info.size else None)
    return root / "pacs.tar"


def test_links_and_sparse_files_of_an_archive_are_named(root):
    sparse = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,10", "GNU.sparse.size": "9999"}
    packed(
        root,
        ("photo/dog/2.png", tarfile.REGTYPE, {}),
        ("photo/cat/1.png", tarfile.REGTYPE, {}),
        ("photo/cat/1.png", tarfile.REGTYPE, {}),
        ("photo/dog/hard.png", tarfile.LNKTYPE, {}),
        ("photo/dog/pipe.png", tarfile.FIFOTYPE, {}),
        ("photo/dog/sparse.png", tarfile.REGTYPE, sparse),
        ("photo/\udcff/3.png", tarfile.REGTYPE, {}),
    )
    domain = open_dataset("pacs:photo").train
    assert domain.row_names == ("cat/1.png", "dog/2.png", "\\xff/3.png")
    assert domain.classes == ("\\xff", "cat", "dog")
    assert "ignored 3 members of pacs.tar" in domain.notes[0]
    assert "dog/hard.png, dog/pipe.png, dog/sparse.png" in domain.notes[0]
    assert domain.x.decode(2, 1).shape == (3, 30, 40)


def test_an_archive_of_nothing_but_links_and_sparse_files_says_so(root):
    sparse = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,10", "GNU.sparse.size": "9999"}
    packed(root, ("photo/dog/sparse.png", tarfile.REGTYPE, sparse), ("photo/dog/hard.png", tarfile.LNKTYPE, {}))
    with pytest.raises(UserError, match=r"no images of pacs:photo.*dog/sparse\.png, dog/hard\.png are links or sparse"):
        open_dataset("pacs:photo")


def test_damaged_archives_end(root):
    path = packed(root, *((f"photo/dog/{i}.png", tarfile.REGTYPE, {}) for i in range(3)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 4])
    with pytest.raises(UserError, match=r"pacs.tar cannot be read: .*Expected a complete, uncompressed tar"):
        open_dataset("pacs:photo")
    info = tarfile.TarInfo("photo/dog/back.png")
    info.size = -1024
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    path.write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(UserError, match=r"pacs.tar cannot be read: .*-1024|pacs.tar cannot be read: .*header"):
        open_dataset("pacs:photo")
