#!/usr/bin/env python3
"""Are the answers of ONNX files those of onnxruntime?

    check_onnx.py [--library libstarling.so] [--quick] [FILE.json|FILE.onnx ...]

The library opens each FILE; ONNX's own checker checks its ONNX file (a .json is saved as one
first), and onnxruntime runs it on the same random input as sl_predict. Without files: models that
together have all layers, and, if there is PyTorch, models that its exporters write (--quick: in one
way). One line a model: the greatest difference over the greatest value. Exit: 0 all below 1e-5, 1
not, 77 without onnx and onnxruntime.
"""

import argparse
import contextlib
import ctypes
import json
import os
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"check_onnx: skipped: {missing}")
    sys.exit(77)

LIMIT = 1e-5
BATCH = 6  # a multiple of what fixed ones are exported with


class Shape(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int), ("dim", ctypes.c_int64 * 5)]

    def tuple(self):
        return tuple(self.dim[: self.ndim])


class Library:
    """The few calls of libstarling that are needed. A call that fails raises its message."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.sl_error.restype = ctypes.c_char_p
        self.lib.sl_model_output.restype = ctypes.POINTER(Shape)
        self.lib.sl_model_parameter.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        # a struct of options that is all zero: the defaults
        self.call("sl_open", ctypes.create_string_buffer(1024), ctypes.byref(self.context))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.lib.sl_error().decode(errors='replace')}")

    def close(self):
        self.lib.sl_close(self.context)

    def parse(self, architecture):
        text, model = json.dumps(architecture).encode(), ctypes.c_void_p()
        self.call(
            "sl_model_parse",
            self.context,
            b"check_onnx",
            text,
            ctypes.c_size_t(len(text)),
            ctypes.byref(model),
        )
        return Model(self, model)

    def open(self, path):
        model = ctypes.c_void_p()
        self.call("sl_model_open", self.context, path.encode(), ctypes.byref(model))
        return Model(self, model)


class Model:
    def __init__(self, library, pointer):
        self.library, self.lib, self.pointer = library, library.lib, pointer

    def free(self):
        self.lib.sl_model_free(self.pointer)

    def save(self, path):
        self.library.call("sl_model_save", self.pointer, path.encode())

    def architecture(self):
        text = ctypes.c_char_p()
        self.library.call("sl_model_architecture", self.pointer, None, ctypes.byref(text))
        return json.loads(text.value)

    def randomise(self, random):
        """Values for all parameters, so that no bias and no statistic has its first value."""
        self.library.call("sl_model_build", self.pointer)
        for i in range(self.lib.sl_model_parameter_count(self.pointer)):
            shape = Shape()
            name = self.lib.sl_model_parameter(self.pointer, i, ctypes.byref(shape))
            size = shape.tuple()
            values = random.normal(0, 1 / np.sqrt(max(1, np.prod(size[1:]))), size)
            if name.endswith(b"running_var"):
                values = np.abs(values) + 0.5
            values = np.ascontiguousarray(values, np.float32)
            self.library.call(
                "sl_model_set", self.pointer, name, values.ctypes.data_as(ctypes.c_void_p)
            )

    def predict(self, x):
        predictor = ctypes.c_void_p()
        self.library.call(
            "sl_predictor_open",
            self.pointer,
            ctypes.create_string_buffer(256),
            ctypes.byref(predictor),
        )
        x = np.ascontiguousarray(x, np.float32 if x.dtype.kind == "f" else np.int32)
        shape = self.lib.sl_model_output(self.pointer).contents.tuple()
        y = np.zeros((len(x),) + shape, np.float32)
        try:
            self.library.call(
                "sl_predict",
                predictor,
                x.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_int64(len(x)),
                y.ctypes.data_as(ctypes.c_void_p),
            )
        finally:
            self.lib.sl_predictor_free(predictor)
        return y


def run(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if len(session.get_inputs()) > 1 or len(session.get_outputs()) > 1:
        return run_fields(session, x)
    given = session.get_inputs()[0]
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    if isinstance(given.shape[0], int):  # a file for one batch size
        parts = [x[i : i + given.shape[0]] for i in range(0, len(x), given.shape[0])]
        return np.concatenate(
            [session.run(None, {given.name: p.astype(kinds[given.type])})[0] for p in parts]
        )
    return session.run(None, {given.name: x.astype(kinds[given.type])})[0]


def run_fields(session, x):
    """Several inputs are parts of a row; several outputs become one."""
    given, first, rows = {}, 0, x.reshape(len(x), -1)
    for one in session.get_inputs():
        count = int(np.prod(one.shape[1:]))
        given[one.name] = rows[:, first : first + count].reshape(len(x), *one.shape[1:])
        first += count
    assert first == rows.shape[1]
    return np.concatenate([y.reshape(len(x), -1) for y in session.run(None, given)], axis=1)


def make_input(model, random):
    architecture = model.architecture()
    if "inputs" in architecture:
        values = sum(int(np.prod(field["shape"])) for field in architecture["inputs"])
        return random.normal(0, 1, (BATCH, values)).astype(np.float32)
    size = (BATCH, *architecture["input"])
    tokens = [
        layer["vocabulary"] for layer in architecture["layers"] if layer["kind"] == "embedding"
    ]
    return (
        random.integers(0, min(tokens), size)
        if tokens
        else random.normal(0, 1, size).astype(np.float32)
    )


def compare(label, model, path, random):
    """Does the model answer as the file does in onnxruntime? Prints one line."""
    onnx.checker.check_model(
        onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True), full_check=True
    )
    x = make_input(model, random)
    expected = run(path, x)
    own = model.predict(x).reshape(expected.shape)
    error = float(np.max(np.abs(own - expected)) / np.max(np.abs(expected)))
    fine = error < LIMIT and bool(np.all(np.isfinite(own)))
    layers = len(model.architecture()["layers"])
    print(f"{label:34} {layers:3} layers {error:.1e} {'ok' if fine else 'DIFFERS'}")
    return fine


# ---- models of ours ----


def layer(kind, name, *inputs, **options):
    return {"name": name, "kind": kind, "inputs": list(inputs), **options}


def architecture(shape, *layers):
    for i, one in enumerate(layers):
        one["inputs"] = one["inputs"] or ([layers[i - 1]["name"]] if i else ["input"])
    return {"format": "starling model", "version": 1, "input": shape, "layers": list(layers)}


def fields(inputs, outputs, *layers):
    return {
        "format": "starling model",
        "version": 2,
        "inputs": [{"name": name, "shape": shape} for name, shape in inputs.items()],
        "outputs": outputs,
        "layers": list(layers),
    }


OWN = {
    "two inputs, two outputs": fields(
        {"picture": [2, 6, 5], "speed": [3]},
        ["turn", "mask"],
        layer("conv2d", "conv", "picture", channels=4, kernel_h=3, pad_h=1, activation="relu"),
        layer("concatenate", "joined", "conv", "speed", flat=True),
        layer("conv2d", "mask", "conv", channels=1, kernel_h=1),
        layer("dense", "turn", "joined", features=2),
    ),
    "ranges and rows": architecture(
        [60],
        layer("slice", "image", "input", count=40, shape=[2, 4, 5]),
        layer("slice", "rest", "input", first=40),
        layer("conv2d", "conv", "image", channels=3, kernel_h=2),
        layer("concatenate", "joined", "conv", "rest", "image", flat=True),
        layer("dense", "fc", "joined", features=4),
    ),
    "lenet": architecture(
        [1, 28, 28],
        layer("conv2d", "conv1", channels=20, kernel_h=5, activation="tanh"),
        layer("maxpool2d", "pool1", kernel_h=2),
        layer("conv2d", "conv2", channels=50, kernel_h=5, activation="sigmoid"),
        layer("maxpool2d", "pool2", kernel_h=2),
        layer("dense", "fc1", features=500, activation="relu"),
        layer("dropout", "drop", rate=0.25),
        layer("dense", "fc2", features=10),
    ),
    "residual": architecture(
        [3, 12, 10],
        layer(
            "conv2d",
            "conv1",
            channels=4,
            kernel_h=3,
            kernel_w=5,
            stride_h=2,
            stride_w=1,
            pad_h=1,
            pad_w=2,
            no_bias=True,
            activation="relu",
        ),
        layer("batchnorm", "bn1", epsilon=0.001, momentum=0.3),
        layer("conv2d", "conv2", "bn1", channels=4, kernel_h=3, pad_h=1),
        layer("add", "sum", "conv2", "bn1"),
        layer("activation", "relu", activation="relu"),
        layer("maxpool2d", "pool1", kernel_h=2, stride_h=1, pad_h=1),
        layer("avgpool2d", "pool2", kernel_h=3, stride_h=2, pad_h=1),
        layer("activation", "gelu", activation="gelu"),
        layer("activation", "gelu_tanh", activation="gelu_tanh"),
        layer("activation", "silu", activation="silu"),
        layer("avgpool2d", "pool3", **{"global": True}),
        layer("dense", "fc", features=5, no_bias=True),
    ),
    "global maximum, no dense": architecture(
        [2, 9, 9],
        layer("conv2d", "conv", channels=6, kernel_h=2, activation="relu"),
        layer("maxpool2d", "pool", **{"global": True}),
    ),
    "lstm, gru, tied": architecture(
        [7],
        layer("embedding", "embed", vocabulary=11, features=6),
        layer("lstm", "lstm", features=8),
        layer("dropout", "drop", rate=0.5),
        layer("gru", "gru", features=6),
        layer("dense", "decoder", features=11, positions=True, shares="embed"),
    ),
    "lstm on numbers": architecture(
        [5, 4],
        layer("lstm", "lstm1", features=8),
        layer("lstm", "lstm2", features=3),
        layer("dense", "fc", features=6, activation="tanh"),
        layer("activation", "act", activation="sigmoid"),
        layer("dense", "last", features=2, positions=True),
    ),
    "joined and cut": architecture(
        [4, 6, 5],
        layer("slice", "left", axis=2, count=2),
        layer("slice", "right", "input", axis=2, first=2),
        layer("concatenate", "back", "right", "left", axis=2),
        layer("add", "sum", "back", "input", "back"),
        layer("multiply", "product", "sum", "input", "back"),
        layer("permute", "turned", axes=[2, 0, 1]),
        layer("flip", "flip", axis=1),
        layer("mean", "rows", axes=[1], keep=True),
        layer("reshape", "view", shape=[6, 5]),
        layer("mean", "columns"),
        layer("mean", "all", "turned", axes=[0, 1, 2]),
        layer("concatenate", "ends", "columns", "all"),
        layer("dense", "fc", features=3),
    ),
    "norms of samples": architecture(
        [6, 4, 5],
        layer("groupnorm", "groups", groups=3, epsilon=0.01),
        layer("groupnorm", "instance", plain=True),
        layer("layernorm", "rows"),
        layer("layernorm", "planes", axes=2, epsilon=0.1, plain=True),
        layer("layernorm", "rms", rms=True),
        layer("dense", "fc", features=3),
    ),
    "blocks": architecture(
        [5, 6],
        layer("position", "wpe", length=9),
        layer("dense", "fc1", features=8, positions=True, activation="gelu_tanh"),
        layer("swiglu", "gate"),
        layer("position", "again"),
        layer("dense", "fc2", features=4, positions=True, activation="gelu"),
        layer("dense", "fc3", features=3, activation="silu"),
    ),
    "upsampled": architecture(
        [2, 4, 3],
        layer("upsample2d", "nearest", scale_h=2),
        layer("upsample2d", "linear", scale_h=3, scale_w=2, bilinear=True),
        layer("conv2d", "conv", channels=2, kernel_h=3),
    ),
    "upsampled rows": architecture(
        [3, 5],
        layer("upsample1d", "nearest", scale=2),
        layer("upsample1d", "linear", scale=3, linear=True),
        layer("conv1d", "conv", channels=2, kernel=3),
    ),
    "groups and transposed": architecture(
        [4, 9, 8],
        layer("conv2d", "depth", channels=8, kernel_h=3, groups=4),
        layer("conv2d", "wide", channels=6, kernel_h=3, pad_h=2, dilation_h=2, groups=2),
        layer(
            "conv_transpose2d", "up", channels=4, kernel_h=3, stride_h=2, pad_h=1, output_pad_h=1
        ),
        layer("conv_transpose2d", "last", channels=2, kernel_h=2, stride_h=2, groups=2),
        layer(
            "conv_transpose2d",
            "more",
            channels=2,
            kernel_h=3,
            pad_h=2,
            output_pad_h=2,
            output_pad_w=1,
            dilation_h=3,
        ),
    ),
    "rows": architecture(
        [4, 21],
        layer("conv1d", "conv1", channels=6, kernel=3, pad=1, activation="relu"),
        layer("maxpool1d", "pool1", kernel=3, stride=2, pad=1),
        layer("conv1d", "conv2", channels=4, kernel=2, dilation=3, groups=2),
        layer("avgpool1d", "pool2", kernel=2),
        layer("conv_transpose1d", "up", channels=6, kernel=3, stride=2, pad=1, output_pad=1),
        layer("conv_transpose1d", "wide", channels=4, kernel=2, dilation=2, groups=2),
        layer(
            "conv_transpose1d",
            "more",
            channels=4,
            kernel=2,
            stride=2,
            pad=2,
            output_pad=3,
            dilation=4,
        ),
        layer("maxpool1d", "pool3", **{"global": True}),
        layer("dense", "fc", features=3),
    ),
    "both directions": architecture(
        [7, 3],
        layer("lstm", "both", features=4, bidirectional=True),
        layer("gru", "back", features=5, reverse=True),
        layer("gru", "wide", features=3, bidirectional=True),
        layer("lstm", "last", features=6, bidirectional=True, last=True),
        layer("gru", "end", "wide", features=2, last=True),
        layer("gru", "ends", "wide", features=2, bidirectional=True, last=True),
        layer("lstm", "first", "wide", features=2, reverse=True, last=True),
        layer("concatenate", "all", "last", "end", "ends", "first"),
        layer("dense", "fc", features=3),
    ),
    "attention, rope": architecture(
        [6, 5],
        layer("dense", "qkv", features=48, positions=True),
        layer("attention", "groups", heads=4, kv_heads=2, rope_base=100, rope_dims=4),
        layer("dense", "wide", features=36, positions=True),
        layer("attention", "heads", heads=3, rope_base=10000, dropout=0.1),
        layer("attention", "plain", heads=2),
        layer("dense", "fc", features=3),
    ),
    "norm over positions": architecture(
        [4, 6],
        layer("batchnorm", "bn"),
        layer("dense", "d1", features=5, positions=True, activation="relu", no_bias=True),
        layer("activation", "tanh", activation="tanh"),
        layer("add", "twice", "tanh", "tanh"),
        layer("dense", "d2", features=3),
    ),
}

WRITTEN_ONLY = {"attention, rope"}


def check_own(library, folder, random):
    fine = True
    for label, description in OWN.items():
        path = os.path.join(folder, "own.onnx")
        model = library.parse(description)
        model.randomise(random)
        model.save(path)
        fine &= compare(label, model, path, random)
        if label in WRITTEN_ONLY:
            model.free()
            continue
        again = library.open(path)
        same = again.architecture() == model.architecture()
        if not same:
            print(f"{label}: reads back as another model:")
            print(again.architecture())
            print(model.architecture())
        fine &= same
        again.free()
        model.free()
    return fine


# ---- models of PyTorch's exporters ----


def torch_resnet(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            self.downsample = None
            if stride != 1 or channels != out:
                self.downsample = nn.Sequential(
                    nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (self.downsample(x) if self.downsample else x))

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1))
            self.layer2 = nn.Sequential(Block(8, 16, 2), Block(16, 16, 1))
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 10)

        def forward(self, x):
            x = self.layer2(self.layer1(self.maxpool(torch.relu(self.bn1(self.conv1(x))))))
            return self.fc(torch.flatten(self.avgpool(x), 1))

    return ResNet()


def torch_models(torch):
    nn = torch.nn

    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
            self.fc1, self.fc2 = nn.Linear(256, 60), nn.Linear(60, 10)
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            x = self.pool(torch.relu(self.conv1(x)))
            x = self.pool(torch.tanh(self.conv2(x)))
            return self.fc2(torch.sigmoid(self.fc1(x.view(x.size(0), -1))))

    class Gelus(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool = nn.Conv2d(2, 4, 3), nn.AvgPool2d(2, padding=1)
            self.flat, self.fc1, self.fc2 = nn.Flatten(), nn.Linear(64, 9), nn.Linear(9, 3)
            self.act, self.drop = nn.GELU(), nn.Dropout(0.3)

        def forward(self, x):
            x = self.act(self.fc1(self.drop(self.flat(self.pool(self.conv(x))))))
            return self.fc2(x)

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.wpe, self.up = nn.Parameter(torch.randn(5, 6)), nn.Linear(6, 16)
            self.act, self.silu = nn.GELU(approximate="tanh"), nn.SiLU()
            self.gate, self.down = nn.Linear(16, 16), nn.Linear(8, 3)

        def forward(self, x):
            gate, up = self.gate(self.silu(self.act(self.up(x + self.wpe)))).split(8, -1)
            return self.down(nn.functional.silu(gate) * up)

    class Words(nn.Module):
        def __init__(self, cell, layers, tied):
            super().__init__()
            self.embed, self.rnn = nn.Embedding(23, 12), cell(12, 12, layers, batch_first=True)
            self.decoder = nn.Linear(12, 23)
            if tied:
                self.decoder.weight = self.embed.weight

        def forward(self, x):
            return self.decoder(self.rnn(self.embed(x))[0])

    class Ends(nn.Module):
        """Classes from the last state: PyTorch users write it in several ways."""

        def __init__(self, cell, both, way):
            super().__init__()
            self.embed, self.way = nn.Embedding(23, 12), way
            self.rnn = cell(12, 7, batch_first=True, bidirectional=both)
            self.fc = nn.Linear(14 if both else 7, 5)

        def forward(self, x):
            y, h = self.rnn(self.embed(x))
            h = h[0] if isinstance(h, tuple) else h
            if self.way == "step":
                return self.fc(y[:, -1])
            if self.way == "steps":
                return self.fc(y)
            if self.way == "pair":
                return self.fc(torch.cat((h[0], h[-1]), dim=1))
            if self.way == "list":
                return self.fc(torch.cat(list(h), 1))
            if self.way == "turn":
                return self.fc(h.transpose(0, 1).flatten(1))
            return self.fc(h[-1])

    class Layers(nn.Module):
        """Classes from the last layer's states."""

        def __init__(self, cell, both):
            super().__init__()
            self.rnn = cell(4, 3, 2, batch_first=True, bidirectional=both)
            self.fc, self.both = nn.Linear(6 if both else 3, 2), both

        def forward(self, x):
            h = self.rnn(x)[1]
            h = h[0] if isinstance(h, tuple) else h
            return self.fc(torch.cat([h[-2], h[-1]], 1) if self.both else h[-1])

    class Gated(nn.Module):
        """SwiGLU with chunk, behind an RMS normalisation as LLaMA's programs write it."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6) + 0.5)
            self.up, self.down = nn.Linear(6, 8), nn.Linear(4, 6)

        def forward(self, x):
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
            gate, up = self.up(x).chunk(2, -1)
            return self.down(nn.functional.silu(gate) * up).unflatten(2, (2, 3)).flatten(1)

    class Signals(nn.Module):
        """A recurrent layer between convolutions: [C, T] and [T, C]."""

        def __init__(self):
            super().__init__()
            self.conv, self.last = nn.Conv1d(3, 6, 3, padding=1), nn.Conv1d(4, 2, 1)
            self.rnn = nn.LSTM(6, 4, batch_first=True)

        def forward(self, x):
            y = self.rnn(torch.relu(self.conv(x)).transpose(1, 2))[0]
            first, second = self.last(y.transpose(1, 2)).split(1, 1)
            return torch.cat([first * second, first], 1)

    def norms(conv, instance):
        """Group and instance normalisations, with and without weights, first and later."""
        return nn.Sequential(
            nn.GroupNorm(2, 4),
            conv(4, 6, 3),
            nn.GroupNorm(3, 6),
            nn.ReLU(),
            nn.GroupNorm(1, 6, eps=1e-3),
            conv(6, 4, 1),
            nn.GroupNorm(2, 4, affine=False),
            nn.GroupNorm(4, 4),
            instance(4, affine=True),
            conv(4, 4, 1),
            instance(4),
        )

    class Driver(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 1, 1)
            self.fc = nn.Linear(4 * 30 + 3, 2)

        def forward(self, picture, speed):
            x = torch.relu(self.conv(picture))
            return self.fc(torch.cat([x.flatten(1), speed], 1)), self.head(x).squeeze(1)

    tokens, pixels = torch.zeros(2, 6, dtype=torch.long), torch.zeros
    return {
        "lenet": (LeNet(), pixels(2, 1, 28, 28)),
        "resnet": (torch_resnet(torch), pixels(2, 3, 32, 32)),
        "gelu, average": (Gelus(), pixels(2, 2, 8, 8)),
        "blocks": (Blocks(), pixels(2, 5, 6)),
        "lstm": (Words(nn.LSTM, 1, False), tokens),
        "lstm of 2, tied": (Words(nn.LSTM, 2, True), tokens),
        "gru of 2": (Words(nn.GRU, 2, False), tokens),
        "lstm, both": (Ends(nn.LSTM, True, "steps"), tokens),
        "gru, last state": (Ends(nn.GRU, False, "state"), tokens),
        "lstm, last step": (Ends(nn.LSTM, False, "step"), tokens),
        "lstm, both last states": (Ends(nn.LSTM, True, "pair"), tokens),
        "lstm, both last states, listed": (Ends(nn.LSTM, True, "list"), tokens),
        "gru, both turned": (Ends(nn.GRU, True, "turn"), tokens),
        "lstm of 2, last state": (Layers(nn.LSTM, False), pixels(2, 5, 4)),
        "gru of 2, both last states": (Layers(nn.GRU, True), pixels(2, 5, 4)),
        "gated": (Gated(), pixels(2, 5, 6)),
        "signals": (Signals(), pixels(2, 3, 7)),
        "norms of planes": (norms(nn.Conv2d, nn.InstanceNorm2d), pixels(2, 4, 6, 5)),
        "norms of rows": (norms(nn.Conv1d, nn.InstanceNorm1d), pixels(2, 4, 19)),
        "norms of planes, batch of 1": (norms(nn.Conv2d, nn.InstanceNorm2d), pixels(1, 4, 6, 5)),
        "layer norms": (
            nn.Sequential(
                nn.LayerNorm(4), nn.Linear(4, 6), nn.LayerNorm([5, 6]), nn.LayerNorm(6, 1e-3, False)
            ),
            pixels(2, 5, 4),
        ),
        "rms norms": (
            nn.Sequential(nn.RMSNorm(4), nn.Linear(4, 6), nn.RMSNorm(6, eps=1e-5)),
            pixels(2, 5, 4),
        ),
        "rows that grow": (
            nn.Sequential(
                nn.ConvTranspose1d(4, 6, 3, 2, 1, 1),
                nn.ReLU(),
                nn.Upsample(scale_factor=2),
                nn.ConvTranspose1d(6, 4, 2, groups=2, dilation=3, bias=False),
                nn.Upsample(scale_factor=3, mode="linear"),
            ),
            pixels(2, 4, 5),
        ),
        "two inputs, two outputs": (Driver(), (pixels(2, 2, 6, 5), pixels(2, 3))),
    }


def export_ways(torch, quick, inputs, outputs):
    """Label and arguments of torch.onnx.export."""
    dynamic = {name: {0: "N"} for name in inputs + outputs}
    yield "", {"dynamo": False, "dynamic_axes": dynamic}
    if quick:
        return
    yield ", opset 11", {"dynamo": False, "dynamic_axes": dynamic, "opset_version": 11}
    yield ", fixed batch", {"dynamo": False}
    yield ", unfolded", {
        "dynamo": False,
        "dynamic_axes": dynamic,
        "opset_version": 17,
        "do_constant_folding": False,
        "training": torch.onnx.TrainingMode.PRESERVE,
    }
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        print("check_onnx: no onnxscript: PyTorch's newer exporter is left out")
        return
    newer = {
        "dynamo": True,
        "external_data": False,
        "verbose": False,
        "dynamic_shapes": tuple({0: torch.export.Dim("N")} for _ in inputs),
    }
    yield ", dynamo", newer
    yield ", dynamo, unoptimized", {**newer, "optimize": False}
    yield ", dynamo, opset 21", {**newer, "opset_version": 21}
    yield ", dynamo, opset 23", {**newer, "opset_version": 23}


@contextlib.contextmanager
def quiet():
    """Exporters say more than one wants to read."""
    sys.stdout.flush()
    nothing, kept = os.open(os.devnull, os.O_WRONLY), (os.dup(1), os.dup(2))
    os.dup2(nothing, 1), os.dup2(nothing, 2)
    try:
        yield
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        for descriptor in (nothing, *kept):
            os.close(descriptor)


def check_torch(library, folder, random, quick):
    try:
        import torch
    except ImportError:
        print("check_onnx: no PyTorch: its exporters' files are left out")
        return True
    fine = True
    warnings.filterwarnings("ignore")
    torch.manual_seed(1)
    for name, (module, x) in torch_models(torch).items():
        for part in module.modules():  # statistics as after a training
            if isinstance(part, torch.nn.BatchNorm2d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
            if "Norm" in type(part).__name__:
                for parameter in part.parameters():
                    torch.nn.init.uniform_(parameter, 0.5, 1.5)
        several = isinstance(x, tuple)
        inputs = ["picture", "speed"] if several else ["input"]
        outputs = ["turn", "mask"] if several else ["output"]
        for label, options in export_ways(torch, quick, inputs, outputs):
            if several and label == ", fixed batch":
                continue  # run_fields takes any
            if (name == "rms norms" and not options["dynamo"]) or (
                name == "gated" and options.get("opset_version") == 11
            ):
                continue  # the older exporter has no RMSNorm, and unflatten from set 13 on
            if name.startswith("norms of") and label == ", dynamo, unoptimized":
                continue  # not read: group normalisation without weights (doc/models.md)
            path = os.path.join(folder, "torch.onnx")
            with quiet():
                torch.onnx.export(
                    module.eval(),
                    x if several else (x,),
                    path,
                    input_names=inputs,
                    output_names=outputs,
                    **options,
                )
            try:
                model = library.open(path)
            except RuntimeError as error:
                print(f"torch {name}{label}: {error}")
                fine = False
                continue
            fine &= compare(f"torch {name}{label}", model, path, random)
            model.free()
    return fine


def check_file(library, path, folder, random):
    model = library.open(path)
    if not path.endswith(".onnx"):
        saved = os.path.join(folder, "file.onnx")
        model.save(saved)
        fine = compare(path, model, saved, random)
    else:
        fine = compare(path, model, path, random)
    model.free()
    return fine


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default="libstarling.so")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    os.environ.setdefault("STARPU_SILENT", "1")
    random = np.random.default_rng(1)
    library = Library(arguments.library)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.files:
            fine = all([check_file(library, path, folder, random) for path in arguments.files])
        else:
            fine = check_own(library, folder, random)
            sys.stdout.flush()
            fine &= check_torch(library, folder, random, arguments.quick)
    library.close()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
