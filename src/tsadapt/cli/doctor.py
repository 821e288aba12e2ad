"""tsadapt doctor: what is wrong with data."""

import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tsadapt.cli.options import WHOLE, File, MaybeText, MaybeWhole, TableOptions
from tsadapt.cli.output import check_output, output
from tsadapt.errors import UserError, counted, printable

if TYPE_CHECKING:
    from tsadapt.data.types import Domain

__all__ = ["Doctor"]


@dataclass(frozen=True)
class Doctor(TableOptions):
    """Check a SOURCE and a TARGET for problems, before hours are spent on them.

    Unreadable and truncated images, files that are not images, an extra level of folders, a single class, classes on
    one side only, duplicates within and across the domains, tiny and uneven classes, values in different ranges. Exit
    status: 0 if all is well, 1 if there are findings, 2 if the command itself was wrong.

    Example: tsadapt doctor photos/labelled photos/new --fix-list mended
    """

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """The labelled domain."""
    target: Annotated[tyro.conf.Positional[MaybeText], tyro.conf.arg(metavar="[TARGET]", help_behavior_hint="")] = None
    """The domain to adapt to."""
    fix_list: File = None
    """Folder for source.txt and target.txt, lists without unreadable images and duplicates."""
    out: File = None
    """Where to write all findings as JSON."""
    workers: Annotated[MaybeWhole, WHOLE, tyro.conf.arg(help_behavior_hint="(default: one per core, at most 8)")] = None
    """Processes that decode images."""
    quiet: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Hide progress."""

    def __call__(self) -> int:
        """Examine, and say what was found."""
        from tsadapt.data.doctor import Finding, examine
        from tsadapt.data.lists import list_text
        from tsadapt.data.open import open_dataset
        from tsadapt.progress import StepProgress

        check_output(self.out, self.source)
        check_output(self.out, self.target)
        if self.workers is not None and self.workers < 0:
            raise UserError(f"workers is {self.workers}, expected zero or more.")
        findings: list[Finding] = []
        domains: list[Domain] = []
        for name in (self.source, self.target):
            if name is not None:
                try:
                    columns = domains[0].columns if domains else None
                    roles = replace(self.roles, needed=("id",) if domains else ("label",))
                    domains.append(open_dataset(name, columns, roles).train)
                except UserError as error:
                    if not os.path.lexists(os.path.expanduser(name)):
                        raise
                    findings.append(Finding("error", "unusable", str(error)))
        if not findings:
            for domain in domains:
                print(printable(_summary(domain)))
                if self.fix_list is not None:
                    list_text(domain, [], self.fix_list)  # or say at once that it cannot be listed
            target = domains[1] if self.target is not None else None
            with StepProgress(sum(map(len, domains)), 0, self.quiet, "row") as progress:
                examined = examine(domains[0], target, self.workers, progress.advance)
            findings = examined.findings
            if self.fix_list is not None:
                self._write_lists(domains, examined.bad)
        return self._say(findings)

    def _say(self, findings: list[Any]) -> int:
        """Print the findings, worst first, and write them; the exit status."""
        from tsadapt.files import as_json

        for finding in sorted(findings, key=lambda f: ("error", "warning", "note").index(f.level)):
            print(printable(f"{finding.level}: {finding.text}"))
        if self.out is not None:
            with output(self.out) as file:
                file.write(as_json([asdict(finding) for finding in findings]))
        if self.fix_list is None and any(f.code in ("unreadable", "duplicates") for f in findings):
            print("--fix-list FOLDER writes lists without unreadable images and duplicates")
        counts = {level: sum(f.level == level for f in findings) for level in ("error", "warning")}
        if not any(counts.values()):
            print("no problems found")
            return 0
        print(", ".join(counted(n, level) for level, n in counts.items() if n))
        return 1

    def _write_lists(self, domains: "list[Domain]", bad: tuple[set[int], ...]) -> None:
        from tsadapt.data.lists import list_text
        from tsadapt.files import write_atomically

        assert self.fix_list is not None
        for role, domain, drop in zip(("source", "target"), domains, bad, strict=False):
            rows = [row for row in range(len(domain)) if row not in drop]
            path = self.fix_list / f"{role}.txt"
            write_atomically(path, list_text(domain, rows, self.fix_list))
            print(printable(f"{path}: {len(rows)} of {len(domain)} images"), file=sys.stderr)


def _summary(domain: "Domain") -> str:
    import torch

    what = "row" if domain.kind == "vector" else "image"
    rows = counted(len(domain), what)
    if domain.y is None or domain.classes is None:
        return f"{domain.name}: {rows}, no labels"
    counts = torch.bincount(domain.y[domain.y >= 0], minlength=len(domain.classes))
    least, most = int(counts.min()), int(counts.max())
    sizes = f"{counted(least, what)} each" if least == most else f"{least:,} to {counted(most, what)}"
    return f"{domain.name}: {rows}, {counted(len(counts), 'class')} of {sizes}"
