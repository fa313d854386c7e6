"""Write samples of RULER's tasks, made by its own generators.

It runs in an environment of its own: `make peers` builds it, and runs

    .venv-ruler/bin/python benchmarks/peers/ruler.py FOLDER TOKENS SAMPLES

FOLDER holds SmolLM2's tokenizer, as prompt.py writes it. FOLDER/ruler.json gets one row a sample:
the task, the text up to the question, the question with the beginning of the answer, and the words
that an answer must have. Texts that need no download are used: a repeated sentence, as in RULER's
first task, also holds the four needles of several keys.
"""

import json
import subprocess
import sys
from pathlib import Path

import long_context_eval
from long_context_eval.data.synthetic.constants import TASKS

NEEDLE = "--type_haystack repeat --type_needle_k words --type_needle_v numbers"
MADE = {
    "needle": ("niah", f"{NEEDLE} --num_needle_k 1", "\nWhat is"),
    "needle, 4 keys": ("niah", f"{NEEDLE} --num_needle_k 4", "\nWhat is"),
    "variables": ("variable_tracking", "--num_chains 1 --num_hops 4", "\nQuestion:"),
    "common words": (
        "common_words_extraction", "--freq_cw 30 --freq_ucw 3 --num_cw 10", "\nQuestion:",
    ),
}  # fmt: skip


def main() -> None:
    """Run the generator of every task."""
    folder, tokens, samples = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    scripts = Path(long_context_eval.__file__).parent / "data" / "synthetic"
    rows = []
    for name, (task, options, question) in MADE.items():
        about = TASKS[task]
        command = [
            sys.executable, str(scripts / f"{task}.py"), *options.split(),
            "--save_dir", str(folder), "--save_name", "ruler", "--tokenizer_type", "hf",
            "--tokenizer_path", str(folder / "tokenizer"), "--max_seq_length", tokens,
            "--tokens_to_generate", str(about["tokens_to_generate"]), "--num_samples", samples,
            "--template", about["template"] + about["answer_prefix"],
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for line in (folder / "ruler" / "validation.jsonl").read_text().splitlines():
            sample = json.loads(line)
            place = sample["input"].rindex(question)
            parts = {"text": sample["input"][:place], "question": sample["input"][place:]}
            rows.append({"task": name, "answer": sample["outputs"]} | parts)
        print(f"{name}: {samples} samples", flush=True)
    (folder / "ruler.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
