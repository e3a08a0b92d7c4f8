#!/usr/bin/env python3
"""Single layers, as bench_layers trains them, beside PyTorch: alternating, each with two threads.
Prints a line a case: milliseconds of a step, and how many times PyTorch's a step of Starling fits
into (median of the rounds, and their range).

    torch_layers.py [--program build/bench/bench_layers] [--rounds 5] [--seconds 0.5] [NAME ...]"""
from torch import nn

import layers_peer
from layers_peer import conv, transposed


def row(channels, kernel, pad, dilation):
    """A dilated convolution along time, as of temporal convolution networks."""
    return (
        dict(kind="conv2d", channels=channels, kernel_h=1, kernel_w=kernel, pad_h=0, pad_w=pad,
             dilation_h=1, dilation_w=dilation),
        nn.Conv2d(channels, channels, (1, kernel), 1, (0, pad), (1, dilation)))


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


options = layers_peer.argument_parser().parse_args()
layers_peer.print_header()
for name, (shape, batch, layers) in layers_peer.chosen(CASES, options.names):
    network = layers_peer.Network(*shape)
    for layer in layers:
        network.add(layer)
    layers_peer.measure(name, network, batch, options)
