# SPDX-License-Identifier: BSD-3-Clause
"""Reads event files of TensorBoard: TFRecord frames and protobuf messages, from their descriptions alone."""
import os
import struct


def crc32c(data):
    """Bit by bit: polynomial 0x1EDC6F41, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# The check value of RFC 3720, B.4: 32 bytes of zeros.
assert crc32c(bytes(32)) == 0x8A9136AA and crc32c(b"123456789") == 0xE3069283


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        assert at + 12 <= len(data), f"{path}: a frame that ends at byte {at}"
        (length,) = struct.unpack_from("<Q", data, at)
        (crc,) = struct.unpack_from("<I", data, at + 8)
        assert crc == masked(crc32c(data[at : at + 8])), f"{path}: CRC of a length at byte {at}"
        body = data[at + 12 : at + 12 + length]
        assert len(body) == length and at + 16 + length <= len(data), f"{path}: a frame that is cut off at byte {at}"
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked(crc32c(body)), f"{path}: CRC of a record at byte {at}"
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field; bytes, ints, and floats as their bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
            assert len(value) == length
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = struct.unpack_from("<d" if kind == 1 else "<f", data, at)[0], at + size
        else:
            raise AssertionError(f"field {number} of kind {kind}")
        yield number, value


class Run:
    """A folder as TensorBoard shows it: files in the order of their names; a session that begins purges later steps."""

    def __init__(self, folder):
        self.scalars, self.texts, self.sessions, self.seconds = {}, {}, [], []
        self.files = sorted(name for name in os.listdir(folder) if "tfevents" in name)
        for name in self.files:
            for index, record in enumerate(records(os.path.join(folder, name))):
                self.take(index, record)

    def take(self, index, record):
        event = dict(fields(record))
        step = event.get(2, 0)
        self.seconds.append(event[1])
        if index == 0:
            assert event[3] == b"brain.Event:2", event
        elif index == 1 or 7 in event:
            assert dict(fields(event[7])) == {1: 1}, event
            self.sessions.append(step)
            for entries in (*self.scalars.values(), *self.texts.values()):
                for old in [known for known in entries if known >= step]:
                    del entries[old]
        else:
            for number, value in fields(event[5]):
                assert number == 1
                parts = dict(fields(value))
                tag = parts[1].decode()
                if 2 in parts:
                    assert step not in self.scalars.setdefault(tag, {}), (tag, step)
                    self.scalars[tag][step] = parts[2]
                else:
                    assert dict(fields(dict(fields(parts[9]))[1])) == {1: b"text"}
                    tensor = dict(fields(parts[8]))
                    assert tensor[1] == 7
                    self.texts.setdefault(tag, {})[step] = tensor[8].decode()


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]
