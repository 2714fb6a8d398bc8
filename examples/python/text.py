#!/usr/bin/env python3
"""A small GPT over characters, in low precision on a cyclic schedule.

    python3 text.py --text /usr/share/common-licenses/GPL-3 --steps 1000 --out runs/gpt

Plain PyTorch: attention is torch.nn.MultiheadAttention, all six products of which lowtide quantises. A run that was stopped
goes on when the same command is given again.
"""

import math
import pathlib

import torch
from torch import nn
from torch.nn import functional

import lowtide
from training import draws_of, go_on, parser, save

LENGTH = 64


class Block(nn.Module):
    def __init__(self, units: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(units)
        self.attention = nn.MultiheadAttention(units, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(units)
        self.expand = nn.Linear(units, 4 * units)
        self.contract = nn.Linear(4 * units, units)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.contract(functional.gelu(self.expand(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, characters: int, units: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, units)
        self.position = nn.Embedding(LENGTH, units)
        self.blocks = nn.ModuleList(Block(units, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(units)
        self.head = nn.Linear(units, characters, bias=False)
        self.head.weight = self.embedding.weight
        for embedding in (self.embedding, self.position):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.size(1)
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=text.device), 1)
        x = self.embedding(text) + self.position.weight[:length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def loss_of(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def perplexity(model: nn.Module, text: torch.Tensor) -> float:
    model.eval()
    windows = text[:len(text) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    losses = [loss_of(model, part) * len(part) for part in windows.split(64)]
    model.train()
    return math.exp(float(sum(losses)) / len(windows))


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], schedule="CR 4:8 n=8 grad=8", batch=16, lr=3e-3, out="runs/gpt")
    arguments.add_argument("--text", type=pathlib.Path, default=pathlib.Path("/usr/share/common-licenses/GPL-3"))
    options = arguments.parse_args()

    content = options.text.read_text()
    places = {character: i for i, character in enumerate(sorted(set(content)))}
    text = torch.tensor([places[character] for character in content], device=options.device)
    train, valid, test = text.split([len(text) * 8 // 10, len(text) // 10, len(text) - len(text) * 8 // 10 - len(text) // 10])

    torch.manual_seed(options.seed)
    model = GPT(len(places)).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    schedule = lowtide.Schedule(options.schedule, options.steps)
    lowtide.quantize_(model, schedule, seed=options.seed, engine=options.engine)

    parts = {"model": model, "optimizer": optimizer, "rates": rates, "schedule": schedule}
    go_on(parts, options.out, options.device)

    with lowtide.run(options.out, model, schedule, name="gpt", data=options.text.name, metric="perplexity", resume=True,
                     settings={"batch": options.batch, "lr": options.lr}) as run:
        while schedule.step_count < options.steps:
            draws = draws_of(schedule.step_count, options.seed)
            starts = torch.randint(len(train) - LENGTH, (options.batch, 1), generator=draws) + torch.arange(LENGTH + 1)
            loss = loss_of(model, train[starts.to(options.device)])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.step()
            schedule.step(loss)
            if schedule.step_count % 500 == 0:
                run.evaluate("valid", perplexity=perplexity(model, valid))
            if schedule.step_count % 50 == 0:
                run.log(loss=loss, perplexity=math.exp(loss), lr=rates.get_last_lr()[0])
                print(f"step {schedule.step_count}  loss {loss:.3f}  {schedule.bits.forward} bits", flush=True)
                save(parts, options.out)
        result = perplexity(model, test)
        run.finish(test=result, valid=perplexity(model, valid))
    print(f"test perplexity {result:.2f} a character, cost {lowtide.cost(model).relative:.4f} of fp32")


if __name__ == "__main__":
    main()
