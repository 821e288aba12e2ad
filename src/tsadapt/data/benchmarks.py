"""Image benchmarks, found in the user's data folder in their usual layouts or by their official list files."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tsadapt.data.folders import is_image, load_folder
from tsadapt.data.images import ImageFiles
from tsadapt.data.lists import load_list
from tsadapt.data.paths import by_file_name, path_text
from tsadapt.data.rows import as_rows
from tsadapt.data.shards import members
from tsadapt.data.types import Domain
from tsadapt.errors import UserError, counted, few, unknown

__all__ = ["BENCHMARKS", "Benchmark", "load_benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """Where the images of a benchmark are, and how many there are.

    `roots`: names of its folder, in upper or lower case. `domains`: the number of images of each domain. `folders`:
    other names of a domain's folder or list. `lists`: places of its official list files. `where`: how to get it.
    """

    title: str
    roots: tuple[str, ...]
    domains: dict[str, int]
    folders: dict[str, tuple[str, ...]]
    lists: tuple[str, ...]
    where: str
    archive: str | None = None


BENCHMARKS = {
    "office31": Benchmark(
        "Office-31",
        ("office31", "office-31", "office_31", "office"),
        {"amazon": 2817, "webcam": 795, "dslr": 498},
        {},
        ("image_list/{}.txt", "{}_list.txt", "{}_31_list.txt", "{}.txt"),
        "its page (Saenko et al., 2010; domain_adaptation_images.tar.gz with amazon/images/back_pack/… )",
    ),
    "office-home": Benchmark(
        "Office-Home",
        ("office-home", "officehome", "office_home", "OfficeHomeDataset_10072016"),
        {"Art": 2427, "Clipart": 4365, "Product": 4439, "RealWorld": 4357},
        {"RealWorld": ("Real World", "Real_World", "real_world", "Real")},
        ("image_list/{}.txt", "{}_list.txt", "{}.txt"),
        "hemanthdv.org/officeHomeDataset.html (Venkateswara et al., 2017; Art/Alarm_Clock/… )",
    ),
    "visda": Benchmark(
        "VisDA-2017",
        ("visda", "visda-2017", "visda2017", "visda_2017", "VisDA-C"),
        {"synthetic": 152_397, "real": 55_388},
        {"synthetic": ("train",), "real": ("validation",)},
        ("{}/image_list.txt", "image_list/{}.txt", "{}_list.txt", "{}.txt"),
        "ai.bu.edu/visda-2017 (classification: train.tar and validation.tar, unpacked to train/ and validation/)",
    ),
    "office-caltech": Benchmark(
        "Office-Caltech-10",
        ("office-caltech-10", "office-caltech", "office_caltech_10", "officecaltech10", "office_caltech"),
        {"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295},
        {"caltech10": ("caltech",)},
        ("image_list/{}.txt", "{}_list.txt", "{}.txt"),
        "a public copy of the images of Gong et al. (2012) (amazon/backpack/… , or office-caltech-10.tar of that)",
        archive="office-caltech-10.tar",
    ),
    "pacs": Benchmark(
        "PACS",
        ("pacs", "pacs_data", "kfold"),
        {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929},
        {"art_painting": ("art",)},
        ("image_list/{}.txt", "{}_test_kfold.txt", "pacs_label/{}_test_kfold.txt", "{}_list.txt"),
        "domaingeneralization.github.io (Li et al., 2017; photo/dog/… )",
        archive="pacs.tar",
    ),
}


def load_benchmark(name: str, domain: str, root: Path | None) -> Domain:
    """A domain of a benchmark, found below `root`; a note tells if the number of images is not the official one."""
    benchmark = BENCHMARKS[name]
    by_lower = {d.lower(): d for d in benchmark.domains}
    if domain.lower() not in by_lower:
        raise UserError(unknown(f"domain of {benchmark.title}", domain, benchmark.domains))
    domain = by_lower[domain.lower()]
    full = f"{name}:{domain}"
    found = None if root is None else _find(benchmark, domain, full, root)
    if found is None:
        raise UserError(_absent(benchmark, domain, full, root))
    expected = benchmark.domains[domain]
    if len(found) != expected:
        note = f"{full} has {len(found):,} images, expected {expected:,}. The copy is incomplete or another version."
        found = replace(found, notes=(*found.notes, note))
    return found


def _find(benchmark: Benchmark, domain: str, full: str, root: Path) -> Domain | None:
    """The first that exists: an official list, class folders, or the archive."""
    spellings = (domain, *benchmark.folders.get(domain, ()))
    lower = {spelling.lower() for spelling in spellings}
    homes = _homes(benchmark, root)
    for home in homes:
        for pattern in benchmark.lists:
            for spelling in spellings:
                path = home / pattern.format(spelling)
                if path.is_file():
                    return load_list(path, full, partial(_resolve, listed_in=path, homes=homes, spellings=lower))
        for folder in sorted(f for f in home.iterdir() if f.is_dir()):
            if folder.name.lower() in lower:
                inner = folder / "images"
                return load_folder(inner if inner.is_dir() else folder, full)
    if benchmark.archive is not None:
        for archive in (root / benchmark.archive, *(root / r / benchmark.archive for r in benchmark.roots)):
            if archive.is_file():
                return _from_tar(archive, lower, full)
    return None


def _homes(benchmark: Benchmark, root: Path) -> list[Path]:
    """Folders that may contain the domains: the benchmark's own below `root` (or `root` itself), and one level down."""
    names = {name.lower() for name in benchmark.roots}
    near = [f for f in sorted(root.iterdir()) if f.is_dir() and f.name.lower() in names]
    if root.name.lower() in names:
        near.append(root)
    # Not inside a domain's folder: a class may have the name of another domain (VisDA-2017's "train").
    domains = {d.lower() for d in benchmark.domains} | {
        s.lower() for names in benchmark.folders.values() for s in names
    }
    return [
        home
        for f in near
        for home in (f, *sorted(i for i in f.iterdir() if i.is_dir() and i.name.lower() not in domains))
    ]


def _resolve(path: str, listed_in: Path, homes: list[Path], spellings: set[str]) -> Path:
    """The file of a listed image: relative to the list, to the benchmark's folders, or from the domain's name on.

    Public lists come from many machines, so anything may precede the domain's name.
    """
    candidates = [listed_in.parent / path, *(home / path for home in homes)]
    parts = Path(path).parts
    for i, part in enumerate(parts):
        if part.lower() in spellings:
            candidates += [home.joinpath(*parts[i:]) for home in homes]
    return next((c for c in candidates if os.path.isfile(c)), candidates[0])


def _from_tar(archive: Path, spellings: set[str], full: str) -> Domain | None:
    """The images domain/class/file of an archive, read in place without unpacking; links and sparse files are noted."""
    places: dict[str, tuple[int, int]] = {}
    odd: list[str] = []
    for member in members(archive, str(archive)):
        parts = member.path.split("/")
        where = next((i for i, p in enumerate(parts) if p.lower() in spellings), None)
        if where is None or len(parts) <= where + 2 or not is_image(member.path):
            continue
        inside = "/".join(parts[where + 1 :])
        if member.span is not None:
            places[inside] = member.span  # of two with one name, the last one counts
        else:
            odd.append(path_text(inside))
    if not places and odd:
        raise UserError(
            f"{archive} has no images of {full} that can be read in place: {few(odd)} are links or sparse files. Pack"
            " the images again as plain files."
        )
    if not places:
        return None
    rows = sorted(places, key=by_file_name)
    names = [path_text(row.partition("/")[0]) for row in rows]
    classes = tuple(sorted(set(names)))
    index = {name: i for i, name in enumerate(classes)}
    files = ImageFiles([archive] * len(rows), [places[row] for row in rows])
    note = f"{full}: ignored {counted(len(odd), 'member')} of {archive.name}, links or sparse files: {few(odd)}."
    return Domain(
        full,
        files,
        as_rows(np.array([index[name] for name in names])),
        classes,
        row_names=tuple(map(path_text, rows)),
        notes=(note,) if odd else (),
    )


def _absent(benchmark: Benchmark, domain: str, full: str, root: Path | None) -> str:
    reason = "TSADAPT_DATA is not set" if root is None else f"{root} does not contain it"
    archive = "" if benchmark.archive is None else f" (or keep it packed as {benchmark.archive})"
    text = (
        f"{full} was not found: {reason}. Get {benchmark.title} from {benchmark.where}, put it into a folder named"
        f" {benchmark.roots[0]}{archive}, and set the environment variable TSADAPT_DATA to the folder that contains it."
    )
    name = full.partition(":")[0]
    ready = None if root is None else root / "features" / f"{name}_{domain}.npz"
    if ready is not None and ready.is_file():
        text += f" Its features are available: features:{ready.stem}."
    return text
