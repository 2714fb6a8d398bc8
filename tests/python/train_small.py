"""Trains a small network for 20 steps, saving its state after each; a second start goes on. KILL_AT ends it between two steps,
without a chance to clean up."""

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
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x))).mean(2).transpose(1, 2)
        x = self.lstm(x)[0]
        return self.fc(self.attention(x, x, x)[0].mean(1))


def main(folder, line, seed=3):
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = lowtide.Schedule(line, steps=STEPS)
    lowtide.quantize_(model, schedule, layer_bits={"fc": "fp32"}, seed=seed)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    saved = folder / "state.pt"
    if saved.exists():
        for name, state in torch.load(saved).items():
            parts[name].load_state_dict(state)
    with lowtide.run(folder, model, schedule, data="drawn", resume=True) as run:
        while schedule.step_count < STEPS:
            draw = torch.Generator().manual_seed(schedule.step_count)
            x, y = torch.randn(6, 1, 9, 9, generator=draw), torch.randint(4, (6,), generator=draw)
            logits = model(x)
            loss = functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step(loss)
            run.log(loss=loss, accuracy=(logits.argmax(1) == y).float().mean())
            torch.save({name: part.state_dict() for name, part in parts.items()}, saved)
            if schedule.step_count == int(os.environ.get("KILL_AT", -1)):
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish(test=0.25 + 0.01 * seed + 0.001 * schedule.evaluation_bits.forward)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
