"""Times the steps of a dense model on one GPU: prompts alone, streams alone, and a prompt beside streams.

    python3 steps.py --attention _vllm_fa3_C.abi3.so [--out steps.json]

Replay computes the time of a step by a formula (internal/lab/enginesim/core, Cost). The formula adds the times
of a prompt and of the streams in the same step. This script checks that on a GPU. Matrix products are
PyTorch's. Attention is the kernel of vLLM's wheel, over pages of 16 tokens and in one launch for the whole
batch, as vLLM calls it (v1/attention/backends/flash_attn.py). Weights and prompts are random. The host, the
sampler and the traffic between GPUs are left out.

It times some layers of a model, each with its own weights and caches, and multiplies the time. It prints a
table and writes a line of JSON for each step.
"""

import argparse
import json
import math
import statistics

import torch
import torch.nn.functional as F

PAGE = 16  # tokens of a block of KV
DISTINCT = 4  # layers with weights and caches of their own; together they are larger than the GPU's cache
TIMED = 16  # layers that a timed step has
CAPACITY = 560_000  # tokens of KV

DTYPE = torch.bfloat16


class Model:
    """What of a model one of its GPUs computes."""

    def __init__(self, name, layers, hidden, heads, kv_heads, ffn, vocab):
        self.name, self.layers, self.hidden = name, layers, hidden
        self.heads, self.kv_heads, self.dim = heads, kv_heads, 128
        self.ffn, self.vocab = ffn, vocab


MODELS = [
    Model("llama-8b", 32, 4096, 32, 8, 14336, 128256),
    Model("llama-70b, a quarter", 80, 8192, 16, 2, 28672 // 4, 128256 // 4),
]


class Step:
    """A batch: streams of one token each with `context` tokens, and a prompt's chunk if new is not 0."""

    def __init__(self, new=0, computed=0, streams=0, context=0):
        self.new, self.computed, self.streams, self.context = new, computed, streams, context
        self.tokens = new + streams
        self.pairs = new * (computed + new / 2)

    def queries(self):
        return [1] * self.streams + ([self.new] if self.new else [])

    def lengths(self):
        return [self.context] * self.streams + ([self.computed + self.new] if self.new else [])


class Layer:
    """One layer's weights and its cache."""

    def __init__(self, m):
        def weights(out, inner):
            return torch.randn(out, inner, device="cuda", dtype=DTYPE) / math.sqrt(inner)

        self.norm = torch.ones(m.hidden, device="cuda", dtype=DTYPE)
        self.qkv = weights((m.heads + 2 * m.kv_heads) * m.dim, m.hidden)
        self.out = weights(m.hidden, m.heads * m.dim)
        self.up = weights(2 * m.ffn, m.hidden)
        self.down = weights(m.hidden, m.ffn)
        pages = CAPACITY // PAGE
        self.k = torch.randn(pages, PAGE, m.kv_heads, m.dim, device="cuda", dtype=DTYPE)
        self.v = torch.randn(pages, PAGE, m.kv_heads, m.dim, device="cuda", dtype=DTYPE)


def compiled(f):
    """f as one kernel, as vLLM has it."""
    return torch.compile(f, dynamic=True)


@compiled
def norm(x, residual, weight):
    x = x + residual
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
    return y.to(x.dtype) * weight, x


@compiled
def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


@compiled
def gate(x):
    a, b = x.chunk(2, -1)
    return F.silu(a.float()).to(x.dtype) * b


class Batch:
    """A step's tensors on the GPU."""

    def __init__(self, m, step):
        self.m, self.step = m, step
        queries, lengths = step.queries(), step.lengths()
        pages = [math.ceil(n / PAGE) for n in lengths]
        order = torch.randperm(CAPACITY // PAGE)[: sum(pages)].split(pages)
        table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
        slots = []
        for i, of in enumerate(order):
            table[i, : len(of)] = of
            at = torch.arange(lengths[i] - queries[i], lengths[i])
            slots.append(of[at // PAGE] * PAGE + at % PAGE)
        starts = torch.tensor([0] + queries).cumsum(0).to(torch.int32)
        self.table, self.starts = table.cuda(), starts.cuda()
        self.slots = torch.cat(slots).cuda()
        self.used = torch.tensor(lengths, dtype=torch.int32).cuda()
        self.longest_query, self.longest = max(queries), max(lengths)
        # vLLM replays steps of streams alone as a graph, and bounds their splits (config/attention.py).
        self.splits = 0 if step.new else 32
        self.x = torch.randn(step.tokens, m.hidden, device="cuda", dtype=DTYPE)
        angle = torch.rand(step.tokens, 1, m.dim // 2, device="cuda")
        self.cos, self.sin = angle.cos(), angle.sin()
        self.schedule = torch.ops._vllm_fa3_C.get_scheduler_metadata(
            len(queries), self.longest_query, self.longest, m.heads, m.kv_heads, m.dim, m.dim, DTYPE,
            self.used, self.starts, None, None, None, None, PAGE, 0, True, -1, -1, False,
            self.splits, None, 0)

    def attention(self, layer, q):
        return torch.ops._vllm_fa3_C.fwd(
            q, layer.k, layer.v, None, None, None, None, self.starts, None, None, None, self.used,
            self.longest_query, self.longest, self.table, None, None, None, None, None, None, None, None,
            1 / math.sqrt(self.m.dim), True, -1, -1, 0.0, True, self.schedule, self.splits, None, 0,
            None, 1, 0, None)[0]

    def layer(self, layer, x, residual):
        m = self.m
        y, residual = norm(x, residual, layer.norm)
        qkv = F.linear(y, layer.qkv).view(-1, m.heads + 2 * m.kv_heads, m.dim)
        q, k, v = qkv.split((m.heads, m.kv_heads, m.kv_heads), 1)
        q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        layer.k.view(-1, m.kv_heads, m.dim)[self.slots] = k
        layer.v.view(-1, m.kv_heads, m.dim)[self.slots] = v
        y = F.linear(self.attention(layer, q).view(-1, m.heads * m.dim), layer.out)
        y, residual = norm(y, residual, layer.norm)
        return F.linear(gate(F.linear(y, layer.up)), layer.down), residual


def timed(run, repeats):
    """Median seconds of run on the GPU, replayed as a graph so that launches cost nothing."""
    run()
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    took = []
    for i in range(repeats + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if i > 0:
            took.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(took)


def measure(m, layers, head, step, repeats):
    """Seconds of a whole step, and of its attention."""
    b = Batch(m, step)

    def body():
        x, residual = b.x, b.x
        for i in range(TIMED):
            x, residual = b.layer(layers[i % DISTINCT], x, residual)

    q = torch.randn(step.tokens, m.heads, m.dim, device="cuda", dtype=DTYPE)

    def attend():
        for i in range(TIMED):
            b.attention(layers[i % DISTINCT], q)

    rows = b.x[: len(step.queries())]
    whole = timed(body, repeats) * m.layers / TIMED + timed(lambda: F.linear(rows, head), repeats)
    return whole, timed(attend, repeats) * m.layers / TIMED


def check(m, layer):
    """Whether attention is called rightly: a mixed batch beside a slow obvious one."""
    step = Step(new=70, computed=45, streams=3, context=100)
    b = Batch(m, step)
    q = torch.randn(step.tokens, m.heads, m.dim, device="cuda", dtype=DTYPE)
    got = b.attention(layer, q).float()
    at = 0
    for i, (new, length) in enumerate(zip(step.queries(), step.lengths())):
        pages = b.table[i, : math.ceil(length / PAGE)].long()
        k, v = (t[pages].flatten(0, 1)[:length].float().repeat_interleave(m.heads // m.kv_heads, 1)
                for t in (layer.k, layer.v))
        score = torch.einsum("qhd,khd->hqk", q[at : at + new].float(), k) / math.sqrt(m.dim)
        seen = torch.ones(new, length, device="cuda").tril(length - new).bool()
        want = torch.einsum("hqk,khd->qhd", score.masked_fill(~seen, -math.inf).softmax(-1), v)
        off = (got[at : at + new] - want).norm() / want.norm()
        if not off < 1e-2:
            raise SystemExit(f"{m.name}: sequence {i} of the check is off by {off:.3g}")
        at += new


def steps():
    prompts = [Step(new=u, computed=c) for c in (0, 8192, 32768) for u in (256, 512, 1024, 2048, 4096, 8192)]
    streams = [Step(streams=n, context=k) for k in (1024, 4096, 8192) for n in (1, 4, 16, 64)]
    both = [Step(u, c, n, k) for c in (0, 8192) for u in (256, 512, 1024, 2048, 4096, 8192)
            for k in (1024, 4096) for n in (1, 4, 16, 64)]
    return prompts + streams + both


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--attention", required=True, help="the library with vLLM's attention for this GPU")
    args.add_argument("--out", default="steps.json", help="file for the lines")
    args.add_argument("--repeats", type=int, default=5)
    args = args.parse_args()
    torch.ops.load_library(args.attention)
    torch.manual_seed(1)
    gpu = torch.cuda.get_device_name()
    print(gpu, "PyTorch", torch.__version__, flush=True)
    with open(args.out, "w") as out, torch.inference_mode():
        for m in MODELS:
            layers = [Layer(m) for _ in range(DISTINCT)]
            head = torch.randn(m.vocab, m.hidden, device="cuda", dtype=DTYPE)
            check(m, layers[0])
            for step in steps():
                seconds, attention = measure(m, layers, head, step, args.repeats)
                line = {"gpu": gpu, "model": m.name, **{k: getattr(step, k) for k in
                        ("new", "computed", "streams", "context")},
                        "seconds": round(seconds, 7), "attention": round(attention, 7)}
                print(json.dumps(line), file=out, flush=True)
                print(f"{m.name}: {step.new} new after {step.computed}, {step.streams} streams of "
                      f"{step.context}: {1e3 * seconds:.2f} ms, attention {1e3 * attention:.2f}", flush=True)
            del layers, head
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
