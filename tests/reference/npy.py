# SPDX-License-Identifier: BSD-3-Clause
# A second reader and writer of .npy, from the description of the format alone (struct and ast of Python).
# npy.py read FILE: type, shape and numbers on a line. npy.py write FILE VERSION: four halves in an array of 2 x 2.
import ast
import struct
import sys

CODES = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q", "u4": "I", "u2": "H",
         "u1": "B", "b1": "?"}

if sys.argv[1] == "read":
    data = open(sys.argv[2], "rb").read()
    assert data[:6] == b"\x93NUMPY"
    prefix, length = (10, "<H") if data[6] == 1 else (12, "<I")
    begin = prefix + struct.unpack(length, data[8:prefix])[0]
    assert begin % 64 == 0 and data[begin - 1:begin] == b"\n"
    header = ast.literal_eval(data[prefix:begin].decode("latin1"))
    assert sorted(header) == ["descr", "fortran_order", "shape"] and header["fortran_order"] is False
    count = 1
    for extent in header["shape"]:
        count *= extent
    numbers = struct.unpack("<%d%s" % (count, CODES[header["descr"][1:]]), data[begin:])
    print(header["descr"], header["shape"], *numbers)
else:
    version = int(sys.argv[3])
    text = repr({"shape": (2, 2), "fortran_order": False, "descr": "<f2"})
    text += " " * (64 - (12 + len(text) + 1) % 64) + "\n"
    head = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text))
    open(sys.argv[2], "wb").write(head + text.encode() + struct.pack("<4e", 1, -0.5, 65504, 0.25))
