# SPDX-License-Identifier: BSD-3-Clause
# A second reader and writer of safetensors, from the description of the format alone (struct and json of Python).
# safetensors.py read FILE: a line for each tensor, and for each text. safetensors.py write FILE: tensors of all types.
import json
import struct
import sys

CODES = {"F64": "d", "F32": "f", "F16": "e", "BF16": "H", "I64": "q", "I32": "i", "I16": "h", "I8": "b",
         "U64": "Q", "U32": "I", "U16": "H", "U8": "B", "BOOL": "?"}

if sys.argv[1] == "read":
    data = open(sys.argv[2], "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0, "the numbers are not aligned"
    header = json.loads(data[8:8 + length])
    numbers = data[8 + length:]
    for key, value in header.pop("__metadata__", {}).items():
        print("text", key, value)
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = entry["data_offsets"]
        assert begin == end, "a hole"
        end = after
        code = CODES[entry["dtype"]]
        count = 1
        for extent in entry["shape"]:
            count *= extent
        assert begin % struct.calcsize(code) == 0, "a tensor is not aligned"
        values = struct.unpack("<%d%s" % (count, code), numbers[begin:after])
        print(name, entry["dtype"], entry["shape"], *[int(v) if float(v).is_integer() else v for v in values])
    assert end == len(numbers), "bytes after the end"
else:
    header, numbers = {"__metadata__": {"written by": "Python \u00e9"}}, b""
    for i, (dtype, code) in enumerate(CODES.items()):
        bytes_of_it = struct.pack("<6" + code, *[(3 * i + j) % (2 if code == "?" else 100) for j in range(6)])
        header["tensor %d" % i] = {"shape": [2, 3], "data_offsets": [len(numbers), len(numbers) + len(bytes_of_it)],
                                   "dtype": dtype}
        numbers += bytes_of_it
    text = json.dumps(header, indent=1).encode()
    open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + numbers)
