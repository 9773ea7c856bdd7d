"""older_events.py ADDRESS: asks an engine for a replay from batch 0, and prints the number of frames of its replies and the form of its events."""

import json
import sys

import msgspec
import zmq

END = b"\xff" * 8

socket = zmq.Context.instance().socket(zmq.DEALER)
socket.setsockopt(zmq.RCVTIMEO, 10_000)
socket.setsockopt(zmq.RCVHWM, 0)
socket.connect(sys.argv[1])
socket.send_multipart([b"", bytes(8)])

batches, frames, forms = 0, set(), {}
while True:
    reply = socket.recv_multipart()
    frames.add(len(reply))
    if reply[-2] == END:
        break
    batches += 1
    for event in msgspec.msgpack.decode(reply[-1])[1]:
        kind, form = (event["type"], "map") if isinstance(event, dict) else (event[0], "array")
        forms.setdefault(kind, set()).add(form)

print(json.dumps({"batches": batches, "frames": sorted(frames), "forms": {kind: sorted(f) for kind, f in forms.items()}}), end="")
