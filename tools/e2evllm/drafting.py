"""drafting.py TOKENIZER FOLDER: makes a model like MiMo with random weights in FOLDER: a Qwen 2 with three more layers, which draft the
tokens after the next one (MTP). Model and drafts depend mostly on the newest token, so that some drafts are right. The tokenizer is the
tokenizer of the model in the folder TOKENIZER. The same versions make the same files."""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

DRAFTS, HIDDEN, INNER, HEADS, KV_HEADS = 3, 256, 512, 4, 2


def drafting(i):
    """The weights of one drafting layer: what it adds to the token's embedding is small."""
    name, width = f"model.mtp_layers.{i}.", HIDDEN // HEADS * KV_HEADS
    shapes = {
        "self_attn.q_proj.weight": (HIDDEN, HIDDEN), "self_attn.q_proj.bias": (HIDDEN,),
        "self_attn.k_proj.weight": (width, HIDDEN), "self_attn.k_proj.bias": (width,),
        "self_attn.v_proj.weight": (width, HIDDEN), "self_attn.v_proj.bias": (width,),
        "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "mlp.gate_proj.weight": (INNER, HIDDEN), "mlp.up_proj.weight": (INNER, HIDDEN), "mlp.down_proj.weight": (HIDDEN, INNER),
    }
    weights = {name + key: 0.02 * torch.randn(shape) for key, shape in shapes.items()}
    for norm in ("token_layernorm", "hidden_layernorm", "final_layernorm", "input_layernorm", "post_attention_layernorm"):
        weights[f"{name}{norm}.weight"] = torch.ones(HIDDEN)
    weights[name + "input_proj.weight"] = torch.cat([torch.zeros(HIDDEN, HIDDEN), torch.eye(HIDDEN)], dim=1)
    return weights


def main(tokenizer, folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Qwen2Config(
        vocab_size=2048, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=4, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        max_position_embeddings=4096, initializer_range=0.05, bos_token_id=0, eos_token_id=1, pad_token_id=2, dtype="float32",
    )
    Qwen2ForCausalLM(config).float().save_pretrained(folder)
    file = os.path.join(folder, "model.safetensors")
    weights = load_file(file)
    for i in range(DRAFTS):
        weights.update(drafting(i))
    save_file(weights, file, metadata={"format": "pt"})
    file = os.path.join(folder, "config.json")
    with open(file) as f:
        said = json.load(f)
    said.update(architectures=["MiMoForCausalLM"], num_nextn_predict_layers=DRAFTS)
    with open(file, "w") as f:
        json.dump(said, f, indent=1)
    for file in os.listdir(tokenizer):
        if "token" in file or "template" in file:
            shutil.copy(os.path.join(tokenizer, file), folder)


main(*sys.argv[1:])
