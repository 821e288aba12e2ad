"""skada's side of the comparisons, run by the interpreter of .venv-skada; it imports nothing of ours.

    python benchmarks/skada_side.py accuracy SOURCE.npz TARGET.npz NAME   "logistic regression", CORAL, OTMapping
    python benchmarks/skada_side.py time DATA.npz STEPS BATCH THREADS   seconds of a step of DANN and DeepCoral

Prints one line of JSON.
"""

import json
import sys
import time
import warnings
from typing import Any

import numpy as np

# skada and what it uses warn of each other's coming changes.
warnings.simplefilter("ignore")


def accuracy(source: str, target: str, name: str) -> float:
    from skada import CORAL, OTMapping
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    (x_s, y_s), (x_t, y_t) = (_read(path) for path in (source, target))
    base = LogisticRegression(max_iter=1000)
    if name == "logistic regression":
        return float(make_pipeline(StandardScaler(), base).fit(x_s, y_s).score(x_t, y_t))
    scaler = StandardScaler().fit(x_s)
    x, domain = scaler.transform(np.concatenate([x_s, x_t])), np.repeat([1, -2], [len(x_s), len(x_t)])
    y = np.concatenate([y_s, np.full(len(x_t), -1)])  # masked, as skada wants it
    makers: dict[str, Any] = {"CORAL": CORAL, "OTMapping": OTMapping}
    clf = makers[name](base)
    clf.fit(x, y, sample_domain=domain)
    guess = clf.predict(x[domain < 0], sample_domain=domain[domain < 0])
    return float((guess == y_t).mean())


def _read(path: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return file["x"].astype(np.float64), file["y"].astype(np.int64)


def step_times(path: str, steps: int, batch: int, threads: int) -> dict[str, float]:
    import torch
    from skada.deep import DANN, DeepCoral
    from skorch.callbacks import Callback

    torch.set_num_threads(threads)
    with np.load(path, allow_pickle=False) as file:
        x_s, y_s, x_t = file["x_s"].astype(np.float32), file["y_s"].astype(np.int64), file["x_t"].astype(np.float32)
    x, domain = np.concatenate([x_s, x_t]), np.repeat([1, -2], [len(x_s), len(x_t)])
    y = np.concatenate([y_s, np.full(len(x_t), -1)])

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width, classes = x.shape[1], int(y_s.max()) + 1
            self.bottleneck = torch.nn.Sequential(
                torch.nn.Linear(width, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU()
            )
            self.head = torch.nn.Linear(256, classes)

        def forward(self, rows: Any, sample_weight: Any = None) -> Any:
            return self.head(self.bottleneck(rows))

    class Count(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.steps = 0

        def on_batch_end(self, net: Any, training: bool = False, **rest: Any) -> None:
            self.steps += int(training)

    found = {}
    for name, make in (("DANN", DANN), ("DeepCoral", DeepCoral)):
        count = Count()
        more = {"num_features": 256} if name == "DANN" else {}
        net = make(
            Net(), layer_name="bottleneck", batch_size=batch, lr=0.01, optimizer=torch.optim.SGD, train_split=None,
            max_epochs=max(round(steps * batch / max(len(x_s), len(x_t))), 1), verbose=0, callbacks=[count], **more,
        )  # fmt: skip
        began = time.perf_counter()
        net.fit(x, y, sample_domain=domain)
        found[name] = (time.perf_counter() - began) / count.steps
        found[f"{name} steps"] = count.steps
    return found


if __name__ == "__main__":
    if sys.argv[1] == "accuracy":
        print(json.dumps(accuracy(*sys.argv[2:5])))
    else:
        print(json.dumps(step_times(sys.argv[2], *map(int, sys.argv[3:6]))))
