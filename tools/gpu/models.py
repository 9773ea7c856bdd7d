#!/usr/bin/env python3
"""models.py MAKER FOLDER: makes the models of gpu.py. MAKER is tools/e2evllm/model.py.

FOLDER/tiny is the suite's own tiny model with room for 4,096 tokens. FOLDER/big has the shape of Llama 3.1 8B and no weights
(--load-format dummy); its tokenizer is the tiny one with names for all further token ids. Needs transformers."""
import json, os, shutil, subprocess, sys

maker, folder = sys.argv[1:]
tiny, big = os.path.join(folder, "tiny"), os.path.join(folder, "big")
os.makedirs(folder, exist_ok=True)
subprocess.run([sys.executable, maker, tiny], check=True)
with open(tiny + "/config.json") as f:
    config = json.load(f)
config["max_position_embeddings"] = 4096
with open(tiny + "/config.json", "w") as f:
    json.dump(config, f, indent=1)

os.makedirs(big, exist_ok=True)
for name in os.listdir(tiny):
    if "token" in name or name == "chat_template.jinja":
        shutil.copy(os.path.join(tiny, name), big)
with open(tiny + "/tokenizer.json") as f:
    tokenizer = json.load(f)
vocabulary = tokenizer["model"]["vocab"]
for i in range(len(vocabulary), 128256):  # no merge leads to these tokens, so that prompts never have them; answers may
    vocabulary["\u0120w%d" % i] = i
with open(big + "/tokenizer.json", "w") as f:
    json.dump(tokenizer, f)
with open(big + "/config.json", "w") as f:
    json.dump({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, "attention_bias": False, "mlp_bias": False,
        "torch_dtype": "bfloat16", "initializer_range": 0.02, "use_cache": True,
    }, f, indent=1)
