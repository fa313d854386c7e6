import numpy as np
import pytest

import attnlimit as al
from attnlimit.bags import GatedAttention, InstanceBudget, ScoredBags
from attnlimit.bags import instances as enough
from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask
from drawn_bags import drawn

TASK = SparseTask(length=12, signals=1, strength=6.0)
EVERY = (al.Iid(), al.WithoutReplacement(), al.TopK(1), al.Threshold(1.0))


@pytest.fixture(scope="module")
def bags():
    return drawn(TASK, 12, 6, seed=0)


@pytest.fixture(scope="module")
def budget(bags):
    pytest.importorskip("sklearn")
    pooling = al.bags.AttentionPooling(sharpness=1.0)
    return enough(bags, pooling, [3], samplers=EVERY, draws=800, change=0.05)


def test_predictions_are_what_is_drawn(budget):
    assert isinstance(budget, InstanceBudget)
    assert budget.held_out
    table = budget.to_frame()
    off = (table["predicted"] - table["measured"]).abs()
    assert (off <= 4.5 * table["stderr"] + 0.004 * table["measured"].abs() + 1e-9).all(), table
    assert set(table["quantity"]) == {
        "feature error",
        "log-odds error",
        "decision changed",
        "signal drawn",
    }


def test_the_n_that_is_enough_is_the_smallest(budget, bags):
    n = budget.enough["without replacement"]
    assert n is not None
    pooling = al.bags.AttentionPooling(sharpness=1.0)
    wanted = [n - 1, n]
    table = enough(bags, pooling, wanted, samplers=al.WithoutReplacement(), draws=2).to_frame()
    changed = table[table["quantity"] == "decision changed"]["predicted"].to_numpy()
    assert changed[0] > 0.05 >= changed[1]
    assert str(n) in str(budget)
    assert budget.read["without replacement"] == pytest.approx(n)
    assert budget.read["i.i.d."] < budget.enough["i.i.d."]


def test_reading_everything_changes_nothing(bags):
    fitted = al.bags.MeanPooling().fit(bags.instances, bags.labels)
    table = enough(bags.instances, fitted, [12], samplers=al.WithoutReplacement(), draws=2)
    frame = table.to_frame().set_index("quantity")
    assert not table.held_out
    np.testing.assert_allclose(frame.loc["feature error", ["predicted", "measured"]], 0, atol=1e-9)
    assert frame.loc["decision changed", "predicted"] == 0


def test_gated_attention_is_the_modules(bags):
    import torch

    def gated(names):
        torch.manual_seed(0)
        module = torch.nn.Module()
        for name, layer in zip(names, (linear(6, 4), linear(6, 4), linear(4, 1)), strict=True):
            plain = not name.endswith(".0")
            module.add_module(name[:-2] if not plain else name, layer[0] if plain else layer)
        return module

    def linear(rows, columns):
        return torch.nn.Sequential(torch.nn.Linear(rows, columns))

    clam = ("attention_a.0", "attention_b.0", "attention_c")
    module, other = gated(clam), gated(("fc1", "fc_gated", "fc2"))
    h = torch.tensor(bags.instances[0], dtype=torch.float32)
    inner = torch.tanh(module.attention_a(h)) * torch.sigmoid(module.attention_b(h))
    expected = module.attention_c(inner)[:, 0].detach().numpy()
    own = GatedAttention.from_state({f"net.{k}": v for k, v in module.state_dict().items()})
    constant = float(module.attention_c.bias.detach())
    np.testing.assert_allclose(own.scores(bags.instances[0]) + constant, expected, atol=1e-5)
    first, second = (
        enough(bags, entry, [3], samplers=al.Iid(), draws=2).to_frame() for entry in (module, other)
    )
    assert set(first["quantity"]) == {"feature error"}
    np.testing.assert_allclose(first["predicted"], second["predicted"])


def test_any_module_that_scores_and_arrays_of_scores_are_the_same(bags):
    import torch

    module = torch.nn.Linear(6, 1)
    features = [torch.tensor(bag, dtype=torch.float32) for bag in bags.instances]
    scores = [module(feature)[:, 0].detach().numpy() for feature in features]
    brought = ScoredBags(scores, bags.instances)
    actual, other = (
        enough(bags, pooling, [4], samplers=al.Iid(), draws=2) for pooling in (module, brought)
    )
    np.testing.assert_allclose(actual.to_frame()["predicted"], other.to_frame()["predicted"])
    assert actual.enough == {}


def test_marked_signals_are_counted(bags):
    marks = [np.arange(12) < 2] * 12
    pooling = al.bags.MeanPooling().fit(bags.instances, bags.labels)
    table = enough(bags, pooling, [3], samplers=al.Iid(), signal=marks, draws=20).to_frame()
    drawn_at_all = table.set_index("quantity").loc["signal drawn"]
    assert drawn_at_all["predicted"] == pytest.approx(1 - (10 / 12) ** 3)
    assert drawn_at_all["bags"] == 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bags: enough(bags, object()), "not an attention pooling"),
        (lambda bags: enough(bags.instances, al.bags.MeanPooling()), "not fitted"),
        (lambda bags: enough(None, al.bags.MeanPooling()), "bags are needed"),
        (lambda bags: enough(bags, al.bags.MeanPooling(), [1]), "at least 2"),
        (lambda bags: enough(bags, al.bags.MeanPooling(), samplers=[]), "samplers is empty"),
        (lambda bags: enough(bags, al.bags.MeanPooling(), [10**9]), "n times draws"),
        (lambda bags: enough([], al.bags.MeanPooling()), "there are no bags"),
        (lambda bags: enough(bags, GatedAttention(np.ones((3, 5)), np.ones(3))), "5 features"),
        (lambda bags: GatedAttention(np.ones((3, 5)), np.ones(4)), "hidden"),
        (lambda bags: GatedAttention.from_state({"x": np.ones(2)}), "no gated attention"),
        (lambda bags: ScoredBags([np.ones(2)], [np.ones((3, 2))]), "one score for each"),
        (lambda bags: ScoredBags([np.ones(3)], [np.ones((3, 2))], np.ones(4)), "one dimension"),
        (lambda bags: enough(bags.subset([0, 1, 2]), al.bags.MeanPooling()), "only one bag"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(bags, call, message):
    with pytest.raises(BadInput, match=message):
        call(bags)
