# SPDX-License-Identifier: BSD-3-Clause
"""Reads a safetensors file by the format's own description, and insists on every rule of it."""

import json
import struct

SIZES = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8, "I64": 8}


def read(path):
    """{name: (dtype, shape, bytes)}."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0 and data[8:9] == b"{"
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    payload, place, tensors = data[8 + length :], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        count = 1
        for size in entry["shape"]:
            count *= size
        assert begin == place and end - begin == count * SIZES[entry["dtype"]], name
        place = end
        tensors[name] = (entry["dtype"], entry["shape"], payload[begin:end])
    assert place == len(payload)
    return tensors
