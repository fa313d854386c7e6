"""Labelled texts come from a CSV file or from a folder for each label."""

import pytest

from attnlimit.errors import BadInput
from attnlimit.models.load.labelled import read_labelled


def test_a_csv_and_folders_say_the_same(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('text,label\n"Cats, and\ndogs",pets\nBonds fell,money\n')
    for label, text in (("pets", "Cats, and\ndogs"), ("money", "Bonds fell")):
        (tmp_path / "folders" / label).mkdir(parents=True)
        (tmp_path / "folders" / label / "one.txt").write_text(text)
    first, second = read_labelled(str(table)), read_labelled(str(tmp_path / "folders"))
    assert set(zip(first.texts, first.labels, strict=True)) == set(
        zip(second.texts, second.labels, strict=True)
    )
    assert len(first) == 2
    table.write_text("text,label\nCats,pets\nBonds fell,money\n")
    assert read_labelled(str(table)).sha256 != first.sha256


def test_what_is_missing_is_said(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("text,kind\nCats,pets\n")
    with pytest.raises(BadInput, match="no column label"):
        read_labelled(str(table))
    table.write_text("text,label\nCats,pets\nDogs,pets\n")
    with pytest.raises(BadInput, match="two labels"):
        read_labelled(str(table))
    with pytest.raises(BadInput, match="no folders"):
        read_labelled(str(tmp_path))
    with pytest.raises(BadInput, match="There is no text"):
        read_labelled(str(tmp_path / "nothing.csv"))
