#!/usr/bin/env python3
"""prune.py IN OUT: copies a CUDA shared library without the machine code for other chips than Hopper (sm_90).

The code for other chips becomes zeros, so the copy compresses well. Headers stay, because the driver chooses the code by them. It
never reads the code for other chips. If a library has only PTX for sm_90, the copy cannot be used."""
import struct, sys

ARCH, FATBIN, ELF = 90, 0xBA55ED50, 2


def section(data, name):
    """Where the ELF section of this name is: offset and size."""
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for head in heads:
        start = heads[names][4] + head[0]
        if data[start:data.index(b"\0", start)] == name:
            return head[4], head[5]
    raise SystemExit("no section %s" % name.decode())


data = bytearray(open(sys.argv[1], "rb").read())
at, size = section(data, b".nv_fatbin")
end, kept, zeroed = at + size, 0, 0
while at < end:
    magic, _, head, body = struct.unpack_from("<IHHQ", data, at)
    if magic != FATBIN:
        at += 8
        continue
    entry, stop = at + head, at + head + body
    while entry < stop:
        kind, _, entry_head, entry_size = struct.unpack_from("<HHIQ", data, entry)
        arch, = struct.unpack_from("<I", data, entry + 28)
        payload = entry + entry_head
        if kind == ELF and arch == ARCH:
            kept += entry_size
        else:
            data[payload:payload + entry_size] = bytes(entry_size)
            zeroed += entry_size
        entry = payload + entry_size
    at = stop
open(sys.argv[2], "wb").write(data)
print("%s: %d bytes of code kept, %d zeroed" % (sys.argv[1], kept, zeroed))
