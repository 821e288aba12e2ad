"""TSA in your own loop over several processes: the digits of own_loop.py, with DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/own_loop_ddp.py

The lines that differ from own_loop.py are marked. Every process draws its own rows; `TSALoss` sees those of all.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tsadapt import TSALoss

CLASSES, DIM, STEPS = 10, 64, 200
BATCH = 32
"""Rows of each domain in one process."""


def domains(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Half of the digits with labels; the other half dimmed and blurred, with labels that only judge."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float().div(16).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    source, target = order.chunk(2)
    return x[source], y[source], F.avg_pool2d(x[target], 3, stride=1, padding=1) * 0.6, y[target]


class Network(nn.Module):
    """A backbone and a linear head; what is forwarded are the features."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, DIM), nn.BatchNorm1d(DIM), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """The features (B, K) of images."""
        features: Tensor = self.backbone(x)
        return features


def main(steps: int = STEPS, seed: int = 0) -> float:
    """Train as one process of several; the target accuracy of the last step."""
    torch.manual_seed(seed)
    x_s, y_s, x_t, y_t = domains()
    network = Network()
    parallel = DistributedDataParallel(network)  # ◄ averages gradients; with GPUs also nn.SyncBatchNorm
    tsa = TSALoss(CLASSES, DIM, n_source=len(x_s), n_target=len(x_t))  # ◄ the same line: it finds the processes itself
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9, nesterov=True)

    own = torch.Generator().manual_seed(1000 * seed + distributed.get_rank())  # ◄ every process its own rows
    for step in range(1, steps + 1):
        i_s, i_t = (torch.randint(len(x), (BATCH,), generator=own) for x in (x_s, x_t))
        f_s, f_t = parallel(torch.cat([x_s[i_s], x_t[i_t]])).split(BATCH)  # ◄ through DistributedDataParallel
        terms = tsa(network.head, f_s, y_s[i_s], i_s, f_t, i_t, progress=step / steps)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()

    network.eval()
    with torch.no_grad():
        accuracy = float(network.head(network(x_t)).argmax(1).eq(y_t).float().mean())
    if distributed.get_rank() == 0:
        print(f"TSA in {distributed.get_world_size()} processes: {accuracy:.1%} of the target after {steps} steps")
    return accuracy


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    main()
    distributed.destroy_process_group()
