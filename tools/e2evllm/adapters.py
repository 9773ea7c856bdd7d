"""adapters.py FOLDER NAME...: makes LoRA adapters for the model of the suite, each in FOLDER/NAME. Each name gives other weights, and the same name always
the same. The weights are large enough to change nearly every greedy answer."""

import json
import os
import sys

import torch
from safetensors.torch import save_file

RANK, LAYERS, HIDDEN, HEAD = 8, 4, 256, 64
OUTPUTS = {"q_proj": 4 * HEAD, "k_proj": 2 * HEAD, "v_proj": 2 * HEAD, "o_proj": HIDDEN}  # of the modules that the adapters change


def weights(name):
    made = torch.Generator().manual_seed(int.from_bytes(name.encode(), "big"))
    tensors = {}
    for layer in range(LAYERS):
        for module, outputs in OUTPUTS.items():
            at = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{at}.lora_A.weight"] = torch.randn(RANK, HIDDEN, generator=made) * 0.08
            tensors[f"{at}.lora_B.weight"] = torch.randn(outputs, RANK, generator=made) * 0.3
    return tensors


for name in sys.argv[2:]:
    folder = os.path.join(sys.argv[1], name)
    os.makedirs(folder, exist_ok=True)
    save_file(weights(name), os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": list(OUTPUTS), "bias": "none"}, f)
