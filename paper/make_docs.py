"""Make every page of results again from the stored numbers; nothing is trained. `make docs` does it.

python -m paper.make_docs
"""

import contextlib
import io
import json
import shlex
from pathlib import Path

from paper.__main__ import main
from paper.overview import overview
from tsadapt.files import write_atomically

__all__ = ["RESULTS", "make_pages"]

RESULTS = Path("paper/results")


def make_pages(folder: Path) -> None:
    """NAME.md and NAME.png of each NAME.json, by its command; stop at the first that fails."""
    for path in sorted(folder.glob("*.json")):
        command = json.loads(path.read_text(encoding="utf-8"))["command"]
        words = shlex.split(command)[3:]  # after python -m paper
        with contextlib.redirect_stdout(io.StringIO()):
            status = main([*words, "--only-collect", "--out", str(folder)])
        if status:
            raise SystemExit(f"{path}: {command}")


if __name__ == "__main__":
    make_pages(RESULTS)
    page = Path("docs/results.md")
    write_atomically(page, overview(RESULTS, page))
