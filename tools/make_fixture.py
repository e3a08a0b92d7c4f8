#!/usr/bin/env python3
"""Write weight files with PyTorch, as its users would, for Starling's tests.

    make_fixture.py small FILE           every value follows a formula that tests/test_safetensors.c repeats
    make_fixture.py lenet FILE [SEED]    LeNet (conv1, conv2, fc1, fc2) with PyTorch's initial weights
    make_fixture.py onnx FOLDER          onnx_residual.onnx by PyTorch's older exporter, onnx_words.onnx by the
                                         newer one; for each an input and PyTorch's answer in .safetensors

Needs the packages torch and safetensors, and for onnx: onnx, onnxscript; the tests that read the files need none.
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


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.pool, self.drop, self.act = nn.MaxPool2d(2), nn.Dropout(0.5), nn.GELU()
        self.fc1, self.fc2 = nn.Linear(36, 7), nn.Linear(7, 3)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.pool(torch.relu(self.bn2(self.conv2(x)) + x))
        return self.fc2(self.drop(self.act(self.fc1(x.view(x.size(0), -1)))))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(13, 6), nn.LSTM(6, 5, batch_first=True)
        self.gru, self.decoder = nn.GRU(5, 4, 2, batch_first=True), nn.Linear(4, 13)

    def forward(self, x):
        return self.decoder(self.gru(self.lstm(self.embed(x))[0])[0])


def without_origin(path):
    """Out goes what tells of the machine that it was made on: paths of sources."""
    import onnx

    file = onnx.load(path)
    for thing in [file, file.graph, *file.graph.node, *file.graph.value_info, *file.graph.input, *file.graph.output]:
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    onnx.save(file, path)


def write_onnx(folder):
    axes = {"input": {0: "N"}, "output": {0: "N"}}
    older = {"dynamo": False, "dynamic_axes": axes, "opset_version": 17, "training": torch.onnx.TrainingMode.PRESERVE}
    newer = {"dynamo": True, "external_data": False, "dynamic_shapes": ({0: torch.export.Dim("N")},)}
    cases = [("onnx_residual", Residual(), torch.randn(3, 2, 6, 6), older),
             ("onnx_words", Words(), torch.randint(0, 13, (3, 4)), newer)]
    for name, model, x, options in cases:
        model.train()
        model(x)  # running statistics that are not the first ones
        model.eval()
        torch.onnx.export(model, (x,), f"{folder}/{name}.onnx", input_names=["input"], output_names=["output"],
                          **options)
        without_origin(f"{folder}/{name}.onnx")
        with torch.no_grad():
            save_file({"input": x.float().contiguous(), "output": model(x).contiguous()}, f"{folder}/{name}.safetensors")


def fill_by_formula(state):
    """The i-th value of a tensor is i / 4 - (length of its name): exact in every float type used."""
    for name, tensor in state.items():
        values = torch.arange(tensor.numel(), dtype=torch.float64) / 4 - len(name)
        tensor.copy_(values.reshape(tensor.shape).to(tensor.dtype))


def main(arguments):
    if len(arguments) not in (2, 3) or arguments[0] not in ("small", "lenet", "onnx"):
        sys.exit(__doc__)
    torch.manual_seed(int(arguments[2]) if len(arguments) == 3 else 1)
    if arguments[0] == "onnx":
        return write_onnx(arguments[1])
    model = Small() if arguments[0] == "small" else LeNet()
    state = model.state_dict()
    if arguments[0] == "small":
        fill_by_formula(state)
    save_file(state, arguments[1], metadata={"format": "pt"})


if __name__ == "__main__":
    main(sys.argv[1:])
