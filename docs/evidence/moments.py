"""Mean and covariance of the outputs: studies of two-query laws against draws."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table
from evidence.cells import measured, number, numbers, once, pairs, power, setting
from evidence.studies import Study


def _by_scale(rows: pd.DataFrame) -> dict[str, object]:
    """Scale, horizon and n, the first two where they change."""
    settings = [
        f"{power(one.scale)}, {number(one.horizon, 2)}" for one in rows.itertuples(index=False)
    ]
    return {"scale, H": once(settings), "n": rows["n"]}


@table("python studies/finite_n_covariance.py", says="against measured")
def covariance_by_scale(study: Study) -> pd.DataFrame:
    """The root mean square error of the covariance, from weak to frozen attention."""
    rows = study.table
    predicted = pairs(rows, "predicted", "prediction_error")
    return pd.DataFrame({**_by_scale(rows), "measured": pairs(rows), "predicted": predicted})


@table("python studies/finite_n_moments.py", says="against measured")
def mean_by_scale(study: Study) -> pd.DataFrame:
    """The root mean square error of the mean, by the two-query law and the delta method."""
    rows = study.table
    return pd.DataFrame(
        {
            **_by_scale(rows),
            "measured": pairs(rows),
            "two-query law": pairs(rows, "predicted", "prediction_error"),
            "delta": numbers(rows["delta"], 4),
        }
    )


@table("python studies/sphere_mean.py", says="against measured")
def mean_on_small_spheres(study: Study) -> pd.DataFrame:
    """n times the mean squared error of the mean, in few dimensions."""
    rows = study.table
    predicted = pairs(rows, "predicted", "prediction_error")
    by = {"d": once(rows["dim"]), **_by_scale(rows)}
    return pd.DataFrame({**by, "measured": pairs(rows), "predicted": predicted})


@table("python studies/captured_covariance.py", says="against measured")
def covariance_of_heads(study: Study) -> pd.DataFrame:
    """Predicted over measured squared errors of the covariance, with the errors of both."""
    rows = study.table
    ratio = rows["predicted"] / rows["measured"]
    share = ratio * rows["stderr"] / rows["measured"]
    return pd.DataFrame(
        {
            "layer, head": once(rows["layer"].map(setting) + ", " + rows["head"].map(setting)),
            "n": rows["n"],
            "predicted / measured, ± stated error": [
                measured(*both)
                for both in zip(ratio, rows["prediction_error"] / rows["measured"], strict=True)
            ],
            "± of the draws": numbers(share, 1),
        }
    )
