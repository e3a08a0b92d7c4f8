#!/usr/bin/env python3
"""Writes tests/fixtures/recurrent.h: outputs of PyTorch's nn.LSTM and nn.GRU for small inputs, and
the gradients of sum(y * weight) + sum(state * 0.5). Run with a Python that has torch:
    python3 tests/reference/recurrent.py > tests/fixtures/recurrent.h"""
import torch

N, T, I, H = 2, 4, 3, 5


def array(name, tensor):
    values = ", ".join(f"{v:.17g}" for v in tensor.detach().double().flatten().tolist())
    print(f"static const double {name}[] = {{\n    {values}}};")


def case(kind, module):
    torch.manual_seed(20)
    net = module(I, H, batch_first=True).double()
    states = 2 if kind == "lstm" else 1
    x = torch.randn(N, T, I, dtype=torch.float64).float().double().requires_grad_()
    begin = [torch.randn(1, N, H, dtype=torch.float64).float().double().requires_grad_()
             for _ in range(states)]
    weight = torch.randn(N, T, H, dtype=torch.float64).float().double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(p.float().double())
    y, end = net(x, tuple(begin) if states == 2 else begin[0])
    end = list(end) if states == 2 else [end]
    ((y * weight).sum() + sum(0.5 * e.sum() for e in end)).backward()
    rows = lambda parts: torch.cat([p[0] for p in parts], dim=1)
    array(f"torch_{kind}_x", x)
    array(f"torch_{kind}_param", torch.cat([p.flatten() for p in net.parameters()]))
    array(f"torch_{kind}_begin", rows(begin))
    array(f"torch_{kind}_weight", weight)
    array(f"torch_{kind}_y", y)
    array(f"torch_{kind}_end", rows(end))
    array(f"torch_{kind}_dx", x.grad)
    array(f"torch_{kind}_grad", torch.cat([p.grad.flatten() for p in net.parameters()]))
    array(f"torch_{kind}_dbegin", rows([b.grad for b in begin]))


print(f"/* Written by tests/reference/recurrent.py with PyTorch {torch.__version__}. "
      "clang-format off */")
print(f"enum {{ TORCH_N = {N}, TORCH_T = {T}, TORCH_I = {I}, TORCH_H = {H} }};")
case("lstm", torch.nn.LSTM)
case("gru", torch.nn.GRU)
