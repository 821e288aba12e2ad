"""Images to features of a frozen backbone: the ways of computing them, in turns, and how far their features agree.

    python -m benchmarks.features --only rate         from files to features, in turns with how it was and a plain loop
    python -m benchmarks.features --only agreement    the features of Office-31 and Office-Caltech-10, both ways

Needs the images and weights under TSADAPT_DATA. Features are kept in --work: the same command goes on from there.

A rate on the clock depends on what else the machine does, processor time hardly does: both are measured. Two threads
in one network wait for each other by spinning, which costs processor time on a busy machine and is no work, so that
processor time is compared on one thread.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.measure import versions
from tsadapt.config import FeaturePrecision
from tsadapt.data.image_loader import grouped, image_pass
from tsadapt.data.images import Images
from tsadapt.data.open import open_dataset
from tsadapt.data.transforms import Framing, evaluation_transform
from tsadapt.data.types import Domain
from tsadapt.models.backbones import Backbone, for_inference
from tsadapt.models.classifier import InputScaling
from tsadapt.models.encoders import find_backbone
from tsadapt.models.features import extract
from tsadapt.models.inference import FrozenNetwork

CPU, WORKERS = torch.device("cpu"), 2
BACKBONES = {
    "MobileNetV2": ("torchvision:mobilenet_v2", "mobilenet_v2-b0353104.pth", "mobilenetv2_100"),
    "ResNet-50": ("paper/encoders/resnet50_v1.py:resnet50_v1", "resnet50-v1.safetensors", "resnet50"),
}
COLLECTIONS = {"office31": ("amazon", "webcam", "dslr"), "office-caltech": ("amazon", "caltech10", "dslr", "webcam")}
IMAGES = {"MobileNetV2": 960, "ResNet-50": 192}
"""Enough that starting the workers, a quarter of a second, counts for little."""
PLAIN = 32
"""Those of them that the plain loop has, which starts workers too, and takes several times as long."""


WAYS: tuple[FeaturePrecision, ...] = ("fp32", "fp32-fused", "bf16")


def find(name: str) -> tuple[Backbone, Framing]:
    architecture, file, _ = BACKBONES[name]
    backbone = find_backbone(architecture, str(Path(os.environ["TSADAPT_DATA"]) / "weights" / file), None)
    return backbone, Framing(backbone.size, backbone.resize, True, backbone.interpolation)


def now(images: Images, framing: Framing, network: FrozenNetwork) -> Tensor:
    """As `tsadapt features`: every process decodes and forwards batches of its own."""
    groups, view = grouped(range(len(images)), network.rows), evaluation_transform(framing)
    return torch.cat([some.x for some in image_pass(images, groups, view, 2 * framing.resize, WORKERS, then=network)])


def before(images: Images, framing: Framing, backbone: Backbone, body: nn.Module) -> Tensor:
    """As it was: workers decode, one process forwards in float32, with batch normalisation folded."""
    scaling = InputScaling.of_images(backbone.mean, backbone.std)
    groups, view = grouped(range(len(images)), 16), evaluation_transform(framing)
    decoded = image_pass(images, groups, view, 2 * framing.resize, WORKERS)
    with torch.inference_mode():
        return torch.cat([body(scaling(some.x).contiguous(memory_format=torch.channels_last)) for some in decoded])


def plain_loop(paths: Sequence[str], name: str) -> Callable[[], Tensor]:
    """What one writes with timm and torch; the time does not depend on the weights, which are random."""
    import timm
    from PIL import Image
    from timm.data.config import resolve_model_data_config
    from timm.data.transforms_factory import create_transform
    from torch.utils.data import DataLoader, Dataset

    model = timm.create_model(BACKBONES[name][2], num_classes=0).eval()
    config = resolve_model_data_config(model)  # type: ignore[no-untyped-call]
    transform = create_transform(**config)

    class Files(Dataset[Tensor]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, row: int) -> Tensor:
            x: Tensor = transform(Image.open(paths[row]).convert("RGB"))
            return x

    def loop() -> Tensor:
        with torch.inference_mode():
            return torch.cat([model(x) for x in DataLoader(Files(), batch_size=32, num_workers=WORKERS)])

    return loop


def processor_seconds() -> float:
    """Of this process and those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def in_turns(contestants: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, dict[str, float]]:
    """Medians for one image (of so many), in milliseconds: on the clock, and of processor time."""
    clock, work = ({name: list[float]() for name in contestants} for _ in range(2))
    for _ in range(rounds):
        for name, (run, images) in contestants.items():
            began, used = time.perf_counter(), processor_seconds()
            run()
            clock[name].append(1e3 * (time.perf_counter() - began) / images)
            work[name].append(1e3 * (processor_seconds() - used) / images)
    return {
        name: {"clock": round(statistics.median(clock[name]), 2), "processor": round(statistics.median(work[name]), 2)}
        for name in contestants
    }


def rate(name: str, rounds: int, several: list[int]) -> dict[str, Any]:
    """All ways from files to features, and their parts by themselves."""
    backbone, framing = find(name)
    domain, count = open_dataset("office31:amazon").train, IMAGES[name]
    images: Any = domain.x
    images = images.keep([*range(0, len(images), len(images) // count)][:count])
    body, view = for_inference(backbone.module, backbone.size), evaluation_transform(framing)
    torch.set_num_threads(1)
    built = {}
    networks = {}
    for way in WAYS:
        used = time.process_time()
        networks[way] = FrozenNetwork(backbone, CPU, way)
        built[way] = round(time.process_time() - used, 2)
    decoded = torch.stack([view(images.decode(row, 2 * framing.resize)) for row in range(16)])

    def alone(network: FrozenNetwork) -> Callable[[], object]:
        return lambda: [network(decoded[rows.start : rows.stop]) for rows in grouped(range(16), network.rows)]

    ways: dict[str, tuple[Callable[[], object], int]] = {
        "before": (lambda: before(images, framing, backbone, body), count),
        "plain loop": (plain_loop(images.paths[:PLAIN], name), PLAIN),
    }
    for way, network in networks.items():
        ways[way] = (partial(now, images, framing, network), count)
    parts: dict[str, tuple[Callable[[], object], int]] = {
        f"network, {way}": (alone(one), 16) for way, one in networks.items()
    }
    parts["decoding"] = (lambda: [view(images.decode(row, 2 * framing.resize)) for row in range(16)], 16)
    result: dict[str, Any] = {"images": count, "rounds": rounds, "workers": WORKERS, "seconds_to_build": built}
    result["parts_ms_an_image"] = in_turns(parts, rounds)
    for threads in several:
        key = "processor" if threads == 1 else "clock"
        torch.set_num_threads(threads)
        found = in_turns(ways, rounds)
        result[f"ms_an_image_threads_{threads}"] = found
        result[f"times_as_fast_by_{key}_threads_{threads}"] = {
            way: {other: round(found[other][key] / found[way][key], 2) for other in ("before", "plain loop")}
            for way in networks
        }
        print(name, threads, json.dumps(result), flush=True)
    return result | {"load_average": round(os.getloadavg()[0], 1)}


def agreement(name: str, work: Path, every: int) -> dict[str, Any]:
    """Cosines of the features either way, and the share of equal predictions of classifiers trained on float32."""
    os.environ["TSADAPT_CACHE"] = str(work / "cache")
    backbone, framing = find(name)
    result: dict[str, Any] = {"every": every}
    for collection, domains in COLLECTIONS.items():
        found: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for domain in domains:
            rows = open_dataset(f"{collection}:{domain}").train
            rows = rows.keep([*range(0, len(rows), every)])
            plain, fast = _both(rows, backbone, framing)
            found[domain] = plain, fast, labels(rows)
        cosines = {d: _cosines(plain, fast) for d, (plain, fast, _) in found.items()}
        either = {
            (s, t): predictions(found[s][0], found[s][2], *found[t][:2])
            for s in domains for t in domains if s != t
        }  # fmt: skip
        same = {f"{s} → {t}": plain == fast for (s, t), (plain, fast) in either.items()}
        accuracy = {
            f"{s} → {t}": [round(float((one == found[t][2]).mean()), 4) for one in both]
            for (s, t), both in either.items()
        }
        result[collection] = {
            "images": sum(len(one[0]) for one in found.values()),
            "least_cosine": {domain: round(float(one.min()), 5) for domain, one in cosines.items()},
            "median_cosine": {domain: round(float(np.median(one)), 5) for domain, one in cosines.items()},
            "share_of_images_above_0.999": round(float((np.concatenate([*cosines.values()]) >= 0.999).mean()), 4),
            "same_predictions": {pair: round(float(equal.mean()), 4) for pair, equal in same.items()},
            "same_predictions_of_all": round(float(np.concatenate([*same.values()]).mean()), 4),
            "accuracy_either_way": accuracy,
            "largest_change_of_accuracy": round(max(abs(a - b) for a, b in accuracy.values()), 4),
        }  # fmt: skip
        print(name, json.dumps(result[collection]), flush=True)
    return result


def _both(rows: Domain, backbone: Backbone, framing: Framing) -> tuple[np.ndarray, np.ndarray]:
    images: Any = rows.x
    plain, fast = (
        extract(images, backbone, framing, CPU, WORKERS, quiet=True, precision=precision).x.double().numpy()
        for precision in (WAYS[0], WAYS[-1])
    )
    return plain, fast


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found: np.ndarray = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return found


def labels(rows: Domain) -> np.ndarray:
    assert rows.y is not None
    return rows.y.numpy()


def predictions(x: np.ndarray, y: np.ndarray, plain: np.ndarray, fast: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a logistic regression on source rows x says of a target's features, either way."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300)).fit(x, y)
    return model.predict(plain), model.predict(fast)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=["rate", "agreement"], help="one part instead of both")
    parser.add_argument("--backbones", nargs="+", default=[*BACKBONES], choices=[*BACKBONES])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of one network, where one forwards")
    parser.add_argument("--every", type=int, default=1, help="agreement on every so many images")
    parser.add_argument("--work", type=Path, default=Path("runs/features"), help="folder for the features")
    parser.add_argument("--out", type=Path, default=Path("paper/results/benchmarks/features.json"))
    arguments = parser.parse_args()
    for part in ("rate", "agreement"):
        for name in arguments.backbones if arguments.only in (None, part) else ():
            found = (
                rate(name, arguments.rounds, arguments.threads)
                if part == "rate"
                else agreement(name, arguments.work, arguments.every)
            )
            there = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
            more = {
                "rate": f" --threads {' '.join(map(str, arguments.threads))}",
                "agreement": f" --every {arguments.every}",
            }
            command = f"python -m benchmarks.features --only {part} --backbones {name}{more[part]}"
            there.setdefault(part, {})[name] = found | {"command": command}
            there["versions"] = versions()
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(there, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"written to {arguments.out}", flush=True)


if __name__ == "__main__":
    main()
