"""records.jsonl: one line for every logged step, in the order of the steps."""

import json
from pathlib import Path
from typing import Any

from tsadapt.files import naming, write_atomically

__all__ = ["Records", "read_records"]


class Records:
    """Appends lines to records.jsonl; a resumed run first cuts off what lies behind its checkpoint."""

    def __init__(self, path: Path, upto: int) -> None:
        self.path = path
        kept = [record for record in read_records(path) if record["step"] <= upto]
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
    """The records of a run; a last line that was cut short by a kill is left out."""
    records: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return records
