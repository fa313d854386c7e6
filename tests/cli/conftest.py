"""Commands run in this process, and small runs of every kind that they made."""

from contextlib import nullcontext

import pytest


@pytest.fixture(scope="session")
def here():
    """Shards are computed in this process: starting others would take longer than the work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlimit.runs.ProcessPool", lambda workers: nullcontext())
        yield


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Two texts in files; one's name and content try to be markup."""
    folder = tmp_path_factory.mktemp("texts")
    first, second = folder / "first.txt", folder / "<b>second.txt"
    first.write_text("The quick brown fox jumps over the lazy dog beside the river. " * 16)
    second.write_text("<script>alert(1)</script> Attention weighs every token of a text. " * 16)
    return first, second


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """Run folders of a synthetic and a sparse experiment, two of each."""
    from attnlimit.reproduce import execute, load

    sizes = {
        "clt": {"horizons": [0.5], "n": [20, 50], "replicates": 20, "block": 10},
        "sparse-separation": {"lengths": [16, 32], "draws": 200, "longest_drawn": 16},
    }
    root = tmp_path_factory.mktemp("runs")
    results = {}
    for name, smaller in sizes.items():
        experiment = load(name)
        for seed in (0, 1):
            config = experiment.config(False) | smaller | {"seed": seed}
            results.setdefault(name, []).append(str(execute(experiment, config, root).path))
    return results
