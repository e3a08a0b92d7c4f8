#!/usr/bin/env python3
"""The networks that gpu_bench.sh measures, trained by PyTorch on a GPU; prints JSON lines.

    torch_gpu.py [--only NAME] [--math f32|tf32|bf16] [--compile | --reduce-overhead] [--graph]
                 [--channels-last] [--device cuda:0] [--seconds 3] [--tiny]

f32, tf32: without and with TensorFloat-32; bf16: autocast, parameters and their updates in float32.
As in bench_train: ten batches in the host's (pinned) memory that travel to the GPU step by step,
SGD with momentum, here the fused one. cuDNN chooses the fastest algorithms (benchmark). --compile:
torch.compile. --reduce-overhead: its mode of that name, with CUDA graphs of the forward and of the
backward pass. --graph: the whole step, optimizer included, as one torch.cuda.graph; on a CPU it
only tests this script."""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn

import peer
import torch_networks

NETWORKS = {
    "mlp": dict(batch=128, hidden=512),
    "lenet64": dict(batch=64),
    "lenet256": dict(batch=256),
    "resnet20_128": dict(batch=128),
    "lstm2x200": dict(batch=20, layers=2, hidden=200, seq=35),
    "mlp4096": dict(batch=1024, hidden=4096),
    "lenet512": dict(batch=512),
    "resnet20": dict(batch=512),
    "lstm2x650_64": dict(batch=64, layers=2, hidden=650, seq=35),
    "lstm8x1024_64": dict(batch=64, layers=8, hidden=1024, seq=35),
    "lstm_mxnet": dict(batch=20, layers=8, hidden=400, seq=60, embed=200, dropout=0.5),
    "gpt": dict(batch=8, layers=4, heads=4, hidden=256, seq=128),
    "gpt2": dict(batch=8, layers=12, heads=12, hidden=768, seq=1024),
}
BATCHES = 10
WARM_STEPS = 3  # before a graph is captured

parser = argparse.ArgumentParser()
parser.add_argument("--only", choices=NETWORKS)
parser.add_argument("--math", choices=("f32", "tf32", "bf16"), default="tf32")
compiler = parser.add_mutually_exclusive_group()
compiler.add_argument("--compile", action="store_true")
compiler.add_argument("--reduce-overhead", action="store_true")
parser.add_argument("--graph", action="store_true", help="the whole step as a CUDA graph")
parser.add_argument("--channels-last", action="store_true", help="of images' networks")
parser.add_argument("--device", default="cuda:0")
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--tiny", action="store_true", help="small networks of the same layers")
options = parser.parse_args()
if options.graph and options.reduce_overhead:
    parser.error("--reduce-overhead has CUDA graphs of its own: leave out --graph")
device = torch.device(options.device)
on_gpu = device.type == "cuda"
tf32 = options.math == "tf32"
torch.backends.cuda.matmul.allow_tf32 = tf32
torch.backends.cudnn.allow_tf32 = tf32
torch.backends.cudnn.benchmark = True


def batches_of(name, net):
    """Inputs and labels in the host's memory."""
    batch = net["batch"]
    for _ in range(BATCHES):
        if "seq" in net:
            x, labels = torch.randint(0, peer.VOCABULARY, (2, batch, net["seq"]))
        else:
            shape = (3, 32, 32) if name.startswith("resnet") else (1, 28, 28)
            x, labels = torch.randn(batch, *shape), torch.randint(0, 10, (batch,))
        yield (x.pin_memory(), labels.pin_memory()) if on_gpu else (x, labels)


def model_of(name, net):
    if "heads" in net:
        return torch_networks.Gpt(net["layers"], net["heads"], net["hidden"], net["seq"])
    if "seq" in net:
        embed = net.get("embed", net["hidden"])
        return torch_networks.LanguageModel(net["layers"], net["hidden"], embed,
                                            net.get("dropout", 0))
    if name.startswith("mlp"):
        return torch_networks.mlp(net["hidden"])
    return torch_networks.resnet() if name.startswith("resnet") else torch_networks.lenet()


def compiled(model):
    if options.reduce_overhead:
        return torch.compile(model, mode="reduce-overhead")
    return torch.compile(model) if options.compile else model


def learner_of(name, net):
    """A function that learns from a batch on the device, and returns the loss."""
    recurrent = "seq" in net and "heads" not in net
    model = model_of(name, net).to(device)
    last = options.channels_last and "seq" not in net and not name.startswith("mlp")
    if last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if recurrent else 0.01, momentum=0.9,
                                fused=True if on_gpu else None)
    run = compiled(model)
    state = [torch.zeros(net["layers"], net["batch"], net["hidden"], device=device)
             for _ in "hc"] if recurrent else None

    def learn(x, labels):
        nonlocal state
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.math == "bf16"):
            if recurrent:
                scores, after = run(x, tuple(state))
            else:
                scores = run(x)
            if "seq" in net:
                scores, labels = scores.flatten(0, 1), labels.flatten()
            loss = nn.functional.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        if recurrent and (options.graph or options.reduce_overhead):
            for kept, part in zip(state, after):  # a graph reads its inputs at the same place
                kept.copy_(part.detach())
        elif recurrent:
            state = [part.detach().float() for part in after]
        return loss

    return learn


def graph_of(learn, x, labels):
    """A function that learns from what is in x and labels, by one launch."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_STEPS):
            learn(x, labels)
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = learn(x, labels)

    def replay():
        graph.replay()
        return loss

    return replay


def step_of(name, net):
    """A function that starts one step, without waiting for it, and returns the loss."""
    learn = learner_of(name, net)
    data = list(batches_of(name, net))
    inputs = [part.to(device) for part in data[0]]
    replay = graph_of(learn, *inputs) if options.graph and on_gpu else None
    count = 0

    def step():
        nonlocal count
        batch = data[count % BATCHES]
        count += 1
        if replay:
            for kept, part in zip(inputs, batch):
                kept.copy_(part, non_blocking=True)
            return replay()
        if options.reduce_overhead:
            torch.compiler.cudagraph_mark_step_begin()
        return learn(*(part.to(device, non_blocking=True) for part in batch))

    return step


def wait():
    if on_gpu:
        torch.cuda.synchronize(device)


def measure(step):
    """Seconds of a step, of blocks of steps; nothing waits within a block."""
    for _ in range(3):
        step()
    wait()
    begin = time.perf_counter()
    for _ in range(3):
        step()
    wait()
    once = (time.perf_counter() - begin) / 3
    count = max(1, int(min(0.2, options.seconds / 5) / once))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < options.seconds:
        before = time.perf_counter()
        for _ in range(count):
            loss = step()
        wait()
        times.append((time.perf_counter() - before) / count)
    return sorted(times), count, loss.item()


def report(name):
    net = dict(NETWORKS[name])
    if options.tiny:
        tiny = dict(batch=4, hidden=16, heads=4, seq=5)
        net.update({key: value for key, value in tiny.items() if key in net})
    torch.manual_seed(1)
    times, count, loss = measure(step_of(name, net))
    median, units = statistics.median(times), net["batch"] * net.get("seq", 1)
    modes = [mode for mode in ("compile", "reduce-overhead", "graph", "channels-last")
             if getattr(options, mode.replace("-", "_"))]
    print(json.dumps({
        "peer": "torch-" + ("+".join(modes) or "eager"), "bench": name, "math": options.math,
        "setup": f"PyTorch {torch.__version__} on " +
                 (torch.cuda.get_device_name(device) if on_gpu else "a CPU"),
        "steps": count * len(times), "rate": round(units / median, 1),
        "unit": "words/s" if "seq" in net else "samples/s", "ms": round(1e3 * median, 4),
        "ms_p10": round(1e3 * times[len(times) // 10], 4),
        "ms_p90": round(1e3 * times[9 * len(times) // 10], 4), "loss": round(loss, 5)}), flush=True)


failed = False
for name in [options.only] if options.only else NETWORKS:
    try:
        report(name)
    except RuntimeError as error:  # costs the other networks nothing
        print(f"torch_gpu.py: {name}: {error}", file=sys.stderr)
        failed = True
sys.exit(failed)
