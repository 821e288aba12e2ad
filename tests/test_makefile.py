"""make setup installs what is not there any more, and nothing twice."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_setup_notices_that_the_package_was_uninstalled(tmp_path):
    def is_made():
        return subprocess.run(["make", "-q", "setup"], cwd=tmp_path, check=False).returncode == 0

    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    command = tmp_path / ".venv/bin/tsadapt"
    command.parent.mkdir(parents=True)
    command.touch()
    assert is_made()
    command.unlink()  # as pip uninstall does
    assert not is_made()
    command.touch()
    os.utime(tmp_path / "pyproject.toml", (command.stat().st_mtime + 5,) * 2)
    assert not is_made()
