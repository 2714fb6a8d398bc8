#!/usr/bin/env python3
"""Step times of a network in Python: plain fp32 PyTorch against lowtide's engine, the whole step and layer by layer.

    PYTHONPATH=build/python python3 bench/python_layers.py --network resnet

Both are timed in turn, in one process; figures are medians. A layer is timed by itself, forward and backward, on inputs of the
shape that it has in the network.
"""

import argparse
import copy
import pathlib
import statistics
import sys
import time

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples" / "python"), str(ROOT / "tests" / "python")]

import lowtide  # noqa: E402
from images import ConvNeXt  # noqa: E402
from networks import CifarResNet8  # noqa: E402
from text import GPT, LENGTH  # noqa: E402

NETWORKS = {
    "resnet": (lambda: CifarResNet8(3), lambda batch: torch.randn(batch, 3, 32, 32)),
    "convnext": (lambda: ConvNeXt(64), lambda batch: torch.randn(batch, 1, 28, 28)),
    "gpt": (lambda: GPT(100, units=256, heads=4, layers=2), lambda batch: torch.randint(100, (batch, LENGTH))),
}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def medians(calls, device, repeats):
    """Milliseconds of each call; in turn, so that whatever else the machine does meets all of them."""
    times = [[] for _ in calls]
    for repeat in range(repeats + 3):
        for call, taken in zip(calls, times):
            synchronize(device)
            start = time.perf_counter()
            call()
            synchronize(device)
            if repeat >= 3:
                taken.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(taken) for taken in times]


def step(model, x):
    def run():
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
    return run


def inputs_of_layers(model, x):
    """What every layer that is not made of others gets in a forward pass."""
    seen = {}

    def keep(name):
        def hook(module, arguments, output):
            seen[name] = arguments
        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in model.named_modules()
             if isinstance(module, (nn.Conv2d, nn.Linear, nn.MultiheadAttention))]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return seen


def layer_step(module, arguments, gradients):
    arguments = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]

    def run():
        module.zero_grad(set_to_none=True)
        output = module(*arguments)
        output = output[0] if isinstance(output, tuple) else output
        output.backward(gradients)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="resnet")
    parser.add_argument("--engine", help="else integer on a CPU, cuda on a GPU")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--schedule", default="static 8 grad=8")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    engine = options.engine or ("integer" if device.type == "cpu" else "cuda")
    torch.manual_seed(1)
    make, draw = NETWORKS[options.network]
    plain, x = make().to(device), draw(options.batch).to(device)
    quantised = copy.deepcopy(plain)
    schedule = lowtide.Schedule(options.schedule, steps=100)
    lowtide.quantize_(quantised, schedule, engine=engine)

    print(f"{options.network}, batch {options.batch}, {options.schedule}, engine {engine}, {device}, "
          f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'':<28}  {'fp32':>9}  {'lowtide':>9}  {'lowtide / fp32':>14}")

    def row(name, fp32, ours):
        print(f"{name:<28}  {fp32:>6.2f} ms  {ours:>6.2f} ms  {ours / fp32:>14.2f}", flush=True)

    row("whole step", *medians([step(plain, x), step(quantised, x)], device, options.repeats))
    modules, ours = dict(plain.named_modules()), dict(quantised.named_modules())
    for name, arguments in inputs_of_layers(plain, x).items():
        output = modules[name](*arguments)
        gradient = torch.randn_like(output[0] if isinstance(output, tuple) else output)
        calls = [layer_step(module, arguments, gradient) for module in (modules[name], ours[name])]
        row(name, *medians(calls, device, options.repeats))


if __name__ == "__main__":
    main()
