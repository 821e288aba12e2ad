"""Small runs to report: rows and photographs, with names that would run as code if they were not escaped."""

from pathlib import Path

import numpy as np
import pytest
from tests.configs import changed, run_config
from tests.photos import SHORT, TINY, picture

from tsadapt.report.collect import collect
from tsadapt.runs.fit import train_run

NASTY = ("</script><script>window.broken=1</script>", "\"quoted\" & 'single'", "<img src=x onerror=window.broken=2>")
"""Names of classes that try to get out of wherever they are put."""


@pytest.fixture(scope="session")
def rows_task(tmp_path_factory):
    """Three Gaussian classes, and the same moved; the target with and without labels."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    centres, y = 2.0 * rng.normal(size=(3, 6)), np.arange(150) % 3
    np.savez(folder / "source.npz", x=centres[y] + rng.normal(size=(150, 6)), y=y, classes=np.array(NASTY))
    x_t = centres[y] + rng.normal(size=(150, 6)) + 0.8
    np.savez(folder / "labelled.npz", x=x_t, y=y, classes=np.array(NASTY))
    np.savez(folder / "target.npz", x=x_t)
    return folder


@pytest.fixture(scope="session")
def rows_config(rows_task):
    return run_config(
        str(rows_task / "source.npz"), str(rows_task / "labelled.npz"), bottleneck=8, steps=40, batch_size=16,
        lr=0.05, log_every=5, device="cpu", holdout=0.1,
    )  # fmt: skip


@pytest.fixture(scope="session")
def several(rows_config, rows_task):
    """Source-only, MI, and TSA with four candidate steps."""
    runs = {"plain": {}, "mi": {"mi": True}, "tsa": {"tsa": True, "candidates": 4}}
    for name, settings in runs.items():
        train_run(changed(rows_config, **settings), rows_task / name, quiet=True)
    return [rows_task / name for name in runs]


@pytest.fixture(scope="session")
def several_page(several):
    return collect(several)


@pytest.fixture(scope="session")
def unlabelled(rows_config, rows_task):
    """A run whose target has no labels."""
    config = changed(rows_config, target=str(rows_task / "target.npz"), tsa=True)
    return train_run(config, rows_task / "unlabelled", quiet=True)[0]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A run of photographs from class folders to a folder without classes, one image of which cannot be read."""
    root, patch = tmp_path_factory.mktemp("photos"), pytest.MonkeyPatch()
    patch.setenv("TSADAPT_CACHE", str(root / "cache"))
    for label, name in enumerate(("ant", "<b onclick=alert(1)>", 'cow"s')):
        (root / "labelled" / name).mkdir(parents=True)
        for i in range(8):
            picture(label, i, size=(120, 90)).save(root / "labelled" / name / f"{i}.png")
    (root / "new").mkdir()
    for label in range(3):
        for i in range(8):
            picture(label, i, 90, size=(120, 90)).save(root / "new" / f"{label}-{i}<i>'\".png")
    (root / "new" / "9-broken.png").write_bytes(b"no image")
    config = run_config(
        str(root / "labelled"), str(root / "new"), tsa=True, backbone=TINY, weights="none", image_size=32,
        device="cpu", workers=0, **SHORT,
    )  # fmt: skip
    yield train_run(config, root / "run", quiet=True)[0]
    patch.undo()


@pytest.fixture(scope="session")
def photos_page(photos):
    return collect([photos])


@pytest.fixture(scope="session")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")
