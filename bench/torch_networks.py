"""Shared by torch_train.py and torch_gpu.py: the networks of bench_train in PyTorch."""
import torch
from torch import nn

import peer


def mlp(hidden):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, hidden),
                         nn.ReLU(), nn.Linear(hidden, 10))


def tabular():
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                         nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(),
                         nn.Linear(500, 10))


def conv(inputs, outputs, kernel, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.conv2 = conv(inputs, outputs, 3, stride), conv(outputs, outputs, 3, 1)
        self.short = conv(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.conv2(torch.relu(self.conv1(x)))
        return torch.relu(y + self.short(x))


def resnet():
    """ResNet-20 for CIFAR-10 (arXiv 1512.03385), with projections where the shape changes."""
    layers, inputs = [conv(3, 16, 3, 1), nn.ReLU()], 16
    for stage, outputs in enumerate((16, 32, 64)):
        for i in range(3):
            layers.append(Block(inputs, outputs, 2 if stage and not i else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, steps, width = x.shape
        cut = self.qkv(self.norm1(x)).view(rows, steps, 3, self.heads, width // self.heads)
        q, k, v = cut.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(rows, steps, width))
        return x + self.out(nn.functional.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, seq):
        super().__init__()
        self.embed = nn.Embedding(peer.VOCABULARY, width)
        self.positions = nn.Parameter(torch.randn(seq, width) * 0.02)
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, peer.VOCABULARY, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x) + self.positions)))


class LanguageModel(nn.Module):
    def __init__(self, layers, hidden, embed, dropout=0):
        super().__init__()
        self.embed = nn.Embedding(peer.VOCABULARY, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True, dropout=dropout)
        self.drop = nn.Dropout(dropout)
        self.decoder = nn.Linear(hidden, peer.VOCABULARY)

    def forward(self, x, state):
        y, state = self.lstm(self.embed(x), state)
        return self.decoder(self.drop(y)), state
