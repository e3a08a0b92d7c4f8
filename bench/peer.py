"""Shared by torch_train.py and mxnet_train.py: the networks of bench_train, the time of a step, and
the line that reports it."""
import json
import os
import socket
import statistics
import time

VOCABULARY = 10000
BATCHES = {"mlp": 128, "tabular": 256, "lenet64": 64, "lenet256": 256, "resnet20_128": 128}
RESNETS = ("resnet20_128",)  # ResNet-20 for CIFAR-10
LSTMS = {  # the last is MXNet's example of model parallelism at its longest sentences
    "lstm2x200": dict(layers=2, hidden=200, embed=200, seq=35, dropout=0),
    "lstm2x650": dict(layers=2, hidden=650, embed=650, seq=35, dropout=0),
    "lstm8x200": dict(layers=8, hidden=200, embed=200, seq=35, dropout=0),
    "lstm_mxnet": dict(layers=8, hidden=400, embed=200, seq=60, dropout=0.5),
}
BATCHES.update((name, 20) for name in LSTMS)
GPTS = {"gpt": dict(layers=4, heads=4, width=256, seq=128)}  # as GPT-2, but for a head of its own
BATCHES.update((name, 8) for name in GPTS)
LSTM_RATE, IMAGE_RATE, MOMENTUM = 0.1, 0.01, 0.9


def learning_rate(name):
    return LSTM_RATE if name in LSTMS else IMAGE_RATE


def units(name):
    """Samples, or words, of a step."""
    return BATCHES[name] * (LSTMS | GPTS).get(name, {"seq": 1})["seq"]


def gflop_step(name):
    """Products and convolutions: forward, gradients of weights and inputs (none for images)."""
    if name in LSTMS:
        net = LSTMS[name]
        h, e = net["hidden"], net["embed"]
        sample = 3 * (4 * h * (e + h) + (net["layers"] - 1) * 4 * h * 2 * h + h * VOCABULARY)
    elif name in GPTS:  # attention looks at half of the sequence in the mean
        net = GPTS[name]
        width = net["width"]
        sample = 3 * (net["layers"] * (12 * width**2 + net["seq"] * width) + width * VOCABULARY)
    elif name == "mlp":
        sample = 2 * 784 * 512 + 3 * (512 * 512 + 512 * 10)
    elif name == "tabular":
        sample = 2 * 8 * 64 + 3 * (2 * 64 * 64 + 64)
    elif name in RESNETS:  # nine blocks of 16, 32 and 64 channels; two of them have a projection
        sample = 2 * 1024 * 16 * 27 + 3 * (
            1024 * 6 * 16 * 144 + 256 * (32 * 144 + 5 * 32 * 288 + 32 * 16) +
            64 * (64 * 288 + 5 * 64 * 576 + 64 * 32) + 640)
    else:
        sample = 2 * 24 * 24 * 20 * 25 + 3 * (8 * 8 * 50 * 500 + 800 * 500 + 500 * 10)
    return 2e-9 * units(name) * sample


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


def measure(step, seconds):
    """Times of a step, sorted, and the share of the machine that other programs took. step()
    returns when its work is done. Warms up, and is content with few steps of a slow network, as
    bench_train does."""
    step()
    warm = 0
    begin = time.perf_counter()
    while warm < 3 or (warm < 20 and time.perf_counter() - begin < 1):
        step()
        warm += 1
    times, begin = [], time.perf_counter()
    all_before, own_before = busy_seconds()
    while len(times) < 10 or time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    wall = time.perf_counter() - begin
    all_after, own_after = busy_seconds()
    foreign = max(0, (all_after - all_before) - (own_after - own_before))
    return sorted(times), foreign / (wall * os.cpu_count())


class Ranks:
    """Processes that train together, each started with RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT in its environment. They agree over sockets of their own, at the next port, so that
    the agreement is the same for every framework and not among its messages."""
    def __init__(self):
        self.rank, self.count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1
        if self.rank == 0:
            with socket.create_server(address, backlog=self.count) as server:
                server.settimeout(60)
                links = [server.accept()[0] for _ in range(1, self.count)]
        else:
            links = [self._reach(address)]
        self.links = [link.makefile("rw") for link in links]

    @staticmethod
    def _reach(address):
        for _ in range(600):
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise SystemExit(f"no rank 0 at {address[0]}:{address[1]} for a minute")

    def agree(self, value, how):
        """how(all ranks' numbers), for instance max, on all ranks."""
        if self.rank == 0:
            value = how([value] + [float(link.readline()) for link in self.links])
        for link in self.links:
            print(repr(float(value)), file=link, flush=True)
        return value if self.rank == 0 else float(self.links[0].readline())


def timed(step, count):
    times = []
    for _ in range(count):
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return times


def measure_together(step, seconds, ranks):
    """As measure(), on ranks that must all take the same number of steps."""
    step()
    slowest = ranks.agree(statistics.median(timed(step, 3)), max)
    times = timed(step, max(3, min(17, int(1 / slowest))))
    count = max(10, int(seconds / ranks.agree(statistics.median(times), max)))
    all_before, own_before = busy_seconds()
    begin = time.perf_counter()
    times = timed(step, count)
    wall = time.perf_counter() - begin
    all_after, own_after = busy_seconds()
    own = ranks.agree(own_after - own_before, sum)
    return sorted(times), max(0, all_after - all_before - own) / (wall * os.cpu_count())


def report(peer, name, setup, mode, threads, times, foreign, loss, ranks=None):
    """Prints the line; for several ranks rank 0 prints one line with the sum of all."""
    if ranks and ranks.rank > 0:
        return
    median, count = statistics.median(times), ranks.count if ranks else 1
    print(json.dumps({
        "peer": peer, "bench": name, "setup": setup, "mode": mode, "threads": threads,
        "ranks": count, "steps": len(times), "rate": round(count * units(name) / median, 1),
        "unit": "words/s" if name in LSTMS | GPTS else "samples/s", "ms": round(1e3 * median, 4),
        "ms_p10": round(1e3 * times[len(times) // 10], 4),
        "ms_p90": round(1e3 * times[9 * len(times) // 10], 4),
        "gflops": round(count * gflop_step(name) / median, 2), "rss_mb": round(peak_memory_mb(), 1),
        "foreign_cpu": round(foreign, 4), "loss": round(loss, 6)}), flush=True)
