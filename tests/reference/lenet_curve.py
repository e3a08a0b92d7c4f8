#!/usr/bin/env python3
"""Is Starling's loss curve PyTorch's? Trains LeNet from the same weights on the same batches and
compares.

    lenet_curve.py --write w.safetensors     PyTorch's initial weights, in PyTorch's layout
    examples/lenet --data DIR --load w.safetensors --no-shuffle --optimizer sgd --lr 0.05 \\
      --steps 50 --log l.jsonl
    lenet_curve.py --weights w.safetensors --data DIR --lr 0.05 --log l.jsonl

Prints both losses of each step and the greatest relative difference; exit code 1 if it is above
--tolerance. Needs only torch: this script reads weights and digits by code that shares nothing with
Starling's.
"""
import argparse
import gzip
import json
import os
import struct
import sys

import torch
from torch import nn

from weights import read_weights, write_weights

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--write", metavar="FILE")
parser.add_argument("--weights", metavar="FILE")
parser.add_argument("--data", metavar="DIR")
parser.add_argument("--log", metavar="FILE")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--optimizer", choices=["sgd", "nag", "adam", "adamw"], default="sgd")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0)
parser.add_argument("--weight-decay", type=float, default=0)
parser.add_argument("--clip", type=float, default=0)
parser.add_argument("--activation", default="tanh",
                    choices=["tanh", "relu", "sigmoid", "gelu", "gelu_tanh", "silu"])
parser.add_argument("--tolerance", type=float, default=1e-3)
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()


class LeNet(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)
        self.activation = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid,
                           "gelu": nn.functional.gelu,
                           "gelu_tanh": nn.GELU(approximate="tanh"),
                           "silu": nn.functional.silu}[activation]

    def forward(self, x):
        x = nn.functional.max_pool2d(self.activation(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(self.activation(self.conv2(x)), 2)
        return self.fc2(self.activation(self.fc1(x.flatten(1))))


def read_idx(folder, name):
    path = os.path.join(folder, name)
    raw = open(path, "rb").read() if os.path.exists(path) else gzip.open(path + ".gz", "rb").read()
    dims = struct.unpack(">%dI" % raw[3], raw[4:4 + 4 * raw[3]])
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3]:]), dtype=torch.uint8).reshape(dims)


def make_optimizer(parameters):
    shared = dict(lr=options.lr, weight_decay=options.weight_decay)
    if options.optimizer in ("sgd", "nag"):
        nesterov = options.optimizer == "nag"
        momentum = options.momentum or (0.9 if nesterov else 0)
        return torch.optim.SGD(parameters, momentum=momentum, nesterov=nesterov, **shared)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kinds[options.optimizer](parameters, **shared)


def reference_losses(count):
    model = LeNet(options.activation)
    model.load_state_dict(read_weights(options.weights))
    images = read_idx(options.data, "train-images-idx3-ubyte")
    labels = read_idx(options.data, "train-labels-idx1-ubyte").long()
    optimizer = make_optimizer(model.parameters())
    for step in range(count):
        begin = step * options.batch
        if begin + options.batch > len(images):
            sys.exit("step %d would start a second epoch: log fewer steps" % step)
        x = (images[begin:begin + options.batch, None].float() / 255 - 0.1307) / 0.3081
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels[begin:begin + options.batch])
        loss.backward()
        if options.clip:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        yield loss.item()


torch.set_num_threads(options.threads)
if options.write:
    torch.manual_seed(options.seed)
    write_weights(LeNet(options.activation), options.write)
    sys.exit()
if not (options.weights and options.data and options.log):
    parser.error("--weights, --data and --log are needed (or --write)")
ours = [line["loss"] for line in map(json.loads, open(options.log)) if "step" in line]
worst = 0
for step, (mine, theirs) in enumerate(zip(ours, reference_losses(len(ours)))):
    difference = abs(mine - theirs) / abs(theirs)
    worst = max(worst, difference)
    print("step %3d  starling %.8f  torch %.8f  relative difference %.1e" %
          (step, mine, theirs, difference))
print("%d steps, greatest relative difference %.2e (allowed %.0e)" %
      (len(ours), worst, options.tolerance))
sys.exit(worst > options.tolerance or len(ours) == 0)
