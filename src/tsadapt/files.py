"""Files that are either whole or not there."""

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["number", "write_atomically", "write_json"]


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write beside the target under another name, to the disk, and rename: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    payload = data.encode() if isinstance(data, str) else data
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def number(value: float) -> float | None:
    """A number as JSON has it: None for what is not finite."""
    return float(value) if math.isfinite(value) else None
