"""A subscriber in Python, independent of our code.

Usage: subscriber.py ENDPOINT REPLAY
Prints a JSON line for each message: [channel, [frame, …]], the last frame decoded, the others in hex. Each line of stdin is a number to replay from; end of stdin ends it.
"""
import json
import os
import struct
import sys

import msgpack
import zmq

ctx = zmq.Context()
sub = ctx.socket(zmq.SUB)
sub.setsockopt(zmq.SUBSCRIBE, b"kv@")
sub.connect(sys.argv[1])
dealer = ctx.socket(zmq.DEALER)
dealer.connect(sys.argv[2])


def show(channel, frames):
    payload = msgpack.unpackb(frames[-1], strict_map_key=False) if frames[-1] else None
    print(json.dumps([channel, [f.hex() for f in frames[:-1]], payload]), flush=True)


poller = zmq.Poller()
for source in (sub, dealer, 0):
    poller.register(source, zmq.POLLIN)
going = True
while going:
    ready = dict(poller.poll())
    if sub in ready:
        show("live", sub.recv_multipart())
    if dealer in ready:
        show("replay", dealer.recv_multipart())
    if 0 in ready:
        lines = os.read(0, 65536).decode().splitlines()
        going = bool(lines)
        for line in lines:
            dealer.send_multipart([b"", struct.pack(">Q", int(line))])
ctx.destroy(linger=0)
