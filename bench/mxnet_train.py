#!/usr/bin/env python3
"""The networks of bench_train, trained by MXNet (Gluon, hybridized, SGD with momentum); prints JSON
lines like its.

    mxnet_train.py [--threads 2] [--seconds 3] [--only NAME] [--kvstore dist_sync]

MXNet's last version, 1.9.1, wants a NumPy before 1.24, and that a Python up to 3.11:
    pip install mxnet==1.9.1 'numpy==1.23.*'

--kvstore dist_sync makes it one worker of several, each with a batch of its own: start one process
a worker with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment and what MXNet wants
(DMLC_ROLE=worker, DMLC_PS_ROOT_URI, ...), and the same command with DMLC_ROLE=scheduler and
DMLC_ROLE=server once each; these end with the workers. Rank 0 prints the line; its rate is that of
all workers, its foreign_cpu has the server's share in it.
"""
import argparse
import os

import peer

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--only", choices=peer.BATCHES)
parser.add_argument("--kvstore", choices=["dist_sync"])
options = parser.parse_args()
for library in "OMP", "OPENBLAS":  # which read it when they load
    os.environ[library + "_NUM_THREADS"] = str(options.threads)

import mxnet as mx  # does not return in a server or scheduler
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn

ranks = peer.Ranks() if options.kvstore else None


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10))
    return net


def lenet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2),
            nn.Conv2D(50, 5, activation="relu"), nn.MaxPool2D(2), nn.Flatten(),
            nn.Dense(500, activation="relu"), nn.Dense(10))
    return net


def conv(outputs, kernel, stride):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(outputs, kernel, stride, kernel // 2, use_bias=False), nn.BatchNorm())
    return net


class Block(gluon.HybridBlock):
    def __init__(self, outputs, stride):
        super().__init__()
        with self.name_scope():
            self.conv1, self.conv2 = conv(outputs, 3, stride), conv(outputs, 3, 1)
            self.short = conv(outputs, 1, stride) if stride > 1 else None

    def hybrid_forward(self, F, x):
        y = self.conv2(F.relu(self.conv1(x)))
        return F.relu(y + (self.short(x) if self.short else x))


def resnet():
    net = nn.HybridSequential()
    net.add(conv(16, 3, 1), nn.Activation("relu"))
    for outputs in 16, 32, 64:
        for i in range(3):
            net.add(Block(outputs, 2 if outputs > 16 and not i else 1))
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(10))
    return net


class LanguageModel(gluon.HybridBlock):
    """Time first, as its LSTM computes: it would transpose batches that come first."""
    def __init__(self, layers, hidden, embed, dropout, **_):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(peer.VOCABULARY, embed)
            self.lstm = rnn.LSTM(hidden, layers, layout="TNC", input_size=embed, dropout=dropout)
            self.drop = nn.Dropout(dropout)
            self.decoder = nn.Dense(peer.VOCABULARY, flatten=False, in_units=hidden)

    def hybrid_forward(self, F, x, h, c):
        y, state = self.lstm(self.embed(x), [h, c])
        return [self.decoder(self.drop(y)).reshape((-1, peer.VOCABULARY))] + state


def whole(most, *shape):
    return nd.random.randint(0, most, shape=shape).astype("float32")


def image_loss(name, loss_of):
    """The model, and the function that computes its loss on a batch."""
    batch = peer.BATCHES[name]
    model = mlp() if name == "mlp" else resnet() if name in peer.RESNETS else lenet()
    size = (3, 32, 32) if name in peer.RESNETS else (1, 28, 28)
    x, labels = nd.random.normal(shape=(batch, *size)), whole(10, batch)
    return model, lambda: loss_of(model(x), labels)


def table_loss(name, _):
    net = nn.HybridSequential()
    net.add(*(nn.Dense(64, activation="relu") for _ in range(3)), nn.Dense(1))
    x, targets = nd.random.uniform(shape=(256, 8)), nd.random.uniform(shape=(256, 1))
    loss_of = gluon.loss.L2Loss()
    return net, lambda: loss_of(net(x), targets)


def lstm_loss(name, loss_of):
    net, batch = peer.LSTMS[name], peer.BATCHES[name]
    model = LanguageModel(**net)
    x = whole(peer.VOCABULARY, net["seq"], batch)
    labels = whole(peer.VOCABULARY, net["seq"] * batch)
    state = [nd.zeros((net["layers"], batch, net["hidden"])) for _ in "hc"]

    def loss():
        logits, *after = model(x, *state)
        # goes on, but no gradient goes back further; copied, as static memory is written again
        state[:] = [part.detach().copy() for part in after]
        return loss_of(logits, labels)

    return model, loss


def measure(name):
    mx.random.seed(1)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    make = (lstm_loss if name in peer.LSTMS else table_loss if name == "tabular" else image_loss)
    model, loss = make(name, loss_of)
    model.initialize(mx.init.Xavier())
    for block in model, loss_of:
        block.hybridize(static_alloc=True, static_shape=True)
    sgd = {"learning_rate": peer.learning_rate(name), "momentum": peer.MOMENTUM}
    trainer = gluon.Trainer(model.collect_params(), "sgd", sgd, kvstore=options.kvstore)
    last = None

    def step():
        nonlocal last
        with autograd.record():
            last = loss()
        last.backward()
        trainer.step(peer.units(name) * (ranks.count if ranks else 1))
        nd.waitall()

    times, foreign = (peer.measure_together(step, options.seconds, ranks) if ranks else
                      peer.measure(step, options.seconds))
    peer.report("mxnet", name, "MXNet " + mx.__version__, "hybrid", options.threads, times,
                foreign, last.mean().asscalar().item(), ranks)


for network in [options.only] if options.only else peer.BATCHES:
    measure(network)
