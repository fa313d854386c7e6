import numpy as np
import pandas as pd
import pytest

from attnlimit.bags import make_bags, read_bags
from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask
from drawn_bags import drawn


def as_table(bags):
    rows = [
        pd.DataFrame(bag, columns=[f"x{j}" for j in range(bag.shape[1])]).assign(bag=i, label=y)
        for i, (bag, y) in enumerate(zip(bags.instances, bags.labels, strict=True))
    ]
    return pd.concat(rows, ignore_index=True)


def test_csv_parquet_and_folders_hold_the_same_bags(tmp_path):
    bags = drawn(SparseTask(3, 1, 2.0), 12, 4, seed=0)
    table = as_table(bags)
    table.to_csv(tmp_path / "bags.csv", index=False)
    table.to_parquet(tmp_path / "bags.parquet")
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    flat.mkdir()
    for name in ("positive", "negative"):
        (nested / name).mkdir(parents=True)
    for i, (bag, y) in enumerate(zip(bags.instances, bags.labels, strict=True)):
        np.save(flat / f"{i}.npy", bag)
        np.save(nested / ("positive" if y > 0 else "negative") / f"{i}.npy", bag)
    pd.DataFrame({"bag": range(12), "label": bags.labels}).to_csv(flat / "labels.csv", index=False)
    for path in ("bags.csv", "bags.parquet", "flat", "nested"):
        result = read_bags(tmp_path / path)
        assert len(result) == 12
        total = sum(bag.sum() for bag in result.instances)
        assert total == pytest.approx(sum(bag.sum() for bag in bags.instances))
        assert sorted(result.signs) == sorted(bags.signs)


@pytest.mark.parametrize(
    ("bags", "labels", "word"),
    [
        ([], [], "no bags"),
        ([np.ones((2, 3))], [1, 0], "labels"),
        ([np.ones((2, 3)), np.ones((0, 3))], [1, 0], "empty"),
        ([np.ones((2, 3)), np.ones((2, 4))], [1, 0], "columns"),
        ([np.ones((2, 3)), np.ones((2, 3))], [1, 1], "both classes"),
        ([np.ones((2, 3))] * 3, [1, 2, 3], "two labels"),
        ([np.ones((2, 3)), np.full((2, 3), np.nan)], [1, 0], "NaN"),
        ([np.ones(3), np.ones((2, 3))], [1, 0], "axes"),
        ([np.ones((2, 3))], [1], "only one bag"),
        ([np.ones((1, 3)), np.ones((1, 3))], [1, 0], "one instance"),
        ([np.ones((2, 3))] * 3, ["tumor", "normal", "other"], "tumor"),
    ],
)
def test_bad_bags_are_refused_in_one_sentence(bags, labels, word):
    with pytest.raises(BadInput, match=word):
        make_bags(bags, labels)


def test_bags_keep_the_names_of_their_table(tmp_path):
    rows = [f"b{bag},{bag % 2},{bag}.5,{k}" for bag in range(12) for k in range(2)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,x,y", *rows]))
    bags = read_bags(tmp_path / "bags.csv")
    named = {bags.name(k): bags.instances[k][0, 0] for k in range(len(bags))}
    assert named == {f"b{bag}": bag + 0.5 for bag in range(12)}
    assert bags.subset([3, 1]).names == (bags.name(3), bags.name(1))
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,x,y", *rows]).replace("10.5", ""))
    with pytest.raises(BadInput, match="bag b10 contains NaN"):
        read_bags(tmp_path / "bags.csv")


def test_bad_files_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="no file"):
        read_bags(tmp_path / "missing.csv")
    (tmp_path / "bags.txt").write_text("a")
    with pytest.raises(BadInput, match="csv"):
        read_bags(tmp_path / "bags.txt")
    (tmp_path / "bags.csv").write_text("group,label,x\n1,0,2\n")
    with pytest.raises(BadInput, match="'bag'"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n1,0,2\n1,1,3\n")
    with pytest.raises(BadInput, match=r"bag 1 of bags\.csv has more than one label"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n")
    with pytest.raises(BadInput, match="no rows"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n1,0,2\n1,0,2\n2,3,3\n3,1,3\n")
    with pytest.raises(BadInput, match="there are 3 labels"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n1,0,red\n2,1,3\n")
    with pytest.raises(BadInput, match="1 of 2 rows that are not numbers, such as 'red'"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("bag,label,x\n1,0,2,5\n2,1,3\n")
    with pytest.raises(BadInput, match="more cells than the header"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "bags.csv").write_text("")
    with pytest.raises(BadInput, match="no rows"):
        read_bags(tmp_path / "bags.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="positive"):
        read_bags(tmp_path / "empty")
    (tmp_path / "bags.parquet").write_bytes(b"not parquet")
    with pytest.raises(BadInput, match="could not be read"):
        read_bags(tmp_path / "bags.parquet")
