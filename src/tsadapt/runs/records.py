"""records.jsonl: one line for every logged step, in the order of the steps."""

import json
import sys
from pathlib import Path
from typing import Any

from tsadapt.errors import counted, printable
from tsadapt.files import naming, write_atomically

__all__ = ["Records", "read_records"]


class Records:
    """Appends lines to records.jsonl; a resumed run first cuts off what lies behind its checkpoint."""

    def __init__(self, path: Path, upto: int) -> None:
        self.path = path
        found, damaged = _lines(path)
        if damaged:
            print(printable(f"note: {path} is damaged: {counted(damaged, 'line')} left out."), file=sys.stderr)
        kept = [record for record in found if record["step"] <= upto]
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept))
        self._file = path.open("a", encoding="utf-8")

    def append(self, record: dict[str, Any]) -> None:
        """Write one line, to the end."""
        with naming(self.path):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with naming(self.path):
            self._file.close()


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a run; damaged lines, such as a last one that was cut short by a kill, are left out."""
    return _lines(path)[0]


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records, and the number of damaged lines; the last one may be cut short, and does not count."""
    records: list[dict[str, Any]] = []
    damaged = list[int]()
    if not path.is_file():  # nothing, or a pipe, at which reading would wait for ever
        return records, 0
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for i, line in enumerate(lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and type(record.get("step")) is int:
            records.append(record)
        else:
            damaged.append(i)
    return records, sum(i < len(lines) - 1 for i in damaged)
