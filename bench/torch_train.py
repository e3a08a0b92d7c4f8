#!/usr/bin/env python3
"""The networks of bench_train, trained by PyTorch with its defaults (eager, SGD with momentum);
prints JSON lines like bench_train's.

    torch_train.py [--threads 2] [--seconds 3] [--only NAME]
                   [--fused] [--channels-last] [--compile] | [--best] [--ddp] [--math f32|bf16]

--ddp makes it one rank of several (DistributedDataParallel over gloo), each with a batch of its
own: start one process a rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its
environment. Rank 0 prints the line; its rate is that of all ranks. --best tries the fused optimizer
with each choice of the others for a second and measures the fastest (over several ranks also with
gradients as views of DDP's buckets). Not tried: MKL's Intel code on an AMD processor,
which needs a trick. --math bf16 is autocast: products of bf16, parameters and updates in float32.
"""
import argparse
import os
import statistics
import sys

import peer

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--only", choices=peer.BATCHES)
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--fused", action="store_true", help="PyTorch's fused SGD")
parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler")
parser.add_argument("--ddp", action="store_true", help="be one rank of several")
parser.add_argument("--best", action="store_true", help="the fastest of them; peer torch-best")
parser.add_argument("--math", choices=("f32", "bf16"), default="f32")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read when the libraries load

import torch
from torch import nn

import torch_networks

torch.set_num_threads(options.threads)
ranks = peer.Ranks() if options.ddp else None
if ranks:
    torch.distributed.init_process_group("gloo")


def prepared(model, modes):
    """The model as the modes want it: over ranks, compiled."""
    if ranks:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view="fused" in modes)
    return torch.compile(model) if "compile" in modes else model


def image_loss(name, modes):
    """The model, and the function that computes its loss on a batch."""
    batch = peer.BATCHES[name]
    model = (torch_networks.mlp(512) if name == "mlp" else
             torch_networks.resnet() if name in peer.RESNETS else torch_networks.lenet())
    size = (3, 32, 32) if name in peer.RESNETS else (1, 28, 28)
    x, labels = torch.randn(batch, *size), torch.randint(0, 10, (batch,))
    if "channels-last" in modes:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    run = prepared(model, modes)
    return model, lambda: nn.functional.cross_entropy(run(x), labels)


def table_loss(name, modes):
    model = torch_networks.tabular()
    x, targets = torch.rand(peer.BATCHES[name], 8), torch.rand(peer.BATCHES[name], 1)
    run = prepared(model, modes)
    return model, lambda: nn.functional.mse_loss(run(x), targets)


def gpt_loss(name, modes):
    net, batch = peer.GPTS[name], peer.BATCHES[name]
    model = torch_networks.Gpt(**net)
    x, labels = torch.randint(0, peer.VOCABULARY, (2, batch, net["seq"]))
    run = prepared(model, modes)
    return model, lambda: nn.functional.cross_entropy(run(x).flatten(0, 1), labels.flatten())


def lstm_loss(name, modes):
    net, batch = peer.LSTMS[name], peer.BATCHES[name]
    model = torch_networks.LanguageModel(net["layers"], net["hidden"], net["embed"],
                                         net["dropout"])
    x, labels = torch.randint(0, peer.VOCABULARY, (2, batch, net["seq"]))
    run = prepared(model, modes)
    state = [torch.zeros(net["layers"], batch, net["hidden"]) for _ in "hc"]

    def loss():
        logits, after = run(x, tuple(state))
        state[:] = [part.detach() for part in after]  # goes on, but no gradient goes back further
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return model, loss


def measure(name, modes, seconds):
    torch.manual_seed(1 + (ranks.rank if ranks else 0))
    torch.compiler.reset()  # without code that another try compiled
    make = (lstm_loss if name in peer.LSTMS else gpt_loss if name in peer.GPTS else
            table_loss if name == "tabular" else image_loss)
    model, loss_of = make(name, modes)
    optimizer = torch.optim.SGD(model.parameters(), lr=peer.learning_rate(name),
                                momentum=peer.MOMENTUM, fused="fused" in modes or None)
    last = None

    def step():
        nonlocal last
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.math == "bf16"):
            last = loss_of()
        last.backward()
        optimizer.step()

    times, foreign = (peer.measure_together(step, seconds, ranks) if ranks else
                      peer.measure(step, seconds))
    return times, foreign, last.item()


def fastest(name):
    """The settings with the shortest steps. Settings that do not work here are left out."""
    tried = [("fused",), ("fused", "compile")]
    if name.startswith("lenet") or name in peer.RESNETS:
        tried += [modes + ("channels-last",) for modes in tried]
    medians = {}
    for modes in tried:
        median = float("inf")
        try:
            median = statistics.median(measure(name, modes, 1)[0])
        except Exception as error:
            print(f"torch_train.py: {name}, {'+'.join(modes)}: {error}", file=sys.stderr)
        medians[modes] = ranks.agree(median, max) if ranks else median
    return min(medians, key=medians.get)


chosen = [mode for mode in ("fused", "compile", "channels-last")
          if getattr(options, mode.replace("-", "_"))]
for network in [options.only] if options.only else peer.BATCHES:
    used = fastest(network) if options.best else chosen
    measured = measure(network, used, options.seconds)
    peer.report("torch-best" if options.best else "torch", network, "PyTorch " + torch.__version__,
                "+".join(used) or "stock", options.threads, *measured, ranks)
if ranks:
    torch.distributed.destroy_process_group()
