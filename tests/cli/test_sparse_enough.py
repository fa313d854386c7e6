import json

import pandas as pd
import pytest

from attnlimit.cli.main import main
from attnlimit.sparse import SparseTask


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["sparse", "enough", *map(str, arguments)])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    X, y = SparseTask(5, 1, 6.0).sample(12, 3, seed=0)
    rows = [
        pd.DataFrame(bag, columns=list("abc")).assign(bag=i, label=label)
        for i, (bag, label) in enumerate(zip(X, y, strict=True))
    ]
    file = tmp_path_factory.mktemp("bags") / "bags.csv"
    pd.concat(rows).to_csv(file, index=False)
    return file


def test_enough_prints_and_writes_a_page(capsys, path, tmp_path):
    pytest.importorskip("sklearn")
    asked = ["--n", "3", "--sampler", "iid", "--sampler", "top-k", "--pooling", "mean"]
    code, out, err = run(capsys, path, *asked, "--draws", "20", "--out", tmp_path, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {row["sampler"] for row in found["table"]} == {"i.i.d.", "top k"}
    assert set(found["enough"]) == {"i.i.d.", "top k"}
    assert (tmp_path / "enough.html").exists()
    assert (tmp_path / "sparse-enough.csv").exists()


def test_a_gated_attention_of_your_own_is_read(capsys, path, tmp_path):
    import torch

    layers = {"fc1": torch.nn.Linear(3, 2), "fc2": torch.nn.Linear(2, 1, bias=False)}
    torch.save(torch.nn.ModuleDict(layers).state_dict(), tmp_path / "net.pt")
    asked = ["--attention", tmp_path / "net.pt", "--n", "2", "--sampler", "iid", "--draws", "5"]
    code, out, err = run(capsys, path, *asked)
    assert code == 0, err
    assert "feature error" in out
    (tmp_path / "bad.pt").write_bytes(b"no")
    code, _, err = run(capsys, path, "--attention", tmp_path / "bad.pt")
    assert code == 2
    assert err.strip().count("\n") == 0


def test_a_wrong_pooling_or_size_is_one_sentence(capsys, path):
    wrongs = {
        "--pooling max": "--pooling must be one of",
        "--n 1": "--n must be at least 2",
        "--sampler best": "There is no sampler 'best'",
        "--attention none.pt": "There is no file none.pt",
    }
    for wrong, message in wrongs.items():
        code, _, err = run(capsys, path, *wrong.split())
        assert code == 2
        assert message in err
        assert err.strip().count("\n") == 0
