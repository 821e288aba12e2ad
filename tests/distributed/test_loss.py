"""`TSALoss` in somebody else's loop over several processes: the loss and gradients of one, and the example."""

import pytest
import torch
from examples import own_loop, own_loop_ddp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tsadapt import TSALoss
from tsadapt.core.processes import Processes

CLASSES, DIM, ROWS, STEPS = 4, 6, (31, 29), 4


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(9, DIM), nn.Tanh()), nn.Linear(DIM, CLASSES)

    def forward(self, x):
        return self.body(x)


def losses_of(covariance, storage):
    """Terms of some steps, and weights after them; batches of 11 and 8 rows are cut unevenly."""
    torch.manual_seed(0)
    processes = Processes.here()
    network = Network().double()
    body = network if processes is None else DistributedDataParallel(network)
    tsa = TSALoss(CLASSES, DIM, *ROWS, lambda0=1.0, covariance=covariance, storage=storage)
    x_s, x_t = (torch.randn(n, 9, dtype=torch.float64) for n in ROWS)
    y_s = torch.randint(CLASSES, (ROWS[0],))
    optimizer, found = torch.optim.SGD(network.parameters(), lr=0.1), []
    for step in range(1, STEPS + 1):
        i_s, i_t = torch.randint(ROWS[0], (11,)), torch.randint(ROWS[1], (8,))
        if processes is not None:
            cuts = [0, 2, 5, 11] if processes.number == 3 else [0, 4, 11]
            i_s, i_t = (i[cuts[processes.rank] : cuts[processes.rank + 1]] for i in (i_s, i_t))
        f_s, f_t = body(torch.cat([x_s[i_s], x_t[i_t]])).split([len(i_s), len(i_t)])
        terms = tsa(network.head, f_s, y_s[i_s], i_s, f_t, i_t, progress=step / STEPS)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()
        found.append(torch.stack([*terms.values()]).detach())
    return torch.stack(found), [p.detach() for p in network.parameters()], len(tsa.source.features)


@pytest.mark.parametrize("covariance", ["target", "source", "none"])
@pytest.mark.parametrize("number", [2, 3])
def test_the_loss_is_that_of_one_process(pool, number, covariance):
    expected, weights, rows = losses_of(covariance, torch.float64)
    held = []
    for terms, theirs, own in pool(number).run(losses_of, covariance, torch.float64):
        torch.testing.assert_close(terms, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(theirs, weights, rtol=1e-9, atol=1e-12)
        held.append(own)
    assert sum(held) == rows
    assert max(held) - min(held) <= 1


def test_the_example(pool):
    plain = own_loop.main(steps=100, use_tsa=False)
    first, second = pool(2).run(own_loop_ddp.main, 100)
    assert min(first, second) > plain + 0.1
