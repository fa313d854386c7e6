"""Text may be anything: it is read or captured, or refused in one sentence."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.models.texts import read_corpus, split_tokens
from fuzz.hostile import damaged, json_values, one_sentence, share, strange_numbers, strange_text

transformers = pytest.importorskip("transformers")

from attnlimit.models import capture, load  # noqa: E402

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##a", "##b", ".", "é")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7")

contents = (
    st.binary(max_size=400)
    | st.builds(
        lambda text, encoding: text.encode(encoding, "ignore"),
        st.text(max_size=100),
        st.sampled_from(ENCODINGS),
    )
    | damaged("Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.\r\n".encode() * 3)
    | st.builds(
        lambda piece, count: piece * count,
        st.sampled_from([b"a", b" ", b"\0", b"\n", b"\xff", "é".encode(), b"=", b"[[", b"\r"]),
        st.sampled_from([1, 1000, 300_000]),
    )
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


def use(source):
    with one_sentence():
        corpus = read_corpus(source)
        assert len(corpus) >= 1
        assert corpus.joined().strip()
        assert "\0" not in corpus.joined()
        assert corpus.source


@share(8)
@given(contents)
def test_files(place, content):
    (place / "a.txt").write_bytes(content)
    use(str(place / "a.txt"))


@share(2)
@given(st.lists(contents, max_size=3))
def test_folders(place, files):
    folder = place / "folder"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, content in enumerate(files):
        (folder / f"{number}.txt").write_bytes(content)
    use(str(folder))


@share(4)
@given(contents, st.sampled_from(["utf-8", "ascii", "latin-1", "utf-16"]))
def test_standard_input(content, locale):
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(content), locale)
    try:
        use("-")
    finally:
        sys.stdin = before


@share(1)
@given(
    strange_text
    | st.text(max_size=300)
    | strange_text.map("wikipedia:".__add__)
    | st.sampled_from(["../", "/x", "", "~", "b/c"]).map("wikipedia:".__add__)
)
def test_names(place, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        use(name)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "small"
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return load(folder)


texts = strange_text | st.text(st.characters(), max_size=60) | st.text("ab .é\0\ud800", max_size=60)


@share(1)
@given(texts, st.booleans())
def test_captured_text(model, text, truncate):
    with one_sentence():
        assert 2 <= len(capture(model, text, truncate=truncate)) <= 16


@share(0.5)
@given(texts, st.integers(-1, 20))
def test_passages_of_a_text(model, text, tokens):
    with one_sentence():
        for ids in split_tokens(model, text, tokens):
            assert len(ids) == tokens


@share(1)
@given(
    json_values
    | st.lists(st.integers(-1, len(WORDS)), max_size=20)
    | st.lists(strange_numbers, max_size=5)
    | st.fixed_dictionaries(
        {"input_ids": st.lists(st.lists(st.integers(-1, len(WORDS)), max_size=5), max_size=2)},
        optional={"attention_mask": st.lists(st.lists(strange_numbers, max_size=5), max_size=2)},
    )
)
def test_captured_ids(model, ids):
    if isinstance(ids, dict) and set(ids) - {"input_ids", "attention_mask"}:
        return  # other inputs go to the model as they are
    with one_sentence():
        capture(model, ids)
