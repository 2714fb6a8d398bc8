"""Trains a small network for 20 steps, saving its state after each; a second start goes on. KILL_AT ends it between two steps,
without a chance to clean up. All schedules are told all that they may ask for."""

import os
import pathlib
import signal
import sys

import torch
from torch import nn
from torch.nn import functional

import lowtide

STEPS = 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x))).mean(2).transpose(1, 2)
        x = self.lstm(x)[0]
        return self.fc(self.dropout(self.attention(x, x, x)[0].mean(1)))


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randn(6, 1, 9, 9, generator=draw), torch.randint(4, (6,), generator=draw)


def train_step(model, optimizer, schedule):
    """Its logits, labels and loss."""
    def loss_of(step):
        x, y = batch(step)
        logits = model(x)
        return logits, y, functional.cross_entropy(logits, y)

    torch.manual_seed(schedule.step_count)  # of dropout
    logits, y, loss = loss_of(schedule.step_count)
    optimizer.zero_grad()
    loss.backward()
    schedule.look(lr=optimizer.param_groups[0]["lr"], items=len(y))
    optimizer.step()
    schedule.step(loss, closure=lambda: loss_of(0)[2])
    return logits, y, loss


def main(folder, line, seed=3):
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = lowtide.Schedule(line, steps=STEPS)
    lowtide.quantize_(model, schedule, layer_bits={"fc": "fp32"}, seed=seed, example_inputs=batch(0)[:1])
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    saved = folder / "state.pt"
    if saved.exists():
        for name, state in torch.load(saved).items():
            parts[name].load_state_dict(state)
    with lowtide.run(folder, model, schedule, data="drawn", resume=True) as run:
        while schedule.step_count < STEPS:
            logits, y, loss = train_step(model, optimizer, schedule)
            run.log(loss=loss, accuracy=(logits.argmax(1) == y).float().mean())
            torch.save({name: part.state_dict() for name, part in parts.items()}, saved)
            if schedule.step_count == int(os.environ.get("KILL_AT", -1)):
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish(test=0.25 + 0.01 * seed + 0.001 * schedule.evaluation_bits.forward)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
