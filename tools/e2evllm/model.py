"""Makes the model and the tokenizer of the suite in the folder that is the argument: a Llama of 14 MB with random weights, whose greedy answer
depends on every token of its prompt, and byte-level BPE of 2,048 tokens. The same versions make the same files."""

import os
import random
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

SPECIAL = ["<s>", "</s>", "<|u|>", "<|a|>", "<|sys|>"]
TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|sys|>{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|u|>{% elif m.role == 'assistant' %}<|a|>{% else %}<|sys|>{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}"
)


def corpus():
    """Sentences of invented words: enough for every merge, and the same everywhere."""
    rnd = random.Random(1)
    heads = ["b", "br", "c", "ch", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "pr", "qu", "r", "s", "sh", "st", "t", "th", "v", "w", "z"]
    tails = ["a", "al", "an", "ar", "e", "en", "er", "i", "im", "ing", "o", "ol", "on", "or", "u", "un", "us", "y"]
    words = ["".join(rnd.choice(heads) + rnd.choice(tails) for _ in range(rnd.randint(1, 4))) for _ in range(6000)]
    for _ in range(6000):
        yield " ".join(rnd.choice(words) for _ in range(rnd.randint(4, 16))) + "."


def main(folder):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=2048, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    if len(tokenizer) != 2048:
        sys.exit(f"the tokenizer has {len(tokenizer)} tokens instead of 2048")

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=2048, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=4096, initializer_range=0.08, bos_token_id=0, eos_token_id=1, dtype="float32",
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)


main(sys.argv[1])
