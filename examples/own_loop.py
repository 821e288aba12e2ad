"""TSA in a plain PyTorch loop of your own: UCI digits adapted to the same digits, dimmed and blurred.

    python examples/own_loop.py

The lines that matter are marked. You need a network that ends in a linear head, the index of each sample in its
dataset, and the progress t/T of training.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from tsadapt import TSALoss

CLASSES, DIM, BATCH, STEPS = 10, 64, 64, 200


def domains(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Half of the digits with labels; the other half dimmed and blurred, with labels that only judge."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float().div(16).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    source, target = order.chunk(2)
    return x[source], y[source], F.avg_pool2d(x[target], 3, stride=1, padding=1) * 0.6, y[target]


def main(steps: int = STEPS, use_tsa: bool = True, seed: int = 0) -> float:
    """Train, print and return the target accuracy of the last step."""
    torch.manual_seed(seed)
    x_s, y_s, x_t, y_t = domains()
    backbone = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, DIM), nn.BatchNorm1d(DIM), nn.ReLU(),
    )  # fmt: skip
    head = nn.Linear(DIM, CLASSES)
    tsa = TSALoss(CLASSES, DIM, n_source=len(x_s), n_target=len(x_t))  # ◄ once, with both datasets' sizes
    parameters = [*backbone.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True)

    for step in range(1, steps + 1):
        i_s, i_t = torch.randint(len(x_s), (BATCH,)), torch.randint(len(x_t), (BATCH,))  # ◄ keep the indices
        if use_tsa:
            f_s, f_t = backbone(torch.cat([x_s[i_s], x_t[i_t]])).split(BATCH)
            terms = tsa(head, f_s, y_s[i_s], i_s, f_t, i_t, progress=step / steps)  # ◄ in place of cross_entropy
            loss = terms["tsa"] + terms["mi"]
        else:
            loss = F.cross_entropy(head(backbone(x_s[i_s])), y_s[i_s])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    backbone.eval()
    with torch.no_grad():
        accuracy = float(head(backbone(x_t)).argmax(1).eq(y_t).float().mean())
    print(f"{'TSA' if use_tsa else 'source only'}: {accuracy:.1%} of the target after {steps} steps")
    return accuracy


if __name__ == "__main__":
    main(use_tsa=False)
    main(use_tsa=True)
