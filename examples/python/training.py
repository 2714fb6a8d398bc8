"""What both examples do around their networks: options, what a step draws, stopping and going on."""

import argparse
import os
import pathlib
from typing import Any, Dict

import torch


def parser(description: str, *, schedule: str, batch: int, lr: float, out: str) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--schedule", default=schedule)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--batch", type=int, default=batch)
    options.add_argument("--lr", type=float, default=lr)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument("--engine", default="auto")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path(out))
    return options


def draws_of(step: int, seed: int) -> torch.Generator:
    """Of the step alone, so that a run that goes on draws what it would have drawn."""
    return torch.Generator().manual_seed(seed * 1_000_003 + step)


def save(parts: Dict[str, Any], folder: pathlib.Path) -> None:
    """The states of all that a training changes."""
    torch.save({name: part.state_dict() for name, part in parts.items()}, folder / "state.pt.new")
    os.replace(folder / "state.pt.new", folder / "state.pt")


def go_on(parts: Dict[str, Any], folder: pathlib.Path, device: str) -> None:
    """From what was saved, if anything was."""
    if (folder / "state.pt").exists():
        for name, state in torch.load(folder / "state.pt", map_location=device).items():
            parts[name].load_state_dict(state)
