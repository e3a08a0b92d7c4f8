#!/usr/bin/env python3
"""Single layers, as bench_layers trains them, beside PyTorch: alternating, each with two threads.
Prints a line a case: milliseconds of a step, and how many times PyTorch's a step of Starling fits
into (median of the rounds, and their range).

    torch_layers.py [--program build/bench/bench_layers] [--rounds 5] [--seconds 0.5] [NAME ...]"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--program", default="build/bench/bench_layers")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=float, default=0.5)
parser.add_argument("names", nargs="*", help="cases whose names have one of these words")
options = parser.parse_args()
torch.set_num_threads(options.threads)


def conv(channels, kernel, pad=0, stride=1, groups=1, dilation=1, inputs=None):
    """A layer of an architecture file, and PyTorch's."""
    return (
        dict(kind="conv2d", channels=channels, kernel_h=kernel, pad_h=pad, stride_h=stride,
             groups=groups, dilation_h=dilation),
        nn.Conv2d(inputs, channels, kernel, stride, pad, dilation, groups))


def row(channels, kernel, pad, dilation):
    """A dilated convolution along time, as of temporal convolution networks."""
    return (
        dict(kind="conv2d", channels=channels, kernel_h=1, kernel_w=kernel, pad_h=0, pad_w=pad,
             dilation_h=1, dilation_w=dilation),
        nn.Conv2d(channels, channels, (1, kernel), 1, (0, pad), (1, dilation)))


def transposed(channels, kernel, stride, pad=0, groups=1, inputs=None):
    return (
        dict(kind="conv_transpose2d", channels=channels, kernel_h=kernel, stride_h=stride,
             pad_h=pad, groups=groups),
        nn.ConvTranspose2d(inputs, channels, kernel, stride, pad, groups=groups))


CASES = {  # input, batch, layers
    "transposed 2x2, stride 2, 64 to 32, 16x16": (
        (64, 16, 16), 32, [transposed(32, 2, 2, inputs=64)]),
    "transposed 4x4, stride 2, 64 to 32, 16x16": (
        (64, 16, 16), 32, [transposed(32, 4, 2, 1, inputs=64)]),
    "transposed 4x4, stride 2, 512 to 256, 4x4": (
        (512, 4, 4), 16, [transposed(256, 4, 2, 1, inputs=512)]),
    "dilation 2, 3x3, 32 twice, 32x32": (
        (32, 32, 32), 32, [conv(32, 3, 2, dilation=2, inputs=32) for _ in range(2)]),
    "4 groups, 3x3, 64 twice, 28x28": (
        (64, 28, 28), 32, [conv(64, 3, 1, groups=4, inputs=64) for _ in range(2)]),
    "32 groups, 3x3, 64 twice, 28x28": (
        (64, 28, 28), 32, [conv(64, 3, 1, groups=32, inputs=64) for _ in range(2)]),
    "16 groups, 3x3, 64 twice, 28x28": (
        (64, 28, 28), 32, [conv(64, 3, 1, groups=16, inputs=64) for _ in range(2)]),
    "8 groups, 3x3, 64 twice, 28x28": (
        (64, 28, 28), 32, [conv(64, 3, 1, groups=8, inputs=64) for _ in range(2)]),
    "depthwise 3x3, 64 twice, 32x32": (
        (64, 32, 32), 32, [conv(64, 3, 1, groups=64, inputs=64) for _ in range(2)]),
    "depthwise 5x5, stride 2, 96, 28x28": (
        (96, 28, 28), 32, [conv(96, 5, 2, 2, groups=96, inputs=96)]),
    "depthwise 3x3, dilation 2, 64 twice, 32x32": (
        (64, 32, 32), 32, [conv(64, 3, 2, groups=64, dilation=2, inputs=64) for _ in range(2)]),
    "row of 3, dilation 4, 64 twice, 256 steps": (
        (64, 1, 256), 32, [row(64, 3, 4, 4) for _ in range(2)]),
    "3x3, 256, 8x8": ((256, 8, 8), 32, [conv(256, 3, 1, inputs=256)]),
    "3x3, 512, 7x7": ((512, 7, 7), 8, [conv(512, 3, 1, inputs=512)]),
    "1x1, 64 to 128, 28x28": ((64, 28, 28), 32, [conv(128, 1, inputs=64)]),
    "group normalisation, 8 of 64, 28x28": (
        (64, 28, 28), 32, [(dict(kind="groupnorm", groups=8), nn.GroupNorm(8, 64))]),
    "layer normalisation, 256, 128 steps": (
        (128, 256), 32, [(dict(kind="layernorm", axes=1), nn.LayerNorm(256))]),
    "gelu, 1024, 128 steps": (
        (128, 1024), 16, [(dict(kind="activation", activation="gelu"), nn.GELU())]),
}


def ours(network, batch):
    environment = dict(os.environ, STARPU_SILENT="1")
    line = subprocess.run([options.program, network, str(batch), str(options.seconds)], check=True,
                          capture_output=True, text=True, env=environment).stdout
    return json.loads(line)["ms"]


def torchs(model, x, y):
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-6) if parameters else None
    x.requires_grad_(not parameters)
    steps, begin = -5, time.perf_counter()
    while steps < 1 or time.perf_counter() - begin < options.seconds:
        if steps == 0:
            begin = time.perf_counter()
        model.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if optimizer:
            optimizer.step()
        steps += 1
    return 1e3 * (time.perf_counter() - begin) / steps


def measure(name, shape, batch, layers, folder):
    model, x = nn.Sequential(*(module for _, module in layers)), torch.randn(batch, *shape)
    y = torch.randn_like(model(x))
    network = os.path.join(folder, "network.json")
    with open(network, "w") as file:
        json.dump(dict(format="starling model", version=1, input=shape, layers=[
            dict(description, name=f"layer{i}") for i, (description, _) in enumerate(layers)]),
            file)
    times = [(ours(network, batch), torchs(model, x, y)) for _ in range(options.rounds)]
    ratios = sorted(theirs / own for own, theirs in times)
    own, theirs = (statistics.median(t[k] for t in times) for k in range(2))
    print(f"{name:44} {own:8.2f} {theirs:8.2f}   {statistics.median(ratios):.2f} "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


with tempfile.TemporaryDirectory() as folder:
    print(f"{'':44} {'Starling':>8} {'PyTorch':>8}   ratio")
    for name, case in CASES.items():
        if not options.names or any(word in name for word in options.names):
            measure(name, *case, folder)
