"""hybrid.py TOKENIZER FOLDER: makes a model like Gemma 3 with random weights in FOLDER. Of each three layers two see the last 128
tokens and one sees all, so its KV cache has several groups. The tokenizer is the tokenizer of the model in the folder TOKENIZER. The
same versions make the same files."""

import os
import shutil
import sys

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig


def main(tokenizer, folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Gemma3TextConfig(
        vocab_size=2048, hidden_size=256, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        query_pre_attn_scalar=64, sliding_window=128, layer_types=2 * ["sliding_attention", "sliding_attention", "full_attention"],
        max_position_embeddings=4096, initializer_range=0.08, bos_token_id=0, eos_token_id=1, pad_token_id=2, dtype="float32",
    )
    Gemma3ForCausalLM(config).float().save_pretrained(folder)
    for file in os.listdir(tokenizer):
        if "token" in file or "template" in file:
            shutil.copy(os.path.join(tokenizer, file), folder)


main(*sys.argv[1:])
