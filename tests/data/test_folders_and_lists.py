import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.photos import CLASSES, picture, write_classes, write_flat

from tsadapt.data.lists import list_text, parse_line
from tsadapt.data.open import open_dataset
from tsadapt.errors import UserError, few
from tsadapt.files import write_atomically


def opened(path):
    return open_dataset(str(path)).train


def test_class_folders(tmp_path):
    domain = opened(write_classes(tmp_path, n=3))
    assert domain.classes == CLASSES
    assert domain.y.tolist() == [0, 1, 2] * 3
    assert domain.row_names[:2] == ("ant/00.png", "bee/00.png")
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
    assert domain.y.tolist() == [0, 1, 2, 2, 2, 0, 1, 2]


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
    assert domain.row_names[2] == "b/\\xff.png"
    assert domain.x.decode(2, 1).shape == (3, 30, 40)


def test_a_link_to_another_class_takes_nothing_from_it(tmp_path):
    write_classes(tmp_path, n=2)
    (tmp_path / "ant" / "similar").symlink_to(tmp_path / "bee", target_is_directory=True)
    assert opened(tmp_path).y.tolist() == [0, 0, 1, 2, 0, 0, 1, 2]


def test_a_single_class_is_not_an_extra_level(tmp_path):
    assert opened(write_classes(tmp_path, classes=("ant",))).classes == ("ant",)


def test_no_images_at_all(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match=r"has no images. Expected files that end in [^\"]* more\.$"):
        opened(tmp_path)
    (tmp_path / "train-0.tar").touch()
    with pytest.raises(UserError, match=r'To read its tar archives: ".*/\*.tar", in quotes.'):
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


@pytest.fixture
def oddities(tmp_path):
    """Class folders with a pipe, a socket, and links in circles, to nothing and to a device, all named like images."""
    root = write_classes(tmp_path / "data", n=2)
    os.mkfifo(root / "ant" / "pipe.png")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "ant" / "socket.png"))
    (root / "bee" / "circle.png").symlink_to("circle.png")
    (root / "bee" / "nothing.png").symlink_to("nowhere.png")
    (root / "cow" / "zero.png").symlink_to("/dev/zero")
    (root / "cow" / "again").symlink_to(root, target_is_directory=True)
    return root


ODD = {
    "ant/pipe.png": "a pipe",
    "ant/socket.png": "a socket",
    "bee/circle.png": "a link in a circle",
    "bee/nothing.png": "a broken link",
    "cow/zero.png": "a device",
}


def test_what_is_no_regular_file_is_skipped_and_named_in_a_folder(oddities):
    domain = opened(oddities)
    assert domain.row_names == tuple(f"{c}/{i:02d}.png" for i in range(2) for c in CLASSES)
    odd = ODD | {"cow/again": "a link to a folder that was read already"}
    listed = few(f"{path} ({what})" for path, what in sorted(odd.items()))
    assert domain.notes[0].endswith(f": ignored 6 paths without a readable file: {listed}.")
    assert len(domain.fingerprint()) == 16


def test_an_empty_folder_named_like_an_image_is_named(tmp_path):
    root = write_classes(tmp_path / "data", n=2)
    (root / "ant/00.png").unlink()
    (root / "ant/00.png").mkdir()
    (root / "ant/more").mkdir()
    domain = opened(root)
    assert len(domain) == 2 * len(CLASSES) - 1
    assert domain.notes[0].endswith(": ignored 1 path without a readable file: ant/00.png (an empty folder).")


def test_what_is_no_regular_file_is_skipped_and_named_in_a_list(oddities):
    lines = ["ant/00.png ant", *(f"{path} odd" for path in ODD), "bee cow", "bee/00.png bee", "bee/77.png bee"]
    (oddities / "list.txt").write_text("\n".join(lines))
    domain = opened(oddities / "list.txt")
    assert domain.row_names == ("ant/00.png", "bee/00.png", "bee/77.png")
    assert (domain.classes, domain.y.tolist()) == (("ant", "bee"), [0, 1, 1])
    assert "ignored 6 paths without a readable file: ant/pipe.png (a pipe), ant/socket.png (a" in domain.notes[0]
    assert "1 of 9 files not found: bee/77.png" in domain.notes[1]
    (oddities / "list.txt").write_text("ant/pipe.png ant\n")
    with pytest.raises(UserError, match=r"none of the 1 file exists. The first, .*pipe.png, is a pipe"):
        opened(oddities / "list.txt")


@pytest.mark.parametrize("suffix", [".png", ".txt", ".npy", ".npz", ".csv", ".parquet", ""])
def test_a_pipe_given_as_data_is_refused_and_not_opened(tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(UserError, match=r"is a pipe\. Expected one of: a folder of images"):
        opened(tmp_path / f"pipe{suffix}")


@pytest.mark.parametrize(("path", "what"), [("/dev/zero", "a device"), ("circle.csv", "a link in a circle")])
def test_a_device_or_a_circle_given_as_data_is_refused(tmp_path, path, what):
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    with pytest.raises(UserError, match=f"is {what}. Expected one of: a folder"):
        opened(tmp_path / path)
    with pytest.raises(UserError, match="NUL"):
        opened("a\0b.csv")


def test_links_between_all_folders_are_followed_once(tmp_path):
    names = [f"c{i}" for i in range(12)]
    write_classes(tmp_path, n=1, classes=tuple(names))
    for one in names:
        for other in names:
            (tmp_path / one / other).symlink_to(tmp_path / other, target_is_directory=True)
    domain = opened(tmp_path)  # following every way through the links would take years
    assert len(domain) == 12 * 12
    assert "ignored" in domain.notes[0]


def test_folders_of_any_depth(tmp_path):
    write_classes(tmp_path, n=1)
    for name, depth in (("d", 1100), ("x" * 250, 20)):  # the latter is longer in all than a path may be
        here = os.open(tmp_path / "cow", os.O_RDONLY)
        for _ in range(depth):
            os.mkdir(name, dir_fd=here)
            below = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
    image = (tmp_path / "cow" / "00.png").read_bytes()
    (tmp_path / "cow" / Path(*["d"] * 1100) / "below.png").write_bytes(image)
    try:
        domain = opened(tmp_path)
        assert (len(domain), domain.classes) == (4, CLASSES)
        assert domain.x.decode(3, 1).shape == (3, 30, 40)
        assert "File name too long" in domain.notes[0]
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "cow")], check=True)


def test_rows_keep_their_order_when_files_move_to_other_classes(tmp_path):
    names = [f"{i:02d}.png" for i in range(9)]
    for folder, step in (("a", 1), ("b", 2)):
        for i, name in enumerate(names):
            home = tmp_path / folder / CLASSES[i * step % 3]
            home.mkdir(parents=True, exist_ok=True)
            picture(i % 3, i).save(home / name)
    a, b = opened(tmp_path / "a"), opened(tmp_path / "b")
    assert [Path(path).name for path in a.x.paths] == [Path(path).name for path in b.x.paths] == names
    assert a.fingerprint() == b.fingerprint()
    assert a.y.tolist() == [0, 1, 2] * 3
    assert b.y.tolist() == [0, 2, 1] * 3


def test_two_spellings_of_one_name_are_one_class(tmp_path):
    write_classes(tmp_path, n=1, classes=("cafe\u0301", "caf\u00e9", "b"))
    assert (opened(tmp_path).classes, opened(tmp_path).y.tolist()) == (("b", "caf\u00e9"), [0, 1, 1])


def test_labels_of_many_digits_are_names(tmp_path):
    write_classes(tmp_path, n=1)
    long = "9" * 5000
    (tmp_path / "list.txt").write_text(f"ant/00.png {long}\nbee/00.png 7\n")
    assert opened(tmp_path / "list.txt").classes == ("7", long)


def test_what_is_quoted_in_a_list():
    assert parse_line('"a b.png"') == ("a b.png", None)
    assert parse_line(r'"a\nb.png", two words') == ("a\nb.png", "two words")
    assert parse_line('"a.png" "c.jpg"') == ("a.png", "c.jpg")
    assert parse_line('"odd".png cat') == ('"odd".png', "cat")
    assert parse_line('"open.png cat') == ('"open.png', "cat")


NASTY = [
    "plain.png", "two words.png", " front.png", "line\nbreak.png", "carriage\rreturn.png", 'quo"te.png', '"quoted".png',
    "# comment.png", "comma,.png", "tab\t.png", "x.jpg y.png", "back\\slash.png", "\x1b[31mred.png", "\u2028.png",
    "\ufeffbom.png", "end .png", "'.png", "=1.png", "\udcff.png", "e\u0301.png",
]  # fmt: skip


def test_a_list_gives_back_any_file_name(tmp_path):
    data = tmp_path / "data"
    image = write_classes(data, n=1, classes=("3", "a.jpg b", ' #"x"\n', "\udcfe")) / "3" / "00.png"
    for name in NASTY:
        with open(os.path.join(os.fsencode(data / "3"), os.fsencode(name)), "wb") as file:
            file.write(image.read_bytes())
    folder = opened(data)
    (tmp_path / "elsewhere" / "lists").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "lists", target_is_directory=True)
    for place in (tmp_path / "link", data):
        write_atomically(place / "a.txt", list_text(folder, [*range(len(folder))], place))
        listed = opened(place / "a.txt")
        assert [os.path.realpath(p) for p in listed.x.paths] == [os.path.realpath(p) for p in folder.x.paths]
        assert (listed.classes, listed.y.tolist()) == (folder.classes, folder.y.tolist())
        assert (listed.notes, listed.fingerprint()) == ((), folder.fingerprint())
        for name in listed.row_names:
            name.encode()


@given(st.lists(st.text(st.characters(), min_size=1), min_size=2, max_size=2))
def test_any_quoted_path_and_label_come_back(parts):
    path, label = parts
    assert parse_line(f"{json.dumps(path)} {json.dumps(label)}") == (path, label)
