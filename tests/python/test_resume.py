"""A run that was killed between two steps and goes on from its state_dicts is the run that was not."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import lowtide
from train_small import Net

SCRIPT = pathlib.Path(__file__).with_name("train_small.py")


def train(folder, line, kill_at=None):
    environment = dict(os.environ, **({} if kill_at is None else {"KILL_AT": str(kill_at)}))
    return subprocess.run([sys.executable, SCRIPT, folder, line], env=environment).returncode


def tensors_in(state):
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else []
    return [tensor for value in values for tensor in tensors_in(value)]


def lines(folder):
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in logged]


@pytest.mark.parametrize("line", ["CR 3:8 n=2 grad=6", "progressive 3,4,8 grad=8 window=3 threshold=0.01 patience=1",
                                  "price 3:8 grad=8 every=3 budget=0.63", "waterfill 3:8 grad=8 every=3 budget=0.63"])
def test_it_has_the_same_bytes(tmp_path, line):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(whole, line) == 0
    for step in (7, 13):
        assert train(killed, line, kill_at=step) == -9
    assert train(killed, line) == 0
    ours, theirs = torch.load(killed / "state.pt"), torch.load(whole / "state.pt")
    assert ours["schedule"] == theirs["schedule"] and ours["schedule"]["step"] == 20
    pairs = list(zip(tensors_in(ours), tensors_in(theirs)))
    assert len(pairs) > 30
    for a, b in pairs:
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert lines(killed) == lines(whole) and len(lines(whole)) == 21
    results = [json.loads((folder / "result.json").read_text()) for folder in (killed, whole)]
    assert results[0].pop("seconds") > 0 and results[1].pop("seconds") > 0 and results[0] == results[1]


def test_a_state_is_for_a_model_that_is_quantised():
    schedule = lowtide.Schedule("CR 3:8", steps=20)
    model = lowtide.quantize_(Net(), schedule)
    state = schedule.state_dict()
    other = lowtide.Schedule("CR 3:8", steps=20)
    with pytest.raises(ValueError, match="with 1 models, this one has 0; call quantize_ before"):
        other.load_state_dict(state)
    assert len(lowtide.layers(model)) == 9
    model(torch.randn(6, 1, 9, 9)).sum().backward()
    schedule.step()
    state = schedule.state_dict()
    small = lowtide.quantize_(torch.nn.Linear(2, 2), other)
    with pytest.raises(ValueError, match="of a model with other layers"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="the schedule's state is damaged"):
        schedule.load_state_dict({key: value for key, value in state.items() if key != "ledgers"})
    with pytest.raises(ValueError, match="step is -1"):
        schedule.load_state_dict({**state, "step": -1})
    assert schedule.step_count == 1 and other.step_count == 0 and lowtide.cost(small).steps == 0
