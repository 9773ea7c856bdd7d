"""What the scripts of this folder share: checks that print a JSON line each, prompts, and comparison of answers."""

import json
import random
import sys
import time
import traceback

FRONT, REFERENCE = sys.argv[1], sys.argv[2]
MODEL = "tiny"

# Members that name or time an answer, or tell what a cache held: two servers need not agree on them.
VOLATILE = {
    "id", "created", "created_at", "completed_at", "system_fingerprint", "request_id", "item_id", "kv_transfer_params", "ec_transfer_params",
    "prompt_tokens_details", "input_tokens_details", "logprob", "bytes", "token_logprobs", "top_logprobs", "sequence_number", "metrics",
}  # fmt: skip
INNER = ("127.0.0.1", "do_remote_", "remote_block_ids", "remote_engine_id", "remote_host", "remote_port", "remote_request_id")

_rnd = random.Random(int(time.time() * 1000))


def words(n):
    """A text of n words that nobody has seen before."""
    return " ".join("".join(_rnd.choice("bcdfghklmnprst") + _rnd.choice("aeiou") for _ in range(_rnd.randint(1, 3))) for _ in range(n))


def ids(n):
    return [_rnd.randint(5, 2047) for _ in range(n)]


def dump(value):
    """The answer as plain values, whatever package made it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", warnings=False)
    if isinstance(value, (list, tuple)):
        return [dump(v) for v in value]
    if isinstance(value, dict):
        return {k: dump(v) for k, v in value.items()}
    return value


def heart(value):
    """The answer without what need not be the same twice."""
    value = dump(value)
    if isinstance(value, list):
        return [heart(v) for v in value]
    if not isinstance(value, dict):
        return value
    value = {k: v for k, v in value.items() if k not in VOLATILE and v is not None}
    if "cache_read_input_tokens" in value or "cache_creation_input_tokens" in value:  # of an Anthropic prompt those are not among the input tokens
        value["input_tokens"] = sum(value.pop(k, 0) for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
    return {k: heart(v) for k, v in value.items()}


def same(got, want):
    assert heart(got) == heart(want), f"got {json.dumps(heart(got))[:900]} but alone {json.dumps(heart(want))[:900]}"
    return got


def quiet(*said):
    """No word of the pools' inside is in what was said."""
    for s in said:
        text = s if isinstance(s, str) else json.dumps(dump(s), default=str)
        found = [w for w in INNER if w in text]
        assert not found, f"{found} in {text[:500]}"


def report(name, begun, why=None):
    print(json.dumps({"check": name, "ok": why is None, "why": (why or "")[:3000], "seconds": round(time.monotonic() - begun, 2)}), flush=True)


def caught(e):
    return "".join(traceback.format_exception(e))[-1500:] if not isinstance(e, AssertionError) else str(e) or "".join(traceback.format_exception(e))[-600:]


CHECKS = []


def check(name):
    """Registers a function, or a coroutine, as the check of that name."""

    def add(f):
        CHECKS.append((name, f))
        return f

    return add


def raised(kind, call):
    """What call raises; it has to be of exactly that class."""
    try:
        got = call()
    except Exception as e:
        assert type(e) is kind, f"{type(e).__name__} instead of {kind.__name__}: {e}"
        return e
    raise AssertionError(f"{kind.__name__} was not raised: {dump(got)}")


async def araised(kind, coroutine):
    try:
        got = await coroutine
    except Exception as e:
        assert type(e) is kind, f"{type(e).__name__} instead of {kind.__name__}: {e}"
        return e
    raise AssertionError(f"{kind.__name__} was not raised: {dump(got)}")


def run():
    """Runs all checks, one after another, and prints what came of each."""
    import asyncio

    for name, f in CHECKS:
        begun = time.monotonic()
        try:
            result = f()
            if asyncio.iscoroutine(result):
                asyncio.run(result)
            report(name, begun)
        except BaseException as e:  # noqa: BLE001 a check may fail in any way
            report(name, begun, caught(e))
            if isinstance(e, KeyboardInterrupt):
                raise
