#!/usr/bin/env python3
"""The language model of examples/lstm_lm in PyTorch: same split, vocabulary, batches, model and
optimizer; prints the perplexities after each epoch, and words/s.
    lstm_lm --data FILE --save lm.safetensors ...
    torch_lm.py --data FILE --vocabulary lm.safetensors.vocabulary.json ...
From the very same initial weights (one step at a tiny rate changes them by a rounding at most):
    lstm_lm --data FILE --steps 1 --lr 1e-12 --save begin.safetensors ...
    torch_lm.py --data FILE --vocabulary begin.safetensors.vocabulary.json \\
      --load begin.safetensors ..."""
import argparse
import json
import struct
import math
import time

import torch

p = argparse.ArgumentParser()
p.add_argument("--data", required=True)
p.add_argument("--vocabulary", required=True)
p.add_argument("--layers", type=int, default=2)
p.add_argument("--hidden", type=int, default=200)
p.add_argument("--embed", type=int, default=200)
p.add_argument("--batch", type=int, default=20)
p.add_argument("--bptt", type=int, default=35)
p.add_argument("--epochs", type=int, default=5)
p.add_argument("--half-life", type=int, default=0)
p.add_argument("--dropout", type=float, default=0)
p.add_argument("--lr", type=float, default=20)
p.add_argument("--clip", type=float, default=0.25)
p.add_argument("--exact-norm", action="store_true",
               help="of the gradient, in double: PyTorch's own sum is float32")
p.add_argument("--load", help="initial weights, as lstm_lm saves them")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seed", type=int, default=1)
a = p.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(a.seed)

vocabulary = json.load(open(a.vocabulary))
words = vocabulary["words"]
text = open(a.data, "rb").read()
first = len(text) // 10 * 9
while text[first - 1] != 10: first += 1
second = first + len(text) // 20
while text[second - 1] != 10: second += 1


def encode(part):
    if vocabulary["level"] == "char":
        ids = {w: i for i, w in enumerate(words)}
        return torch.tensor([ids.get(b, 0) for b in part])
    ids = {w: i for i, w in enumerate(words)}
    out = []
    for line in part.decode().split("\n")[:-1]:
        out += [ids.get(w, 0) for w in line.split()] + [1]
    return torch.tensor(out)


def batches(tokens):
    windows = (len(tokens) - 1) // a.bptt // a.batch * a.batch
    length = windows // a.batch
    cut = lambda t: t[:windows * a.bptt].view(a.batch, length, a.bptt)
    x, y = cut(tokens), cut(tokens[1:])
    return [(x[:, k], y[:, k]) for k in range(length)]


train, valid = batches(encode(text[:first])), batches(encode(text[first:second]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(len(words), a.embed)
        self.lstm = torch.nn.LSTM(a.embed, a.hidden, a.layers, batch_first=True,
                                  dropout=a.dropout if a.layers > 1 else 0)
        self.drop = torch.nn.Dropout(a.dropout)
        self.decoder = torch.nn.Linear(a.hidden, len(words))

    def forward(self, x, state):
        y, state = self.lstm(self.drop(self.embed(x)), state)
        return self.decoder(self.drop(y)), state


def tensors(path):
    data = open(path, "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:end]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        values = torch.frombuffer(bytearray(data[end + first:end + last]), dtype=torch.float32)
        yield name, values.view(entry["shape"])


def named_as_torch(name):
    """lstm3.weight_ih_l0 becomes lstm.weight_ih_l3."""
    layer, part = name.split(".")
    return f"lstm.{part[:-1]}{layer[4:]}" if layer.startswith("lstm") else name


model = Model()
if a.load: model.load_state_dict({named_as_torch(name): t for name, t in tensors(a.load)})
loss_of = torch.nn.CrossEntropyLoss()


def clip():
    if not a.exact_norm:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip)
    norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
    for p in model.parameters():
        if norm > a.clip:
            p.grad.mul_(a.clip / norm)


def run(data, optimizer=None):
    model.train(optimizer is not None)
    state, total = None, 0.0
    for x, y in data:
        if state is not None:
            state = tuple(s.detach() for s in state)
        out, state = model(x, state)
        loss = loss_of(out.flatten(0, 1), y.flatten())
        total += loss.item()
        if optimizer is None:
            continue
        optimizer.zero_grad()
        loss.backward()
        clip()
        optimizer.step()
    return total / len(data)


optimizer = torch.optim.SGD(model.parameters(), lr=a.lr)
for epoch in range(a.epochs):
    if a.half_life:
        for group in optimizer.param_groups:
            group["lr"] = a.lr * 0.5 ** (epoch // a.half_life)
    start = time.time()
    loss = run(train, optimizer)
    rate = len(train) * a.batch * a.bptt / (time.time() - start)
    with torch.no_grad():
        test = run(valid)
    print(f"epoch {epoch + 1}/{a.epochs}  train perplexity {math.exp(loss):.3f}  "
          f"validation perplexity {math.exp(test):.3f}  {rate:.0f} words/s", flush=True)
