"""Write what other programs are given: SmolLM2's file and tokenizer, and tokens of a long text.

python benchmarks/peers/prompt.py FOLDER
"""

import json
import sys
from pathlib import Path

from attnlimit.models import addresses, load
from attnlimit.models.loading import BUNDLED

TITLE, TOKENS = "Taft 1910", 8100


def main() -> None:
    """Write model.gguf, tokens.json and the folder tokenizer."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "model.gguf"
    link.unlink(missing_ok=True)
    path = BUNDLED["smollm2"].path
    assert path is not None, "SmolLM2 is not installed"
    link.symlink_to(path)
    loaded = load("smollm2")
    assert loaded.tokenizer is not None
    ids = loaded.ids(addresses()[TITLE].text, TOKENS)
    (folder / "tokens.json").write_text(json.dumps(ids))
    loaded.tokenizer.save_pretrained(folder / "tokenizer")


if __name__ == "__main__":
    main()
