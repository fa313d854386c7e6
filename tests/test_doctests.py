"""Examples of public docstrings, run as they are printed."""

import doctest
import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
public_names = pytest.importorskip("public_names", reason="needs the extra `docs`").public_names

NAMES = {name for names in public_names().values() for name in names}
MAIN = """
    Curve Empirical Gaussian Head Keep Mixture Sphere Threshold TopK budget fit_rate from_sampler
    gaussian_law hardmax_error horizon limit mean_covariance measure pointwise_error predict rate
    uniform_bound bags.AttentionPooling bags.MeanPooling bags.make_bags bags.plan
    models.from_arrays sparse.SparseTask.sample sparse.bayes_error sparse.capacity
    sparse.oracle_error sparse.query_alignment sparse.readout
""".split()  # noqa: SIM905


def examples(name):
    module, _, last = name.rpartition(".")
    thing = getattr(import_module(module), last)
    tests_of = doctest.DocTestFinder(recurse=inspect.isclass(thing)).find(thing, name, globs={})
    return [test for test in tests_of if test.examples]


RUNS = [test for name in sorted(NAMES) for test in examples(name)]


@pytest.mark.parametrize("test", RUNS, ids=lambda test: test.name)
def test_an_example_prints_what_it_says(test):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    lines: list[str] = []
    runner.run(test, out=lines.append)
    assert runner.failures == 0, "".join(lines)


def test_the_main_names_have_an_example():
    shown = {test.name for test in RUNS}
    assert [name for name in MAIN if not {f"attnlimit.{name}"} & shown] == []
