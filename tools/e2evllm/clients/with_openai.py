"""The openai package against Tandem, and, where the answer can be compared, the same call against one engine. Arguments: the two addresses."""

import asyncio
import time

import openai
from common import FRONT, MODEL, REFERENCE, araised, check, dump, ids, quiet, raised, run, same, words

front = openai.OpenAI(base_url=FRONT + "/v1", api_key="none", max_retries=0, timeout=100)
alone = openai.OpenAI(base_url=REFERENCE + "/v1", api_key="none", max_retries=0, timeout=100)


def afront(**more):
    return openai.AsyncOpenAI(base_url=FRONT + "/v1", api_key="none", max_retries=0, **{"timeout": 100, **more})


def aalone():
    return openai.AsyncOpenAI(base_url=REFERENCE + "/v1", api_key="none", max_retries=0, timeout=100)


def user(n=20):
    return [{"role": "user", "content": words(n)}]


TOOL = {"name": "look", "description": "Looks something up.", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}


@check("models: list and retrieve")
def _():
    assert [m.id for m in front.models.list()] == [MODEL]
    assert front.models.retrieve(MODEL).id == MODEL
    raised(openai.NotFoundError, lambda: front.models.retrieve("nobody"))


@check("completions: text, ids, several prompts")
def _():
    for prompt in (words(40), ids(70), [words(9), words(30)], [ids(5), ids(64)]):
        q = dict(model=MODEL, prompt=prompt, max_tokens=6, temperature=0)
        got = same(front.completions.create(**q), alone.completions.create(**q))
        quiet(got)
        assert got.usage.completion_tokens > 0 and got.choices[0].text


@check("completions: n = 2, seed, logprobs, stop, echo")
def _():
    for more in (dict(n=2, temperature=0.7, seed=7), dict(logprobs=2), dict(stop=["a", "e"]), dict(echo=True), dict(temperature=0.8, seed=3)):
        q = dict(model=MODEL, prompt=words(30), max_tokens=8, **{"temperature": 0, **more})
        same(front.completions.create(**q), alone.completions.create(**q))


@check("completions: stream with usage")
def _():
    q = dict(model=MODEL, prompt=words(40), max_tokens=7, temperature=0)
    want = alone.completions.create(**q)
    chunks = list(front.completions.create(**q, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == want.choices[0].text
    assert chunks[-1].choices == [] and same(chunks[-1].usage, want.usage)
    assert len({c.id for c in chunks}) == 1 and len(chunks) > 5
    quiet(*chunks)


@check("chat: turns, system prompt, parts, logprobs")
def _():
    for messages in (
        user(),
        [{"role": "system", "content": words(30)}, *user(5), {"role": "assistant", "content": words(5)}, *user(5)],
        [{"role": "user", "content": [{"type": "text", "text": words(9)}, {"type": "text", "text": words(3)}]}],
    ):
        q = dict(model=MODEL, messages=messages, max_completion_tokens=6, temperature=0, logprobs=True, top_logprobs=2)
        got = same(front.chat.completions.create(**q), alone.chat.completions.create(**q))
        quiet(got)
        assert got.choices[0].message.role == "assistant" and len(got.choices[0].logprobs.content) == got.usage.completion_tokens


@check("chat: stream with usage, and the stream helper")
def _():
    q = dict(model=MODEL, messages=user(), max_tokens=7, temperature=0)
    want = alone.chat.completions.create(**q)
    chunks = list(front.chat.completions.create(**q, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == want.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant" and same(chunks[-1].usage, want.usage)
    with front.chat.completions.stream(**q) as stream:
        kinds = [event.type for event in stream]
        final = stream.current_completion_snapshot
    assert "content.delta" in kinds and "content.done" in kinds, kinds
    assert final.choices[0].message.content == want.choices[0].message.content and final.choices[0].finish_reason == want.choices[0].finish_reason
    quiet(*chunks)


@check("chat: tools in the prompt, and tools that nobody can call")
def _():
    tools = [{"type": "function", "function": TOOL}]
    q = dict(model=MODEL, messages=user(), max_tokens=6, temperature=0, tools=tools, tool_choice="none")
    same(front.chat.completions.create(**q), alone.chat.completions.create(**q))
    for choice in ("auto", "required", {"type": "function", "function": {"name": "look"}}):  # these servers have no tool parser
        q["tool_choice"] = choice
        e, f = (raised(openai.BadRequestError, lambda c=c: c.chat.completions.create(**q)) for c in (front, alone))
        assert e.body == f.body, (e.body, f.body)


@check("chat: structured output")
def _():
    shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}}}
    q = dict(model=MODEL, messages=user(), max_tokens=30, temperature=0, response_format=shape)
    same(front.chat.completions.create(**q), alone.chat.completions.create(**q))


@check("responses: text, turns, instructions, tools in the prompt")
def _():
    for more in (
        dict(input=words(30)),
        dict(input=[*user(5), {"role": "assistant", "content": words(4)}, *user(6)]),
        dict(input=words(5), instructions=words(30)),
        dict(input=words(9), tools=[{"type": "function", **TOOL}], tool_choice="none"),
    ):
        q = dict(model=MODEL, max_output_tokens=6, temperature=0, **more)
        got = same(front.responses.create(**q), alone.responses.create(**q))
        quiet(got)
        assert got.output_text and got.usage.output_tokens > 0


@check("responses: stream of events, and the stream helper")
def _():
    q = dict(model=MODEL, input=words(30), max_output_tokens=6, temperature=0)
    want = alone.responses.create(**q)
    events = list(front.responses.create(**q, stream=True))
    kinds = [e.type for e in events]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] in ("response.completed", "response.incomplete"), kinds
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == want.output_text
    same(events[-1].response.usage, want.usage)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    quiet(*events)
    with front.responses.stream(**q) as stream:
        for _event in stream:
            pass
    assert kinds[-1] != "response.completed" or stream.get_final_response().output_text == want.output_text


@check("errors: unknown model, too long, wrong values, wrong paths")
def _():
    for call, kind in (
        (lambda c: c.chat.completions.create(model="nobody", messages=user(3)), openai.NotFoundError),
        (lambda c: c.completions.create(model="nobody", prompt="a"), openai.NotFoundError),
        (lambda c: c.responses.create(model="nobody", input="a"), openai.NotFoundError),
        (lambda c: c.completions.create(model=MODEL, prompt=[7] * 1025, max_tokens=1), openai.BadRequestError),
        (lambda c: c.chat.completions.create(model=MODEL, messages=user(3), max_tokens=5000), openai.BadRequestError),
        (lambda c: c.chat.completions.create(model=MODEL, messages=user(3), temperature=-3), openai.BadRequestError),
        (lambda c: c.chat.completions.create(model=MODEL, messages=user(3), max_tokens=0), openai.BadRequestError),
        (lambda c: c.chat.completions.create(model=MODEL, messages="no list"), openai.BadRequestError),
        (lambda c: c.chat.completions.create(model=MODEL, messages=user(3), temperature=-3, stream=True), openai.BadRequestError),
        (lambda c: c.responses.create(model=MODEL, input=words(3), temperature=-3), openai.BadRequestError),
        (lambda c: c.embeddings.create(model=MODEL, input="a"), openai.NotFoundError),
        (lambda c: c.images.generate(model=MODEL, prompt="a"), openai.NotFoundError),
        (lambda c: c.responses.retrieve("resp_nobody"), openai.NotFoundError),
    ):
        e, f = raised(kind, lambda: call(front)), raised(kind, lambda: call(alone))
        assert e.status_code == f.status_code and e.code == f.code, (e.body, f.body)
        assert f.type is None or e.type, (e.body, f.body)  # the words may be Tandem's own
        assert e.request_id or kind is openai.NotFoundError, "an error without x-request-id"  # paths that are none have no requests
        assert e.message and isinstance(e.body, dict), e.body
        quiet(str(e), str(e.response.headers))


@check("headers of a raw response")
def _():
    raw = front.chat.completions.with_raw_response.create(model=MODEL, messages=user(), max_tokens=2)
    assert raw.headers["x-request-id"] and raw.parse().choices, raw.headers
    quiet(str(raw.headers), raw.text if isinstance(raw.text, str) else raw.text())


@check("async: 12 at once, streamed and not")
async def _():
    async with afront() as f, aalone() as a:

        async def one(i):
            q = dict(model=MODEL, messages=user(10 + i), max_tokens=6, temperature=0)
            if i % 2:
                text = ""
                async for c in await f.chat.completions.create(**q, stream=True):
                    text += (c.choices[0].delta.content or "") if c.choices else ""
            else:
                text = (await f.chat.completions.create(**q)).choices[0].message.content
            want = (await a.chat.completions.create(**q)).choices[0].message.content
            assert text == want, (i, text, want)

        await asyncio.gather(*(one(i) for i in range(12)))


@check("async: responses and completions")
async def _():
    async with afront() as f, aalone() as a:
        q = dict(model=MODEL, input=words(20), max_output_tokens=5, temperature=0)
        same(await f.responses.create(**q), await a.responses.create(**q))
        q = dict(model=MODEL, prompt=ids(40), max_tokens=5, temperature=0)
        same(await f.completions.create(**q), await a.completions.create(**q))
        e = await araised(openai.NotFoundError, f.completions.create(model="nobody", prompt="a"))
        assert e.status_code == 404, e.body


LONG = dict(model=MODEL, max_tokens=400, temperature=0, extra_body={"ignore_eos": True})


@check("time-outs: before the first byte, and retried")
async def _():
    e = raised(openai.APITimeoutError, lambda: front.with_options(timeout=0.05).chat.completions.create(messages=user(), **LONG))
    assert isinstance(e, openai.APIConnectionError)
    begun = time.monotonic()
    raised(openai.APITimeoutError, lambda: front.with_options(timeout=0.2, max_retries=1).completions.create(prompt=ids(90), **LONG))
    assert time.monotonic() - begun > 0.4, "it was not tried again"
    async with afront(timeout=0.3) as f:
        await araised(openai.APITimeoutError, f.chat.completions.create(messages=user(), **LONG))
        await araised(openai.APITimeoutError, f.responses.create(model=MODEL, input=words(9), max_output_tokens=400))


@check("cancellation: in every phase, streamed and not")
async def _():
    stream = front.chat.completions.create(messages=user(), stream=True, **LONG)
    assert sum(1 for _, _c in zip(range(3), stream)) == 3
    stream.close()
    async with afront() as f:

        async def stay(streamed, q):
            made = await f.chat.completions.create(messages=user(25), stream=streamed, **q)
            async for _chunk in made:
                pass

        tasks = [asyncio.create_task(stay(i % 2 == 0, LONG)) for i in range(8)]
        for i, task in enumerate(tasks):
            await asyncio.sleep(0.05 * i)
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(d, asyncio.CancelledError) for d in done), done
        async with await f.completions.create(prompt=ids(50), stream=True, **LONG) as stream:
            async for _chunk in stream:
                break
    q = dict(model=MODEL, messages=user(), max_tokens=5, temperature=0)
    same(front.chat.completions.create(**q), alone.chat.completions.create(**q))


run()
