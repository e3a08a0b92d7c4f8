"""safetensors files, by code that shares nothing with Starling's and needs torch alone."""
import json
import struct

import torch


def write_weights(model, path):
    """safetensors: length of the header, the header (JSON), the values."""
    header, values = {}, b""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():  # num_batches_tracked
            continue
        raw = struct.pack("<%df" % tensor.numel(), *tensor.flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(values), len(values) + len(raw)]}
        values += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + values)


def read_weights(path):
    raw = open(path, "rb").read()
    length, = struct.unpack("<Q", raw[:8])
    header, values = json.loads(raw[8:8 + length]), raw[8 + length:]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        numbers = struct.unpack("<%df" % ((end - begin) // 4), values[begin:end])
        tensors[name] = torch.tensor(numbers).reshape(entry["shape"])
    return tensors
