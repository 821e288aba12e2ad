"""What each target term makes of a batch and of its memory, against its formula written out."""

from dataclasses import replace

import pytest
import torch
from tests.configs import changed
from torch import nn
from torch.nn import functional as F

from tsadapt.core import FeatureMemory, attraction_dispersion_loss, centroid_labels, mutual_information_loss
from tsadapt.objectives import target_rows
from tsadapt.objectives.base import TARGET_TERMS, Context, Head, Outputs, View
from tsadapt.objectives.target_rows import averaged_logits, remembered_features
from tsadapt.training.setup import make_task, make_trainer

N, K, C, B, STEPS = 30, 4, 3, 10, 20
NEW = ["aad", "anchored", "atdoc", "bnm", "entropy", "fixmatch", "mcc", "shot"]


def context(classes=C, rows=N, batch=B):
    share = torch.full((classes,), 1 / classes)
    return Context(
        K, (K, K), tuple(map(str, range(classes))), (rows, rows), share, STEPS, (batch, batch), 8, nn.Identity
    )


class Rows:
    """Target rows with fixed features, heads that see them, and the memories of the features."""

    def __init__(self, heads=1, classes=C, rows=N, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.features = [torch.randn(rows, K, generator=g) for _ in range(heads)]
        self.weights = [torch.randn(classes, K, generator=g) for _ in range(heads)]
        self.memories = [FeatureMemory(rows, K, classes, second_moments=False) for _ in range(heads)]

    def out(self, index, progress=0.5, scale=1.0, observe=True):
        """A batch of rows, which the memories have taken in."""
        index = torch.as_tensor(index)
        features = [f[index].clone().requires_grad_() for f in self.features]
        logits = [scale * f @ w.T for f, w in zip(features, self.weights, strict=True)]
        views = [View(f, z, index) for f, z in zip(features, logits, strict=True)]
        combined = View(features[0], torch.stack(logits).sum(0), index)
        if observe:
            for memory, view in zip(self.memories, views, strict=True):
                memory.write(index, view.features, combined.logits.detach().argmax(1))
        heads = tuple(Head(view, view, w, None) for view, w in zip(views, self.weights, strict=True))
        return Outputs(
            combined, combined, heads, progress, tuple(features), lambda f: (f,),
            lambda domain, estimator, i: self.memories[i], torch.Generator, (features[0], features[0]),
            lambda x: (x, x @ self.weights[0].T),
        )  # fmt: skip


def made(name, rows=N, classes=C, batch=B, **settings):
    return TARGET_TERMS[name](context(classes, rows, batch), **settings)


def cross_entropies(logits, labels):
    return F.cross_entropy(logits, torch.as_tensor(labels), reduction="none")


@pytest.mark.parametrize("heads", [1, 2])
def test_averaged_probabilities(heads):
    out = Rows(heads).out(range(B))
    expected = torch.stack([head.target.logits.softmax(1) for head in out.heads]).mean(0)
    torch.testing.assert_close(averaged_logits(out).softmax(1), expected)


@pytest.mark.parametrize("heads", [1, 2])
def test_terms_of_the_batch_alone(heads):
    out = Rows(heads).out(range(B))
    p = averaged_logits(out).softmax(1)
    entropy = -(p * p.log()).sum(1)
    torch.testing.assert_close(made("entropy")(out), 0.1 * entropy.mean())
    torch.testing.assert_close(made("entropy", entropy_weight=2.0)(out), 2 * entropy.mean())
    torch.testing.assert_close(made("bnm")(out), -torch.linalg.svdvals(p).mean())
    torch.testing.assert_close(made("bnm", bnm_weight=0.5)(out), -0.5 * torch.linalg.svdvals(p).mean())
    soft = (p.log() / 2.5).softmax(1)
    w = 1 + (soft * soft.log()).sum(1).exp()
    confusion = (w[:, None] * soft).T @ soft
    confusion = confusion / confusion.sum(1, keepdim=True)
    torch.testing.assert_close(made("mcc")(out), (confusion.sum() - confusion.trace()) / C)
    torch.testing.assert_close(made("mcc", mcc_weight=3.0)(out), (confusion.sum() - confusion.trace()) * 3 / C)
    assert made("mcc", temperature=1.0)(out) != made("mcc")(out)


def test_mutual_information_waits_for_its_share_of_the_steps():
    rows, term = Rows(), made("mi", beta=0.5, warmup=0.25, marginal="memory")
    plain = made("mi", beta=0.5, marginal="memory")
    for progress in (0.05, 0.25):  # the last step of the warm-up is one too
        waiting = term(rows.out(range(5), progress))
        plain(rows.out(range(5), progress))
        assert waiting == 0
    # What was seen meanwhile is in the memory.
    losses = [one(rows.out(range(4, 9), 0.3)) for one in (term, plain)]
    assert torch.equal(*losses)
    assert losses[0] < 0
    assert made("mi", warmup=1.0)(rows.out(range(5), 1.0)) == 0


def test_with_a_memory_of_all_rows_batches_add_up_to_the_information_of_the_whole_target():
    rows, term = Rows(), made("mi", beta=0.7, marginal="memory")
    weight = rows.weights[0].requires_grad_()
    term(rows.out(range(N)))  # all predictions, as they are now
    parts = [[0, 1], range(2, 12), range(12, N)]
    grads = [len(part) / N * torch.autograd.grad(term(rows.out(part)), weight)[0] for part in parts]
    logits = rows.features[0] @ weight.T
    p = logits.softmax(1)
    whole = (p.mean(0) * p.mean(0).log()).sum() - (p * p.log()).sum(1).mean()
    (expected,) = torch.autograd.grad(0.7 * whole, weight)
    torch.testing.assert_close(sum(grads), expected)
    # The batches' own means are another function: their gradients do not add up to it.
    alone = made("mi", beta=0.7, marginal="batch")
    grads = [len(part) / N * torch.autograd.grad(alone(rows.out(part)), weight)[0] for part in parts]
    assert (sum(grads) - expected).norm() > 0.1 * expected.norm()


class Remembered:
    """A memory as loops would have it: what every row had when it was last seen."""

    def __init__(self):
        self.rows = {}

    def see(self, out, values):
        for row, one in zip(out.target.index.tolist(), values, strict=True):
            self.rows[row] = one

    def near(self, rows, out, k):
        """The k rows of largest cosine, averaged over the heads, for every row of the batch; none is the row itself."""
        found = []
        for i, own in enumerate(out.target.index.tolist()):
            near = [
                (
                    -sum(
                        float(F.cosine_similarity(head.target.features[i].detach(), f[j], dim=0))
                        for head, f in zip(out.heads, rows.features, strict=True)
                    ),
                    j,
                )
                for j in self.rows
                if j != own
            ]
            found.append([j for _, j in sorted(near)[:k]])
        return found


BATCHES = [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9], [2, 3, 10, 11], [20, 2, 20, 5]]
"""Batches of other sizes, rows seen again, and one twice in a batch."""


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("soft_labels", ["balanced", "plain"])
def test_atdoc_by_neighbours(heads, soft_labels):
    rows, kept, term = Rows(heads), Remembered(), made("atdoc", soft_labels=soft_labels, neighbours=3)
    for t, batch in enumerate(BATCHES, start=1):
        out = rows.out(batch, progress=t / 4)
        logits = averaged_logits(out)
        p = logits.detach().softmax(1)
        kept.see(out, p**2 / (p**2).sum(0) if soft_labels == "balanced" else p)
        v = torch.stack([torch.stack([kept.rows[j] for j in near]).mean(0) for near in kept.near(rows, out, 3)])
        w, label = v.max(1)
        expected = 0.2 * (t / 4) * (w * cross_entropies(logits, label)).sum() / w.sum()
        torch.testing.assert_close(term(out), expected)


def test_terms_that_ask_for_the_same_neighbours_search_once(monkeypatch):
    searched = []
    search = target_rows.nearest_rows
    monkeypatch.setattr(target_rows, "nearest_rows", lambda *given: searched.append(1) or search(*given))
    rows, apart = Rows(2), Rows(2)
    terms, alone = ([made("atdoc"), made("anchored", anchor_labels="neighbours")] for _ in range(2))
    for t, batch in enumerate(BATCHES, start=1):
        together, before = rows.out(batch, progress=t / 4), len(searched)
        found = [term(together) for term in terms]
        assert len(searched) - before == 1
        assert found == [term(apart.out(batch, progress=t / 4)) for term in alone]
    # Other features, other rows with a prediction, and other numbers of neighbours are searched for anew.
    out, before = rows.out(BATCHES[0]), len(searched)
    for other in (terms[0], made("atdoc"), made("atdoc", neighbours=2)):
        other(out)
    terms[0](replace(out, heads=rows.out(BATCHES[0]).heads))
    terms[0](replace(out, heads=out.heads[:1]))
    assert len(searched) - before == 5


def test_atdoc_has_no_neighbours_where_there_is_one_row():
    """Alone in the memory, a row would confirm its own prediction."""
    rows = Rows()
    out = rows.out([3, 3])
    loss = made("atdoc")(out)
    assert loss == 0
    assert (torch.autograd.grad(loss, out.heads[0].target.features)[0] == 0).all()


def test_neighbours_have_a_prediction_and_a_feature():
    """Before the first step the memory has all features and no prediction: rows not seen since are no neighbours."""
    rows, term = Rows(), made("aad", dispersion=0.0)
    rows.out(range(20))
    out = rows.out([0, 1])
    p = out.target.logits.softmax(1)
    torch.testing.assert_close(term(out), -(p * p.detach().flip(0)).sum(1).mean())  # each other, though others are near
    rows.memories[0] = FeatureMemory(N, K, C, second_moments=False)
    out = rows.out([5, 6])
    p = out.target.logits.softmax(1)
    torch.testing.assert_close(term(out), -(p * p.detach().flip(0)).sum(1).mean())  # 0 and 1 lost their features


@pytest.mark.parametrize("heads", [1, 2])
def test_atdoc_by_centroids(heads):
    rows, term = Rows(heads), made("atdoc", pseudo_labels="centroids")
    assert not term.state_dict()  # all it needs is in the shared memory
    rows.out(range(20))
    out = rows.out(range(5), progress=0.4)
    logits = averaged_logits(out)
    losses = []
    for memory, head in zip(rows.memories, out.heads, strict=True):
        written = [j for j in range(N) if memory.labels[j] < C]
        means = {
            c: torch.stack([memory.features[j] for j in written if memory.labels[j] == c]).mean(0)
            for c in {int(memory.labels[j]) for j in written}
        }
        labels = [
            max(means, key=lambda c, f=f, means=means: float(F.cosine_similarity(f, means[c], dim=0)))
            for f in head.target.features.detach()
        ]
        losses.append(cross_entropies(logits, labels).mean())
    torch.testing.assert_close(term(out), 0.1 * 0.4 * torch.stack(losses).mean())
    doubled = made("atdoc", pseudo_labels="centroids", atdoc_weight=0.2)
    torch.testing.assert_close(doubled(out), 2 * term(out))


def test_atdoc_by_centroids_with_classes_that_nobody_predicts():
    """The public code divides their centroid, zero, by its length."""
    rows = Rows(classes=8)
    out = rows.out([0, 1])
    loss = made("atdoc", classes=8, pseudo_labels="centroids")(out)
    assert (rows.memories[0].count[:8] == 0).sum() >= 6
    assert loss.isfinite()
    assert torch.autograd.grad(loss, out.heads[0].target.features)[0].isfinite().all()
    nothing = Rows(classes=8).out([0, 1], observe=False)
    assert made("atdoc", classes=8, pseudo_labels="centroids")(nothing) == 0


def test_atdoc_grows_over_the_run():
    for way, weight in (("neighbours", 0.2), ("centroids", 0.1)):
        values = []
        for progress in (0.25, 1.0):
            rows = Rows()
            values.append(made("atdoc", pseudo_labels=way)(rows.out(range(B), progress)))
        torch.testing.assert_close(4 * values[0], values[1])
        unit = made("atdoc", pseudo_labels=way, atdoc_weight=1.0)(Rows().out(range(B), 1.0))
        torch.testing.assert_close(weight * unit, values[1])


@pytest.mark.parametrize("heads", [1, 2])
def test_attracting_and_dispersing(heads):
    rows, kept, term = Rows(heads), Remembered(), made("aad", neighbours=3, dispersion=0.7, dispersion_decay=2.0)
    for t, batch in enumerate(BATCHES, start=1):
        out = rows.out(batch, progress=t / 4)
        p = averaged_logits(out).softmax(1)
        kept.see(out, p.detach())
        near = kept.near(rows, out, 3)
        expected = torch.zeros(())
        for i, own in enumerate(batch):
            expected = expected - sum(p[i] @ kept.rows[j] for j in near[i]) / len(batch)
            others = sum(p[i] @ p[j] for j, other in enumerate(batch) if other != own)
            expected = expected + 0.7 * (1 + 10 * t / 4) ** -2 * others / len(batch)
        torch.testing.assert_close(term(out), expected)
        assert term.describe(out) == {"dispersion": pytest.approx(0.7 * (1 + 10 * t / 4) ** -2)}


def test_neighbours_are_constants():
    """The gradient goes through the batch's own predictions alone, in both factors of the dispersion."""
    rows, term = Rows(), made("aad", dispersion_decay=0.0)
    out = rows.out(range(B))
    grad = torch.autograd.grad(term(out), out.heads[0].target.features)[0]
    again = rows.out(range(B))
    near = term.memory.rows(torch.arange(N))
    place = torch.tensor([[j for j in range(B) if j != i] for i in range(B)])
    cosine = F.normalize(rows.features[0], dim=1) @ F.normalize(rows.features[0], dim=1).T
    nearest = place.gather(1, cosine[:B].gather(1, place).topk(5, dim=1).indices)
    expected = attraction_dispersion_loss(again.target.logits, near[nearest], torch.ones(B, 5, dtype=torch.bool))
    torch.testing.assert_close(grad, torch.autograd.grad(expected, again.heads[0].target.features)[0])


@pytest.mark.parametrize("heads", [1, 2])
def test_shot_labels_all_rows_seen_every_so_many_steps(heads):
    rows, term = Rows(heads), made("shot", refresh_every=3)
    labels, seen = torch.full((N,), C), Remembered()
    generator = torch.Generator().manual_seed(0)
    for t in range(1, 8):
        batch = torch.randperm(20, generator=generator)[:6]
        out = rows.out(batch, progress=t / STEPS, scale=0.5 + t / 4)
        logits = averaged_logits(out)
        seen.see(out, logits.detach().softmax(1))
        if t in (3, 6):
            index = torch.tensor(sorted(seen.rows))
            features, _ = remembered_features(out)
            labels[index] = centroid_labels(features[index], torch.stack([seen.rows[j] for j in index.tolist()]))
        loss = term(out)
        assert torch.equal(term.labels, labels)
        expected = mutual_information_loss(logits)
        mine = labels[batch]
        if (mine < C).any():
            expected = expected + 0.3 * F.cross_entropy(logits[mine < C], mine[mine < C])
        torch.testing.assert_close(loss, expected)
        assert term.describe(out) == {"pseudo_labelled": pytest.approx(float((labels < C).float().mean()))}
    assert (labels[20:] == C).all()  # rows never seen have no label
    assert len(set(labels[:20].tolist())) > 1


def test_shot_takes_the_mean_prediction_of_the_memory_where_a_batch_has_too_few_rows():
    rows, term = Rows(), made("shot", batch=2 * C - 1, pseudo_label_weight=0.0)
    rows.out(range(B))
    term(rows.out(range(B)))
    out = rows.out([20, 21])
    loss = term(out)
    torch.testing.assert_close(loss, mutual_information_loss(out.target.logits, marginal=term.memory.mean()))
    assert loss != mutual_information_loss(out.target.logits)


VARIANTS = [
    *((name, {}) for name in NEW),
    ("atdoc", {"pseudo_labels": "centroids"}),
    ("atdoc", {"soft_labels": "plain"}),
    ("shot", {"refresh_every": 1}),
    ("anchored", {"anchor_refresh": 3}),
    ("anchored", {"anchor_labels": "neighbours"}),
    ("anchored", {"anchor_labels": "product", "anchor_refresh": 1, "anchor_start": 0.0}),
    ("fixmatch", {"confidence": 0.4}),
    ("mi", {"marginal": "batch", "warmup": 0.4}),
    ("mi", {"marginal": "memory", "beta": 0.5}),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
@pytest.mark.parametrize("classes", [1, 3, 12])
@pytest.mark.parametrize("scale", [1.0, 1e4, -1e4])
def test_few_rows_one_class_and_extreme_logits(name, settings, classes, scale):
    """Batches smaller than the number of classes, of one row, and logits of ten thousands."""
    rows, term = Rows(classes=classes), made(name, classes=classes, batch=4, **settings)
    for batch in ([0], [1, 2, 3, 4], [5, 6, 7, 7]):
        out = rows.out(batch, scale=scale)
        loss = term(out)
        assert loss.isfinite()
        assert torch.autograd.grad(loss, out.heads[0].target.features)[0].isfinite().all()


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_what_a_term_remembers_is_in_its_state(name, settings):
    rows, term = Rows(), made(name, **settings)
    for batch in BATCHES:
        term(rows.out(batch))
    again = made(name, **settings)
    again.load_state_dict(term.state_dict())
    for batch in ([1, 2, 12], [20, 21]):
        assert torch.equal(term(rows.out(batch)), again(rows.out(batch)))
    assert all(torch.equal(a, again.state_dict()[key]) for key, a in term.state_dict().items())


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_a_run_resumes_exactly(config, name, settings):
    """With pseudo-labels estimated before, at and after the step of the restart, and two heads."""
    settings = {**settings, **({"refresh_every": 3} if name == "shot" else {})}
    config = changed(config, tsa=False, target_terms=(name,), method="jada", **settings)
    whole = make_trainer(make_task(config))
    whole.fill_memory()
    for _ in range(7):
        whole.step()
    torch.save(whole.state(), "state.pt")
    again = make_trainer(make_task(config))
    again.load(torch.load("state.pt", weights_only=True))
    for _ in range(6):
        assert whole.step(describe=True) == again.step(describe=True)
    state, same = whole.objective.state_dict(), again.objective.state_dict()
    assert all(torch.equal(state[key], same[key]) for key in state)


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_training_lowers_what_a_term_measures(config, name, settings):
    """Two runs that differ in one term: with it, target predictions are more certain."""
    lengths = {"steps": 60, "refresh_every": 10, **settings}
    ends = []
    for weight in (0.0, 1.0):
        run = changed(config, tsa=False, target_terms=(name,), method="adabn", term_weight={name: weight}, **lengths)
        trainer = make_trainer(make_task(run))
        trainer.fill_memory()
        for _ in range(60):
            trainer.step()
        out, _ = trainer.forward(trainer.batches.at(1), 1.0)
        p = out.target.logits.detach().softmax(1)
        ends.append(float(-(p * p.clamp_min(1e-12).log()).sum(1).mean()))
    assert ends[1] < ends[0]


def logged(seen, weight):
    """A network that remembers what it was asked, and whether with gradients."""

    def network(x):
        seen.append((x, torch.is_grad_enabled()))
        return x, x @ weight.T

    return network


def test_fixmatch_on_a_second_view():
    rows, seen = Rows(), []
    strong = torch.randn(B, K, generator=torch.Generator().manual_seed(5)).requires_grad_()
    out = replace(rows.out(range(B), scale=3.0), second=strong, network=logged(seen, rows.weights[0]))
    sure, labels = out.target.logits.softmax(1).max(1)
    taken = sure > 0.8
    assert 0 < taken.sum() < B
    expected = (cross_entropies(strong @ rows.weights[0].T, labels) * taken).sum() / B
    term = made("fixmatch", confidence=0.8, fixmatch_weight=2.0)
    torch.testing.assert_close(term(out), 2 * expected)
    assert len(seen) == 1
    assert seen[0][0] is strong
    assert term.describe(out) == {"confident_share": pytest.approx(float(taken.float().mean()))}
    grad = torch.autograd.grad(term(out), out.extracted, allow_unused=True)
    assert grad == (None,)  # of the weak view


def test_fixmatch_on_two_dropout_views():
    rows, seen, generator = Rows(), [], torch.Generator().manual_seed(8)
    out = replace(rows.out(range(B)), network=logged(seen, 4 * rows.weights[0]), generator=lambda: generator)
    before = generator.get_state()
    loss = made("fixmatch", view_dropout=0.3)(out)
    (weak, weak_grad), (strong, strong_grad) = seen
    assert (weak_grad, strong_grad) == (False, True)
    x = out.inputs[1]
    assert not torch.equal(weak, strong)
    for view in (weak, strong):
        assert 0.1 < (view != x).float().mean() < 0.5
    sure, labels = (weak @ (4 * rows.weights[0]).T).softmax(1).max(1)
    expected = (cross_entropies(strong @ (4 * rows.weights[0]).T, labels) * (sure > 0.9)).sum() / B
    torch.testing.assert_close(loss, expected)
    assert loss > 0
    assert torch.equal(generator.get_state(), before)  # the draws of others stay what they are


def test_a_further_pass_moves_no_average_no_memory_and_no_dropout_of_others(config):
    """With and without FixMatch beside DANN, whose discriminator drops values."""
    ends, shares = [], []
    for weight in (0.0, 1.0):
        run = changed(config, method="dann", target_terms=("fixmatch", "mi"), confidence=0.0, lr=1e-12)
        trainer = make_trainer(make_task(changed(run, term_weight={"fixmatch": weight}, momentum=0.0)))
        trainer.fill_memory()
        memory = trainer.statistics.of("target", "memory", 0)
        said = trainer.step(describe=True)
        shares.append(said.get("gradient_share", {}).get("fixmatch"))
        ends.append((said["domain"], said["discriminator_accuracy"], memory.features.clone()))
        ends[-1] += tuple(v for k, v in trainer.model.state_dict().items() if "running" in k or "tracked" in k)
    for a, b in zip(*ends, strict=True):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    assert int(ends[0][-1]) == 2  # one pass of each domain: dann forwards them apart
    assert shares[0] is None
    assert shares[1] > 0.05  # what it pulls at the features of its own pass


def test_further_passes_have_dropout_of_their_own_by_seed_and_step(config):
    run = changed(config, tsa=False, method="mcd", target_terms=("fixmatch",), confidence=0.0)
    trainers = [make_trainer(make_task(run)) for _ in range(2)]
    found = []
    for trainer in trainers:
        trainer.at += 1
        out, _ = trainer.forward(trainer.batches.at(1), 0.1)
        torch.rand(3)  # what others draw is no matter
        found.append([out.network(out.inputs[1])[1] for _ in range(2)])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(*found[0])


def test_a_batch_is_a_set():
    """The order of the rows in a batch is no matter."""
    order = [3, 1, 0, 2, 4]
    for name, settings in VARIANTS:
        still = {"view_dropout": 0.0} if name == "fixmatch" else {}  # what a row loses depends on its place
        values = [made(name, **settings, **still)(Rows().out(batch)) for batch in (sorted(order), order)]
        torch.testing.assert_close(*values)


def test_the_target_is_needed():
    out = replace(Rows().out([0, 1]), target=None)
    for name in NEW:
        with pytest.raises(ValueError, match="not forwarded"):
            made(name)(out)


PRIORED = ["mi", "shot", "bnm", "mcc", "atdoc", "aad"]
"""Terms that favour even classes."""


@pytest.mark.parametrize("name", PRIORED)
def test_a_class_prior_reaches_every_term_that_favours_even_classes(name):
    shares = {"0": 0.7, "1": 0.2, "2": 0.1}

    def loss(**settings):
        rows, term = Rows(), made(name, **settings)
        term(rows.out(range(10, 30), progress=0.2))  # something to remember
        return term(rows.out(range(10), progress=0.5))

    uniform, given = loss(), loss(class_prior=shares)
    torch.testing.assert_close(loss(class_prior={"0": 1.0, "1": 1.0, "2": 1.0}), uniform)
    assert not torch.isclose(uniform, given)
    estimated = TARGET_TERMS[name](replace(context(), class_shares=lambda: torch.tensor([0.7, 0.2, 0.1])))
    assert "prior" not in estimated.state_dict()
    term = TARGET_TERMS[name](
        replace(context(), class_shares=lambda: torch.tensor([0.7, 0.2, 0.1])), class_prior="estimated"
    )
    assert term.state_dict()["prior"].tolist() == [0, 0, 0]  # nothing is estimated before it is needed
    rows = Rows()
    term(rows.out(range(10, 30), progress=0.2))
    torch.testing.assert_close(term(rows.out(range(10), progress=0.5)), given)
    torch.testing.assert_close(term.state_dict()["prior"], torch.tensor([0.7, 0.2, 0.1]))


def test_estimated_shares_are_estimated_once():
    calls = []

    def shares():
        calls.append(1)
        return torch.tensor([0.7, 0.2, 0.1])

    term = TARGET_TERMS["bnm"](replace(context(), class_shares=shares), class_prior="estimated")
    for _ in range(3):
        term(Rows().out(range(B)))
    resumed = TARGET_TERMS["bnm"](replace(context(), class_shares=shares), class_prior="estimated")
    resumed.load_state_dict(term.state_dict())
    resumed(Rows().out(range(B)))
    assert len(calls) == 1
    nothing = TARGET_TERMS["bnm"](context(), class_prior="estimated")
    with pytest.raises(ValueError, match="nothing here estimates"):
        nothing(Rows().out(range(B)))


def test_remarks_name_missing_and_dominant_classes():
    term = made("mcc")
    assert term.remarks(torch.tensor([0.34, 0.33, 0.33])) == []
    (said,) = term.remarks(torch.tensor([0.85, 0.14, 0.01]))
    assert "hardly any rows of 2; 85% of all rows are 0" in said
    assert "--class-prior estimated" in said
    estimated = TARGET_TERMS["mcc"](
        replace(context(), class_shares=lambda: torch.tensor([0.9, 0.09, 0.01])), class_prior="estimated"
    )
    estimated(Rows().out(range(B)))
    (said,) = estimated.remarks(torch.tensor([1 / 3] * 3))
    assert said.startswith("Class shares of the target, estimated: 0 90%, 1 9%, 2 1%. The target seems uneven")
