#!/usr/bin/env python3
"""The transformer of examples/gpt in PyTorch: same text, vocabulary, windows, model and optimizer.
From the very same initial weights (one step at a tiny rate changes them by a rounding at most) and
in the order of the text, it prints the loss of each step, beside those of gpt's log if given:
    gpt --data FILE --steps 1 --lr 1e-12 --save begin.safetensors ...
    gpt --data FILE --load begin.safetensors --no-shuffle --lr-schedule constant --log gpt.jsonl ...
    torch_gpt.py --data FILE --load begin.safetensors --no-shuffle --schedule constant \\
      --steps 50 --compare gpt.jsonl ...
Without --load it begins with GPT-2's initial weights; the last line has the validation loss and the
time of the training alone:
    torch_gpt.py --data FILE --vocabulary gpt.safetensors.vocabulary.json --steps 2000"""
import argparse
import json
import math
import struct
import time

import torch
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--data", required=True)
p.add_argument("--vocabulary", help="default: beside --load")
p.add_argument("--style", choices=("gpt2", "llama"), default="gpt2")
p.add_argument("--layers", type=int, default=4)
p.add_argument("--heads", type=int, default=4)
p.add_argument("--kv-heads", type=int)
p.add_argument("--width", type=int, default=128)
p.add_argument("--context", type=int, default=64)
p.add_argument("--batch", type=int, default=12)
p.add_argument("--dropout", type=float, default=0)
p.add_argument("--steps", type=int, default=50)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--schedule", choices=("constant", "cosine"), default="cosine",
               help="cosine: to a tenth, after a twentieth of warm-up")
p.add_argument("--weight-decay", type=float, default=0.1)
p.add_argument("--beta2", type=float, default=0.99)
p.add_argument("--clip", type=float, default=1)
p.add_argument("--load", help="initial weights, as gpt saves them")
p.add_argument("--no-shuffle", action="store_true")
p.add_argument("--compare", help="gpt's log: ends with 1 if a loss differs by more than 1e-3")
p.add_argument("--compile", action="store_true")
p.add_argument("--fused", action="store_true", help="AdamW's fused steps")
p.add_argument("--quiet", action="store_true", help="the last line alone")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--seed", type=int, default=1)
a = p.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(a.seed)
llama = a.style == "llama"
kv_heads = a.kv_heads or a.heads

vocabulary = json.load(open(a.vocabulary or a.load + ".vocabulary.json"))
ids = {word: i for i, word in enumerate(vocabulary["words"])}
text = open(a.data, "rb").read()
first = len(text) // 10 * 9
while text[first - 1] != 10: first += 1
second = first + len(text) // 20
while text[second - 1] != 10: second += 1


def windows(part):
    tokens = torch.tensor([ids.get(byte, 0) for byte in part])
    count = (len(tokens) - 1) // a.context
    return (tokens[:count * a.context].view(count, -1),
            tokens[1:count * a.context + 1].view(count, -1))


def rotate(x):
    """Rotary positions (Su et al., arXiv 2104.09864), pairs of halves as in Hugging Face."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    turn = lambda f: torch.cat((f(angle), f(angle)), -1)
    return x * turn(torch.cos) + torch.cat((-x[..., half:], x[..., :half]), -1) * turn(torch.sin)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width, head, bias = a.width, a.width // a.heads, not llama
        ffn = (width * 8 // 3 + 31) // 32 * 32 if llama else 4 * width
        norm = torch.nn.RMSNorm if llama else torch.nn.LayerNorm
        self.ln1, self.ln2 = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.qkv = torch.nn.Linear(width, (a.heads + 2 * kv_heads) * head, bias)
        self.projection = torch.nn.Linear(width, width, bias)
        self.fc = torch.nn.Linear(width, 2 * ffn if llama else ffn, bias)
        self.out = torch.nn.Linear(ffn, width, bias)
        self.last = self.projection, self.out

    def forward(self, x):
        rows, steps, width = x.shape
        head = width // a.heads
        q, k, v = self.qkv(self.ln1(x)).split((width, kv_heads * head, kv_heads * head), -1)
        cut = lambda t: t.view(rows, steps, -1, head).transpose(1, 2)
        q, k, v = cut(q), cut(k), cut(v)
        if llama: q, k = rotate(q), rotate(k)
        if kv_heads < a.heads:
            k, v = (t.repeat_interleave(a.heads // kv_heads, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           dropout_p=a.dropout if self.training else 0)
        drop = lambda t: F.dropout(t, a.dropout, self.training)
        x = x + drop(self.projection(y.transpose(1, 2).reshape(rows, steps, width)))
        inner = self.fc(self.ln2(x))
        if llama:
            gate, up = inner.chunk(2, -1)
            inner = F.silu(gate) * up
        else:
            inner = F.gelu(inner, approximate="tanh")
        return x + drop(self.out(inner))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(len(ids), a.width)
        if not llama: self.wpe = torch.nn.Parameter(torch.empty(a.context, a.width))
        self.blocks = torch.nn.ModuleList(Block() for _ in range(a.layers))
        self.lnf = (torch.nn.RMSNorm if llama else torch.nn.LayerNorm)(a.width, eps=1e-5)
        self.head = torch.nn.Linear(a.width, len(ids), bias=False)
        if not llama: self.head.weight = self.wte.weight
        for name, q in self.named_parameters():
            if q.ndim > 1: torch.nn.init.normal_(q, std=0.02)
            elif name.endswith("bias"): torch.nn.init.zeros_(q)
        for block in self.blocks:
            for layer in block.last:
                torch.nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * a.layers))

    def forward(self, x):
        y = self.wte(x)
        if not llama: y = y + self.wpe[:x.shape[1]]
        y = F.dropout(y, a.dropout, self.training)
        for block in self.blocks: y = block(y)
        return self.head(self.lnf(y))


def tensors(path):
    data = open(path, "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:end]).items():
        if name == "__metadata__": continue
        begin, stop = entry["data_offsets"]
        values = torch.frombuffer(bytearray(data[end + begin:end + stop]), dtype=torch.float32)
        yield name, values.view(entry["shape"])


def named_as_torch(name):
    """h3.qkv.weight becomes blocks.3.qkv.weight."""
    layer, _, rest = name.partition(".")
    if layer == "wpe": return "wpe"
    return f"blocks.{layer[1:]}.{rest}" if layer[1:].isdigit() else name


def load(model, path):
    own = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, values in tensors(path): own.pop(named_as_torch(name)).copy_(values)
    assert not set(own) - {"head.weight"}, f"not in the file: {list(own)}"


def rate(step):
    if a.schedule == "constant": return a.lr
    warm = a.steps // 20
    if step < warm: return a.lr * (step + 1) / warm
    return a.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / (a.steps - warm))))


model = Model()
if a.load: load(model, a.load)
decayed = [q for q in model.parameters() if q.ndim > 1]
others = [q for q in model.parameters() if q.ndim < 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": a.weight_decay},
                               {"params": others, "weight_decay": 0}],
                              lr=a.lr, betas=(0.9, a.beta2), fused=a.fused or None)
run = torch.compile(model) if a.compile else model
loss_of = lambda x, y: F.cross_entropy(run(x).flatten(0, 1), y.flatten())
x, y = windows(text[:first])
each = len(x) // a.batch
losses, begun = [], time.perf_counter()
for step in range(a.steps):
    if step % each == 0:
        order = torch.arange(len(x)) if a.no_shuffle else torch.randperm(len(x))
    rows = order[step % each * a.batch:][:a.batch]
    for group in optimizer.param_groups: group["lr"] = rate(step)
    loss = loss_of(x[rows], y[rows])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if a.clip: torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip)
    optimizer.step()
    losses.append(loss.detach())
seconds = time.perf_counter() - begun
losses = [loss.item() for loss in losses]

ours = []
if a.compare:
    for line in open(a.compare):
        entry = json.loads(line)
        if "step" in entry and "loss" in entry: ours.append(entry["loss"])
worst = 0
for step, loss in enumerate(losses if not a.quiet else []):
    beside = f"  {ours[step]:.6f}" if step < len(ours) else ""
    print(f"step {step + 1}  loss {loss:.6f}{beside}")
for one, other in zip(losses, ours): worst = max(worst, abs(one - other))

model.eval()
x, y = windows(text[first:second])
with torch.no_grad():
    parts = [loss_of(x[i:i + 64], y[i:i + 64]) * len(x[i:i + 64]) for i in range(0, len(x), 64)]
print(f"validation loss {sum(parts).item() / len(x):.4f}, {seconds:.2f} s, "
      f"{a.steps * a.batch * a.context / seconds:.0f} tokens/s"
      + (f", greatest difference {worst:.2e} in {len(ours)} steps" if ours else ""))
raise SystemExit(1 if worst > 1e-3 or (a.compare and len(ours) < a.steps) else 0)
