"""An engine with a pool of blocks, in Python: independent of our code, written after vLLM's ZmqEventPublisher. A process of its own, to be killed and stopped.

Usage: pool.py ENDPOINT REPLAY STEPS     to bind to, a port * picks one; batches kept for replay
Prints one JSON line with its addresses, then obeys the lines of stdin: publish N, hide N (numbered and kept, not sent), large N (batches of 4 KiB),
held; end of stdin ends it. Each command is answered with a JSON line: the blocks held, and those that the batches still kept speak of.
"""
import json
import os
import random
import struct
import sys
import time

import msgpack
import zmq

END = (-1).to_bytes(8, "big", signed=True)
steps = int(sys.argv[3])
ctx = zmq.Context()
pub = ctx.socket(zmq.PUB)
router = ctx.socket(zmq.ROUTER)
for sock, at in ((pub, sys.argv[1]), (router, sys.argv[2])):
    for _ in range(200):  # the port of a process that has just been killed
        try:
            sock.bind(at)
            break
        except zmq.ZMQError:
            time.sleep(0.01)

held, buffer, seq = set(), [], 0


def batch(pad):
    """Stores a block, and from the fourth on removes another one."""
    events = []
    if len(held) > 3:
        gone = random.choice(sorted(held))
        held.remove(gone)
        events.append({"type": "BlockRemoved", "block_hashes": [gone], "medium": "GPU", "group_idx": 0})
    new = random.getrandbits(64)
    held.add(new)
    events.append({"type": "BlockStored", "block_hashes": [new], "parent_block_hash": None, "token_ids": [1, 2, 3, 4], "block_size": 4, "lora_id": None,
                   "medium": "GPU", "lora_name": None, "extra_keys": [None], "group_idx": 0, "kv_cache_spec_kind": "full_attention"})
    return events, msgpack.packb([time.time(), events, 0, b"x" * pad])


def publish(live, pad):
    global seq
    events, payload = batch(pad)
    number = struct.pack(">Q", seq)
    if live:
        pub.send_multipart([b"", number, payload])
    buffer.append((number, payload, events))
    del buffer[:-steps]
    seq += 1


def told():
    blocks = set()
    for _, _, events in buffer:
        for e in events:
            (blocks.update if e["type"] == "BlockStored" else blocks.difference_update)(e["block_hashes"])
    return blocks


def say(**what):
    print(json.dumps(what), flush=True)


def obey(words):
    for _ in range(int(words[1]) if len(words) > 1 else 0):
        publish(words[0] != "hide", 4096 if words[0] == "large" else 0)
    say(held=sorted(held), told=sorted(told()), seq=seq)


say(endpoint=pub.LAST_ENDPOINT.decode(), replay=router.LAST_ENDPOINT.decode())
poller = zmq.Poller()
poller.register(router, zmq.POLLIN)
poller.register(0, zmq.POLLIN)
going = True
while going:
    ready = dict(poller.poll())
    if router in ready:
        who, empty, start = router.recv_multipart()
        assert empty == b""
        for number, payload, _ in buffer:
            if number >= start:
                router.send_multipart([who, b"", b"", number, payload])
        router.send_multipart([who, b"", b"", END, b""])
    if 0 in ready:
        lines = os.read(0, 65536).decode().splitlines()
        going = bool(lines)
        for line in lines:
            obey(line.split())
ctx.destroy(linger=0)
