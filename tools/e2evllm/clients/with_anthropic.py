"""The anthropic package against Tandem, and, where the answer can be compared, the same call against one engine. Arguments: the two addresses."""

import asyncio

import anthropic
from common import FRONT, MODEL, REFERENCE, araised, check, quiet, raised, run, same, words

front = anthropic.Anthropic(base_url=FRONT, api_key="none", max_retries=0, timeout=100)
alone = anthropic.Anthropic(base_url=REFERENCE, api_key="none", max_retries=0, timeout=100)


def afront(**more):
    return anthropic.AsyncAnthropic(base_url=FRONT, api_key="none", max_retries=0, **{"timeout": 100, **more})


def aalone():
    return anthropic.AsyncAnthropic(base_url=REFERENCE, api_key="none", max_retries=0, timeout=100)


def ask(n=20, **more):
    return {**dict(model=MODEL, max_tokens=6, messages=[{"role": "user", "content": words(n)}], extra_body={"temperature": 0}), **more}


@check("messages: turns, system prompt, parts, stop sequences")
def _():
    turns = [{"role": "user", "content": words(5)}, {"role": "assistant", "content": words(4)}, {"role": "user", "content": words(6)}]
    parts = [{"role": "user", "content": [{"type": "text", "text": words(9)}, {"type": "text", "text": words(3)}]}]
    for q in (ask(), ask(messages=turns), ask(messages=parts), ask(5, system=words(30)), ask(stop_sequences=["a", "o"], max_tokens=12), ask(60)):
        got = same(front.messages.create(**q), alone.messages.create(**q))
        quiet(got)
        assert got.role == "assistant" and got.content[0].type == "text" and got.usage.output_tokens > 0


@check("messages: tools in the prompt")
def _():
    tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]
    q = ask(tools=tools, tool_choice={"type": "none"})
    same(front.messages.create(**q), alone.messages.create(**q))


@check("messages: events of a stream")
def _():
    q = ask()
    want = alone.messages.create(**q)
    events = list(front.messages.create(**q, stream=True))
    kinds = [e.type for e in events]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and kinds[-2] == "message_delta", kinds
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 1, kinds
    text = "".join(e.delta.text for e in events if e.type == "content_block_delta" and e.delta.type == "text_delta")
    assert text == want.content[0].text and events[-2].delta.stop_reason == want.stop_reason
    assert events[-2].usage.output_tokens == want.usage.output_tokens
    quiet(*events)


@check("messages: the stream helper")
def _():
    q = ask(30)
    with front.messages.stream(**q) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    want = alone.messages.create(**q)
    assert text == final.content[0].text == want.content[0].text and final.stop_reason == want.stop_reason, (text, want)


@check("count_tokens")
def _():
    q = {k: v for k, v in ask(40, system=words(5)).items() if k in ("model", "messages", "system")}
    n = same(front.messages.count_tokens(**q), alone.messages.count_tokens(**q)).input_tokens
    used = front.messages.create(**q, max_tokens=1).usage
    assert n == used.input_tokens + (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0) > 40, (n, used)


@check("errors: unknown model, too long, wrong values")
def _():
    for q, kind in (
        (ask(model="nobody"), anthropic.NotFoundError),
        (ask(max_tokens=0), anthropic.BadRequestError),
        (ask(max_tokens=5000), anthropic.BadRequestError),
        (ask(1500), anthropic.BadRequestError),
        (ask(messages=[]), anthropic.BadRequestError),
        (ask(extra_body={"temperature": -3}), anthropic.BadRequestError),
        (ask(messages=[{"role": "user", "content": 5}]), anthropic.BadRequestError),
        (ask(model="nobody", stream=True), anthropic.NotFoundError),
    ):
        e, f = (raised(kind, lambda c=c: c.messages.create(**q)) for c in (front, alone))
        assert e.status_code == f.status_code, (e.body, f.body)
        assert e.body["error"]["message"] and e.body["error"]["type"], e.body  # the words may be Tandem's own
        quiet(str(e), str(e.response.headers))


@check("async: 8 at once, streamed and not")
async def _():
    async with afront() as f, aalone() as a:

        async def one(i):
            q = ask(8 + i)
            if i % 2:
                async with f.messages.stream(**q) as stream:
                    text = "".join([t async for t in stream.text_stream])
            else:
                text = (await f.messages.create(**q)).content[0].text
            want = (await a.messages.create(**q)).content[0].text
            assert text == want, (i, text, want)

        await asyncio.gather(*(one(i) for i in range(8)))
        await araised(anthropic.NotFoundError, f.messages.create(**ask(model="nobody")))


@check("time-outs and cancellation")
async def _():
    raised(anthropic.APITimeoutError, lambda: front.with_options(timeout=0.1).messages.create(**ask(max_tokens=400)))
    with front.messages.stream(**ask(max_tokens=400)) as stream:
        for _event in stream:
            break
    async with afront() as f:
        tasks = [asyncio.create_task(f.messages.create(**ask(30, max_tokens=400))) for _ in range(6)]
        cut = []
        for i, task in enumerate(tasks):
            await asyncio.sleep(0.05 * i)
            cut.append(task.cancel())  # False: its answer ended before, since this API cannot ask for more than the model says
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(d, asyncio.CancelledError) if c else d.stop_reason == "end_turn" for c, d in zip(cut, done)), done
        assert sum(cut) >= 3, done
    q = ask()
    same(front.messages.create(**q), alone.messages.create(**q))


run()
