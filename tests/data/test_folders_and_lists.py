import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.photos import CLASSES, write_classes, write_flat

from tsadapt.data.lists import list_text, parse_line
from tsadapt.data.open import open_dataset
from tsadapt.errors import UserError


def opened(path):
    return open_dataset(str(path)).train


def test_class_folders(tmp_path):
    domain = opened(write_classes(tmp_path, n=3))
    assert domain.classes == CLASSES
    assert domain.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert domain.row_names[:2] == ("ant/00.png", "ant/01.png")
    assert (domain.kind, domain.notes, len(domain)) == ("file", (), 9)


def test_a_flat_folder_has_no_labels(tmp_path):
    domain = opened(write_flat(tmp_path / "my new photos", n=2))
    assert domain.y is None
    assert domain.row_names == ("0-00.png", "0-01.png", "1-00.png", "1-01.png", "2-00.png", "2-01.png")


def test_images_deeper_in_a_class_folder_belong_to_it(tmp_path):
    write_classes(tmp_path, n=2)
    write_classes(tmp_path / "cow", n=1, classes=("monday", "tuesday"))
    domain = opened(tmp_path)
    assert domain.classes == CLASSES
    assert domain.y.tolist() == [0, 0, 1, 1, 2, 2, 2, 2]


def test_what_is_passed_over_is_noted_and_hidden_files_are_not_looked_at(tmp_path):
    write_classes(tmp_path, n=2)
    for name in ("ant/readme.txt", "ant/Thumbs.db", ".DS_Store", "ant/.hidden.png"):
        (tmp_path / name).touch()
    (tmp_path / "dog").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "stray.png").write_bytes((tmp_path / "ant/00.png").read_bytes())
    domain = opened(tmp_path)
    assert len(domain) == 6
    notes = " ".join(domain.notes)
    assert "ignored 2 files without an image suffix: ant/Thumbs.db, ant/readme.txt." in notes
    assert "ignored 1 image outside the class folders: stray.png." in notes
    assert "1 folder without images: dog." in notes


def test_an_extra_level_is_recognised(tmp_path):
    write_classes(tmp_path / "images")
    with pytest.raises(UserError, match=r"1 folder \(images\).*\(ant, bee, cow\).*Did you mean .*images\?"):
        opened(tmp_path)
    write_classes(tmp_path / "images2")
    with pytest.raises(UserError, match=r"2 folders \(images, images2\)"):
        opened(tmp_path)
    write_classes(tmp_path / "images2", classes=("dog",))
    assert opened(tmp_path).classes == ("images", "images2")  # not the same folders: they may be classes


def test_names_are_composed_and_odd_bytes_are_spelt_out(tmp_path):
    write_classes(tmp_path, n=1, classes=("cafe\u0301", "b"))
    odd = os.fsencode(tmp_path) + b"/b/\xff.png"
    with open(odd, "wb") as file:
        file.write((tmp_path / "b" / "00.png").read_bytes())
    domain = opened(tmp_path)
    assert domain.classes == ("b", "caf\u00e9")
    assert domain.row_names[1] == "b/\\xff.png"
    assert domain.x.decode(1, 1).shape == (3, 30, 40)


def test_a_link_to_another_class_takes_nothing_from_it(tmp_path):
    write_classes(tmp_path, n=2)
    (tmp_path / "ant" / "similar").symlink_to(tmp_path / "bee", target_is_directory=True)
    assert opened(tmp_path).y.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


def test_a_single_class_is_not_an_extra_level(tmp_path):
    assert opened(write_classes(tmp_path, classes=("ant",))).classes == ("ant",)


def test_no_images_at_all(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match="has no images"):
        opened(tmp_path)


def test_links_in_a_circle_end(tmp_path):
    write_classes(tmp_path, n=1)
    (tmp_path / "ant" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(opened(tmp_path)) == 3


def test_a_list_with_names_spaces_and_comments(tmp_path):
    write_classes(tmp_path / "my photos", n=1)
    (tmp_path / "list.txt").write_text(
        "# path label\n\nmy photos/ant/00.png queen ant\nmy photos/bee/00.png,bumble bee\nmy photos/cow/00.png\tcow\n"
    )
    domain = opened(tmp_path / "list.txt")
    assert domain.classes == ("bumble bee", "cow", "queen ant")
    assert domain.y.tolist() == [2, 0, 1]
    assert domain.x.decode(0, 1).shape == (3, 30, 40)


def test_numbers_take_the_names_of_their_folders(tmp_path):
    write_classes(tmp_path, n=2)
    numbers = {"ant": 10, "bee": 2, "cow": 0}
    lines = [f"{c}/{i:02d}.png {numbers[c]}" for c in CLASSES for i in range(2)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    domain = opened(tmp_path / "list.txt")
    assert domain.classes == ("cow", "bee", "ant")
    assert domain.y.tolist() == [2, 2, 1, 1, 0, 0]
    lines[0] = lines[0].replace(" 10", " 2")  # two folders under one number: they are no names for it
    (tmp_path / "list.txt").write_text("\n".join(lines))
    assert opened(tmp_path / "list.txt").classes == ("0", "2", "10")


def test_lists_without_labels_or_with_some_or_of_nothing(tmp_path):
    write_classes(tmp_path, n=2)
    path = tmp_path / "list.txt"
    path.write_text("ant/00.png\nbee/00.png\n")
    assert opened(path).y is None
    path.write_text("ant/00.png 0\nbee/00.png\n")
    with pytest.raises(UserError, match=r"'bee/00.png' has no label"):
        opened(path)
    path.write_text("ant/00.png 0\nbee/77.png 1\n")
    assert "1 of 2 files" in opened(path).notes[0]
    path.write_text("a/00.png 0\nb/77.png 1\n")
    with pytest.raises(UserError, match=r"none of the 2 files exists.*a/00.png"):
        opened(path)
    path.write_text("\n")
    with pytest.raises(UserError, match="is empty"):
        opened(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        opened(path)


def test_a_domain_written_as_a_list_is_the_same_domain(tmp_path):
    folder = opened(write_classes(tmp_path / "data"))
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "a.txt").write_text(list_text(folder, [*range(len(folder))], tmp_path / "lists"))
    listed = opened(tmp_path / "lists" / "a.txt")
    assert (listed.classes, listed.y.tolist()) == (folder.classes, folder.y.tolist())
    assert listed.fingerprint() == folder.fingerprint()


words = st.text(st.characters(categories=["L", "N"], include_characters=" -_.,"), min_size=1).map(str.strip)


@given(words.filter(bool), st.sampled_from([".jpg", ".PNG", ".jpeg"]), words.filter(lambda w: w and w[0] not in ",."))
def test_any_path_and_label_come_back(stem, suffix, label):
    if any(s in label.lower() for s in (".jp", ".png", ".bmp", ".webp", ".gif", ".tif", ".ppm", ".pgm", ".jfif")):
        return
    assert parse_line(f"{stem}{suffix} {label}") == (stem + suffix, label)
    assert parse_line(f"{stem}{suffix}") == (stem + suffix, None)
    assert parse_line("scan-17\t3") == ("scan-17", "3")


def test_a_wrong_path_says_what_is_read():
    with pytest.raises(UserError, match=r"photos/nowhere does not exist.*folder.*\.txt.*\.npz.*\.csv.*digits:uci"):
        open_dataset("photos/nowhere")
    assert not Path("photos").exists()
