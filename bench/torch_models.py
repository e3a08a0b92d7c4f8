#!/usr/bin/env python3
"""Whole networks, as bench_layers trains them, beside PyTorch: alternating, each with two threads.
Prints a line a network: milliseconds of a step, and how many times PyTorch's a step of Starling
fits into (median of the rounds, and their range).

    torch_models.py [--program build/bench/bench_layers] [--rounds 5] [--seconds 0.5] [--compile]
                    [NAME ...]
    torch_models.py --check [--library build/.libs/libstarling.so] [NAME ...]

--compile gives PyTorch torch.compile, which needs a C++ compiler. --check measures nothing:
Starling loads PyTorch's weights and must give PyTorch's outputs. It needs the packages safetensors
and numpy."""
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional

import layers_peer
from layers_peer import Network, activated, conv, transposed

# ---- layers: the description for Starling's file, and PyTorch's module or function ----


def dense(features, inputs, activation=None, positions=False, flatten=False):
    """positions: on each step of a sequence by itself. flatten: the input is a picture."""
    linear = nn.Linear(inputs, features)
    return activated(dict(kind="dense", features=features, positions=positions),
                     nn.Sequential(nn.Flatten(), linear) if flatten else linear, activation)


def activation(function):
    return dict(kind="activation", activation=function), layers_peer.ACTIVATIONS[function]()


def batch_norm(channels):
    return dict(kind="batchnorm"), nn.BatchNorm2d(channels)


def layer_norm(features):
    return dict(kind="layernorm", axes=1), nn.LayerNorm(features)


def max_pool():
    return dict(kind="maxpool2d", kernel_h=2), nn.MaxPool2d(2)


def add():
    return dict(kind="add"), torch.add


def concatenate():
    """Of channels."""
    return dict(kind="concatenate"), lambda *x: torch.cat(x, 1)


def conv1d(channels, kernel, inputs, dilation=1, activation=None):
    pad = dilation * (kernel // 2)
    return activated(
        dict(kind="conv1d", channels=channels, kernel=kernel, pad=pad, dilation=dilation),
        nn.Conv1d(inputs, channels, kernel, padding=pad, dilation=dilation), activation)


class AllSteps(nn.Module):
    """The outputs of an nn.GRU or nn.LSTM without its last state."""
    def __init__(self, cells):
        super().__init__()
        self.cells = cells

    def forward(self, x):
        return self.cells(x)[0]


def recurrent(kind, features, inputs, bidirectional):
    cells = {"gru": nn.GRU, "lstm": nn.LSTM}[kind]
    return (dict(kind=kind, features=features, bidirectional=bidirectional),
            AllSteps(cells(inputs, features, batch_first=True, bidirectional=bidirectional)))


def last_step(steps):
    return dict(kind="slice", first=steps - 1), lambda x: x[:, -1]


def causal_attention(heads):
    """Its input has queries, keys and values side by side."""
    def attend(x):
        q, k, v = x.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).flatten(2)
    return dict(kind="attention", heads=heads), attend


# ---- networks ----


def conv_norm(net, x, channels, kernel, inputs, function="relu", stride=1, groups=1):
    """A convolution, batch normalisation and an activation (or None)."""
    x = net.add(conv(channels, kernel, kernel // 2, stride, groups, inputs=inputs, bias=False), x)
    x = net.add(batch_norm(channels), x)
    return net.add(activation(function), x) if function else x


def unet(shape, width, norm=False):
    """U-Net (arXiv 1505.04597) of four levels, with padding, so that the size stays."""
    def block(x, inputs, channels):
        for before in (inputs, channels):
            if norm:
                x = conv_norm(net, x, channels, 3, before)
            else:
                x = net.add(conv(channels, 3, 1, inputs=before, activation="relu"), x)
        return x

    net, x, channels, skips = Network(*shape), "input", shape[0], []
    for wider in (width, 2 * width, 4 * width):
        x, channels = block(x, channels, wider), wider
        skips.append((x, channels))
        x = net.add(max_pool(), x)
    x, channels = block(x, channels, 8 * width), 8 * width
    for skip, narrower in reversed(skips):
        x = net.add(transposed(narrower, 2, 2, inputs=channels), x)
        x = net.add(concatenate(), skip, x)
        x, channels = block(x, 2 * narrower, narrower), narrower
    net.add(conv(1, 1, inputs=channels), x)
    return net


def mobilenet():
    """Inverted residuals as of MobileNetV2 (arXiv 1801.04381), for pictures of 32x32."""
    net = Network(3, 32, 32)
    x, inputs = conv_norm(net, "input", 32, 3, 3), 32
    blocks = (16, 1), (24, 1), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1), (96, 1)
    for channels, stride in blocks:
        wide = 4 * inputs
        y = conv_norm(net, x, wide, 1, inputs)
        y = conv_norm(net, y, wide, 3, wide, stride=stride, groups=wide)
        y = conv_norm(net, y, channels, 1, wide, None)
        x = net.add(add(), y, x) if channels == inputs and stride == 1 else y
        inputs = channels
    net.add((dict(kind="avgpool2d", **{"global": True}), nn.AdaptiveAvgPool2d(1)), x)
    net.add(dense(10, inputs, flatten=True))
    return net


def vgg():
    """As VGG (arXiv 1409.1556), with fewer layers, for pictures of 32x32."""
    net, inputs = Network(3, 32, 32), 3
    for channels, count in ((64, 1), (128, 1), (256, 2), (512, 2)):
        for _ in range(count):
            net.add(conv(channels, 3, 1, inputs=inputs, activation="relu"))
            inputs = channels
        net.add(max_pool())
    net.add(dense(10, inputs * 2 * 2, flatten=True))
    return net


def mlp(inputs, width, count, outputs, activation):
    net, before = Network(inputs), inputs
    for _ in range(count):
        net.add(dense(width, before, activation))
        before = width
    net.add(dense(outputs, before))
    return net


def rnn(kind, steps, inputs, width, count, bidirectional=False, every_step=False):
    """One output for the sequence, or one for each step."""
    net, before = Network(steps, inputs), inputs
    for _ in range(count):
        net.add(recurrent(kind, width, before, bidirectional))
        before = 2 * width if bidirectional else width
    if not every_step:
        net.add(last_step(steps))
    net.add(dense(1, before, positions=every_step))
    return net


def transformer(steps, width, heads, count):
    """Blocks as of GPT-2, with the normalisation before the attention and before the MLP."""
    net, x = Network(steps, width), "input"
    for _ in range(count):
        net.add(layer_norm(width), x)
        net.add(dense(3 * width, width, positions=True))
        net.add(causal_attention(heads))
        y = net.add(dense(width, width, positions=True))
        x = net.add(add(), x, y)
        net.add(layer_norm(width), x)
        net.add(dense(4 * width, width, "gelu", positions=True))
        y = net.add(dense(width, 4 * width, positions=True))
        x = net.add(add(), x, y)
    return net


def temporal_convolutions():
    """Residual convolutions along 256 steps of 16 channels; each sees twice as far as the last."""
    net = Network(16, 256)
    x = net.add(conv1d(64, 3, 16, activation="relu"))
    for dilation in (2, 4, 8):
        y = net.add(conv1d(64, 3, 64, dilation, "relu"), x)
        x = net.add(add(), y, x)
    net.add(conv1d(1, 1, 64), x)
    return net


def autoencoder():
    net, inputs = Network(1, 64, 64), 1
    for channels in (16, 32, 64):
        net.add(conv(channels, 3, 1, 2, inputs=inputs, activation="relu"))
        inputs = channels
    for channels, function in ((32, "relu"), (16, "relu"), (1, None)):
        net.add(transposed(channels, 4, 2, 1, inputs=inputs, activation=function))
        inputs = channels
    return net


CASES = {  # how to make it, batch
    "unet 16 channels, 64x64, batch 8": (lambda: unet((1, 64, 64), 16), 8),
    "unet with normalisation, 16, 64x64, batch 8": (lambda: unet((1, 64, 64), 16, norm=True), 8),
    "unet 32, 128x128, batch 2": (lambda: unet((3, 128, 128), 32), 2),
    "mobilenet-like, batch 32": (mobilenet, 32),
    "vgg-like, batch 32": (vgg, 32),
    "mlp 20-5x50-1, tanh, batch 64": (lambda: mlp(20, 50, 5, 1, "tanh"), 64),
    "mlp 3-8x128-3, tanh, batch 1024": (lambda: mlp(3, 128, 8, 3, "tanh"), 1024),
    "mlp 100-4x1024-100, silu, batch 256": (lambda: mlp(100, 1024, 4, 100, "silu"), 256),
    "mlp 10-3x256-1000, gelu, batch 32": (lambda: mlp(10, 256, 3, 1000, "gelu"), 32),
    "gru 2x64, 100 steps, batch 32": (lambda: rnn("gru", 100, 8, 64, 2), 32),
    "lstm 2x64, 100 steps, batch 32": (lambda: rnn("lstm", 100, 8, 64, 2), 32),
    "bidirectional lstm 128, 50 steps, batch 32": (
        lambda: rnn("lstm", 50, 32, 128, 1, bidirectional=True), 32),
    "gru 256, 200 steps, batch 16": (lambda: rnn("gru", 200, 16, 256, 1, every_step=True), 16),
    "transformer 4x128, 64 steps, batch 16": (lambda: transformer(64, 128, 4, 4), 16),
    "transformer 2x256, 512 steps, batch 2": (lambda: transformer(512, 256, 8, 2), 2),
    "temporal convolutions, batch 16": (temporal_convolutions, 16),
    "convolutional autoencoder, 64x64, batch 16": (autoencoder, 16),
}


# ---- the same network? ----


def parameter_name(name):
    """As Starling calls it: the layer's name and the parameter's, without modules between them."""
    parts = name.split(".")
    return f"{parts[0]}.{parts[-1]}"


def check(name, network, starling):
    """Starling's outputs with PyTorch's weights against PyTorch's; False if they differ."""
    compare_torch.disturb(network.eval())
    x = torch.randn(2, *network.shape)
    state = {parameter_name(key): value.clone() for key, value in network.state_dict().items()}
    model = compare_torch.Model(starling, network.architecture())
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.safetensors")
        compare_torch.save_file(state, path)
        model.load(path)
        error = compare_torch.error_of(model.predict(x.numpy()), network(x))
    model.free()
    fine = error <= compare_torch.TOLERANCE  # false for NaN
    count = sum(parameter.numel() for parameter in network.parameters())
    print(f"{'ok' if fine else 'BEYOND':7}{name:44} {count:10,} parameters, error {error:.1e}",
          flush=True)
    return fine


parser = layers_peer.argument_parser()
parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
parser.add_argument("--check", action="store_true", help="compare outputs, measure nothing")
parser.add_argument("--library", default="build/.libs/libstarling.so", help="for --check")
options = parser.parse_args()
cases = layers_peer.chosen(CASES, options.names)
if options.check:
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
    import compare_torch
    starling = compare_torch.Starling(options.library)
    same = [check(name, make(), starling) for name, (make, _) in cases]
    starling.close()
    sys.exit(0 if all(same) else 1)
layers_peer.print_header()
for name, (make, batch) in cases:
    network = make()
    if options.compile:
        # all networks share one forward(): else PyTorch would compile the second for variable
        # sizes, and none after the eighth
        torch.compiler.reset()
        network.compile()
    layers_peer.measure(name, network, batch, options)
