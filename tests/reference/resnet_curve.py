#!/usr/bin/env python3
"""Is Starling's ResNet PyTorch's? Trains from the same weights on the same batches and compares the
losses; then evaluates the weights that Starling saved on the test set, by running statistics, and
compares.

    resnet_curve.py --depth 8 --write w.safetensors     PyTorch's initial weights, in its layout
    examples/resnet --depth 8 --write-data DIR --load w.safetensors --no-shuffle --no-augment \\
      --replicas 1 --lr-schedule constant --lr 0.005 --steps 50 --log l.jsonl \\
      --save trained.safetensors
    resnet_curve.py --depth 8 --weights w.safetensors --data DIR --lr 0.005 --log l.jsonl \\
      --trained trained.safetensors

Prints both losses of each step and the greatest relative differences, over the first --early steps
and all; exit code 1 if the former is above --tolerance or the latter above --late-tolerance:
rounding grows from step to step, and with the rate. Then the test loss of the log's last evaluation
and PyTorch's; exit code 1 if they differ by more than --tolerance, relatively, or the accuracies by
more than that. --double shows the difference between PyTorch's own losses and those in double
precision, for comparison (slow). Needs only torch.
"""
import argparse
import itertools
import json
import os
import sys

import torch
from torch import nn

from weights import read_weights, write_weights

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--depth", type=int, default=20)
parser.add_argument("--write", metavar="FILE")
parser.add_argument("--weights", metavar="FILE")
parser.add_argument("--trained", metavar="FILE")
parser.add_argument("--data", metavar="DIR")
parser.add_argument("--log", metavar="FILE")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--weight-decay", type=float, default=1e-4)
parser.add_argument("--early", type=int, default=10)
parser.add_argument("--tolerance", type=float, default=1e-4)
parser.add_argument("--late-tolerance", type=float, default=3e-2)
parser.add_argument("--double", action="store_true")
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).reshape(3, 1, 1)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(blocks)))
        self.layer2 = nn.Sequential(Block(16, 32, 2),
                                    *(Block(32, 32, 1) for _ in range(blocks - 1)))
        self.layer3 = nn.Sequential(Block(32, 64, 2),
                                    *(Block(64, 64, 1) for _ in range(blocks - 1)))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def load(path):
    model = ResNet(options.depth)
    missing, unexpected = model.load_state_dict(read_weights(path), strict=False)
    wrong = [name for name in missing if not name.endswith("num_batches_tracked")] + unexpected
    if wrong:
        sys.exit("%s: not in both: %s" % (path, ", ".join(wrong)))
    return model


def read_data(names):
    raw = b"".join(open(os.path.join(options.data, name), "rb").read() for name in names)
    records = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def normalised(images):
    return (images.float() / 255 - MEAN) / DEVIATION


def reference_losses(count, dtype):
    model = load(options.weights).to(dtype).train()
    images, labels = read_data("data_batch_%d.bin" % i for i in range(1, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum,
                                weight_decay=options.weight_decay)
    for step in range(count):
        begin = step * options.batch
        if begin + options.batch > len(images):
            sys.exit("step %d would start a second epoch: log fewer steps" % step)
        optimizer.zero_grad()
        batch = slice(begin, begin + options.batch)
        logits = model(normalised(images[batch]).to(dtype))
        loss = nn.functional.cross_entropy(logits, labels[batch])
        loss.backward()
        optimizer.step()
        yield loss.item()


def compare_curves(ours):
    early = late = rounding = 0
    torchs = reference_losses(len(ours), torch.float32)
    doubles = itertools.repeat(None)
    if options.double:
        doubles = reference_losses(len(ours), torch.float64)
    for step, (mine, theirs, double) in enumerate(zip(ours, torchs, doubles)):
        difference = abs(mine - theirs) / theirs
        late = max(late, difference)
        early = max(early, difference) if step < options.early else early
        text = "step %3d  starling %.8f  torch %.8f  relative difference %.1e" % (
            step, mine, theirs, difference)
        if double:
            rounding = max(rounding, abs(theirs - double) / double)
            text += "  torch, double precision %.8f" % double
        print(text)
    print("greatest relative difference: %.2e in the first %d steps (allowed %.0e), "
          "%.2e in all %d (allowed %.0e)%s" %
          (early, options.early, options.tolerance, late, len(ours), options.late_tolerance,
           "; torch's from double precision: %.2e" % rounding if options.double else ""))
    return len(ours) > 0 and early <= options.tolerance and late <= options.late_tolerance


def compare_evaluations(ours):
    model = load(options.trained).eval()
    images, labels = read_data(["test_batch.bin"])
    loss = right = 0
    with torch.no_grad():
        for x, y in zip(images.split(500), labels.split(500)):
            logits = model(normalised(x))
            loss += nn.functional.cross_entropy(logits, y, reduction="sum").item()
            right += (logits.argmax(1) == y).sum().item()
    loss, accuracy = loss / len(labels), right / len(labels)
    difference = abs(ours["test_loss"] - loss) / loss
    print("test loss  starling %.8f  torch %.8f  relative difference %.1e; accuracy %.4f and %.4f" %
          (ours["test_loss"], loss, difference, ours["test_accuracy"], accuracy))
    return max(difference, abs(ours["test_accuracy"] - accuracy)) <= options.tolerance


torch.set_num_threads(options.threads)
if options.write:
    torch.manual_seed(options.seed)
    write_weights(ResNet(options.depth), options.write)
    sys.exit()
if not (options.data and options.log and (options.weights or options.trained)):
    parser.error("--data, --log and --weights or --trained are needed (or --write)")
log = [json.loads(line) for line in open(options.log)]
fine = True
if options.weights:
    fine = compare_curves([line["loss"] for line in log if "step" in line])
if options.trained:
    fine = compare_evaluations([line for line in log if "test_loss" in line][-1]) and fine
sys.exit(not fine)
