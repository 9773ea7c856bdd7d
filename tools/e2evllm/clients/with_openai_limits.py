"""The openai package against a Tandem whose keys have limits: it waits as it is told. Arguments: the addresses of Tandem and of an engine.

Tandem has the keys few-requests (REQUESTS a minute) and few-tokens (TOKENS a minute). Its engine refuses what the user "slow-down" asks, for SLOW seconds."""

import asyncio
import re
import time

import openai
from common import FRONT, MODEL, REFERENCE, araised, check, heart, ids, quiet, run

REQUESTS, TOKENS, SLOW = 3, 200, 600
PROMPT, ANSWER = 40, 4
LIMITS = {"few-requests": ("requests", REQUESTS, REQUESTS), "few-tokens": ("tokens", TOKENS, TOKENS // (PROMPT + ANSWER))}


class Client:
    """An unmodified client, and what went over its wire: times, statuses and headers."""

    def __init__(self, key, **more):
        self.sent, self.got = [], []
        wire = openai.DefaultAsyncHttpxClient(event_hooks={"request": [self.sends], "response": [self.gets]})
        self.api = openai.AsyncOpenAI(base_url=FRONT + "/v1", api_key=key, http_client=wire, timeout=100, **more)

    async def sends(self, _request):
        self.sent.append(time.monotonic())

    async def gets(self, response):
        self.got.append((time.monotonic(), response.status_code, response.headers))

    async def ask(self, **more):
        q = dict(model=MODEL, prompt=ids(PROMPT), max_tokens=ANSWER, temperature=0, extra_body={"ignore_eos": True}, **more)
        async with self.api as api:
            raw = await api.completions.with_raw_response.create(**q)
        async with openai.AsyncOpenAI(base_url=REFERENCE + "/v1", api_key="none", timeout=100) as alone:
            want = await alone.completions.create(**q)
        assert heart(raw.parse()) == heart(want), (raw.text, want)
        return raw

    async def refused(self, **more):
        e = await araised(openai.RateLimitError, self.ask(**more))
        assert e.status_code == 429 and e.type == "RateLimitError" and e.request_id, (e.body, e.response.headers)
        quiet(str(e), str(e.response.headers))
        return e


def seconds(text):
    """A time as in x-ratelimit-reset-*: 1m0.5s, 59.2s, 12ms."""
    parts = re.findall(r"([0-9.]+)(ms|s|m|h)", text)
    assert parts and "".join(n + unit for n, unit in parts) == text, text
    return sum(float(n) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit] for n, unit in parts)


@check("limits: x-ratelimit-* say what is left, until nothing is")
async def _():
    for key, (of, limit, fit) in LIMITS.items():
        each = limit // fit if of == "requests" else PROMPT + ANSWER
        for i in range(fit):
            h = (await Client(key, max_retries=0).ask()).headers
            assert int(h["x-ratelimit-limit-" + of]) == limit and int(h["x-ratelimit-remaining-" + of]) == limit - (i + 1) * each, h
            assert 0 < seconds(h["x-ratelimit-reset-" + of]) <= 60.5, h
        e = await Client(key, max_retries=0).refused()
        assert f"Rate limit reached for your API key: {of} per minute." in e.message, e.message
        assert 0 < int(e.response.headers["retry-after"]) < 60 and int(e.response.headers["x-ratelimit-remaining-" + of]) < each, e.response.headers


@check("limits: it waits for as long as Retry-After says, and gets the answer")
async def _():
    async def waits(key):
        c = Client(key)
        raw = await c.ask()
        assert [status for _, status, _ in c.got] in ([429, 200], [429, 429, 200]) and raw.retries_taken == len(c.got) - 1, c.got
        for (refused, _, h), again in zip(c.got, c.sent[1:]):
            assert again - refused >= int(h["retry-after"]), (again - refused, h)

    await asyncio.gather(*map(waits, LIMITS))


@check("limits: told to wait longer than it would, it gives up at once")
async def _():
    c = Client("no-limits")
    e = await c.refused(user="slow-down")
    assert e.response.headers["retry-after"] == str(SLOW) and "The engine is overloaded." in e.message, (e.message, e.response.headers)
    assert len(c.got) == 1, c.got


run()
