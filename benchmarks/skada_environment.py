"""An environment of its own for skada, with which ours is compared: .venv-skada, made when first needed."""

import subprocess
import sys
from pathlib import Path

__all__ = ["skada_python"]

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-skada"


def skada_python() -> Path:
    """The interpreter of that environment; it is made, through constraints.txt, if it is not there."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".installed"
    if not stamp.exists():
        print("making .venv-skada with skada[deep]==0.6.0 …", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), "skada[deep]==0.6.0"], check=True)
        stamp.touch()
    return python
