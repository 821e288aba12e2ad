"""Every page of the paper's tables and figures, made again from the numbers that are kept; nothing is trained.

    python -m paper.pages paper/results

For when the words of a page or the lines of a picture have changed. `make docs` does it.
"""

import contextlib
import io
import json
import shlex
import sys
from pathlib import Path

from tsadapt.cli import main


def make_again(folder: Path) -> None:
    """Collect by the command of each file; stop at the first that cannot be."""
    for path in sorted(folder.glob("*.json")):
        command = json.loads(path.read_text(encoding="utf-8"))["command"]
        with contextlib.redirect_stdout(io.StringIO()):
            status = main([*shlex.split(command)[1:], "--only-collect", "--out", str(folder)])
        if status:
            raise SystemExit(f"{path}: {command}")


if __name__ == "__main__":
    make_again(Path(sys.argv[1]))
