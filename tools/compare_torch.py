#!/usr/bin/env python3
"""Does Starling give PyTorch's answers? Weights go both ways, in safetensors files.

    compare_torch.py [--library libstarling.so] [--only TEXT]
        every kind of layer with its options, and whole networks: PyTorch's weights loaded by
        Starling, and Starling's own, drawn and saved, loaded by PyTorch
        (load_state_dict(strict=True)); one line a case with the largest error. Every loss: its
        value, and its gradient by the parameters of a dense layer
    compare_torch.py [--library libstarling.so] --lenet FOLDER [--steps N]
        LeNet trained by PyTorch on the MNIST files of the folder (200 steps), opened by Starling:
        logits and classes of all test images

An error is relative to PyTorch's largest output; above 1e-5 a case fails, and the exit code is 1.
Needs the packages torch, safetensors and numpy.
"""

import argparse
import copy
import ctypes
import gzip
import json
import math
import os
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

TOLERANCE = 1e-5


# ---- Starling, by its C interface ----


class Starling:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.sl_error.restype = ctypes.c_char_p
        self.library.sl_model_output.restype = ctypes.POINTER(Shape)
        self.context = ctypes.c_void_p()
        self.call("sl_open", None, ctypes.byref(self.context))

    def call(self, function, *arguments):
        if getattr(self.library, function)(*arguments):
            raise RuntimeError(f"{function}: {self.library.sl_error().decode()}")

    def close(self):
        self.library.sl_close(self.context)


class Shape(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int), ("dim", ctypes.c_int64 * 5)]


class Model:
    """Made from an architecture as a saved model's file has it (doc/models.md)."""

    def __init__(self, starling, architecture):
        self.starling, self.handle = starling, ctypes.c_void_p()
        text = json.dumps(architecture).encode()
        starling.call(
            "sl_model_parse",
            starling.context,
            b"compare",
            text,
            ctypes.c_size_t(len(text)),
            ctypes.byref(self.handle),
        )

    def load(self, path):
        self.starling.call("sl_model_load", self.handle, path.encode())

    def save(self, path):
        self.starling.call("sl_model_save", self.handle, path.encode())

    def predict(self, inputs):
        shape = self.starling.library.sl_model_output(self.handle).contents
        outputs = numpy.empty([len(inputs), *shape.dim[: shape.ndim]], numpy.float32)
        predictor = ctypes.c_void_p()
        self.starling.call("sl_predictor_open", self.handle, None, ctypes.byref(predictor))
        try:
            self.starling.call(
                "sl_predict",
                predictor,
                inputs.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_int64(len(inputs)),
                outputs.ctypes.data_as(ctypes.c_void_p),
            )
        finally:
            self.starling.library.sl_predictor_free(predictor)
        return outputs

    def free(self):
        self.starling.library.sl_model_free(self.handle)


# ---- PyTorch: a network from the same architecture, layer by layer ----


def pair(layer, name, default):
    height = layer.get(name + "_h") or default[0]
    if layer.get(name + "_h_only"):
        return height, 0
    return height, layer.get(name + "_w") or (height if layer.get(name + "_h") else default[1])


class Position(nn.Module):
    """The first rows of a table, added to each sample."""

    def __init__(self, length, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, features))

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


def module_of(layer, shape):
    """The module that has the layer's parameters; shape: its input's, with the batch's axis."""
    kind = layer["kind"]
    if kind in ("conv2d", "conv_transpose2d"):
        transposed = kind == "conv_transpose2d"
        padding = layer.get("output_pad_h", 0), layer.get("output_pad_w", 0)
        extra = dict(output_padding=padding) if transposed else {}
        return (nn.ConvTranspose2d if transposed else nn.Conv2d)(
            shape[1],
            layer["channels"],
            pair(layer, "kernel", (0, 0)),
            pair(layer, "stride", (1, 1)),
            pair(layer, "pad", (0, 0)),
            dilation=pair(layer, "dilation", (1, 1)),
            groups=layer.get("groups") or 1,
            bias=not layer.get("no_bias"),
            **extra,
        )
    if kind in ("conv1d", "conv_transpose1d"):
        transposed = kind == "conv_transpose1d"
        extra = dict(output_padding=layer.get("output_pad") or 0) if transposed else {}
        return (nn.ConvTranspose1d if transposed else nn.Conv1d)(
            shape[1],
            layer["channels"],
            layer["kernel"],
            layer.get("stride") or 1,
            layer.get("pad") or 0,
            dilation=layer.get("dilation") or 1,
            groups=layer.get("groups") or 1,
            bias=not layer.get("no_bias"),
            **extra,
        )
    if kind in ("maxpool1d", "avgpool1d"):
        pool, kernel = nn.MaxPool1d if kind == "maxpool1d" else nn.AvgPool1d, layer.get("kernel")
        kernel = shape[2] if layer.get("global") else kernel
        return pool(kernel, layer.get("stride") or kernel, layer.get("pad") or 0)
    if kind in ("maxpool2d", "avgpool2d"):
        kernel = tuple(shape[2:]) if layer.get("global") else pair(layer, "kernel", (0, 0))
        pool = nn.MaxPool2d if kind == "maxpool2d" else nn.AvgPool2d
        return pool(kernel, pair(layer, "stride", kernel), pair(layer, "pad", (0, 0)))
    if kind == "upsample1d":
        mode = dict(mode="linear", align_corners=False) if layer.get("linear") else {}
        return nn.Upsample(scale_factor=layer["scale"], **mode)
    if kind == "upsample2d":
        mode = dict(mode="bilinear", align_corners=False) if layer.get("bilinear") else {}
        return nn.Upsample(scale_factor=pair(layer, "scale", (1, 1)), **mode)
    if kind == "batchnorm":
        norm = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
        return norm(shape[1], layer.get("epsilon") or 1e-5, layer.get("momentum") or 0.1)
    if kind == "layernorm":
        axes, affine = shape[len(shape) - (layer.get("axes") or 1) :], not layer.get("plain")
        epsilon = layer.get("epsilon") or 1e-5
        norm = nn.RMSNorm if layer.get("rms") else nn.LayerNorm
        return norm(tuple(axes), epsilon, elementwise_affine=affine)
    if kind == "groupnorm":
        affine, epsilon = not layer.get("plain"), layer.get("epsilon") or 1e-5
        if not layer.get("groups") and len(shape) == 4:
            return nn.InstanceNorm2d(shape[1], epsilon, affine=affine)
        return nn.GroupNorm(layer.get("groups") or shape[1], shape[1], epsilon, affine)
    if kind == "dense":
        features = shape[-1] if layer.get("positions") else int(numpy.prod(shape[1:]))
        return nn.Linear(features, layer["features"], bias=not layer.get("no_bias"))
    if kind == "embedding":
        return nn.Embedding(layer["vocabulary"], layer["features"])
    if kind == "position":
        return Position(layer.get("length") or shape[1], shape[2])
    if kind in ("lstm", "gru"):
        return (nn.LSTM if kind == "lstm" else nn.GRU)(
            shape[-1],
            layer["features"],
            batch_first=True,
            bidirectional=layer.get("bidirectional", False),
        )
    return nn.Dropout(layer["rate"]) if kind == "dropout" else nn.Identity()


def run_cell(cell, layer, x):
    """PyTorch has no layer that only goes backward: the sequence is turned round for it."""
    turned = layer.get("reverse", False)
    y, state = cell(x.flip(1) if turned else x)
    if layer.get("last"):
        h = state[0] if layer["kind"] == "lstm" else state
        return torch.cat(list(h), dim=1)
    return y.flip(1) if turned else y


def attach(root, name, module):
    """A name with dots is a module in a module, as in torchvision's layer1.0.conv1."""
    *path, last = name.split(".")
    for part in path:
        if not hasattr(root, part):
            root.add_module(part, nn.Module())
        root = getattr(root, part)
    root.add_module(last, module)


def axes_of(layer, x):
    """With the batch's axis."""
    return [axis + 1 for axis in layer.get("axes") or range(1, x.dim() - 1)]


def turned(x, layer):
    """Rotary position embedding of [N, heads, T, D], in pairs of both halves."""
    size = layer.get("rope_dims") or x.shape[-1]
    powers = torch.arange(0, size, 2, dtype=torch.float64) / size
    angles = torch.outer(torch.arange(x.shape[2]), layer["rope_base"] ** -powers)
    cosines, sines = (f(angles).to(x.dtype).repeat(1, 2) for f in (torch.cos, torch.sin))
    first, second = x[..., :size].chunk(2, -1)
    head = x[..., :size] * cosines + torch.cat((-second, first), -1) * sines
    return torch.cat((head, x[..., size:]), -1)


def attention(x, layer):
    heads, shared = layer["heads"], layer.get("kv_heads") or layer["heads"]
    parts = x[0].unflatten(2, (heads + 2 * shared, -1)).transpose(1, 2)
    q, k, v = parts.split((heads, shared, shared), 1)
    if layer.get("rope_base"):
        q, k = turned(q, layer), turned(k, layer)
    k, v = (part.repeat_interleave(heads // shared, 1) for part in (k, v))
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).flatten(2)


# kinds without parameters: functions of the inputs
FUNCTIONS = {
    "add": lambda x, layer: sum(x[1:], x[0]),
    "multiply": lambda x, layer: math.prod(x[1:], start=x[0]),
    "concatenate": lambda x, layer: torch.cat(x, layer.get("axis", 0) + 1),
    "attention": attention,
    "swiglu": lambda x, layer: functional.silu(x[0].chunk(2, -1)[0]) * x[0].chunk(2, -1)[1],
    "flip": lambda x, layer: x[0].flip(layer.get("axis", 0) + 1),
    "mean": lambda x, layer: x[0].mean(axes_of(layer, x[0]), layer.get("keep", False)),
    "permute": lambda x, layer: x[0].permute(
        0, *[axis + 1 for axis in layer.get("axes") or reversed(range(x[0].dim() - 1))]
    ),
    "reshape": lambda x, layer: x[0].reshape(
        len(x[0]), *[size or -1 for size in layer.get("shape") or [-1]]
    ),
    "slice": lambda x, layer: x[0].narrow(
        layer.get("axis", 0) + 1,
        layer.get("first", 0),
        layer.get("count") or x[0].shape[layer.get("axis", 0) + 1] - layer.get("first", 0),
    ),
}

ACTIVATIONS = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


class Network(nn.Module):
    def __init__(self, architecture, inputs):
        super().__init__()
        self.layers = architecture["layers"]
        values = {"input": inputs}
        for layer in self.layers:
            module = module_of(layer, values[layer["inputs"][0]].shape)
            attach(self, layer["name"], module.eval())
            if "shares" in layer:
                module.weight = self.get_submodule(layer["shares"]).weight
            values[layer["name"]] = self.output(layer, values)

    def output(self, layer, values):
        x = [values[name] for name in layer["inputs"]]
        if layer["kind"] in FUNCTIONS:
            return FUNCTIONS[layer["kind"]](x, layer)
        if layer["kind"] == "dense" and not layer.get("positions"):
            x = [x[0].flatten(1)]
        module = self.get_submodule(layer["name"])
        y = run_cell(module, layer, x[0]) if layer["kind"] in ("lstm", "gru") else module(x[0])
        return ACTIVATIONS[layer["activation"]](y) if "activation" in layer else y

    def forward(self, x):
        values = {"input": x}
        for layer in self.layers:
            values[layer["name"]] = self.output(layer, values)
        return values[self.layers[-1]["name"]]


# ---- PyTorch: whole networks, written as their users would ----


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = functional.max_pool2d(torch.tanh(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.fc2(torch.tanh(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential()
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class ResNet(nn.Module):
    """The names of torchvision's."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 8, 1))
        self.layer2 = nn.Sequential(Block(8, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class LanguageModel(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.dropout = nn.Dropout(0.3)
        self.lstm0 = nn.LSTM(24, 24, batch_first=True)
        self.lstm1 = nn.LSTM(24, 24, batch_first=True)
        self.decoder = nn.Linear(24, 50)
        if tied:
            self.decoder.weight = self.embed.weight

    def forward(self, tokens):
        x = self.lstm0(self.dropout(self.embed(tokens)))[0]
        return self.decoder(self.dropout(self.lstm1(self.dropout(x))[0]))


# ---- the same networks' architectures ----


def chain(shape, *layers):
    """Layers, each the next one's input unless it names its own."""
    before, named = "input", []
    for i, layer in enumerate(layers):
        named.append({"name": f"layer{i}", "inputs": [before], **layer})
        before = named[-1]["name"]
    return {"format": "starling model", "version": 1, "input": shape, "layers": named}


def lenet():
    def conv(name, channels):
        return dict(name=name, kind="conv2d", channels=channels, kernel_h=5, activation="tanh")

    return chain(
        [1, 28, 28],
        conv("conv1", 20),
        dict(kind="maxpool2d", kernel_h=2),
        conv("conv2", 50),
        dict(kind="maxpool2d", kernel_h=2),
        dict(name="fc1", kind="dense", features=500, activation="tanh"),
        dict(name="fc2", kind="dense", features=10),
    )


def block(name, before, channels, stride):
    def conv(part, inputs, kernel, step):
        return dict(
            name=f"{name}.{part}",
            kind="conv2d",
            inputs=[inputs],
            channels=channels,
            kernel_h=kernel,
            stride_h=step,
            pad_h=kernel // 2,
            no_bias=True,
        )

    layers = [
        conv("conv1", before, 3, stride),
        dict(name=f"{name}.bn1", kind="batchnorm", inputs=[f"{name}.conv1"]),
        dict(name=f"{name}.relu1", kind="activation", inputs=[f"{name}.bn1"], activation="relu"),
        conv("conv2", f"{name}.relu1", 3, 1),
        dict(name=f"{name}.bn2", kind="batchnorm", inputs=[f"{name}.conv2"]),
    ]
    edge = before
    if stride > 1:
        edge = f"{name}.downsample.1"
        layers += [
            conv("downsample.0", before, 1, stride),
            dict(name=edge, kind="batchnorm", inputs=[f"{name}.downsample.0"]),
        ]
    return layers + [
        dict(name=f"{name}.sum", kind="add", inputs=[f"{name}.bn2", edge]),
        dict(name=name, kind="activation", inputs=[f"{name}.sum"], activation="relu"),
    ]


def resnet():
    return chain(
        [3, 16, 16],
        dict(name="conv1", kind="conv2d", channels=8, kernel_h=3, pad_h=1, no_bias=True),
        dict(name="bn1", kind="batchnorm"),
        dict(name="relu", kind="activation", activation="relu"),
        *block("layer1.0", "relu", 8, 1),
        *block("layer1.1", "layer1.0", 8, 1),
        *block("layer2.0", "layer1.1", 16, 2),
        *block("layer2.1", "layer2.0", 16, 1),
        {"kind": "avgpool2d", "global": True},
        dict(name="fc", kind="dense", features=10),
    )


def language_model(tied):
    decoder = dict(name="decoder", kind="dense", features=50, positions=True)
    drop = dict(kind="dropout", rate=0.3)
    return chain(
        [17],
        dict(name="embed", kind="embedding", vocabulary=50, features=24),
        drop,
        dict(name="lstm0", kind="lstm", features=24),
        drop,
        dict(name="lstm1", kind="lstm", features=24),
        drop,
        {**decoder, "shares": "embed"} if tied else decoder,
    )


# ---- cases ----

IMAGE, SEQUENCE = [3, 13, 11], [9, 7]


def convolutions():
    base = dict(kind="conv2d", channels=6, kernel_h=3)
    for text, options in [
        ("3x3", {}),
        ("3x3, no bias", dict(no_bias=True)),
        ("1x1", dict(kernel_h=1)),
        ("3x5", dict(kernel_w=5)),
        ("stride 2", dict(stride_h=2)),
        ("stride 2x3", dict(stride_h=2, stride_w=3)),
        ("padding 1", dict(pad_h=1)),
        ("padding 2x1", dict(kernel_h=5, kernel_w=4, pad_h=2, pad_w=1)),
        ("5x1, padding 2x0", dict(kernel_h=5, kernel_w=1, pad_h=2, pad_h_only=True)),
        ("1x1, stride 2", dict(kernel_h=1, stride_h=2, no_bias=True)),
        ("the whole plane", dict(kernel_h=13, kernel_w=11)),
        *((a, dict(activation=a, pad_h=1)) for a in ("relu", "tanh", "sigmoid")),
    ]:
        yield "conv2d, " + text, chain(IMAGE, {**base, **options})


def groups():
    base = dict(kernel_h=3, kernel_w=2, channels=6)
    for text, options in [
        ("groups", dict(groups=2)),
        ("depthwise", dict(groups=4, channels=4, pad_h=1)),
        ("depthwise, doubled", dict(groups=4, channels=8, stride_h=2, activation="relu")),
        ("dilation", dict(dilation_h=2, pad_h=2)),
        ("dilation 2x3, groups", dict(dilation_h=2, dilation_w=3, groups=2, no_bias=True)),
    ]:
        yield "conv2d, " + text, chain([4, 13, 11], {"kind": "conv2d", **base, **options})
    for text, options in [
        ("2x2, stride 2", dict(kernel_h=2, stride_h=2)),
        ("3x2, no bias", dict(no_bias=True)),
        ("stride, padding", dict(kernel_w=3, stride_h=2, pad_h=1, output_pad_h=1)),
        ("groups, tanh", dict(stride_h=2, stride_w=3, groups=2, activation="tanh")),
        ("dilation", dict(dilation_h=2, stride_h=2, pad_h=1)),
    ]:
        yield "conv_transpose2d, " + text, chain(
            [4, 6, 5], {"kind": "conv_transpose2d", **base, **options}
        )


def rows():
    for text, options in [
        ("3, padding 1", dict(pad=1)),
        ("5, stride 2, no bias", dict(kernel=5, stride=2, no_bias=True)),
        ("dilation, groups, relu", dict(dilation=3, groups=2, activation="relu")),
    ]:
        yield "conv1d, " + text, chain([4, 23], dict(kind="conv1d", channels=6, kernel=3) | options)
    for text, options in [
        ("2, stride 2", dict(kernel=2, stride=2)),
        ("stride, tanh", dict(stride=3, pad=1, output_pad=2, activation="tanh")),
        ("dilation, groups", dict(dilation=2, groups=2, no_bias=True)),
    ]:
        base = dict(kind="conv_transpose1d", channels=6, kernel=3)
        yield "conv_transpose1d, " + text, chain([4, 11], base | options)
    for kind in ("maxpool1d", "avgpool1d"):
        for text, options in [
            ("2", dict(kernel=2)),
            ("3, stride 2, padding 1", dict(kernel=3, stride=2, pad=1)),
            ("global", {"global": True}),
        ]:
            yield f"{kind}, {text}", chain([4, 23], dict(kind=kind, **options))


def pools():
    for kind in ("maxpool2d", "avgpool2d"):
        for text, options in [
            ("2x2", dict(kernel_h=2)),
            ("3x2", dict(kernel_h=3, kernel_w=2)),
            ("3x3, stride 2", dict(kernel_h=3, stride_h=2)),
            ("3x3, stride 1x2", dict(kernel_h=3, stride_h=1, stride_w=2)),
            ("3x3, padding 1", dict(kernel_h=3, stride_h=2, pad_h=1)),
            ("4x5, padding 1x2", dict(kernel_h=4, kernel_w=5, pad_h=1, pad_w=2)),
            ("4x5, padding 1x0", dict(kernel_h=4, kernel_w=5, pad_h=1, pad_h_only=True)),
            ("global", {"global": True}),
        ]:
            yield f"{kind}, {text}", chain(IMAGE, dict(kind=kind, **options))


def small_ones():
    for text, shape, options in [
        ("images", IMAGE, {}),
        ("epsilon 0.1", IMAGE, dict(epsilon=0.1)),
        ("momentum 0.3", IMAGE, dict(momentum=0.3)),
        ("features", [21], {}),
        ("sequences", SEQUENCE, {}),
    ]:
        yield "batchnorm, " + text, chain(shape, dict(kind="batchnorm", **options))
    for text, shape, options in [
        ("features", [21], {}),
        ("no bias", [21], dict(no_bias=True)),
        ("images", IMAGE, {}),
        ("positions", SEQUENCE, dict(positions=True)),
        ("positions, no bias", SEQUENCE, dict(positions=True, no_bias=True)),
        *((a, [21], dict(activation=a)) for a in ACTIVATIONS),
    ]:
        yield "dense, " + text, chain(shape, dict(kind="dense", features=10, **options))
    for activation in ACTIVATIONS:
        yield "activation, " + activation, chain(
            IMAGE, dict(kind="activation", activation=activation)
        )
    yield "swiglu", chain([4, 10], dict(kind="swiglu"))
    yield "position", chain(SEQUENCE, dict(kind="position", length=SEQUENCE[0] + 4))
    yield "dropout", chain(IMAGE, dict(kind="dropout", rate=0.5))
    dense = dict(kind="dense", features=8)
    yield "add", chain(
        [12],
        dict(name="a", **dense),
        dict(name="b", **{**dense, "inputs": ["input"]}),
        dict(kind="add", inputs=["a", "b"]),
    )
    yield "add, one layer twice", chain(
        [12], dict(name="a", **dense), dict(kind="add", inputs=["a", "a"])
    )


def axes():
    part = dict(kind="slice", inputs=["input"], axis=2)
    for axis in range(3):
        yield f"concatenate, axis {axis}", chain(
            [3, 5, 8],
            dict(name="a", **{**part, "axis": axis}, count=2),
            dict(name="b", **{**part, "axis": axis}, first=1),
            dict(kind="concatenate", inputs=["a", "input", "b"], axis=axis),
        )
    for kind in ("add", "multiply"):
        yield f"{kind}, three", chain(
            IMAGE,
            dict(name="a", kind="activation", activation="tanh"),
            dict(name="b", kind="activation", activation="sigmoid"),
            dict(kind=kind, inputs=["a", "input", "b"]),
        )
    for text, options in [
        ("slice, rows", dict(kind="slice", axis=1, first=2, count=4)),
        ("slice, to the end", dict(kind="slice", axis=2, first=3)),
        ("flip", dict(kind="flip", axis=1)),
        ("reshape", dict(kind="reshape", shape=[11, 0, 3])),
        ("reshape, flat", dict(kind="reshape")),
        ("permute", dict(kind="permute", axes=[1, 2, 0])),
        ("permute, reversed", dict(kind="permute")),
        ("mean, plane", dict(kind="mean")),
        ("mean, channels, kept", dict(kind="mean", axes=[0], keep=True)),
        ("mean, rows and channels", dict(kind="mean", axes=[1, 0])),
    ]:
        yield text, chain(IMAGE, options)
    for bilinear in (False, True):
        for height, width in ((2, 0), (1, 3), (4, 5)):
            yield f"upsample2d, {height}x{width or height}" + ", bilinear" * bilinear, chain(
                IMAGE, dict(kind="upsample2d", scale_h=height, scale_w=width, bilinear=bilinear)
            )
        yield "upsample1d" + ", linear" * bilinear, chain(
            [4, 7], dict(kind="upsample1d", scale=3, linear=bilinear)
        )


def norms():
    for text, shape, options in [
        ("features", [21], {}),
        ("sequences", SEQUENCE, {}),
        ("two axes", IMAGE, dict(axes=2, epsilon=0.1)),
        ("plain", IMAGE, dict(plain=True)),
        ("rms", SEQUENCE, dict(rms=True)),
        ("rms, two axes, plain", IMAGE, dict(rms=True, axes=2, plain=True)),
    ]:
        yield "layernorm, " + text, chain(shape, dict(kind="layernorm", **options))
    for text, options in [
        ("2 groups", dict(groups=2)),
        ("one group, epsilon 0.1", dict(groups=1, epsilon=0.1)),
        ("3 groups, plain", dict(groups=3, plain=True)),
        ("instances", {}),
        ("instances, plain", dict(plain=True)),
    ]:
        yield "groupnorm, " + text, chain([6, 5, 7], dict(kind="groupnorm", **options))


def attentions():
    for text, steps, width, options in [
        ("one head", 9, 24, dict(heads=1)),
        ("4 heads", 70, 96, dict(heads=4)),
        ("4 heads in 2 groups", 9, 160, dict(heads=4, kv_heads=2)),
        ("rope", 9, 48, dict(heads=2, rope_base=10000)),
        ("rope of 4, groups", 130, 80, dict(heads=6, kv_heads=2, rope_base=50, rope_dims=4)),
    ]:
        yield "attention, " + text, chain(
            [steps, 7],
            dict(kind="dense", features=width, positions=True),
            dict(kind="attention", **options),
        )


class BothWays(nn.Module):
    """A bidirectional LSTM with the names of its parts here."""

    def __init__(self):
        super().__init__()
        self.ahead = nn.LSTM(7, 6, batch_first=True)
        self.back = nn.LSTM(7, 6, batch_first=True)
        self.whole = [nn.LSTM(7, 6, batch_first=True, bidirectional=True)]  # no part of the state

    def forward(self, x):
        whole = self.whole[0]
        with torch.no_grad():
            for name, value in self.ahead.named_parameters():
                getattr(whole, name).copy_(value)
            for name, value in self.back.named_parameters():
                getattr(whole, name + "_reverse").copy_(value)
        return whole(x)[0]


def both_ways():
    return chain(
        SEQUENCE,
        dict(name="ahead", kind="lstm", features=6),
        dict(name="turned", kind="flip", inputs=["input"]),
        dict(name="back", kind="lstm", features=6),
        dict(name="turned_back", kind="flip"),
        dict(kind="concatenate", axis=1, inputs=["ahead", "turned_back"]),
    )


DIRECTIONS = [
    ("both directions", dict(bidirectional=True)),
    ("backward", dict(reverse=True)),
    ("last state", dict(last=True)),
    ("last state, backward", dict(last=True, reverse=True)),
    ("last states, both ways", dict(last=True, bidirectional=True)),
]


def recurrent():
    embed = dict(name="embed", kind="embedding", vocabulary=31, features=10)
    yield "embedding", chain([9], embed)
    for kind in ("lstm", "gru"):
        yield kind, chain(SEQUENCE, dict(kind=kind, features=12))
        yield kind + ", one step", chain([1, 7], dict(kind=kind, features=5))
        yield kind + ", two of tokens", chain(
            [9], embed, dict(kind=kind, features=12), dict(kind=kind, features=6)
        )
        for text, ways in DIRECTIONS:
            yield kind + ", " + text, chain(SEQUENCE, dict(kind=kind, features=6, **ways))
        yield kind + ", both, two, of tokens", chain(
            [9],
            embed,
            dict(kind=kind, features=5, bidirectional=True),
            dict(kind=kind, features=6, bidirectional=True, last=True),
            dict(kind="dense", features=4),
        )
    decoder = dict(kind="dense", features=31, positions=True, shares="embed")
    yield "tied decoder", chain([9], embed, dict(kind="lstm", features=10), decoder)
    yield "tied decoder, no bias", chain(
        [9], embed, dict(kind="gru", features=10), dict(**decoder, no_bias=True)
    )


def networks():
    """With a network of PyTorch's own for each."""
    yield "LeNet", lenet(), LeNet()
    yield "ResNet, names with dots", resnet(), ResNet()
    yield "LSTM in both directions", both_ways(), BothWays()
    yield "LSTM language model", language_model(False), LanguageModel(False)
    yield "LSTM language model, tied", language_model(True), LanguageModel(True)


# ---- comparison ----


def inputs_of(architecture, count):
    shape = [count, *architecture["input"]]
    embeddings = [layer for layer in architecture["layers"] if layer["kind"] == "embedding"]
    if embeddings:
        return torch.randint(embeddings[0]["vocabulary"], shape, dtype=torch.int32)
    return torch.randn(shape)


def disturb(network):
    """Statistics and scales that a training might have left, rather than ones and zeros."""
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.3, 3)
        if "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None:
            nn.init.normal_(module.weight, 1, 0.3)
            if getattr(module, "bias", None) is not None:
                nn.init.normal_(module.bias)


def error_of(ours, theirs):
    theirs = theirs.detach().numpy()
    if ours.shape != theirs.shape:
        raise RuntimeError(
            f"PyTorch's output is {list(theirs.shape)}, Starling's {list(ours.shape)}"
        )
    return float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())


def from_torch(network, model, inputs, path):
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    if state:
        save_file(state, path)
        model.load(path)
    return error_of(model.predict(inputs.numpy()), network(inputs))


def to_torch(network, model, inputs, path):
    """What PyTorch alone has: counts of batches, and a tied weight's second name."""
    model.save(path)
    state, own = load_file(path), network.state_dict()
    kept = {own[name].data_ptr(): tensor for name, tensor in state.items() if name in own}
    for name in own.keys() - state.keys():
        if name.endswith(".num_batches_tracked"):
            state[name] = own[name]
        elif own[name].data_ptr() in kept:
            state[name] = kept[own[name].data_ptr()]
    network.load_state_dict(state, strict=True)
    return error_of(model.predict(inputs.numpy()), network(inputs))


def compare(starling, name, architecture, network, folder):
    inputs = inputs_of(architecture, 5)
    network = (network or Network(architecture, inputs)).eval()
    disturb(network)
    model = Model(starling, architecture)
    drawn = Model(starling, architecture)
    path = os.path.join(folder, "weights.safetensors")
    try:
        there = from_torch(network, model, inputs, path)
        back = to_torch(copy.deepcopy(network), drawn, inputs, path)
    finally:
        model.free()
        drawn.free()
    fine = max(there, back) <= TOLERANCE  # false for NaN
    mark = "ok" if fine else "BEYOND"
    print(
        f"{mark:7}{name:32}PyTorch's weights {there:.1e}  Starling's {back:.1e}",
        flush=True,
    )
    return fine


# ---- losses: structs as in include/starling, up to the last member that is set ----


def padded(name, *fields):
    """A struct with some bytes behind these fields: the members that stay zero."""
    return type(name, (ctypes.Structure,), {"_fields_": [*fields, ("rest", ctypes.c_char * 1024)]})


Loss = type("Loss", (ctypes.Structure,), {"_fields_": [
    ("kind", ctypes.c_int),
    ("delta", ctypes.c_float),
    ("label_smoothing", ctypes.c_float),
    ("class_weights", ctypes.c_void_p),
    ("class_count", ctypes.c_int),
    ("own", ctypes.c_void_p * 5),
    ("parts", ctypes.c_void_p),
    ("part_count", ctypes.c_int),
]})
LossPart = type("LossPart", (ctypes.Structure,), {"_fields_": [
    ("output", ctypes.c_char * 64),
    ("weight", ctypes.c_float),
    ("loss", Loss),
    ("target", ctypes.c_char * 64),
]})
RowField = type("RowField", (ctypes.Structure,), {"_fields_": [
    ("name", ctypes.c_char_p),
    ("shape", Shape),
    ("classes", ctypes.c_int),
    ("first", ctypes.c_int64),
]})
TrainerOptions = padded(
    "TrainerOptions",
    ("replicas", ctypes.c_int),
    ("microbatches", ctypes.c_int),
    ("kvstore", ctypes.c_int),
    ("big_shard", ctypes.c_int64),
    ("stages", ctypes.c_int),
    ("chunk", ctypes.c_int64),
    ("carry_state", ctypes.c_bool),
    ("in_flight", ctypes.c_int),
    ("split", ctypes.c_char_p),
    ("math", ctypes.c_int),
    ("loss", Loss),
)
Optimizer = padded("Optimizer", ("kind", ctypes.c_int), ("lr", ctypes.c_float))
LoaderOptions = padded("LoaderOptions", ("batch", ctypes.c_int64))
DatasetOptions = padded(
    "DatasetOptions",
    ("name", ctypes.c_char_p),
    ("sample", Shape),
    ("target", Shape),
    ("count", ctypes.c_int64),
    ("classes", ctypes.c_int),
    ("missing", ctypes.c_bool),
    ("channels", ctypes.c_int),
    ("normal", ctypes.c_void_p * 2),
    ("target_channels", ctypes.c_int),
    ("target_normal", ctypes.c_void_p * 2),
    ("class_names", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("user", ctypes.c_void_p),
    ("inputs", ctypes.POINTER(RowField)),
    ("targets", ctypes.POINTER(RowField)),
    ("input_count", ctypes.c_int),
    ("target_count", ctypes.c_int),
)
Report = padded(
    "Report",
    ("step", ctypes.c_int64),
    ("epoch", ctypes.c_int64),
    ("last", ctypes.c_bool),
    ("loss", ctypes.c_double),
)
LOSS_IN, LOSS_OUT, LOSS_BATCH = 5, 7, 24


def losses():
    """Names, Starling's settings, PyTorch's function of outputs, targets and labels."""

    def valid(loss):
        return lambda y, t, labels: loss(y[~t.isnan()], t[~t.isnan()])

    def cosine(y, t, labels):
        whole = ~t.isnan().any(1)
        return (1 - functional.cosine_similarity(y[whole], t[whole])).mean()

    def cross_entropy(**settings):
        return lambda y, t, labels: functional.cross_entropy(y, labels, ignore_index=-1, **settings)

    weights = torch.rand(LOSS_OUT)
    kinds = [(functional.mse_loss, 1), (functional.l1_loss, 2)]
    yield "cross-entropy", {}, cross_entropy()
    yield "smoothed", {"label_smoothing": 0.1}, cross_entropy(label_smoothing=0.1)
    yield "weighted", {"class_weights": weights}, cross_entropy(weight=weights)
    yield "smoothed and weighted", {"class_weights": weights, "label_smoothing": 0.3}, (
        cross_entropy(weight=weights, label_smoothing=0.3))
    for function, kind in kinds:
        yield function.__name__, {"kind": kind}, valid(function)
    yield "huber", {"kind": 3, "delta": 0.5}, valid(
        lambda y, t: functional.huber_loss(y, t, delta=0.5))
    yield "bce", {"kind": 4}, valid(functional.binary_cross_entropy_with_logits)
    yield "cosine", {"kind": 5}, cosine


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr()) if tensor is not None else None


def train_step(starling, model, settings, inputs, targets, labels):
    """The loss of a step of gradient descent with rate 1."""
    library, handles = starling.library, [ctypes.c_void_p() for _ in range(3)]
    weights = settings.get("class_weights")
    loss = Loss(settings.get("kind", 0), settings.get("delta", 0), settings.get(
        "label_smoothing", 0), pointer(weights), LOSS_OUT if weights is not None else 0)
    has_labels = loss.kind == 0
    data = DatasetOptions(name=b"compare", count=LOSS_BATCH, missing=True)
    data.sample.ndim, data.sample.dim[0] = 1, LOSS_IN
    data.classes = LOSS_OUT if has_labels else 0
    data.target.ndim, data.target.dim[0] = (0, 0) if has_labels else (1, LOSS_OUT)
    report, reported = Report(), ctypes.c_bool(False)
    dataset, loader, trainer = handles
    try:
        starling.call(
            "sl_dataset_floats", ctypes.byref(data), pointer(inputs),
            None if has_labels else pointer(targets), pointer(labels) if has_labels else None,
            ctypes.c_bool(False), ctypes.byref(dataset))
        starling.call("sl_loader_new", dataset, ctypes.byref(LoaderOptions(LOSS_BATCH)),
                      ctypes.byref(loader))
        starling.call(
            "sl_trainer_new", model.handle, ctypes.byref(Optimizer(lr=1)), None,
            ctypes.byref(TrainerOptions(replicas=2, loss=loss)), ctypes.byref(trainer))
        starling.call("sl_trainer_step", trainer, loader, ctypes.byref(report),
                      ctypes.byref(reported))
        while not reported:
            starling.call("sl_trainer_drain", trainer, ctypes.byref(report),
                          ctypes.byref(reported))
        reported.value = True
        rest = Report()
        while reported:
            starling.call("sl_trainer_drain", trainer, ctypes.byref(rest), ctypes.byref(reported))
    finally:
        library.sl_trainer_free(trainer)
        library.sl_loader_free(loader)
        library.sl_dataset_free(dataset)
    return report.loss


def compare_loss(starling, name, settings, function, folder):
    network = nn.Linear(LOSS_IN, LOSS_OUT)
    inputs, targets = torch.randn(LOSS_BATCH, LOSS_IN), torch.randn(LOSS_BATCH, LOSS_OUT)
    if settings.get("kind") == 4:
        targets = torch.rand(LOSS_BATCH, LOSS_OUT)
    labels = torch.randint(-1, LOSS_OUT, [LOSS_BATCH], dtype=torch.int32)
    targets[torch.rand(LOSS_BATCH, LOSS_OUT) < 0.05] = float("nan")
    architecture = {
        "format": "starling model", "version": 1, "input": [LOSS_IN],
        "layers": [{"name": "fc", "kind": "dense", "inputs": ["input"], "features": LOSS_OUT}],
    }
    path = os.path.join(folder, "loss.safetensors")
    model = Model(starling, architecture)
    try:
        before = {f"fc.{key}": value.clone() for key, value in network.state_dict().items()}
        save_file(before, path)
        model.load(path)
        loss = train_step(starling, model, settings, inputs, targets, labels)
        model.save(path)
    finally:
        model.free()
    with torch.enable_grad():
        theirs = function(network(inputs), targets, labels.long())
        theirs.backward()
    after = load_file(path)
    ours = torch.cat([(before[f"fc.{k}"] - after[f"fc.{k}"]).flatten() for k in ("weight", "bias")])
    slopes = torch.cat([network.weight.grad.flatten(), network.bias.grad.flatten()])
    value = abs(loss - theirs.item()) / theirs.item()
    gradient = error_of(ours.numpy(), slopes)
    fine = max(value, gradient) <= TOLERANCE
    print(f"{'ok' if fine else 'BEYOND':7}{'loss, ' + name:32}value {value:.1e}  "
          f"gradient {gradient:.1e}", flush=True)
    return fine


# ---- two inputs, two outputs, a loss of two parts ----

FIELDS_NAME = "loss, of two outputs"
FIELDS_STEPS, FIELDS_COUNT, FIELDS_BATCH, FIELDS_RATE = 20, 50, 12, 0.2


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.ha = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(4, 5)
        self.kind, self.place = nn.Linear(3 * 5 * 4 + 5, 3), nn.Linear(3 * 5 * 4 + 5, 2)

    def forward(self, x):
        picture, state = x[:, :40].reshape(-1, 2, 5, 4), x[:, 40:]
        joined = torch.cat(
            [torch.tanh(self.conv(picture)).flatten(1), torch.tanh(self.ha(state))], 1)
        return self.kind(joined), self.place(joined)


FIELDS_MODEL = {
    "format": "starling model", "version": 2,
    "inputs": [{"name": "picture", "shape": [2, 5, 4]}, {"name": "state", "shape": [4]}],
    "outputs": ["kind", "place"],
    "layers": [
        {"name": "conv", "kind": "conv2d", "inputs": ["picture"], "channels": 3, "kernel_h": 3,
         "pad_h": 1, "activation": "tanh"},
        {"name": "ha", "kind": "dense", "inputs": ["state"], "features": 5, "activation": "tanh"},
        {"name": "joined", "kind": "concatenate", "inputs": ["conv", "ha"], "flat": True},
        {"name": "kind", "kind": "dense", "inputs": ["joined"], "features": 3},
        {"name": "place", "kind": "dense", "inputs": ["joined"], "features": 2},
    ],
}


def field(name, shape, classes=0):
    one = RowField(name=name, classes=classes)
    one.shape.ndim = len(shape)
    for i, size in enumerate(shape):
        one.shape.dim[i] = size
    return one


def train_fields(starling, model, inputs, targets, replicas):
    """The losses of some steps."""
    parts = (LossPart * 2)(LossPart(b"place", 0.5, Loss(kind=1)), LossPart(b"kind", 0, Loss()))
    loss = Loss(parts=ctypes.cast(parts, ctypes.c_void_p), part_count=2)
    in_fields = (RowField * 2)(field(b"picture", [2, 5, 4]), field(b"state", [4]))
    out_fields = (RowField * 2)(field(b"place", [2]), field(b"kind", [1], 3))
    data = DatasetOptions(name=b"compare", count=FIELDS_COUNT, missing=True, inputs=in_fields,
                          input_count=2, targets=out_fields, target_count=2)
    dataset, loader, trainer = (ctypes.c_void_p() for _ in range(3))
    report, reported, losses = Report(), ctypes.c_bool(False), []
    try:
        starling.call(
            "sl_dataset_floats", ctypes.byref(data), pointer(inputs), pointer(targets), None,
            ctypes.c_bool(False), ctypes.byref(dataset))
        starling.call("sl_loader_new", dataset, ctypes.byref(LoaderOptions(FIELDS_BATCH)),
                      ctypes.byref(loader))
        starling.call(
            "sl_trainer_new", model.handle, ctypes.byref(Optimizer(lr=FIELDS_RATE)), None,
            ctypes.byref(TrainerOptions(replicas=replicas, loss=loss)), ctypes.byref(trainer))
        for step in range(2 * FIELDS_STEPS):  # steps may be ahead of their reports
            call = "sl_trainer_step" if step < FIELDS_STEPS else "sl_trainer_drain"
            given = [trainer, loader] if step < FIELDS_STEPS else [trainer]
            starling.call(call, *given, ctypes.byref(report), ctypes.byref(reported))
            losses += [report.loss] if reported else []
        starling.call("sl_trainer_drain", trainer, ctypes.byref(report), ctypes.byref(reported))
    finally:
        starling.library.sl_trainer_free(trainer)
        starling.library.sl_loader_free(loader)
        starling.library.sl_dataset_free(dataset)
    return losses


def torch_fields(network, inputs, targets):
    optimizer, losses = torch.optim.SGD(network.parameters(), FIELDS_RATE), []
    for step in range(FIELDS_STEPS):
        first = step % math.ceil(FIELDS_COUNT / FIELDS_BATCH) * FIELDS_BATCH
        x, t = (values[first : first + FIELDS_BATCH] for values in (inputs, targets))
        with torch.enable_grad():
            kind, place = network(x)
            labels = t[:, 2].nan_to_num(-1).long()
            known = ~t[:, :2].isnan()
            loss = functional.cross_entropy(kind, labels, ignore_index=-1)
            loss = loss + 0.5 * functional.mse_loss(place[known], t[:, :2][known])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare_fields(starling, folder):
    network = TwoOutputs()
    inputs = torch.randn(FIELDS_COUNT, 44)
    targets = torch.cat([torch.randn(FIELDS_COUNT, 2),
                         torch.randint(0, 3, [FIELDS_COUNT, 1]).float()], 1)
    targets[torch.rand(FIELDS_COUNT, 3) < 0.1] = float("nan")
    path = os.path.join(folder, "fields.safetensors")
    save_file({key: value.clone() for key, value in network.state_dict().items()}, path)
    model = Model(starling, FIELDS_MODEL)
    try:
        model.load(path)
        ours = train_fields(starling, model, inputs, targets, 2)
        model.save(path)
    finally:
        model.free()
    theirs = torch_fields(network, inputs, targets)
    value = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    after = load_file(path)
    weights = max(error_of(after[key].numpy(), value.detach())
                  for key, value in network.state_dict().items())
    fine = max(value, weights) <= TOLERANCE
    print(f"{'ok' if fine else 'BEYOND':7}{FIELDS_NAME:32}value {value:.1e}  "
          f"weights {weights:.1e}, {FIELDS_STEPS} steps", flush=True)
    return fine


def compare_all(starling, only):
    cases = [
        (name, architecture, None)
        for make in (
            convolutions,
            groups,
            rows,
            pools,
            small_ones,
            axes,
            norms,
            attentions,
            recurrent,
        )
        for name, architecture in make()
    ]
    cases = [case for case in [*cases, *networks()] if only in case[0]]
    losses_too = [case for case in losses() if only in "loss, " + case[0]]
    fields_too = only in FIELDS_NAME
    if not cases and not losses_too and not fields_too:
        sys.exit(f"compare_torch: no case's name has '{only}' in it")
    with tempfile.TemporaryDirectory() as folder:
        fine = sum(compare(starling, *case, folder) for case in cases)
        fine += sum(compare_loss(starling, *case, folder) for case in losses_too)
        fine += fields_too and compare_fields(starling, folder)
    count = len(cases) + len(losses_too) + fields_too
    print(f"{fine} of {count} cases within {TOLERANCE:g}")
    return fine == count


# ---- LeNet, trained by PyTorch ----


def read_idx(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def read_mnist(folder, name):
    def find(part):
        for ending in (".gz", ""):
            path = os.path.join(folder, f"{name}-{part}-ubyte{ending}")
            if os.path.exists(path):
                return read_idx(path)
        sys.exit(
            f"compare_torch: {folder} has no {name}-{part}-ubyte[.gz]; "
            "which folder has MNIST's four files?"
        )

    images = torch.from_numpy(find("images-idx3").astype(numpy.float32) / 255).unsqueeze(1)
    return images, torch.from_numpy(find("labels-idx1").astype(numpy.int64))


def train_lenet(folder, steps):
    images, labels = read_mnist(folder, "train")
    network = LeNet()
    optimizer = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    for _ in range(steps):
        chosen = torch.randint(len(images), [64])
        loss = functional.cross_entropy(network(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def compare_lenet(starling, data, steps):
    network = train_lenet(data, steps)
    images, labels = read_mnist(data, "t10k")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        theirs = network(images)
        path = os.path.join(folder, "lenet.safetensors")
        save_file(network.state_dict(), path)
        model = Model(starling, lenet())
        model.load(path)
        ours = model.predict(images.numpy())
        model.free()
    error, classes = error_of(ours, theirs), theirs.argmax(1).numpy()
    alike, right = int((ours.argmax(1) == classes).sum()), int((classes == labels.numpy()).sum())
    print(
        f"LeNet after {steps} steps in PyTorch, {len(images)} test images: "
        f"{right} right in PyTorch, {alike} of the same class here, "
        f"largest error of a logit {error:.1e}"
    )
    # two logits that are equal but for rounding may change places
    return error <= TOLERANCE and alike >= len(images) - 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--library", default="libstarling.so", help="libstarling.so, if it is not installed"
    )
    parser.add_argument("--only", default="", help="cases with this text in their names")
    parser.add_argument(
        "--lenet", metavar="FOLDER", help="train LeNet on the MNIST of this folder instead"
    )
    parser.add_argument("--steps", type=int, default=200, help="of that training")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    try:
        starling = Starling(options.library)
        if options.lenet:
            fine = compare_lenet(starling, options.lenet, options.steps)
        else:
            with torch.no_grad():
                fine = compare_all(starling, options.only)
        starling.close()
    except (OSError, RuntimeError) as failure:
        sys.exit(f"compare_torch: {failure}")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
