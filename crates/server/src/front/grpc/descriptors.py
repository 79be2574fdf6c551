"""Writes descriptors.bin, what gRPC reflection shows: Envoy's rls.proto and the files that it imports, without comments.

    python3 descriptors.py FILES.bin

FILES.bin is a FileDescriptorSet that holds Envoy's API: `buf build buf.build/envoyproxy/envoy -o FILES.bin` writes one, and
the crate envoy-types has one at src/generated/types.bin (ours comes from its version 0.7.7). The messages in envoy.rs follow
by hand; tests/grpc/messages.rs tells what differs.
"""

import pathlib
import sys

ROOT = b"envoy/service/ratelimit/v3/rls.proto"
FILE, NAME, DEPENDENCY, SOURCE_INFO = 1, 1, 3, 9


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """Number, content (None unless it has a length) and encoding of each field of a message."""
    at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        content = None
        match tag & 7:
            case 0:
                _, at = varint(data, at)
            case 1:
                at += 8
            case 2:
                length, at = varint(data, at)
                content = data[at : at + length]
                at += length
            case 5:
                at += 4
        yield tag >> 3, content, data[start:at]


def encoded_length(length):
    out = bytearray()
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes(out + bytearray([length]))


files = {}
for _, file, _ in fields(pathlib.Path(sys.argv[1]).read_bytes()):
    name = next(content for number, content, _ in fields(file) if number == NAME)
    files[name] = file

wanted, todo = [], [ROOT]
while todo:
    name = todo.pop()
    if name not in wanted:
        wanted.append(name)
        todo += [content for number, content, _ in fields(files[name]) if number == DEPENDENCY]

out = b""
for name in reversed(wanted):
    file = b"".join(encoding for number, _, encoding in fields(files[name]) if number != SOURCE_INFO)
    out += bytes([FILE << 3 | 2]) + encoded_length(len(file)) + file
(pathlib.Path(__file__).parent / "descriptors.bin").write_bytes(out)
