"""Real data in: every kind of file that holds bags, and sentences for those that do not."""

import numpy as np
import pandas as pd
import pytest

from attnlimit.bags import read_bags
from attnlimit.errors import BadInput

RNG = np.random.default_rng(0)
BAGS = [RNG.standard_normal((n, 2)) for n in (2, 3, 1, 4)]
LABELS = [1, 0, 1, 0]


def table():
    return np.concatenate(
        [
            np.column_stack([np.full(len(bag), y), np.full(len(bag), i + 1), bag])
            for i, (bag, y) in enumerate(zip(BAGS, LABELS, strict=True))
        ]
    )


def same(bags):
    assert [len(bag) for bag in bags.instances] == [2, 3, 1, 4]
    np.testing.assert_allclose(np.concatenate(bags.instances), np.concatenate(BAGS), rtol=1e-6)
    assert bags.signs.tolist() == [1, -1, 1, -1]


def test_columns_of_a_table_without_header_are_numbered(tmp_path):
    file = tmp_path / "musk.csv"
    np.savetxt(file, table(), delimiter=",")
    same(read_bags(file, bag="1", label="0"))
    np.savetxt(file, table()[:, [2, 3, 0, 1]], delimiter=",")
    same(read_bags(file, bag="3", label="2"))
    with pytest.raises(BadInput, match="columns from 0 to 3"):
        read_bags(file, bag="id", label="2")
    with pytest.raises(BadInput, match="--label 0 --bag 1"):
        read_bags(file)


def test_usual_names_of_columns_are_found(tmp_path):
    file = tmp_path / "slides.csv"
    frame = pd.DataFrame(table(), columns=["Class", "slide_id", "a", "b"])
    frame.to_csv(file, index=False)
    same(read_bags(file))
    frame.assign(target=frame["Class"]).to_csv(file, index=False)
    with pytest.raises(BadInput, match="--label"):
        read_bags(file)
    frame.assign(Class=np.nan).to_csv(file, index=False)
    with pytest.raises(BadInput, match="without a value"):
        read_bags(file)


def save(file, bag):
    if file.suffix == ".npy":
        np.save(file, bag)
    elif file.suffix == ".npz":
        np.savez(file, features=bag, coords=bag[:, :1])
    elif file.suffix == ".pt":
        import torch

        torch.save(torch.tensor(bag), file)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(file, "w") as held:
            held["features"], held["coords"] = bag, bag[:, :1]


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt", ".h5"])
def test_a_folder_may_hold_arrays_of_any_kind(tmp_path, suffix):
    for i, bag in enumerate(BAGS):
        save(tmp_path / f"slide.{i}{suffix}", bag)
    names = [f"slide.{i}" for i in range(4)]
    frame = pd.DataFrame({"slide_id": names, "label": LABELS})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    same(read_bags(tmp_path))
    (tmp_path / f"slide.0{suffix}").write_bytes(b"damaged")
    with pytest.raises(BadInput, match=r"slide\.0.* could not be read"):
        read_bags(tmp_path)


def test_no_pickle_is_run(tmp_path):
    import torch

    class Hostile:
        def __reduce__(self):
            return (exec, ("raise SystemExit",))

    for name in ("positive", "negative"):
        (tmp_path / name).mkdir()
        torch.save({"features": Hostile()}, tmp_path / name / "a.pt")
    with pytest.raises(BadInput, match="could not be read"):
        read_bags(tmp_path)
    np.savez(tmp_path / "negative" / "a.npz", one=BAGS[0], other=BAGS[0])
    (tmp_path / "negative" / "a.pt").unlink()
    (tmp_path / "positive" / "a.pt").unlink()
    with pytest.raises(BadInput, match="'features'"):
        read_bags(tmp_path)
