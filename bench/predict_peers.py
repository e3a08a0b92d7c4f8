#!/usr/bin/env python3
"""Inference with the networks of bench_predict by PyTorch (eager, inference mode) and onnxruntime;
prints JSON lines like its.

    predict_peers.py [--threads 2] [--seconds 3] [--only NAME] [--peer torch|onnxruntime]

Latency: one sample a request, one request at a time. Throughput: 64 samples a request, by the
fastest of: one request at a time on all threads, or as many at once as threads, each on one.
The ONNX files are those of PyTorch's own exporter.
"""
import argparse
import atexit
import json
import os
import tempfile
import threading
import time

import peer

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--only", choices=["lenet", "resnet20", "lstm2x200", "lstm2x650"])
parser.add_argument("--peer", choices=["torch", "onnxruntime"])
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read when the libraries load

import numpy
import torch
from torch import nn

torch.set_num_threads(options.threads)
NETWORKS = ["lenet", "resnet20", "lstm2x200"] if not options.only else [options.only]


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(),
                         nn.Linear(500, 10))


class Block(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        stride = 1 if before == after else 2
        self.body = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False),
                                  nn.BatchNorm2d(after), nn.ReLU(),
                                  nn.Conv2d(after, after, 3, 1, 1, bias=False),
                                  nn.BatchNorm2d(after))
        self.short = nn.Identity() if before == after else nn.Sequential(
            nn.Conv2d(before, after, 1, 2, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet20():
    channels = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *(Block(a, b) for a, b in zip(channels, channels[1:])),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class LanguageModel(nn.Module):
    def __init__(self, layers, hidden, embed, **_):
        super().__init__()
        self.embed = nn.Embedding(peer.VOCABULARY, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, peer.VOCABULARY)

    def forward(self, x):
        return self.decoder(self.lstm(self.embed(x))[0])


def network(name):
    torch.manual_seed(1)
    if name in peer.LSTMS:
        net = peer.LSTMS[name]
        return LanguageModel(**net).eval(), lambda n: torch.randint(peer.VOCABULARY,
                                                                    (n, net["seq"]))
    shape = (1, 28, 28) if name == "lenet" else (3, 32, 32)
    return globals()[name]().eval(), lambda n: torch.randn(n, *shape)


class Torch:
    name = "torch"

    def __init__(self, model, example):
        self.model, self.example = model, example

    def calls(self, batch, threads, at_once):
        """One function for each request at once: it answers one request, on one thread."""
        torch.set_num_threads(threads)
        inputs = [self.example(batch) for _ in range(at_once)]
        return [lambda x=x: self.model(x) for x in inputs]


class Onnxruntime:
    name = "onnxruntime"

    def __init__(self, model, example):
        self.example = example
        handle, self.path = tempfile.mkstemp(suffix=".onnx")
        os.close(handle)
        atexit.register(os.remove, self.path)
        torch.onnx.export(model, (example(2),), self.path, input_names=["x"], dynamo=False,
                          dynamic_axes={"x": {0: "n"}, }, opset_version=17)

    def calls(self, batch, threads, at_once):
        import onnxruntime
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        session = onnxruntime.InferenceSession(self.path, settings,
                                               providers=["CPUExecutionProvider"])
        inputs = [self.example(batch).numpy() for _ in range(at_once)]
        return [lambda x=x: session.run(None, {"x": x}) for x in inputs]


def client(call, until, times):
    with torch.inference_mode():  # of this thread
        while True:
            before = time.perf_counter()
            call()
            now = time.perf_counter()
            times.append(now - before)
            if now >= until:
                return


def run(calls, seconds):
    """Times of all requests, and the seconds that they took together."""
    times = [[] for _ in calls]
    begin = time.perf_counter()
    threads = [threading.Thread(target=client, args=(call, begin + seconds, t))
               for call, t in zip(calls, times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(sum(times, [])), time.perf_counter() - begin


def measured(runner, batch, choices):
    """The best of several (threads, at_once), by throughput, then measured for the whole time."""
    best = None
    for threads, at_once in choices:
        calls = runner.calls(batch, threads, at_once)
        run(calls, 0.5)
        times, wall = run(calls, options.seconds if len(choices) == 1 else 1)
        if not best or len(times) / wall > best[0]:
            best = len(times) / wall, threads, at_once, calls
    _, threads, at_once, calls = best
    if isinstance(runner, Torch):
        torch.set_num_threads(threads)
    all_before, own_before = peer.busy_seconds()
    times, wall = run(calls, options.seconds)
    all_after, own_after = peer.busy_seconds()
    foreign = max(0, all_after - all_before - own_after + own_before) / (wall * os.cpu_count())
    return times, wall, threads, at_once, foreign


def report(runner, name, batch, times, wall, threads, at_once, foreign):
    print(json.dumps({
        "peer": runner.name, "bench": name, "batch": batch, "threads": threads, "at_once": at_once,
        "requests": len(times), "p50_us": round(1e6 * times[len(times) // 2], 1),
        "p99_us": round(1e6 * times[99 * len(times) // 100], 1),
        "rate": round(batch * len(times) / wall, 1), "unit": "samples/s",
        "rss_mb": round(peer.peak_memory_mb(), 1), "foreign_cpu": round(foreign, 4)}), flush=True)


for name in NETWORKS:
    model, example = network(name)
    n = options.threads
    for kind in (Torch, Onnxruntime):
        if options.peer and kind.name != options.peer:
            continue
        with torch.inference_mode():
            runner = kind(model, example)
            for batch, choices in (1, {(n, 1), (1, 1)}), (64, {(n, 1), (1, n)}):
                report(runner, name, batch, *measured(runner, batch, sorted(choices)))
