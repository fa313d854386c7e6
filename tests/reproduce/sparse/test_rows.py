"""How rows of sparse experiments are compared."""

import numpy as np
import pandas as pd

from attnlimit.reproduce.compare import is_beyond, with_z
from attnlimit.reproduce.sparse_rows import at_size


def test_a_share_that_no_draw_could_show_is_none():
    rows = pd.DataFrame(
        {
            "quantity": ["train_error", "train_error", "train_loss"],
            "predicted": [1e-107, 0.1, 1e-9],
            "measured": [0.0, 0.0, 1e-9],
            "stderr": [0.0, 0.0, 1e-11],
        }
    )
    result = at_size(rows, dim=1000, draws=4)
    assert result["predicted"].tolist() == [0.0, 0.1, 1e-9]
    assert is_beyond(result).tolist() == [False, True, False]
    assert np.isnan(with_z(result)["z"].iloc[0])
