#!/usr/bin/env python3
"""Runs Tandem before vLLM engines that share one GPU, and prints tables.

It starts 2 prefill and 2 decode engines of an 8B-shaped model with dummy weights. It measures TTFT with split requests, with local
prefills and with Tandem's choice, and compares the bandwidth that Tandem has learned with NIXL's counters. It kills a decode engine
during greedy streams, and a prefill engine during prompts. Then it starts 5 engines of the suite's tiny float32 model, plays the
suite's act `answers`, and kills engines again. -p2p plays pulls of prefixes instead. -rehearse uses simulated engines. It needs
only the standard library.

README.md says how to install vLLM on a machine without a package index."""
import argparse, http.client, json, os, random, re, signal, statistics, subprocess, sys, threading, time

KINDS = {  # name of the model: (vocabulary that prompts use, block size, names of the engines)
    "big": (2047, 16, ["p0", "p1", "d0", "d1"]),
    "tiny": (2047, 32, ["p0", "p1", "d0", "d1", "ref"]),
}
BLOCKS = {"p": 224, "d": 256, "r": 512}  # of the tiny engines, as the suite has them
TTFT_TOKENS = [512, 2048, 8192]
P2P_TOKENS = {"big": [2048, 8192], "tiny": [896]}  # whole blocks


class Engine:
    def __init__(self, kind, name, port):
        self.kind, self.name, self.port = kind, name, port
        self.log = os.path.join(o.out, "%s-%s.log" % (kind, name))
        self.process = None

    def role(self):
        return {"p": "kv_producer", "d": "kv_consumer", "r": None}[self.name[0]]

    def connector(self):
        """The engine's --kv-transfer-config, with -p2p as docs/connectors.md has it: each engine on this host has a port of its own."""
        if not o.p2p:
            return {"kv_connector": "NixlConnector", "kv_role": self.role(), "kv_load_failure_policy": "fail"}
        tiers = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": o.host_memory << 30,
                 "secondary_tiers": [{"type": "p2p", "host": "127.0.0.1", "port": self.port + 4000}]}
        return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"connectors": [
            {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
            {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": tiers}]}}

    def command(self):
        at, events, replay = "127.0.0.1:%d" % self.port, self.port + 2000, self.port + 3000
        if o.rehearse:
            a = [o.tandem, "sim", "--model", self.kind, "--listen", at, "--vocab", "2048", "--block-size", str(KINDS[self.kind][1]),
                 "--enable-scale-out", "--max-model-len", "1024" if self.kind == "tiny" else "16384"]
            if self.kind == "tiny":
                a += ["--blocks", str(BLOCKS[self.name[0]])]
            if self.role():
                a += ["--events", "tcp://127.0.0.1:%d" % events, "--replay", "tcp://127.0.0.1:%d" % replay]
                a += ["--host-blocks", "8192", "--p2p", "127.0.0.1:%d" % (self.port + 4000)] if o.p2p else []
            return a + ([] if self.role() else ["--no-connector"])
        a = [o.python, "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", self.kind, "--host", "127.0.0.1",
             "--port", str(self.port), "--model", os.path.join(o.models, self.kind), "--enable-prompt-tokens-details",
             "--enable-request-id-headers", "--disable-uvicorn-access-log", "--max-num-seqs", "64"]
        if self.role():
            a += ["--kv-transfer-config", json.dumps(self.connector()),
                  "--kv-events-config", json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:%d" % events,
                                                    "replay_endpoint": "tcp://*:%d" % replay})]
        if self.kind == "tiny":  # float32 and batch invariant, so that answers can be compared byte by byte
            return a + ["--max-model-len", "1024", "--block-size", "32", "--num-gpu-blocks-override", str(BLOCKS[self.name[0]]),
                        "--kv-cache-memory-bytes", "128M", "--gpu-memory-utilization", "0.02", "--enforce-eager", "--dtype", "float32",
                        "--attention-backend", "TRITON_ATTN", "--max-num-batched-tokens", "512" if self.name[0] == "p" else "16384"]
        return a + ["--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "16384", "--gpu-memory-utilization", "0.18",
                    "--block-size", str(o.block_size), "--kv-cache-memory-bytes", o.kv, "--max-num-batched-tokens", "8192",
                    "--attention-backend", "FLASH_ATTN", "--compilation-config",
                    '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4,8,16,24,32]}']

    def start(self):
        env = dict(os.environ, VLLM_USE_FLASHINFER_SAMPLER="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", PYTHONUNBUFFERED="1",
                   VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1", VLLM_NIXL_SIDE_CHANNEL_PORT=str(self.port + 1000),
                   UCX_CUDA_IPC_ENABLE_GET_ZCOPY="on")  # or UCX reads over TCP where it sees no NVLink
        if self.kind == "tiny":
            env["VLLM_BATCH_INVARIANT"] = "1"
        if o.p2p:
            env["PYTHONHASHSEED"] = "0"  # engines name blocks by hashes that must agree
        with open(self.log, "ab") as f:
            self.process = subprocess.Popen(self.command(), env=env, stdout=f, stderr=subprocess.STDOUT, start_new_session=True)

    def stop(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def nixl(self):
        """What NIXL has counted on this engine: bytes, seconds of transfers, seconds of posting, transfers."""
        page = get(self.port, "/metrics")
        names = ["nixl_bytes_transferred_sum", "nixl_xfer_time_seconds_sum", "nixl_post_time_seconds_sum", "nixl_xfer_time_seconds_count"]
        return [sum(float(v) for v in re.findall(r"^vllm:%s\{[^}]*\} (\S+)" % n, page, re.M)) for n in names]

    def pulled(self):
        """The tokens that this engine has pulled, by its own count."""
        name = r'^vllm:prompt_tokens_cached_by_source(?:_total)?\{[^}]*source="p2p"[^}]*\} (\S+)'
        return sum(float(v) for v in re.findall(name, get(self.port, "/metrics"), re.M))


class Router:
    def __init__(self, engines, name, port, local, more="", p2p=False):
        self.port, self.admin = port, port + 500
        kind = engines[0].kind
        member = '{name: %s, url: "http://127.0.0.1:%d", place: {host: gpu}, events: {endpoint: "tcp://127.0.0.1:%d", replay: "tcp://127.0.0.1:%d"}, p2p_port: %d}'
        pool = lambda letter: ", ".join(member % (e.name, e.port, e.port + 2000, e.port + 3000, e.port + 4000 if p2p else 0) for e in engines if e.name[0] == letter)
        path = os.path.join(o.out, "tandem-%s-%s" % (kind, name))
        with open(path + ".yaml", "w") as f:
            f.write("listen: 127.0.0.1:%d\nadmin: {listen: 127.0.0.1:%d}\npools:\n  prefill: {replicas: [%s]}\n  decode: {replicas: [%s]}\nlocal: %s\n"
                    "response: {headers: true, replicas: true}\ndecisions: {ring: 20000, file: %s.jsonl}\n%s\n"
                    % (self.port, self.admin, pool("p"), pool("d"), local, path, more))
        with open(path + ".log", "wb") as log:
            self.process = subprocess.Popen([o.tandem, "serve", "--config", path + ".yaml"], stdout=log, stderr=subprocess.STDOUT)
        self.path = path + ".jsonl"
        until(30, "the router %s is ready" % name, lambda: '"ready":true' in get(self.admin, "/readyz").replace(" ", ""))
        time.sleep(1)  # the events of all engines are followed by then

    def stop(self):
        self.process.terminate()
        self.process.wait(20)

    def records(self):
        with open(self.path) as f:
            return [json.loads(line) for line in f]


def get(port, path, post=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        c.request("GET" if post is None else "POST", path, post)
        return c.getresponse().read().decode()
    finally:
        c.close()


def until(limit, what, ok):
    end = time.time() + limit
    while True:
        try:
            if ok():
                return
        except OSError:
            pass
        if time.time() > end:
            raise SystemExit("not within %d s: %s" % (limit, what))
        time.sleep(0.2)


def ask(port, kind, ids, n, on_token=None, salt=None):
    """One streamed completion: its ids, time to the first token, longest pause, mode, error."""
    body = {"model": kind, "prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "stream": True}
    if salt:
        body["cache_salt"] = salt
    a = {"ids": [], "ttft": None, "pause": 0.0, "mode": "", "decode": "", "error": None}
    began = last = time.perf_counter()
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        a["mode"], a["decode"] = r.getheader("X-Tandem-Mode", ""), r.getheader("X-Tandem-Decode", "")
        if r.status != 200:
            a["error"] = "%d %s" % (r.status, r.read()[:200])
        for line in r:
            if not line.startswith(b"data: {"):
                continue
            j = json.loads(line[6:])
            a["error"] = a["error"] or j.get("error")
            for choice in j.get("choices", []):
                if choice.get("token_ids"):
                    now = time.perf_counter()
                    if a["ttft"] is None:
                        a["ttft"] = now - began
                    else:
                        a["pause"] = max(a["pause"], now - last)
                    last = now
                    a["ids"] += choice["token_ids"]
                    if on_token:
                        on_token(len(a["ids"]))
        c.close()
    except (OSError, http.client.HTTPException) as x:
        a["error"] = a["error"] or repr(x)
    if len(a["ids"]) != n:
        a["error"] = a["error"] or "%d of %d tokens" % (len(a["ids"]), n)
    return a


def gang(calls, workers):
    """The results of all calls, in order, so many at a time."""
    out, todo, lock = [None] * len(calls), list(range(len(calls))), threading.Lock()

    def work():
        while True:
            with lock:
                if not todo:
                    return
                i = todo.pop(0)
            out[i] = calls[i]()
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def prompt(rnd, kind, n):
    return [rnd.randint(5, KINDS[kind][0]) for _ in range(n)]


def table(title, head, rows):
    print("\n## %s\n\n| %s |\n|%s" % (title, " | ".join(head), "---|" * len(head)))
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")
    sys.stdout.flush()


def up(kind, port):
    began = time.time()
    engines = [Engine(kind, name, port + i) for i, name in enumerate(KINDS[kind][2])]
    running.extend(engines)
    for e in engines:
        e.start()
    for e in engines:
        def ready():
            if e.process.poll() is not None:
                raise SystemExit("%s %s ended: its log is %s\n%s" % (kind, e.name, e.log, "".join(open(e.log, errors="replace").readlines()[-15:])))
            get(e.port, "/health")
            return True
        until(300, "%s %s is up" % (kind, e.name), ready)
    print("%s: %d engines up after %.0f s" % (kind, len(engines), time.time() - began), flush=True)
    rnd = random.Random(1)  # so that nothing is compiled while it is measured
    lengths = [20, 100, 700] if kind == "tiny" else [20, 500, 2000, 8000]
    warm = gang([lambda e=e, n=n: ask(e.port, kind, prompt(rnd, kind, n), 24) for n in lengths for e in engines], len(engines))
    for a in warm:
        if a["error"]:
            raise SystemExit("%s does not answer: %s" % (kind, a["error"]))
    return engines


def measure_ttft(engines):
    kind, rnd = engines[0].kind, random.Random(11)
    routers = {name: Router(engines, name, 8401 + i, local) for i, (name, local) in enumerate([("split", "never"), ("whole", "always"), ("auto", "auto")])}
    ports = dict({name: r.port for name, r in routers.items()}, direct=engines[2].port)
    before = [e.nixl() for e in engines]
    took, modes, errors = {}, {}, []
    for n in TTFT_TOKENS:
        for _ in range(o.repeats):
            for way in sorted(ports, key=lambda _: rnd.random()):
                a = ask(ports[way], kind, prompt(rnd, kind, n), 16)
                errors += [a["error"]] if a["error"] else []
                took.setdefault((way, n), []).append((a["ttft"] or 0) * 1e3)
                modes.setdefault((way, n), []).append(a["mode"])
    cell = lambda way, n: "%.1f (%.1f-%.1f)" % (statistics.median(took[way, n]), min(took[way, n]), max(took[way, n]))
    table("Time to the first token, ms: median (range) of %d" % o.repeats, ["prompt", "direct", "whole", "split", "auto", "auto split"],
          [[n, cell("direct", n), cell("whole", n), cell("split", n), cell("auto", n), "%d of %d" % (modes["auto", n].count("split"), o.repeats)] for n in TTFT_TOKENS])
    rows = []
    for e, was in zip(engines, before):
        size, xfer, post, count = [b - a for a, b in zip(was, e.nixl())]
        if count and e.name[0] == "d":
            rows.append([e.name, int(count), "%.1f" % (size / count / 1e6), "%.2f" % (size / max(xfer, 1e-9) / 1e9), "%.0f %%" % (100 * post / max(xfer, 1e-9))])
    table("Transfers as NIXL counts them", ["engine", "transfers", "MB each", "GB/s", "of it posting"], rows)
    learned, moved_tokens, moved_bytes = {}, 0, sum(e.nixl()[0] - was[0] for e, was in zip(engines, before))
    for r in [r for router in routers.values() for r in router.records() if r["mode"] == "split"]:
        moved_tokens += r["moved_tokens"]
        for plan in r["decision"]["plans"]:
            if (plan["mode"], plan.get("prefill"), plan["decode"]) == ("split", r["prefill"], r["decode"]):
                learned.setdefault((r["prefill"], r["decode"]), []).append((r["moved_tokens"], plan["terms"]["transfer"]))
    gbps = lambda tokens, ms: "%.2f" % (tokens * moved_bytes / max(moved_tokens, 1) / max(ms, 1e-9) / 1e6)
    table("What Tandem expected of transfers, by pair", ["pair", "transfers", "GB/s at the first", "GB/s at the last"],
          [["%s > %s" % pair, len(v), gbps(*v[0]), gbps(*v[-1])] for pair, v in sorted(learned.items())])
    for r in routers.values():
        r.stop()
    return errors


def kills(engines):
    """kill -9 of a decode engine under greedy streams, then of a prefill engine under prompts. Every answer is compared."""
    kind, rnd = engines[0].kind, random.Random(7)
    by = {e.name: e for e in engines}
    ref = by.get("ref") or by["d1"]
    r = Router(engines, "kills", 8420, "never", "retry: {min: 64, attempts: 5, continue: greedy}")
    prompts, tokens = [prompt(rnd, kind, n) for n in (40, 60, 90, 40, 60, 90, 40, 60)], o.stream_tokens
    want = gang([lambda p=p: ask(ref.port, kind, p, tokens, salt="want") for p in prompts], 8)
    seen, lock, killed = [0] * 8, threading.Lock(), []

    def note(i, n):
        with lock:
            seen[i] = n
            if not killed and min(seen) >= 30:
                killed.append(1)
                os.killpg(by["d0"].process.pid, signal.SIGKILL)
    got = gang([lambda i=i, p=p: ask(r.port, kind, p, tokens, on_token=lambda n: note(i, n)) for i, p in enumerate(prompts)], 8)
    rows = [["decode, under %d streams" % len(got), sum(g["ids"] == w["ids"] for g, w in zip(got, want)), len(got), "%.0f ms" % (1e3 * max(g["pause"] for g in got))]]
    bad = [g["error"] for g in got if g["error"]] + ([] if killed else ["no engine was killed"])
    prompts = [prompt(rnd, kind, rnd.choice([600, 800, 950])) for _ in range(48)]
    want = gang([lambda p=p: ask(ref.port, kind, p, 16, salt="want") for p in prompts], 8)
    done = []

    def one(p):
        a = ask(r.port, kind, p, 16)
        done.append(1)
        if len(done) == 12:
            os.killpg(by["p0"].process.pid, signal.SIGKILL)
        return a
    got = gang([lambda p=p: one(p) for p in prompts], 8)
    rows.append(["prefill, under %d prompts" % len(got), sum(g["ids"] == w["ids"] for g, w in zip(got, want)), len(got), "-"])
    bad += [g["error"] for g in got if g["error"]]
    table("kill -9 (%s)" % kind, ["engine", "answers exact", "of", "longest pause"], rows)
    leases = sum(float(v) for v in re.findall(r"^tandem_leases\{[^}]*\} (\S+)", get(r.admin, "/metrics"), re.M))
    print("leases afterwards: %d; errors: %s" % (leases, bad[:3] or "none"), flush=True)
    r.stop()
    exact = all(row[1] == row[2] for row in rows)
    return bad + ([] if exact else ["answers differ after a kill"]) + (["leases are left"] if leases else [])


def pulls(engines):
    """p0 prefills the beginning of a prompt and is drained. Then p1 pulls this beginning, or computes it if Tandem knows no p2p_port."""
    kind, rnd, by = engines[0].kind, random.Random(5), {e.name: e for e in engines}
    ref, before = by.get("ref") or by["d1"], by["p1"].pulled()
    routers = {"computed": Router(engines, "p2p-off", 8430, "never"), "pulled": Router(engines, "p2p-on", 8431, "never", p2p=True)}
    got, bad = {}, []

    def once(way, r, n):
        drain = lambda name, un="": get(r.admin, "/-/%sdrain?replica=%s" % (un, name), "")
        begin = prompt(rnd, kind, n)
        first, second = [begin + prompt(rnd, kind, 60) for _ in range(2)]
        plan = json.dumps({"model": kind, "prompt": second, "max_tokens": 16})
        drain("p1")
        bad.extend(filter(None, [ask(r.port, kind, first, 2)["error"]]))
        until(10, "the router knows what p0 has", lambda: json.loads(
            get(r.admin, "/debug/explain", plan))["plans"][0]["on_prefill"]["matched_tokens"] >= n)
        time.sleep(0.5)  # an engine copies blocks to its host memory after its answer
        drain("p1", "un")
        drain("p0")
        a = ask(r.port, kind, second, 16)
        drain("p0", "un")
        bad.extend(filter(None, [a["error"]]))
        if kind == "big" and way == "pulled":  # bf16: the reference computes the same tokens over a cached beginning, and rounds as p1 does
            ask(ref.port, kind, first, 2, salt="want")
        a["exact"] = a["ids"] == ask(ref.port, kind, second, 16, salt="want")["ids"]
        return a
    for n in P2P_TOKENS[kind]:
        for _ in range(o.repeats):
            for way, r in routers.items():
                got.setdefault((way, n), []).append(once(way, r, n))
    for r in routers.values():
        r.stop()
    on_p1 = [(r["decision"]["plans"][0]["on_prefill"].get("pulled_tokens", 0), r["delivered_tokens"])
             for r in routers["pulled"].records() if r.get("prefill") == "p1"]
    cell = lambda v: "%.1f (%.1f-%.1f)" % (statistics.median(v), min(v), max(v))
    rows = []
    for i, n in enumerate(P2P_TOKENS[kind]):
        said, both = on_p1[i * o.repeats:(i + 1) * o.repeats], got["computed", n] + got["pulled", n]
        rows.append([n + 60] + [cell([(a["ttft"] or 0) * 1e3 for a in got[way, n]]) for way in routers] + [
            " ".join(str(x[k]) for x in said) for k in (0, 1)] + ["%d of %d" % (sum(a["exact"] for a in both), len(both))])
    table("Pulls (%s): time to the first token in ms, median (range) of %d" % (kind, o.repeats),
          ["prompt", "computed", "pulled", "pulled_tokens", "delivered_tokens", "answers exact"], rows)
    counted = by["p1"].pulled() - before
    print("pulled by p1's own count: %d tokens; errors: %s" % (counted, bad[:3] or "none"), flush=True)
    bad += [] if all(a["exact"] for v in got.values() for a in v) else ["answers differ after a pull"]
    return bad + ([] if counted and any(planned for planned, _ in on_p1) else ["%s: nothing was pulled" % kind])


def answers(engines):
    """The suite's act `answers`."""
    fleet = {"Fleet": "pools", "Work": os.path.join(o.out, "work"), "Net": None, "Engines": [
        {"Name": e.name, "Role": e.role() or "", "Version": "", "Blocks": BLOCKS[e.name[0]], "Ranks": 0, "Flags": None, "Adapters": None,
         "Port": e.port, "Side": e.port + 1000, "Events": e.port + 2000, "Replay": e.port + 3000, "Log": e.log, "PID": e.process.pid,
         "Shape": "", "Mute": False, "Apart": False, "Space": "", "Address": ""} for e in engines]}
    os.makedirs(fleet["Work"], exist_ok=True)
    file = os.path.join(o.out, "fleet.json")
    with open(file, "w") as f:
        json.dump(fleet, f)
    log = os.path.join(o.out, "answers.log")
    with open(log, "wb") as f:
        code = subprocess.run([o.e2evllm, "-tandem", o.tandem, "-attach", file, "-only", "answers", "-requests", str(o.requests),
                               "-keep", os.path.join(o.out, "kept")] + (["-sim"] if o.rehearse else []), stdout=f, stderr=subprocess.STDOUT).returncode
    print("\n## The act answers: %s\n\n%s" % ("held" if code == 0 else "FAILED", "".join(open(log, errors="replace").readlines()[-30:])), flush=True)
    return [] if code == 0 else ["the act answers failed"]


def main():
    errors = []
    try:
        for kind in o.kinds.split(","):
            engines = up(kind, 8110 if kind == "tiny" else 8130)
            if o.p2p:
                errors += pulls(engines)
            else:
                errors += measure_ttft(engines) if kind == "big" else answers(engines)
                errors += kills(engines)
            for e in engines:
                e.stop()
    finally:
        for e in running:
            e.stop()
    print("\n%s" % ("everything held" if not errors else "FAILED: %s" % errors[:5]), flush=True)
    sys.exit(1 if errors else 0)


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("-tandem", default="build/tandem", help="the router's binary")
p.add_argument("-e2evllm", default="build/e2evllm", help="the suite's binary (go build ./tools/e2evllm)")
p.add_argument("-out", default="gpu-out", help="folder of logs and records")
p.add_argument("-models", default="models", help="folder of the models tiny and big, as models.py makes them")
p.add_argument("-python", default=sys.executable, help="the python that has vLLM")
p.add_argument("-kinds", default="big,tiny", help="which models are played")
p.add_argument("-repeats", type=int, default=5, help="measurements of each way and length")
p.add_argument("-requests", type=int, default=78, help="requests of the act answers")
p.add_argument("-stream-tokens", type=int, default=400, help="tokens of each stream under which an engine is killed")
p.add_argument("-block-size", type=int, default=16, help="block size of the 8B-shaped engines")
p.add_argument("-kv", default="12G", help="KV cache of each 8B-shaped engine")
p.add_argument("-p2p", action="store_true", help="play only pulls of prefixes (docs/connectors.md)")
p.add_argument("-host-memory", type=int, default=8, help="GiB of host memory (/dev/shm) of each engine with -p2p")
p.add_argument("-rehearse", action="store_true", help="simulated engines in the place of real ones")
o, running = p.parse_args(), []
o.out, o.models = os.path.abspath(o.out), os.path.abspath(o.models)
os.makedirs(o.out, exist_ok=True)
main()
