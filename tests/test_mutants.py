"""Mutations change formulas and nothing else, and every module that they change has tests."""

import ast

import pytest

import mutants

TEXT = '''"""A module."""
BLOCK = 64

def law(x: float, axis: int = 0) -> float:
    """Half of x squared, for x above 1."""
    if x < 1:
        raise ValueError(f"x is {x + 1}")
    return np.maximum(x, 2) ** 2 / 2 - np.sum(x, axis=1)
'''


def test_mutations_are_formulas_that_can_be_run():
    found = mutants.mutations("law.py", TEXT)
    assert {ast.unparse(ast.parse(one.before)) for one in found} >= {
        "x < 1",
        "np.maximum(x, 2) ** 2 / 2 - np.sum(x, axis=1)",
        "np.maximum(x, 2)",
        "2",
    }
    assert not any("BLOCK" in one.before or one.before == "axis" for one in found)
    assert not any(one.line == 7 for one in found)  # the error's text
    for one in found:
        ast.parse(one.applied(TEXT))
        assert one.applied(TEXT) != TEXT
    assert len({one.key(TEXT) for one in found}) == len(found)
    assert found[0].key(TEXT) != found[0].key(TEXT + "\n")


def test_letters_of_two_bytes_do_not_shift_the_places():
    (one, *_) = mutants.mutations("law.py", 'x = "α", a + b\n')
    assert one.applied('x = "α", a + b\n') == 'x = "α", (a - b)\n'


@pytest.mark.parametrize("package", mutants.PACKAGES)
def test_every_module_has_tests(package):
    for drawn in mutants.sample(mutants.ROOT / "src" / "attnlimit", [package], 50, 0):
        assert mutants.tests_of(drawn.module), drawn.module
