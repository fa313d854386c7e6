"""The examples of CONTRIBUTING.md run as they are printed, each in a file of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
SECTIONS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S)
EXAMPLES = {
    title: code
    for title, text in SECTIONS
    for code in re.findall(r"```python\n(.*?)```", text, re.S)
}


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_kind_of_extension_has_an_example():
    kinds = {"A distribution", "A sampler", "An eviction rule", "A target", "An experiment"}
    assert set(EXAMPLES) == kinds


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_runs(title, tmp_path):
    if "attnlimit.models" in EXAMPLES[title]:
        pytest.importorskip("transformers")
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES[title])
    assert run(file) or title == "An experiment"


def test_the_example_of_an_experiment_is_reproduced(tmp_path):
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES["An experiment"])
    sizes = ["--set", "n=[10,50]", "--set", "replicates=200", "--workers", "1"]
    out = run("-m", "attnlimit", "reproduce", file, *sizes, "--out", tmp_path / "runs")
    assert "predictions are within" in out


POINTS = """
[attnlimit.samplers]
nearby = a_sampler:Nearby
[attnlimit.eviction_rules]
oldest = an_eviction_rule:Oldest
[attnlimit.targets]
embedding = a_target:EmbeddingError
[attnlimit.experiments]
uniform-mean = an_experiment:EXPERIMENT
"""
USE = """
from attnlimit.models.eviction.rules import RULES, parse_rule, rule_from_dict, rule_to_dict
from attnlimit.planning.target import target_of
from attnlimit.reproduce.experiment import available
from attnlimit.samplers import parse_sampler, sampler_names, sampler_spec

rule = parse_rule("oldest:0.4")
assert type(rule).__name__ == "Oldest" and rule_from_dict(rule_to_dict(rule)) == rule
assert sampler_spec(parse_sampler("nearby:8.0")) == "nearby:8.0"
assert target_of("embedding", 0.01).describe(0.01)
assert {"nearby"} <= {*sampler_names()} and {"oldest"} <= {*RULES.names()}
assert "uniform-mean" in available()
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install the examples as a package that names them by entry points."""
    for title, code in EXAMPLES.items():
        (tmp_path / f"{title.lower().replace(' ', '_')}.py").write_text(code)
    about = tmp_path / "examples-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.usefixtures("installed")
def test_examples_of_an_installed_package_are_found_by_their_names(tmp_path):
    pytest.importorskip("transformers")
    run("-c", USE)
    sizes = ["--set", "n=[10,50]", "--set", "replicates=200", "--workers", "1"]
    out = run("-m", "attnlimit", "reproduce", "uniform-mean", *sizes, "--out", tmp_path / "runs")
    assert "predictions are within" in out
