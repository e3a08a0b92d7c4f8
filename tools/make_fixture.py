#!/usr/bin/env python3
"""Write weight files with PyTorch, as its users would, for Starling's tests.

    make_fixture.py small FILE
        every value follows a formula that tests/core/test_safetensors.c repeats
    make_fixture.py lenet FILE [SEED]
        LeNet (conv1, conv2, fc1, fc2) with PyTorch's initial weights
    make_fixture.py trained FOLDER
        two networks after a short training by PyTorch, as Starling's saved models (torch_images and
        torch_words, .json and .safetensors), and their answers to some inputs
        (torch_answers.safetensors), for tests/nn/test_torch_model.c
    make_fixture.py finetune FOLDER
        torch_backbone.safetensors: a network trained by PyTorch; torch_finetune.safetensors:
        images and labels of another task, a new head, and the losses of fine-tuning in double
        precision, for tests/nn/test_finetune.c; torch_optimizers.safetensors: parameters after ten
        steps of optimizers, for tests/codelets/test_optimizer_ops.c
    make_fixture.py onnx FOLDER
        onnx_residual.onnx and onnx_states.onnx by PyTorch's older exporter, onnx_words.onnx by the
        newer one; for each an input and PyTorch's answer in .safetensors
    make_fixture.py tokenizers FOLDER
        tokenizer_text.txt: all that is hard to cut into pieces; tokenizer_gpt2.json and
        tokenizer_llama3.json: trained on it by Hugging Face's tokenizers; tokenizer_ids.json: their
        tokens of the text, for tests/data/test_tokenizer.c

Needs the packages torch and safetensors, for onnx: onnx, onnxscript, for tokenizers: tokenizers;
the tests that read the files need none.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional


class Small(nn.Module):
    """All kinds of entries: f32 of 1, 2 and 4 dimensions, other float types, an integer without
    dimensions."""

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


class Images(nn.Module):
    """The parts of a convolutional network: strides, padding, statistics, a residual edge, both
    poolings, fused activations."""
    sample = [2, 12, 10]
    layers = [
        {"name": "conv1", "kind": "conv2d", "inputs": ["input"], "channels": 8, "kernel_h": 3,
         "kernel_w": 5, "stride_w": 2, "pad_h": 1, "pad_w": 2, "no_bias": True},
        {"name": "bn1", "kind": "batchnorm", "inputs": ["conv1"]},
        {"name": "gelu", "kind": "activation", "inputs": ["bn1"], "activation": "gelu"},
        {"name": "block.conv2", "kind": "conv2d", "inputs": ["gelu"], "channels": 8, "kernel_h": 3,
         "pad_h": 1, "activation": "relu"},
        {"name": "sum", "kind": "add", "inputs": ["block.conv2", "gelu"]},
        {"name": "max", "kind": "maxpool2d", "inputs": ["sum"], "kernel_h": 3, "stride_h": 2,
         "pad_h": 1},
        {"name": "mean", "kind": "avgpool2d", "inputs": ["max"], "kernel_h": 2, "kernel_w": 3,
         "stride_h": 2, "stride_w": 1},
        {"name": "drop", "kind": "dropout", "inputs": ["mean"], "rate": 0.25},
        {"name": "fc1", "kind": "dense", "inputs": ["drop"], "features": 16, "activation": "tanh"},
        {"name": "fc2", "kind": "dense", "inputs": ["fc1"], "features": 5, "no_bias": True},
    ]

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, (3, 5), (1, 2), (1, 2), bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.block = nn.Module()
        self.block.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(24, 16)
        self.fc2 = nn.Linear(16, 5, bias=False)

    def forward(self, x):
        x = functional.gelu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(torch.relu(self.block.conv2(x)) + x, 3, 2, 1)
        x = self.drop(functional.avg_pool2d(x, (2, 3), (2, 1)))
        return self.fc2(torch.tanh(self.fc1(x.flatten(1))))

    def batch(self, count):
        x = torch.randn([count, *self.sample])
        return x, (x.mean([1, 2, 3]) * 20).long().clamp(-2, 2) + 2


class Words(nn.Module):
    """A language model: tokens, LSTM, GRU, a decoder tied to the embedding."""
    sample = [11]
    layers = [
        {"name": "embed", "kind": "embedding", "inputs": ["input"], "vocabulary": 20,
         "features": 12},
        {"name": "lstm", "kind": "lstm", "inputs": ["embed"], "features": 16},
        {"name": "gru", "kind": "gru", "inputs": ["lstm"], "features": 12},
        {"name": "decoder", "kind": "dense", "inputs": ["gru"], "features": 20, "positions": True,
         "shares": "embed"},
    ]

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.lstm = nn.LSTM(12, 16, batch_first=True)
        self.gru = nn.GRU(16, 12, batch_first=True)
        self.decoder = nn.Linear(12, 20)
        self.decoder.weight = self.embed.weight

    def forward(self, tokens):
        return self.decoder(self.gru(self.lstm(self.embed(tokens))[0])[0]).transpose(1, 2)

    def batch(self, count):
        tokens = torch.randint(20, [count, *self.sample])
        return tokens, (tokens * 3 + 1) % 20


def train(network, steps):
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(steps):
        x, labels = network.batch(32)
        loss = functional.cross_entropy(network(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def write_trained(folder):
    answers = {}
    for network in (Images(), Words()):
        name = type(network).__name__.lower()
        file = "torch_" + name
        train(network, 60)
        x, _ = network.batch(7)
        y = network(x).detach()
        answers[name + ".input"] = x.float()
        answers[name + ".output"] = (y.transpose(1, 2) if y.dim() == 3 else y).contiguous()
        state = {key: tensor.clone() for key, tensor in network.state_dict().items()}
        save_file(state, os.path.join(folder, file + ".safetensors"), metadata={"format": "pt"})
        layers = ",\n    ".join(json.dumps(layer) for layer in network.layers)
        with open(os.path.join(folder, file + ".json"), "w") as out:
            out.write('{\n  "format": "starling model",\n  "version": 1,\n'
                      f'  "weights": "{file}.safetensors",\n'
                      f'  "input": {network.sample},\n  "layers": [\n    {layers}\n  ]\n}}\n')
    save_file(answers, os.path.join(folder, "torch_answers.safetensors"))


class Backbone(nn.Module):
    """Its layers in Starling: conv1, bn1, relu1, conv2, bn2, relu2, pool."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return functional.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2).flatten(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.fc = Backbone(), nn.Linear(96, 7)

    def forward(self, x):
        return self.fc(self.backbone(x))


def images_by_sum(count, classes):
    """Bytes, of which the class is the quarter, or the seventh, of their mean's range."""
    images = (torch.rand(count, 1, 8, 8) * torch.rand(count, 1, 1, 1) * 256).floor()
    labels = (images.mean([1, 2, 3]) / 128 * classes).long().clamp(max=classes - 1)
    return images, labels


def finetune(trained, head, images, labels, frozen):
    """Losses of 20 steps with batches of 8: SGD with momentum; the head at twice the rate; decay
    for weights alone."""
    network = Classifier()
    network.load_state_dict(trained)
    network.double()
    network.fc = nn.Linear(96, 4).double()
    network.fc.load_state_dict({key: value.double() for key, value in head.items()})
    groups = []
    for name, parameter in network.named_parameters():
        if any(name.startswith(prefix) for prefix in frozen):
            parameter.requires_grad_(False)
            continue
        groups.append({"params": [parameter], "lr": 0.02 * (2 if name.startswith("fc.") else 1),
                       "weight_decay": 0.01 if parameter.dim() > 1 else 0})
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    network.train()
    for name, module in network.named_modules():
        if any((name + ".").startswith(prefix) for prefix in frozen):
            module.eval()
    losses = []
    for step in range(20):
        x, y = images[8 * step:8 * step + 8].double() / 255, labels[8 * step:8 * step + 8]
        loss = functional.cross_entropy(network(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64)


def write_finetune(folder):
    network = Classifier()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        images, labels = images_by_sum(32, 7)
        loss = functional.cross_entropy(network(images / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = {key: value.clone() for key, value in network.state_dict().items()}
    path = os.path.join(folder, "torch_backbone.safetensors")
    save_file(trained, path, metadata={"format": "pt"})
    images, labels = images_by_sum(160, 4)
    head = {key: value.detach().clone() for key, value in nn.Linear(96, 4).state_dict().items()}
    norms = ["backbone.conv1.", "backbone.bn1.", "backbone.bn2."]
    save_file({"images": images.half(), "labels": labels.half(), "head.weight": head["weight"],
               "head.bias": head["bias"],
               "losses.head": finetune(trained, head, images, labels, ["backbone."]),
               "losses.conv2": finetune(trained, head, images, labels, norms)},
              os.path.join(folder, "torch_finetune.safetensors"))


def lamb(start, gradients, lr, decay, split=25):
    """Two parameters, cut at `split`, after steps of LAMB (You et al., arXiv 1904.00962, algorithm
    2): PyTorch has none of its own."""
    done = []
    for p, gradient in zip(start.tensor_split([split]), gradients.tensor_split([split], 1)):
        mean, square = torch.zeros_like(p), torch.zeros_like(p)
        for t, g in enumerate(gradient, 1):
            mean = torch.lerp(g, mean, 0.9)
            square = torch.lerp(g * g, square, 0.999)
            ratio = mean / (1 - 0.9 ** t) / ((square / (1 - 0.999 ** t)).sqrt() + 1e-6)
            step = ratio + decay * p
            p = p - lr * p.norm() / step.norm() * step
        done.append(p)
    return torch.cat(done)


def write_optimizers(folder):
    start, gradients = torch.randn(40), torch.randn(10, 40)
    tensors = {"start": start, "gradients": gradients}
    for name, make in [
            ("rmsprop", lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.1)),
            ("adagrad", lambda p: torch.optim.Adagrad(p, 0.01, weight_decay=0.1)),
            ("adamw", lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1))]:
        parameter = nn.Parameter(start.double())
        optimizer = make([parameter])
        for gradient in gradients.double():
            parameter.grad = gradient
            optimizer.step()
        tensors[name] = parameter.detach().clone()
    tensors["lamb"] = lamb(start.double(), gradients.double(), 0.01, 0.1)
    save_file(tensors, os.path.join(folder, "torch_optimizers.safetensors"))


class ExportedResidual(nn.Module):
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


class ExportedWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(13, 6), nn.LSTM(6, 5, batch_first=True)
        self.gru, self.decoder = nn.GRU(5, 4, 2, batch_first=True), nn.Linear(4, 13)

    def forward(self, x):
        return self.decoder(self.gru(self.lstm(self.embed(x))[0])[0])


class ExportedStates(nn.Module):
    """Recurrent layers whose steps and last states are both taken."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 5, batch_first=True)

    def forward(self, x):
        steps, (ends, _) = self.lstm(x)
        more, end = self.gru(steps)
        return torch.cat([ends[0], ends[1], more[:, 2], end[0]], 1)


def without_origin(path):
    """Removes the paths of sources on the machine that made the file."""
    import onnx

    file = onnx.load(path)
    graph = file.graph
    for thing in [file, graph, *graph.node, *graph.value_info, *graph.input, *graph.output]:
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    onnx.save(file, path)


def write_onnx(folder):
    axes = {"input": {0: "N"}, "output": {0: "N"}}
    older = {"dynamo": False, "dynamic_axes": axes, "opset_version": 17,
             "training": torch.onnx.TrainingMode.PRESERVE}
    newer = {"dynamo": True, "external_data": False,
             "dynamic_shapes": ({0: torch.export.Dim("N")},)}
    cases = [("onnx_residual", ExportedResidual(), torch.randn(3, 2, 6, 6), older),
             ("onnx_states", ExportedStates(), torch.randn(3, 6, 3), older),
             ("onnx_words", ExportedWords(), torch.randint(0, 13, (3, 4)), newer)]
    for name, model, x, options in cases:
        model.train()
        model(x)  # running statistics that are not the first ones
        model.eval()
        torch.onnx.export(model, (x,), f"{folder}/{name}.onnx", input_names=["input"],
                          output_names=["output"], **options)
        without_origin(f"{folder}/{name}.onnx")
        with torch.no_grad():
            answer = {"input": x.float().contiguous(), "output": model(x).contiguous()}
            save_file(answer, f"{folder}/{name}.safetensors")


def fill_by_formula(state):
    """The i-th value of a tensor is i / 4 - (length of its name), exact in all types used."""
    for name, tensor in state.items():
        values = torch.arange(tensor.numel(), dtype=torch.float64) / 4 - len(name)
        tensor.copy_(values.reshape(tensor.shape).to(tensor.dtype))


def write_tokenizers(folder):
    import compare_tokenizers as peer
    text = peer.hard_text(seed=1, characters=1500)
    with open(os.path.join(folder, "tokenizer_text.txt"), "w", newline="") as out:
        out.write(text)
    ids = {}
    for pattern in peer.PATTERNS:
        tokenizer = peer.train(pattern, [text], 400, ["<|endoftext|>", "<|ü x|>"])
        content = json.loads(tokenizer.to_str())
        with open(os.path.join(folder, f"tokenizer_{pattern}.json"), "w") as out:
            json.dump(content, out, ensure_ascii=False, separators=(",", ":"))
        ids[pattern] = peer.encode(tokenizer, text)
    with open(os.path.join(folder, "tokenizer_ids.json"), "w") as out:
        json.dump(ids, out, separators=(",", ":"))


def main(arguments):
    kinds = ("small", "lenet", "trained", "finetune", "onnx", "tokenizers")
    if len(arguments) not in (2, 3) or arguments[0] not in kinds:
        sys.exit(__doc__)
    torch.manual_seed(int(arguments[2]) if len(arguments) == 3 else 1)
    if arguments[0] == "trained":
        write_trained(arguments[1])
        return
    if arguments[0] == "finetune":
        write_finetune(arguments[1])
        write_optimizers(arguments[1])
        return
    if arguments[0] == "onnx":
        write_onnx(arguments[1])
        return
    if arguments[0] == "tokenizers":
        write_tokenizers(arguments[1])
        return
    model = Small() if arguments[0] == "small" else LeNet()
    state = model.state_dict()
    if arguments[0] == "small":
        fill_by_formula(state)
    save_file(state, arguments[1], metadata={"format": "pt"})


if __name__ == "__main__":
    main(sys.argv[1:])
