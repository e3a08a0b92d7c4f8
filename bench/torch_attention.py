#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention, forward and backward, from a fused tensor of queries,
keys and values, as bench_attention measures Starling's; prints JSON lines.

    torch_attention.py [--threads 2] [--seconds 3] [B,T,H,D[,Hkv] ...]"""
import argparse
import json
import statistics
import time

import torch
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("shapes", nargs="*", default=["8,128,4,64", "4,64,12,64", "4,1024,12,64"])
options = parser.parse_args()
torch.set_num_threads(options.threads)


def attention(x, heads, shared):
    parts = x.unflatten(2, (heads + 2 * shared, -1)).transpose(1, 2)
    q, k, v = parts.split((heads, shared, shared), 1)
    more = {} if shared == heads else dict(enable_gqa=True)
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, **more)
    return y.transpose(1, 2).flatten(2)


def measure(text):
    batch, steps, heads, dims, *shared = map(int, text.split(","))
    shared = shared[0] if shared else heads
    x = torch.rand(batch, steps, (heads + 2 * shared) * dims) * 2 - 1
    x.requires_grad_()
    dy = torch.rand(batch, steps, heads * dims)
    times, begin = [], time.perf_counter()
    while len(times) < 7 or time.perf_counter() - begin < options.seconds:
        x.grad = None
        start = time.perf_counter()
        y = attention(x, heads, shared)
        between = time.perf_counter()
        y.backward(dy)
        times.append((between - start, time.perf_counter() - between))
    forward, backward = (1e3 * statistics.median(t[k] for t in times[2:]) for k in range(2))
    line = dict(peer="pytorch", bench="attention", shape=text, rounds=len(times) - 2)
    print(json.dumps(line | dict(forward_ms=forward, backward_ms=backward)), flush=True)


for shape in options.shapes:
    measure(shape)
