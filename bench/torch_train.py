#!/usr/bin/env python3
"""The networks of bench_train, trained by PyTorch as it comes (eager, SGD with momentum); prints JSON lines like its.

    torch_train.py [--threads 2] [--seconds 3] [--only mlp|lenet64|lenet256] [--channels-last] [--fused]
"""
import argparse
import json
import os
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--only", choices=["mlp", "lenet64", "lenet256"])
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--fused", action="store_true", help="PyTorch's fused SGD")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read when the libraries load

import torch
from torch import nn

torch.set_num_threads(options.threads)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                         nn.Linear(512, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


# name: batch, model, multiply-adds of a sample in the first layer (no gradient of its input) and in the rest
NETWORKS = {
    "mlp": (128, mlp, 784 * 512, 512 * 512 + 512 * 10),
    "lenet64": (64, lenet, 24 * 24 * 20 * 25, 8 * 8 * 50 * 500 + 800 * 500 + 500 * 10),
    "lenet256": (256, lenet, 24 * 24 * 20 * 25, 8 * 8 * 50 * 500 + 800 * 500 + 500 * 10),
}


def busy_seconds():
    """Processor time of all programs, and of this one."""
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
    work = sum(ticks) - ticks[3] - ticks[4]
    own = os.times()
    return work / os.sysconf("SC_CLK_TCK"), own.user + own.system


def peak_memory_mb():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024


def measure(name):
    batch, build, first, rest = NETWORKS[name]
    torch.manual_seed(1)
    model = build()
    x, labels = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    if options.channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=options.fused or None)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(20):
        loss = step()
    times, begin = [], time.perf_counter()
    all_before, own_before = busy_seconds()
    while len(times) < 20 or time.perf_counter() - begin < options.seconds:
        before = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - before)
    wall = time.perf_counter() - begin
    all_after, own_after = busy_seconds()
    foreign = max(0, (all_after - all_before) - (own_after - own_before)) / (wall * os.cpu_count())
    times.sort()
    median = statistics.median(times)
    print(json.dumps({
        "peer": "torch", "bench": name, "setup": "PyTorch " + torch.__version__, "threads": options.threads,
        "steps": len(times), "rate": round(batch / median, 1), "ms": round(1e3 * median, 4),
        "ms_p10": round(1e3 * times[len(times) // 10], 4), "ms_p90": round(1e3 * times[9 * len(times) // 10], 4),
        "gflops": round(2e-9 * batch * (2 * first + 3 * rest) / median, 2),
        "rss_mb": round(peak_memory_mb(), 1), "foreign_cpu": round(foreign, 4), "loss": round(loss.item(), 6)}),
        flush=True)


for network in [options.only] if options.only else NETWORKS:
    measure(network)
