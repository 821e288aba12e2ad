import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tests.export.cases import ENCODER
from tests.photos import picture, write_classes, write_flat
from tests.tasks import write_task


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with data and runs; runs and exports are made when a test first asks for them."""
    folder = tmp_path_factory.mktemp("exports")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TSADAPT_CACHE", str(folder / "cache"))
        (folder / "enc.py").write_text(ENCODER)
        write_classes(folder / "labelled", n=5)
        write_flat(folder / "new", n=4)
        (folder / "new" / "large").mkdir()
        Image.fromarray(np.asarray(picture(1, 9, size=(60, 40))).repeat(5, 0).repeat(5, 1)).save(
            "new/9.jpg", quality=95
        )
        write_task(folder)
        for name in ("source", "target"):
            arrays = np.load(f"{name}.npz")
            frame = pd.DataFrame(1e9 + arrays["x"], columns=[*"abcdef"])  # of which float32 keeps nothing
            frame["no"] = [f"row {i}" for i in range(len(frame))]
            frame.assign(label=arrays["classes"][arrays["y"]]).to_csv(f"{name}.csv", index=False)
        rng = np.random.default_rng(0)
        np.savez("grey.npz", x=rng.integers(0, 256, (40, 28, 28), dtype=np.uint8))
        np.savez("grey-photos.npz", x=rng.integers(0, 256, (3, 40, 50), dtype=np.uint8))
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("TSADAPT_CACHE", str(place / "cache"))
    return place
