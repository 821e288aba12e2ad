"""An exported model beside its run: the same predictions, from image files on, and with the resizing of the example.

    TSADAPT_DATA=… python -m benchmarks.exported --weights mobilenet_v2.pth

Trains on MobileNetV2 features of Office-Caltech-10, dslr → webcam, exports, and predicts images that training never
saw: every twentieth one of caltech10, whose photographs have many sizes. Takes a few minutes.
"""

import argparse
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

import tsadapt
from benchmarks.measure import versions
from tsadapt.data.frames import Framing
from tsadapt.data.images import ImageFiles
from tsadapt.data.types import Domain
from tsadapt.export import ExportedModel, export
from tsadapt.runs.model import TrainedModel

SOURCE, TARGET, OTHERS, EVERY = "office-caltech:dslr", "office-caltech:webcam", "office-caltech:caltech10", 20
BACKBONE, STEPS = "torchvision:mobilenet_v2", 200


def by_pillow(data: bytes, framing: Framing) -> np.ndarray:
    """What the example beside an exported model does with an image file: (size, size, 3)."""
    image: Image.Image = Image.open(io.BytesIO(data))
    image.draft("RGB", (2 * framing.resize,) * 2)
    image = ImageOps.exif_transpose(image).convert("RGB")
    width, height = (framing.resize * side // min(image.size) for side in image.size)
    image = image.resize((width, height), Image.Resampling[framing.interpolation.upper()])
    left, top = (round((side - framing.size) / 2) for side in image.size)
    return np.array(image.crop((left, top, left + framing.size, top + framing.size)))


def compared(model: TrainedModel, exported: ExportedModel, domain: Domain) -> dict[str, Any]:
    """The largest differences of a probability, and predictions that change."""
    framing = exported.recipe.framing
    assert framing is not None
    assert isinstance(domain.x, ImageFiles)
    ours = exported.outputs(domain)
    theirs = np.stack([by_pillow(domain.x.read(row), framing) for row in ours.rows])
    mine = exported.recipe.prepared(domain, ours.rows)[0].astype(int)
    return {
        "resized by Pillow": {
            **differences(exported.run(theirs)[0], ours.probabilities),
            "share of other pixels": round(float((mine != theirs).mean()), 5),
            "largest difference of a pixel": int(np.abs(mine - theirs).max()),
        },
        "by its run": differences(model.outputs(domain).probabilities, ours.probabilities),
    }


def differences(p: np.ndarray, q: np.ndarray) -> dict[str, Any]:
    return {
        "largest difference of a probability": float(f"{np.abs(p - q).max():.2g}"),
        "other predictions": int((p.argmax(1) != q.argmax(1)).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", help="weights of MobileNetV2 as a file")
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/exported.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"backbone": BACKBONE, "source": SOURCE, "target": TARGET, "predicted": OTHERS}
    with tempfile.TemporaryDirectory() as folder:
        model = tsadapt.fit(
            SOURCE, TARGET, out=f"{folder}/run", tsa=True, backbone=BACKBONE, weights=arguments.weights,
            freeze_backbone=True, steps=STEPS,
        )  # fmt: skip
        made = export(f"{folder}/run", f"{folder}/shipped")
        exported, images = ExportedModel(made.file), model.preprocessing
        domain = model.read(OTHERS).unlabelled()
        domain = domain.keep([*range(0, len(domain), EVERY)])
        result |= {"steps": STEPS, "check": vars(made.parity), "rows": len(domain)}
        assert images is not None
        for interpolation in ("bilinear", "bicubic"):  # the same network behind either
            framing = replace(images.framing, interpolation=interpolation)
            exported.recipe = replace(exported.recipe, framing=framing)
            as_framed = replace(model, preprocessing=replace(images, framing=framing))
            result[interpolation] = compared(as_framed, exported, domain)
            print(interpolation, json.dumps(result[interpolation]), flush=True)
    result |= {"command": "python -m benchmarks.exported", "versions": versions()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
