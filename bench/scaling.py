#!/usr/bin/env python3
"""How training would scale over nodes, each with a batch of its own: what doc/scaling.md's tables
are computed by. Prints Markdown.

    scaling.py [--alpha-us X --gb-s X --cpu X]     what bench_exchange measured
               [--lenet-ms X] [--lstm-ms X] [--gflops X]    of one rank, from bench_train
               [--faster X] [--overhead X]

A node's step of C seconds, P parameters and an exchange of E seconds takes
    T = max(C + max(cpu E, e), E)
cpu is the share of E that the computing processor must work for; e is the exchange of the first
layer, whose gradient comes last and whose weights are needed first, so that nothing hides it. A
rank sends m messages of b bytes in all, E = m alpha + b / beta:
    even     owners of equal parts:        m = 2 (N - 1) overhead, b = 2 (N - 1) / N * 4 P
    shards   owners of 250,000 parameters: the busiest owner's messages and bytes
    tree     recursive halving, doubling:  m = 2 log2 N,           b as even
A ring's m is 2 (N - 1), with b as even. With overhead 1, so is that of owners: each message costs
alpha, as if no two were sent at once. That is a bound; only a ring's messages must wait so.
"""
import argparse
import math

SHARD = 250_000
NODES = 2, 4, 16, 64, 256, 1024
SLOWER = 1.05  # a step that takes more than this times C does not hide its exchange

parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                 description=__doc__)
parser.add_argument("--alpha-us", type=float, default=1.5, help="here, a message")
parser.add_argument("--gb-s", type=float, default=9.6, help="here, sent by a rank")
parser.add_argument("--cpu", type=float, default=1, help="here, stolen_us / us")
parser.add_argument("--lenet-ms", type=float, default=10.1, help="a step at batch 64")
parser.add_argument("--lstm-ms", type=float, default=300, help="a step, batch 20 of 35 words")
parser.add_argument("--gflops", type=float, default=185, help="of a node, for the large model")
parser.add_argument("--faster", type=float, default=1, help="factor of the nodes' speed")
parser.add_argument("--overhead", type=float, default=1,
                    help="share of alpha that each message costs")
options = parser.parse_args()


def lstm_layer(inputs, hidden):
    return 4 * hidden * (inputs + hidden) + 2 * 4 * hidden


# (name, seconds of a step, parameters of each layer)
LENET = [20 * 25 + 20, 50 * 20 * 25 + 50, 500 * 800 + 500, 10 * 500 + 10]
LSTM = [10_000 * 650, lstm_layer(650, 650), lstm_layer(650, 650), 10_000 * 650 + 10_000]
LARGE, LARGE_TOKENS = [5_000_000] * 20, 1024
MODELS = [
    ("LeNet, batch 64", 1e-3 * options.lenet_ms, LENET),
    ("LSTM 2 x 650, 700 words", 1e-3 * options.lstm_ms, LSTM),
    ("20 layers of 5 million, 1,024 tokens",
     6 * sum(LARGE) * LARGE_TOKENS / (1e9 * options.gflops), LARGE),
]
NETWORKS = [  # name, seconds a message, bytes/s, cpu
    ("this machine's memory", 1e-6 * options.alpha_us, 1e9 * options.gb_s, options.cpu),
    ("10 Gb/s Ethernet, 30 us", 30e-6, 10e9 / 8, 0),
    ("100 Gb/s InfiniBand, 2 us", 2e-6, 100e9 / 8, 0),
]


def exchange(way, layers, nodes, alpha, beta):
    """Seconds; layers has the number of parameters of each layer."""
    messages, sent = 2 * (nodes - 1), 2 * (nodes - 1) / nodes * 4 * sum(layers)
    if way == "tree":
        messages = 2 * math.ceil(math.log2(nodes))
    elif way == "even":
        messages *= options.overhead
    elif way == "shards":
        counts = [math.ceil(size / SHARD) for size in layers]
        shards = [size / count for size, count in zip(layers, counts) for _ in range(count)]
        busiest = sorted(shards, reverse=True)[::nodes]  # dealt out, the largest first
        messages *= len(busiest) * options.overhead
        sent = max(sent, 2 * (nodes - 1) * 4 * sum(busiest))
    return messages * alpha + sent / beta


def step(way, model, nodes, network):
    """Seconds of a step, and of its exchange."""
    (_, compute, layers), (_, alpha, beta, cpu) = model, network
    compute /= options.faster
    whole = exchange(way, layers, nodes, alpha, beta)
    first = exchange(way, layers[:1], nodes, alpha, beta)
    return max(compute + max(cpu * whole, first), whole), whole


def limit(way, model, network):
    """The first number of nodes whose steps are noticeably longer than their computing."""
    for nodes in (2 ** i for i in range(1, 11)):
        if step(way, model, nodes, network)[0] > SLOWER * model[1] / options.faster:
            return f"{nodes:,}"
    return "beyond 1,024"


def ms(seconds):
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def row(*cells):
    print("| " + " | ".join(cells) + " |")


for model in MODELS:
    print(f"\n{model[0]}: {sum(model[2]):,} parameters, C = {ms(model[1] / options.faster)} ms\n")
    row("network", "ms", *(f"N = {nodes:,}" for nodes in NODES), "not hidden from N =")
    row(*["---"] * (len(NODES) + 3))
    for network in NETWORKS:
        row(network[0], "E, even",
            *(ms(step("even", model, nodes, network)[1]) for nodes in NODES), "")
        for way in "even", "shards", "tree":
            row("", "T, " + way, *(ms(step(way, model, nodes, network)[0]) for nodes in NODES),
                limit(way, model, network))
