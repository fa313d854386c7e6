"""Small random causal models of several families, for tests that generate."""

import torch
import transformers

VOCABULARY = 99
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**_SHAPE),
    "mistral": lambda: transformers.MistralConfig(**_SHAPE, sliding_window=6),
    "qwen2": lambda: transformers.Qwen2Config(**_SHAPE),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, pad_token_id=0, eos_token_id=None
    ),
}


def build(family="llama"):
    """Return one whose attention is sharp enough to show what is left out."""
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return model.eval()


def prompts(lengths):
    """Return texts of these lengths, and all of them as one batch, padded on the left."""
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(3, VOCABULARY, (n,), generator=generator) for n in lengths]
    longest = max(lengths)
    ids = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, longest - len(text) :] = text
    return texts, {"input_ids": ids, "attention_mask": (ids > 0).long()}
