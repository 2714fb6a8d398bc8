#!/usr/bin/env python3
"""A small ConvNeXt on Fashion-MNIST, in low precision on a cyclic schedule.

    python3 images.py --schedule "CR 3:8 n=8 grad=8" --steps 1000 --out runs/convnext

The network is plain PyTorch: lowtide has none like it. A run that was stopped goes on when the same command is given again.
"""

import gzip
import pathlib

import torch
from torch import nn
from torch.nn import functional

import lowtide
from training import draws_of, go_on, parser, save

HELD_OUT = 5000


class Block(nn.Module):
    """ConvNeXt's block: a depthwise 7×7 convolution, then two linear layers over the channels (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.contract(functional.gelu(self.expand(y))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, width: int = 24, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 2, stride=2)
        self.first = nn.Sequential(Block(width), Block(width))
        self.narrow = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.second = nn.Sequential(Block(2 * width), Block(2 * width))
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.narrow(self.first(self.stem(x))))
        return self.head(self.norm(x.mean((2, 3))))


def read_idx(path: pathlib.Path) -> torch.Tensor:
    content = gzip.decompress(path.read_bytes())
    dimensions = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(content[3])]
    return torch.frombuffer(bytearray(content[4 + 4 * len(dimensions):]), dtype=torch.uint8).view(dimensions)


def read_split(folder: pathlib.Path, name: str):
    images = read_idx(folder / f"{name}-images-idx3-ubyte.gz").unsqueeze(1).float().div_(255).sub_(0.286).div_(0.353)
    return images, read_idx(folder / f"{name}-labels-idx1-ubyte.gz").long()


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()  # and without gradients: at the bits that training ends with
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500)))
    model.train()
    return right / len(labels)


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], schedule="CR 3:8 n=8 grad=8", batch=64, lr=2e-3, out="runs/convnext")
    arguments.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    options = arguments.parse_args()

    images, labels = (part.to(options.device) for part in read_split(options.data, "train"))
    torch.manual_seed(options.seed)
    model = ConvNeXt().to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    schedule = lowtide.Schedule(options.schedule, options.steps)
    lowtide.quantize_(model, schedule, layer_bits={"head": "fp32"}, seed=options.seed, engine=options.engine)

    parts = {"model": model, "optimizer": optimizer, "rates": rates, "schedule": schedule}
    go_on(parts, options.out, options.device)

    with lowtide.run(options.out, model, schedule, name="convnext", data="fashion-mnist", resume=True,
                     settings={"batch": options.batch, "lr": options.lr}) as run:
        loss_sum, right = 0.0, 0
        while schedule.step_count < options.steps:
            draws = draws_of(schedule.step_count, options.seed)
            batch = torch.randint(HELD_OUT, len(labels), (options.batch,), generator=draws).to(options.device)
            logits = model(images[batch])
            loss = functional.cross_entropy(logits, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rates.step()
            schedule.step(loss)
            loss_sum += loss.item()
            right += int((logits.argmax(1) == labels[batch]).sum())
            if schedule.step_count % 50 == 0 or schedule.step_count == options.steps:
                since = (schedule.step_count - 1) % 50 + 1
                run.log(loss=loss_sum / since, accuracy=right / since / options.batch, items=since * options.batch,
                        lr=rates.get_last_lr()[0])
                print(f"step {schedule.step_count}  loss {loss_sum / since:.3f}  {schedule.bits.forward} bits  "
                      f"cost {lowtide.cost(model).relative:.4f} of fp32", flush=True)
                loss_sum, right = 0.0, 0
                save(parts, options.out)
        test = accuracy(model, *(part.to(options.device) for part in read_split(options.data, "t10k")))
        run.finish(test=test, valid=accuracy(model, images[:HELD_OUT], labels[:HELD_OUT]))
    print(lowtide.cost(model))
    print(f"test accuracy {100 * test:.2f} %, cost {lowtide.cost(model).relative:.4f} of fp32")


if __name__ == "__main__":
    main()
