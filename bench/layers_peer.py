"""Shared by torch_layers.py and torch_models.py: a network that Starling and PyTorch both train,
the time of its step on each side, and the line that reports both."""
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

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


def argument_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/bench/bench_layers")
    parser.add_argument("--threads", type=int, default=2,
                        help="of PyTorch; bench_layers takes the processors that it finds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("names", nargs="*", help="cases whose names have one of these words")
    return parser


def chosen(cases, names):
    """The names and values of the cases that the command line asks for."""
    return [(name, case) for name, case in cases.items()
            if not names or any(word in name for word in names)]


class Network(nn.Module):
    """A network described once for both: `layers` is for an architecture file (doc/models.md),
    forward() calls the PyTorch functions of the same layers."""
    def __init__(self, *shape):
        super().__init__()
        self.shape, self.layers, self.functions = shape, [], []
        self.last, self.last_use = "input", {}

    def add(self, layer, *inputs):
        """layer: its description for the file, and its PyTorch module or function. inputs: names of
        layers, by default the one before. Returns the layer's name."""
        description, function = layer
        name, inputs = f"layer{len(self.layers)}", inputs or (self.last,)
        self.layers.append(dict(description, name=name, inputs=inputs))
        self.functions.append((name, inputs, function))
        if isinstance(function, nn.Module):
            self.add_module(name, function)
        self.last_use.update((each, name) for each in inputs)
        self.last = name
        return name

    def architecture(self):
        return dict(format="starling model", version=1, input=self.shape, layers=self.layers)

    def forward(self, x):
        values = {"input": x}
        for name, inputs, function in self.functions:
            values[name] = function(*(values[each] for each in inputs))
            # a forward() written by hand keeps no value after its last use, either
            for each in inputs:
                if self.last_use[each] == name:
                    values.pop(each, None)
        return values[name]


def activated(description, module, activation):
    """Starling computes the activation with the layer, PyTorch in a module behind it."""
    if not activation:
        return description, module
    return (dict(description, activation=activation),
            nn.Sequential(module, ACTIVATIONS[activation]()))


def conv(channels, kernel, pad=0, stride=1, groups=1, dilation=1, *, inputs, bias=True,
         activation=None):
    """inputs: the channels before."""
    return activated(
        dict(kind="conv2d", channels=channels, kernel_h=kernel, pad_h=pad, stride_h=stride,
             groups=groups, dilation_h=dilation, no_bias=not bias),
        nn.Conv2d(inputs, channels, kernel, stride, pad, dilation, groups, bias), activation)


def transposed(channels, kernel, stride, pad=0, groups=1, *, inputs, activation=None):
    return activated(
        dict(kind="conv_transpose2d", channels=channels, kernel_h=kernel, stride_h=stride,
             pad_h=pad, groups=groups),
        nn.ConvTranspose2d(inputs, channels, kernel, stride, pad, groups=groups), activation)


def ours(file, batch, options):
    """Milliseconds of a step of Starling."""
    result = subprocess.run([options.program, file, str(batch), str(options.seconds)],
                            capture_output=True, text=True, env=dict(os.environ, STARPU_SILENT="1"))
    if result.returncode:
        raise SystemExit(f"{options.program}: exit code {result.returncode}\n{result.stderr}")
    return json.loads(result.stdout)["ms"]


def torchs(network, x, y, seconds):
    """Milliseconds of a step of PyTorch, after five that are not measured."""
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-6) if parameters else None
    x.requires_grad_(not parameters)
    steps, begin = -5, time.perf_counter()
    while steps < 1 or time.perf_counter() - begin < seconds:
        if steps == 0:
            begin = time.perf_counter()
        network.zero_grad()
        functional.mse_loss(network(x), y).backward()
        if optimizer:
            optimizer.step()
        steps += 1
    return 1e3 * (time.perf_counter() - begin) / steps


def print_header():
    print(f"{'':44} {'Starling':>8} {'PyTorch':>8}   ratio")


def measure(name, network, batch, options):
    """Both sides in turns; prints the medians, and the median and range of the turns' ratios."""
    torch.set_num_threads(options.threads)
    x = torch.randn(batch, *network.shape)
    y = torch.randn_like(network(x))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "network.json")
        with open(path, "w") as file:
            json.dump(network.architecture(), file)
        times = [(ours(path, batch, options), torchs(network, x, y, options.seconds))
                 for _ in range(options.rounds)]
    ratios = sorted(theirs / own for own, theirs in times)
    own, theirs = (statistics.median(t[k] for t in times) for k in range(2))
    print(f"{name:44} {own:8.2f} {theirs:8.2f}   {statistics.median(ratios):.2f} "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
