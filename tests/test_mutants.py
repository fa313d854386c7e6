"""Mutations change formulas and nothing else, and are found in their functions."""

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
    result = mutants.mutations("law.py", TEXT)
    assert {ast.unparse(ast.parse(entry.before)) for entry in result} >= {
        "x < 1",
        "np.maximum(x, 2) ** 2 / 2 - np.sum(x, axis=1)",
        "np.maximum(x, 2)",
        "2",
    }
    assert not any("BLOCK" in entry.before or entry.before == "axis" for entry in result)
    assert not any(entry.line == 7 for entry in result)  # the error's text
    for entry in result:
        ast.parse(entry.applied(TEXT))
        assert entry.applied(TEXT) != TEXT
    assert len({entry.key(TEXT) for entry in result}) == len(result)
    assert result[0].key(TEXT) != result[0].key(TEXT + "\n")


def test_letters_of_two_bytes_do_not_shift_the_places():
    (result, *_) = mutants.mutations("law.py", 'x = "α", a + b\n')
    assert result.applied('x = "α", a + b\n') == 'x = "α", (a - b)\n'


NESTED = """
HALF = 0.5

class Law:
    scale = 2.0

    @cache
    def value(self, x=1.0):
        def square(y):
            return y * y
        return square(x)
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [(2, "<module>"), (5, "<module>"), (7, "Law.value"), (8, "Law.value"), (11, "Law.value"),
     (10, "Law.value.<locals>.square")],
)  # fmt: skip
def test_a_line_is_in_its_innermost_function(line, name):
    assert mutants.function_at(NESTED, line) == name


@pytest.mark.parametrize("package", mutants.PACKAGES)
def test_every_package_has_formulas_and_tests(package):
    drawn = mutants.sample(mutants.ROOT / "src" / "attnlimit", [package], 50, 0)
    assert len(drawn) == 50
    own, others = mutants.test_files(drawn[0].module)
    assert any(file.startswith(f"tests/{package}/") for file in own + others)


def test_tests_of_a_module_are_named_like_it_or_import_it():
    own, others = mutants.test_files("theory/covariance.py")
    assert "tests/theory/test_covariance.py" in own
    assert "tests/test_audit.py" in others
    assert not set(own) & set(others)


def test_reasons_of_survivors_are_kept(tmp_path):
    chosen, page = mutants.mutations("law.py", TEXT), tmp_path / "mutants.md"
    mutants.write_list(page, chosen, chosen[:2], "make mutants")
    assert page.read_text().count(" — ?\n") == 2
    page.write_text(page.read_text().replace(" — ?", " — an edge", 1))
    mutants.write_list(page, chosen, chosen[:1], "make mutants")
    assert page.read_text().endswith(" — an edge\n")
    assert f"{len(chosen) - 1} of {len(chosen)} mutations" in page.read_text()
