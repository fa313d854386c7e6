"""generate and demo with a small random model: texts, numbers, and wrong input in one sentence."""

import io
import json

import pytest
import torch

transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

import attnlimit as al  # noqa: E402
from attnlimit.decoding.generation import STEPS, generate, time_by_context  # noqa: E402
from attnlimit.models import LoadedModel  # noqa: E402
from called import call  # noqa: E402

TEXT = "The quick brown fox jumps over the lazy dog beside the river. " * 12


def bytes_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    network = transformers.LlamaForCausalLM(config).eval()
    return LoadedModel("small", network, bytes_tokenizer(), "1" * 64, "made", "none")


@pytest.fixture
def loaded(small, monkeypatch):
    monkeypatch.setattr("attnlimit.models.loading.load_once", lambda *args: small)
    return small


@pytest.fixture(scope="module")
def plan(small):
    return al.models.plan(small, small.ids(TEXT)[-300:], kl=0.01, decode=40, probes=2)


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text(TEXT)
    return path


def generated(*arguments):
    code, out, err = call("generate", "--tokens", 400, "--new", 8, *arguments)
    assert code == 0, err
    return out


def test_a_file_is_continued(loaded, prompt):
    out = generated("--prompt", prompt, "--threshold", 64)
    assert "8 tokens after 400: " in out
    assert "cache and index" in out
    made = json.loads(generated("--prompt", prompt, "--threshold", 64, "--json"))
    assert len(made["texts"]) == 1
    assert made["prompt_tokens"] == [400]
    assert made["tokens"] == 8
    assert made["dense_texts"] is None
    assert made["dense_ms"] > 0
    assert made["plan"] is None


def test_a_short_text_is_read_with_all_keys_and_says_so(loaded, prompt):
    out = generated("--prompt", prompt, "--threshold", 64, "--tokens", 50)
    assert "7 tokens read all keys, where that is faster" in out


def test_standard_input_is_continued(loaded, prompt, monkeypatch):
    from_file = json.loads(generated("--prompt", prompt, "--threshold", 64, "--json"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    from_input = json.loads(generated("--prompt", "-", "--threshold", 64, "--json"))
    assert from_input["texts"] == from_file["texts"]


def test_texts_are_compared_in_a_batch(loaded, prompt, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(TEXT[7:200])
    both = ["--prompt", prompt, "--prompt", other, "--threshold", 1e9, "--compare"]
    out = generated(*both)
    for mark in ("--- 1\n", "--- 2\n", "--- 1, with all keys", "--- 2, with all keys"):
        assert mark in out
    assert "measured on 14 tokens read both ways" in out
    made = json.loads(generated(*both, "--json"))
    assert made["prompt_tokens"] == [400, 193]
    assert made["texts"] == made["dense_texts"]
    assert made["kl"] == pytest.approx(0, abs=1e-5)


def test_a_plan_is_read_and_its_target_kept(loaded, plan, prompt, tmp_path):
    path = plan.write(tmp_path / "plan.json")
    made = json.loads(generated("--prompt", prompt, "--plan", path, "--kl", 0.01, "--json"))
    assert made["plan"]["decode"] == 40
    assert len(made["texts"][0]) > 0


def test_without_a_plan_one_is_made_on_the_prompt(loaded, prompt):
    out = generated("--prompt", prompt, "--kl", 0.02)
    assert "small: a query reads" in out
    assert "after a prompt that is read densely" in out


def test_wrong_input_is_answered_in_one_sentence(loaded, plan, prompt, tmp_path):
    path = plan.model_copy(update={"weights": "2" * 64}).write(tmp_path / "plan.json")
    wrong = [
        (["--plan", path, "--threshold", 8], "not both"),
        (["--kl", -1], "positive"),
        (["--threshold", 0], "positive"),
        (["--temperature", -1], "0 or more"),
        (["--plan", tmp_path / "none.json"], "none.json"),
        (["--plan", path], "make the plan with this model"),
        (["--prompt", tmp_path / "none.txt"], "no text at"),
        (["--tokens", 1020, "--new", 20, "--threshold", 8], "positions"),
    ]
    longer = tmp_path / "longer.txt"
    longer.write_text(2 * TEXT)
    for arguments, words in wrong:
        code, out, err = call("generate", "--prompt", longer, *arguments)
        assert code == 2, arguments
        assert words in err, err
        assert len(err.strip().splitlines()) == 1
        assert "Traceback" not in out + err


def test_what_is_written_does_not_depend_on_the_comparison(small):
    how = {"tokens": 10, "dense_below": 0, "levels": 1, "seed": 4}
    ids = small.ids(TEXT)[:300]
    plain = generate(small, ids, al.Threshold(8.0), **how)
    compared = generate(small, ids, al.Threshold(8.0), compare=True, **how)
    assert plain.texts == compared.texts
    assert compared.kl > 0
    assert 0 < plain.stats.bytes < plain.stats.dense_bytes


def test_tokens_are_timed_by_the_length_of_the_context(small, plan):
    ids = small.ids(TEXT)
    times = time_by_context(small, ids, plan, [300, 64, 600])
    frame = times.to_frame()
    assert frame["tokens"].tolist() == [64, 300, 600]
    assert (frame > 0).all(axis=None)
    assert frame["dense, MB"].is_monotonic_increasing
    assert (frame["predicted, ms"] <= frame["predicted dense, ms"]).all()
    assert len(times.figure().panels) == 2
    with pytest.raises(al.BadInput, match="give more text"):
        time_by_context(small, ids[: 600 + STEPS - 1], plan, [600])


def test_the_demo_writes_a_page(loaded, prompt, tmp_path, monkeypatch):
    bundled = {"smollm2": type("Bundled", (), {"path": tmp_path})()}
    monkeypatch.setattr("attnlimit.models.loading.BUNDLED", bundled)
    monkeypatch.setattr("attnlimit.cli.demo.ARTICLE", str(prompt))
    monkeypatch.setattr("attnlimit.cli.demo.PROMPT", 300)
    monkeypatch.setattr("attnlimit.cli.demo.LENGTHS", (100, 400))
    page = tmp_path / "out" / "index.html"
    code, out, err = call("demo", "--tokens", 48, "--page", page, "--json")
    assert code == 0, err
    made = json.loads(out)
    assert [row["tokens"] for row in made["decoding"]["by_context"]] == [100, 400]
    assert made["decoding"]["tokens"] > 2
    assert al.Plan.read(page.parent / "decoding.json").decode
    assert al.Plan.read(page.parent / "plan.json").decode is None
    shown = page.read_text()
    for part in ("What it saves", "The text it writes", "small attends in"):
        assert part in shown
