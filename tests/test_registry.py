"""Names for things: each once, found in its room or through entry points, and read by --help without an import."""

import subprocess
import sys

import pytest

from tsadapt import registry as module
from tsadapt.errors import UserError
from tsadapt.objectives.base import METHODS, SOURCE_TERMS, TARGET_TERMS
from tsadapt.registry import Registry, room_outlines

ROOMS = [SOURCE_TERMS, TARGET_TERMS, METHODS]


@pytest.mark.parametrize("registry", ROOMS, ids=lambda registry: registry.kind)
def test_outlines_read_from_files_say_what_the_classes_say(registry):
    outlines = room_outlines(registry.room)
    ours = {name: cls for name in registry if (cls := registry[name]).__module__.startswith(f"{registry.room}.")}
    assert set(outlines) == set(ours)
    for name, cls in ours.items():
        assert outlines[name].name == name
        assert outlines[name].summary == cls.__doc__.partition("\n")[0]
        assert outlines[name].settings == cls.settings
        assert list(outlines[name].settings) == list(cls.settings)


def test_the_rooms_have_something_in_them():
    """So that the comparison above is one of something."""
    assert {"ce", "tsa", "isda", "sampled"} <= set(SOURCE_TERMS)
    assert "mi" in TARGET_TERMS
    assert {"source-only", "dann", "cdan", "cdan+e", "bsp", "bsp+dann", "jada"} <= set(METHODS)
    assert "lambda0" in room_outlines(SOURCE_TERMS.room)["sampled"].settings  # of a base in another file


def test_outlines_import_nothing():
    program = (
        "import sys; from tsadapt.registry import room_outlines\n"
        "for kind in ('source_terms', 'target_terms', 'methods'): assert room_outlines(f'tsadapt.objectives.{kind}')\n"
        "assert not {'torch', 'tsadapt.objectives.methods.dann'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_new_file_in_a_room_is_found_by_itself(tmp_path, monkeypatch):
    room = tmp_path / "a_room_of_its_own"
    room.mkdir()
    (room / "__init__.py").write_text("from tsadapt.registry import Registry\nHERE = Registry('thing', __name__)\n")
    (room / "one.py").write_text(
        "from a_room_of_its_own import HERE\nfrom tsadapt.settings import setting\n\n\n"
        "class Base:\n    depth: int = setting(2, 'How deep.')\n\n\n"
        "@HERE.register('one')\nclass One(Base):\n    '''The one.\n\n    More.\n    '''\n\n    plain: int = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    outline = room_outlines("a_room_of_its_own")["one"]
    assert (outline.summary, list(outline.settings)) == ("The one.", ["depth"])
    from a_room_of_its_own import HERE

    assert list(HERE) == ["one"]
    assert HERE["one"].__name__ == "One"


def test_a_name_is_taken_once():
    colours = Registry("colour")
    colours.register("red")(str)
    with pytest.raises(ValueError, match="colour 'red' is registered already"):
        colours.register("red")(int)
    assert colours["red"] is str
    colours.forget("red")
    colours.register("red")(int)
    assert colours["red"] is int
    with pytest.raises(ValueError, match="'tsa'"):
        SOURCE_TERMS.register("tsa")(object)


def test_an_unknown_name_gets_the_nearest_and_all_there_are():
    colours = Registry("colour")
    for name in ("red", "green"):
        colours.register(name)(name)
    assert [*colours] == ["green", "red"]
    assert "red" in colours
    assert "blue" not in colours
    with pytest.raises(UserError, match=r"Unknown colour 'gren'\. Did you mean 'green'"):
        colours["gren"]
    with pytest.raises(UserError, match="green, red"):
        colours["xyz"]


class Entry:
    """An entry point; loading it may register it by itself."""

    def __init__(self, name, thing, registers=None):
        self.name, self.thing, self.registers = name, thing, registers

    def load(self):
        if self.registers is not None:
            self.registers.register(self.name)(self.thing)
        return self.thing


def offered(monkeypatch, group, entries):
    class Entries:
        def select(self, group):
            return {known: entries}.get(group, [])

    monkeypatch.setattr(module, "_entry_points", Entries)
    known = group


def test_entry_points_of_third_parties_are_found(monkeypatch):
    colours = Registry("bright colour")
    colours.register("red")("theirs")
    offered(monkeypatch, "tsadapt.bright_colour", [Entry("teal", "plain"), Entry("pink", "self-made", colours)])
    assert [*colours] == ["pink", "red", "teal"]
    assert (colours["teal"], colours["pink"]) == ("plain", "self-made")


def test_an_entry_point_of_a_taken_name_raises(monkeypatch):
    colours = Registry("bright colour")
    colours.register("red")("ours")
    offered(monkeypatch, "tsadapt.bright_colour", [Entry("red", "theirs")])
    with pytest.raises(ValueError, match="'red' is registered already"):
        list(colours)


def test_a_broken_entry_point_is_one_line(monkeypatch):
    class Broken(Entry):
        value = "sharp:Nope"

        def load(self):
            raise AttributeError("module 'sharp' has no attribute 'Nope'")

    colours = Registry("bright colour")
    offered(monkeypatch, "tsadapt.bright_colour", [Broken("sharp", None)])
    for _ in range(2):  # nothing half-read is kept
        with pytest.raises(UserError, match=r"'sharp'.*sharp:Nope.*AttributeError"):
            list(colours)


def test_a_room_that_cannot_be_read_is_imported(tmp_path, monkeypatch):
    """A default that is computed, and a base from elsewhere, are found all the same."""
    room = tmp_path / "oddroom"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "odd.py").write_text(
        "from tsadapt.objectives.base import TargetTerm\n"
        "from tsadapt.registry import Registry\n"
        "from tsadapt.settings import setting\n"
        "ODD = Registry('odd', 'oddroom')\n"
        "DEFAULT = 0.25\n"
        "@ODD.register('odd')\n"
        "class Odd(TargetTerm):\n"
        '    """Odd."""\n'
        "    gamma: float = setting(DEFAULT, 'Strength.')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert room_outlines("oddroom")["odd"].settings["gamma"].default == 0.25
