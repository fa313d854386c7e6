"""Every script of the gallery runs, smaller where it would be slow, and draws or prints."""

from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SMALLER = {  # the same script with fewer draws, tokens or articles
    "cooling_schedule": {"np.arange(1, 13,": "np.arange(1, 13, 3,"},
    "finite_n_moments": {"[250, 1000, 4000]": "[250, 500, 1000]", "else 40": "else 6"},
    "heavy_tails": {"np.arange(4, 18, 2)": "np.arange(4, 14, 3)"},
    "measure_rate": {"[250, 500, 1000, 2000]": "[125, 250, 500, 1000]"},
    "measure_standard_errors": {"else 500": "else 200"},
    "models_choose_scheme": {"max_length=256": "max_length=128"},
    "models_predict_heads": {"max_length=256": "max_length=128"},
    "plan_budget": {"TOKENS = 256": "TOKENS = 96", "queries=64": "queries=16"},
    "plan_output": {"TOKENS = 192": "TOKENS = 96"},
    "plan_transfer": {"TOKENS = 512": "TOKENS = 128", "head, 128": "head, 32", "else 18": "else 6"},
    "sparse_learning_curves": {'"replicates": 6': '"replicates": 2'},
    "sparse_needle": {"np.arange(4, 21, 4)": "np.arange(4, 21, 8)"},
    "spend_generation": {
        "default=96": "default=32",
        "default=16": "default=4",
        "default=8": "default=3",
    },
    "uniform_bound": {"REPLICATES = 20": "REPLICATES = 3", "N = 10_000": "N = 4000"},
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_runs(script, tmp_path, monkeypatch, capsys):
    source = script.read_text()
    for size, smaller in SMALLER.get(script.stem, {}).items():
        assert source.count(size) == 1
        source = source.replace(size, smaller)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    exec(compile(source, str(script), "exec"), {"__name__": "__main__"})
    if "gallery" not in source:
        assert len(capsys.readouterr().out.splitlines()) > 3
        return
    picture = tmp_path / "gallery" / f"{script.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
