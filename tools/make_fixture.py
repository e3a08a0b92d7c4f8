#!/usr/bin/env python3
"""Write weight files with PyTorch, as its users would, for Starling's tests.

    make_fixture.py small FILE           every value follows a formula that tests/test_safetensors.c repeats
    make_fixture.py lenet FILE [SEED]    LeNet (conv1, conv2, fc1, fc2) with PyTorch's initial weights

Needs the packages torch and safetensors; the tests that read the files need neither.
"""
import sys

import torch
from safetensors.torch import save_file
from torch import nn


class Small(nn.Module):
    """All kinds of entries: f32 of 1, 2 and 4 dimensions, other float types, an integer without dimensions."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, 2)
        self.bn1 = nn.BatchNorm2d(3)
        self.fc1 = nn.Linear(12, 5)
        self.half = nn.Linear(4, 2).half()
        self.brain = nn.Linear(4, 2).bfloat16()
        self.double = nn.Linear(4, 2).double()


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)


def fill_by_formula(state):
    """The i-th value of a tensor is i / 4 - (length of its name): exact in every float type used."""
    for name, tensor in state.items():
        values = torch.arange(tensor.numel(), dtype=torch.float64) / 4 - len(name)
        tensor.copy_(values.reshape(tensor.shape).to(tensor.dtype))


def main(arguments):
    if len(arguments) not in (2, 3) or arguments[0] not in ("small", "lenet"):
        sys.exit(__doc__)
    torch.manual_seed(int(arguments[2]) if len(arguments) == 3 else 1)
    model = Small() if arguments[0] == "small" else LeNet()
    state = model.state_dict()
    if arguments[0] == "small":
        fill_by_formula(state)
    save_file(state, arguments[1], metadata={"format": "pt"})


if __name__ == "__main__":
    main(sys.argv[1:])
