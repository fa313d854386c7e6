"""The content of a small budget file, as 0.1.0 wrote it."""

SCHEME = {"certified": 30, "typical": 24, "typical_reliable": True, "median_error": 0.01}
HEAD = {
    "head": 0,
    "scheme": "top-k",
    "tokens": 30,
    "stored": 48,
    "kind": "diffuse",
    "thinnable": True,
    "keep": "the best keys",
    "sink": 0,
    "sink_weight": 0.2,
    "score_std": 1.1,
    "frozen": 0.0,
    "effective_tokens": 12.5,
    "sees_all": False,
    "by_text": [28, 30],
    "held_out": 1.0,
    "varies": False,
    "schemes": {
        "sample": SCHEME | {"certified": None, "typical": None, "typical_reliable": False},
        "top-k": SCHEME,
        "local": SCHEME | {"certified": 48, "typical": 48},
        "top-k + sample": SCHEME | {"certified": 33},
    },
    "extrapolated": {"10x": {"sample": 480, "top-k": 300, "local": None, "top-k + sample": 90}},
}
OLD = {
    "schema": "attnlimit.budget/1",
    "source": {"model": "made", "layers": 1, "heads": 1, "tokens": 48},
    "epsilon": 0.1,
    "delta": 0.05,
    "quantile": 0.99,
    "context": 48,
    "key_value_heads": 1,
    "key_value_width": 16,
    "memory": {"full": 1536, "read": 960, "stored": 1536},
    "layers": [{"layer": 0, "tokens": 30, "heads": [HEAD]}],
}
