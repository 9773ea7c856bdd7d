"""An engine's event publisher in Python: independent of our code, written after vLLM's ZmqEventPublisher.

Usage: engine.py {map|array} {3|4}     form of events, frames of a replay
Prints one JSON line with its addresses, then obeys the lines of stdin: publish N, drop N (numbered and kept, not sent), restart; end of stdin ends it.
"""
import json
import os
import struct
import sys
import time

import msgpack
import zmq

form, frames = sys.argv[1], int(sys.argv[2])
END = (-1).to_bytes(8, "big", signed=True)
ctx = zmq.Context()
pub = ctx.socket(zmq.PUB)
pub.bind("tcp://127.0.0.1:*")
router = ctx.socket(zmq.ROUTER)
router.bind("tcp://127.0.0.1:*")
print(json.dumps({"endpoint": pub.LAST_ENDPOINT.decode(), "replay": router.LAST_ENDPOINT.decode()}), flush=True)

seq, buffer, topic = 0, [], b"kv@python"


def batch():
    hashes, tokens = [2**63 + seq], [seq, 1000, 100_000, 5]
    if form == "map":
        store = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": tokens, "block_size": 4, "lora_id": None,
                 "medium": "GPU", "lora_name": None, "extra_keys": [["salt"]], "group_idx": 0, "kv_cache_spec_kind": "full_attention"}
        remove = {"type": "BlockRemoved", "block_hashes": [seq], "medium": "GPU", "group_idx": 0}
    else:
        store = ["BlockStored", hashes, None, tokens, 4, None, "GPU", None, [["salt"]], 0]
        remove = ["BlockRemoved", [seq], "GPU", 0]
    return msgpack.packb([time.time(), [remove, store], 0])


def publish(live):
    global seq
    number, payload = struct.pack(">Q", seq), batch()
    if live:
        pub.send_multipart([topic, number, payload])
    buffer.append((number, payload))
    seq += 1


def replay(request):
    who, empty, start = request
    assert empty == b""
    for number, payload in buffer:
        if number >= start:
            router.send_multipart([who, b"", number, payload] if frames == 3 else [who, b"", topic, number, payload])
    router.send_multipart([who, b"", END, b""] if frames == 3 else [who, b"", b"", END, b""])


poller = zmq.Poller()
poller.register(router, zmq.POLLIN)
poller.register(0, zmq.POLLIN)
going = True
while going:
    ready = dict(poller.poll())
    if router in ready:
        replay(router.recv_multipart())
    if 0 in ready:
        lines = os.read(0, 65536).decode().splitlines()  # readline would keep lines that poll does not see
        going = bool(lines)
        for words in map(str.split, lines):
            if words[0] == "restart":
                seq, buffer = 0, []
            else:
                for _ in range(int(words[1])):
                    publish(words[0] == "publish")
ctx.destroy(linger=0)
