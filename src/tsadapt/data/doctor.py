"""Checks that find problems in data before training.

`quick_findings` checks names and counts, which is fast; `examine` also decodes every image and compares all rows.
Target labels are used only for messages.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tsadapt.data.image_loader import grouped, image_pass, workers_here
from tsadapt.data.images import ImageFiles, ImageRows, Images
from tsadapt.data.types import Domain
from tsadapt.errors import counted, few

__all__ = ["Examined", "Finding", "constant_features", "examine", "quick_findings"]

TINY = 5
"""A class with fewer rows is tiny."""
UNEVEN = 10
"""The largest accepted ratio between the sizes of two classes."""
SCALES = 5
"""The largest accepted ratio between the standard deviations of two domains."""
NEARLY = 1e-9
"""A feature that varies by less than this share of its size, or by the rounding of its numbers, is nearly constant."""
MANY = 5
"""Rows of a group of duplicates that a message shows."""
WHOLE = 1 << 30
"""A side longer than that of any image, so that every image is decoded at full size."""


@dataclass(frozen=True)
class Finding:
    """A remark on the data: an error prevents a useful run, a warning may affect it, a note is for information.

    `rows` names all rows concerned; the text shows the first few.
    """

    level: Literal["error", "warning", "note"]
    code: str
    text: str
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examined:
    """The findings, and the rows of each domain that should be removed."""

    findings: list[Finding]
    bad: tuple[set[int], ...]


def quick_findings(source: Domain, target: Domain | None) -> list[Finding]:
    """Findings from names, counts and constant features."""
    found = [Finding("warning", "found", note) for domain in (source, target) if domain for note in domain.notes]
    found += [
        Finding("note", "recognised", said) for domain in (source, target) if domain for said in domain.recognised
    ]
    constant = constant_features(source, target)
    found += [Finding("warning", "constant", constant)] if constant else []
    if source.y is None or source.classes is None:
        swapped = target is not None and target.y is not None
        hint = "Did you swap source and target?" if swapped else "Expected class folders, or a label for each row."
        text = f"The {_titled('source', source)} has no labels. {hint}"
        return [*found, Finding("error", "unlabelled", text)]
    counts = _counts(source)
    if len(source.classes) == 1:
        text = f"The {_titled('source', source)} has only one class, {source.classes[0]!r}. Expected at least two."
        found.append(Finding("error", "one-class", text))
    tiny = [f"{name} ({n})" for name, n in counts.items() if n < TINY]
    if tiny:
        found.append(Finding("warning", "tiny", f"Source classes with fewer than {TINY} rows: {few(tiny)}."))
    most, least = max(counts.values()), min(counts.values())
    if most > UNEVEN * max(least, 1):
        ends = [f"{name} ({n:,})" for name, n in counts.items() if n in (most, least)]
        found.append(Finding("warning", "imbalance", f"The source classes are very imbalanced: {few(ends)}."))
    if target is None:
        return found
    found += _same_place(source, target)
    if (source.kind == "vector") != (target.kind == "vector"):
        kinds = " and the target ".join("feature vectors" if d.kind == "vector" else "images" for d in (source, target))
        text = f"The source contains {kinds}. Expected the same kind of data in both domains."
        found.append(Finding("error", "kinds", text))
    elif source.kind == "vector" and source.tensor.shape[1] != target.tensor.shape[1]:
        text = (
            f"The source has {source.tensor.shape[1]} features per row and the target {target.tensor.shape[1]}."
            " Expected the same features in the same order."
        )
        found.append(Finding("error", "features", text))
    if target.y is not None and target.classes is not None:
        if set(target.classes) & set(source.classes):
            text = "The target has labels. They are used for evaluation only, never in training."
            found.append(Finding("note", "labels", text))
        found += _one_sided(source, target)
    return found


def constant_features(source: Domain, target: Domain | None) -> str | None:
    """One line on the features of both domains that are constant or nearly so; None if there are none.

    >>> x = torch.tensor([[0.0, 5.0, 1e9], [1.0, 5.0, 1e9 + 64], [2.0, 5.0, 1e9]])
    >>> constant_features(Domain("a.csv", x), None)
    'Constant features: a.csv has 1 of 3, and 1 nearly constant. They tell nothing, or only rounding errors.'
    """
    parts = []
    for domain in (source, target):
        if domain is None or domain.kind != "vector" or len(domain) < 2:
            continue
        x = domain.tensor
        low, high = x.amin(0), x.amax(0)
        limit = max(NEARLY, 8 * torch.finfo(x.dtype).eps) * torch.maximum(low.abs(), high.abs())
        constant = int((low == high).sum())
        nearly = int((high - low <= limit).sum()) - constant
        if constant or nearly:
            more = f", and {nearly} nearly constant" if nearly else ""
            parts.append(f"{domain.name} has {constant} of {x.shape[1]}{more}")
    return f"Constant features: {'; '.join(parts)}. They tell nothing, or only rounding errors." if parts else None


def _titled(role: str, domain: Domain) -> str:
    """The role of a domain and its name; the role alone if that is its name, as for data in memory."""
    return role if domain.name == f"the {role}" else f"{role} {domain.name}"


def _same_place(source: Domain, target: Domain) -> list[Finding]:
    """A target that is part of the source, or the source itself."""
    if not isinstance(source.x, ImageFiles) or not isinstance(target.x, ImageFiles):
        same = source.kind == target.kind != "file" and torch.equal(source.tensor, target.tensor)
        shared = len(target) if same else 0
    else:
        ours = set(zip(source.x.paths, source.x.spans or source.x.paths, strict=True))
        shared = sum(place in ours for place in zip(target.x.paths, target.x.spans or target.x.paths, strict=True))
        same = shared == len(source) == len(target)
    if same:
        text = f"Source and target are the same data ({source.name}): there is nothing to adapt to."
        return [Finding("warning", "same", text)]
    if shared == len(target):
        text = (
            f"The {_titled('source', source)} contains all {counted(shared, 'file')} of the {_titled('target', target)}"
            ". Did you mean a subfolder as the source?"
        )
        return [Finding("error", "within", text)]
    return []


def _counts(domain: Domain) -> dict[str, int]:
    assert domain.y is not None
    assert domain.classes is not None
    totals = torch.bincount(domain.y[domain.y >= 0], minlength=len(domain.classes)).tolist()
    return dict(zip(domain.classes, totals, strict=True))


def _one_sided(source: Domain, target: Domain) -> list[Finding]:
    """Classes of only one domain, and those that differ only in spelling."""
    theirs = {name for name, n in _counts(target).items() if n}
    ours = {name for name, n in _counts(source).items() if n}
    found = []
    strange = sorted(theirs - ours)
    if strange:
        plain = {_plain(name): name for name in ours - theirs}
        alike = [
            f"{name!r} resembles the source class {plain[_plain(name)]!r}" for name in strange if _plain(name) in plain
        ]
        hint = f" {few(alike)}: use the same name in both domains." if alike else ""
        if not ours & theirs:
            text = f"Source and target have no class in common: {few(sorted(ours))} against {few(strange)}."
            return [Finding("warning", "one-sided", f"{text} The target labels are ignored.{hint}")]
        text = f"Classes only in the target: {few(strange)}. Their rows count as errors.{hint}"
        found.append(Finding("warning", "one-sided", text))
    absent = sorted(ours - theirs)
    if absent:
        text = f"Classes only in the source, according to the target labels: {few(absent)}."
        found.append(Finding("warning", "one-sided", text))
    return found


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def examine(
    source: Domain,
    target: Domain | None,
    workers: int | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> Examined:
    """`quick_findings`, and findings from the rows themselves; `advance` is called with the number of rows done."""
    domains = [domain for domain in (source, target) if domain is not None]
    found, bad = quick_findings(source, target), tuple(set[int]() for _ in domains)
    digests: list[dict[int, bytes]] = []
    done = 0
    for domain, drop in zip(domains, bad, strict=True):
        mine: dict[int, bytes] = {}
        unreadable: dict[int, str] = {}
        for row, result in _rows(domain, workers):
            done += 1
            advance(done)
            if isinstance(result, bytes):
                mine[row] = result
            else:
                unreadable[row] = result
        digests.append(mine)
        if unreadable:
            drop |= set(unreadable)
            names = tuple(f"{domain.row_name(row)} ({why})" for row, why in unreadable.items())
            text = (
                f"{len(unreadable)} of {counted(len(domain), 'image')} of {domain.name} cannot be read: {few(names)}."
            )
            found.append(Finding("error", "unreadable", text, names))
        found += _duplicates(domain, mine, drop, by_label=domain is source)
    if target is not None:
        found += _shared(source, target, *digests)
    return Examined(found + _ranges(source, target), bad)


def _rows(domain: Domain, workers: int | None) -> Iterable[tuple[int, bytes | str]]:
    """For every row a digest of its content, or the reason why it cannot be read."""
    if domain.kind == "vector":
        for row, values in enumerate(domain.tensor.numpy()):
            yield row, hashlib.sha256(values.tobytes()).digest()
        return
    images = domain.x if isinstance(domain.x, Images) else ImageRows(domain.tensor)
    count = workers_here(workers, len(images))
    for some in image_pass(images, grouped(range(len(images)), 64), _pixel_digest, WHOLE, count):
        yield from zip(some.rows, (bytes(digest.tolist()) for digest in some.x), strict=True)
        yield from some.unreadable.items()


def _pixel_digest(image: Tensor) -> Tensor:
    """A hash of the pixels, independent of file format and metadata."""
    content = repr(tuple(image.shape)).encode() + image.contiguous().numpy().tobytes()
    return torch.tensor(list(hashlib.sha256(content).digest()), dtype=torch.uint8)


def _duplicates(domain: Domain, digests: dict[int, bytes], drop: set[int], by_label: bool) -> list[Finding]:
    """Duplicate rows: all but the first are dropped, or all of them if their labels differ (`by_label`)."""
    groups: dict[bytes, list[int]] = {}
    for row, digest in digests.items():
        groups.setdefault(digest, []).append(row)
    same = [rows for rows in groups.values() if len(rows) > 1]
    if not same:
        return []
    labels = domain.y
    torn = [rows for rows in same if labels is not None and len(set(labels[rows].tolist())) > 1]
    for rows in same:
        drop |= set(rows if by_label and rows in torn else rows[1:])
    copies = counted(sum(len(rows) - 1 for rows in same), "duplicate row")
    text = f"{domain.name} contains {copies} in {counted(len(same), 'group')}"
    found = [_groups_finding("duplicates", text, domain, same)]
    if torn:
        text = f"{domain.name} contains {counted(len(torn), 'group')} of duplicates with different labels"
        found.append(_groups_finding("torn", text, domain, torn))
    return found


def _groups_finding(code: str, text: str, domain: Domain, groups: list[list[int]]) -> Finding:
    """A warning about groups of equal rows; its text shows the start of a few groups."""
    named = [[domain.row_name(row) for row in rows] for rows in groups]
    starts = few(" = ".join(names if len(names) <= MANY else [*names[:MANY], "…"]) for names in named)
    return Finding("warning", code, f"{text}: {starts}.", tuple(" = ".join(names) for names in named))


def _shared(source: Domain, target: Domain, ours: dict[int, bytes], theirs: dict[int, bytes]) -> list[Finding]:
    rows = {digest: row for row, digest in ours.items()}
    both = [(rows[digest], row) for row, digest in theirs.items() if digest in rows]
    if not both:
        return []
    pairs = tuple(f"{source.row_name(a)} = {target.row_name(b)}" for a, b in both)
    text = (
        f"{len(both)} of {counted(len(target), 'target row')} also occur in the source: {few(pairs)}. The target"
        " accuracy will be too high."
    )
    return [Finding("warning", "shared", text, pairs)]


def _ranges(source: Domain, target: Domain | None) -> list[Finding]:
    """Arrays whose values seem to be scaled differently."""
    found = []
    for domain in (source, target):
        if domain is None or domain.kind == "file":
            continue
        x = domain.tensor
        if domain.kind == "image" and int(x.max()) < 16:
            text = f"{domain.name}: the brightest pixel is {int(x.max())} of 255. Were the pixels scaled twice?"
            found.append(Finding("warning", "range", text))
    if target is None or "file" in (source.kind, target.kind) or source.kind != target.kind:
        return found
    if source.kind == "vector":
        a, b = (float(np.median(d.tensor.double().std(0).numpy())) for d in (source, target))
        if min(a, b) > 0 and max(a, b) > SCALES * min(a, b):
            text = f"Standard deviation of the features: source {a:.3g}, target {b:.3g}. Are they scaled differently?"
            found.append(Finding("warning", "range", text))
    else:
        a, b = (float(d.tensor.float().mean()) / 255 for d in (source, target))
        if min(a, b) < 0.35 and max(a, b) > 0.65:
            text = f"Mean brightness: source {a:.0%}, target {b:.0%}. Is one of them inverted?"
            found.append(Finding("warning", "range", text))
    return found
