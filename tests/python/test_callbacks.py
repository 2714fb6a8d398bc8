"""The callbacks, driven as Lightning and Hugging Face's Trainer drive them: with their hooks, in their order. Neither library is
in Debian; what stands for them here has the base class alone."""

import importlib.util
import json
import sys
import types

import pytest
import torch
from torch import nn

import lowtide


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    return made


@pytest.fixture
def lightning(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", module("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module("lightning.pytorch"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", module("lightning.pytorch.callbacks", Callback=object))
    monkeypatch.delitem(sys.modules, "lowtide.lightning", raising=False)


@pytest.fixture
def transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", module("transformers", TrainerCallback=object))
    monkeypatch.delitem(sys.modules, "lowtide.hugging_face", raising=False)


class Module(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 2))
        self.logged = []

    def log(self, name, value):
        self.logged.append((name, value))


def quantised(line="CR 3:8 n=2", steps=10):
    schedule = lowtide.Schedule(line, steps=steps)
    return lowtide.quantize_(Module(), schedule), schedule


def test_nothing_is_imported_before_it_is_used():
    assert not {"lightning", "pytorch_lightning", "transformers"} & set(sys.modules)
    if any(importlib.util.find_spec(name) for name in ("lightning", "pytorch_lightning")):
        pytest.skip("Lightning is installed here")
    with pytest.raises(ImportError):
        import lowtide.lightning  # noqa: F401


def test_lightning_steps_with_the_optimiser(lightning):
    from lowtide.lightning import PrecisionSchedule

    model, schedule = quantised()
    callback, trainer = PrecisionSchedule(schedule), types.SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, model)
    for batch in range(6):  # two batches make a step
        model(torch.randn(3, 4)).sum().backward()
        trainer.global_step += batch % 2
        callback.on_train_batch_end(trainer, model, {"loss": torch.tensor(1.0)}, None, batch)
    assert schedule.step_count == 3 and [value for name, value in model.logged if name == "bits"] == [3, 3, 5]
    assert dict(model.logged)["relative_cost"] == lowtide.cost(model).relative
    assert lowtide.cost(model).layers[0].macs == 2 * 3 * 4 * 2
    twin, resumed = quantised()
    PrecisionSchedule(resumed).load_state_dict(json.loads(json.dumps(callback.state_dict())))
    assert resumed.step_count == 3 and lowtide.cost(twin) == lowtide.cost(model)


def test_lightnings_sanity_check_is_in_fp32(lightning):
    from lowtide.lightning import PrecisionSchedule

    model, schedule = quantised()
    callback, x = PrecisionSchedule(schedule), torch.randn(3, 4)
    plain = nn.functional.linear(x, model[0].weight, model[0].bias)
    with torch.no_grad():
        model.eval()
        callback.on_sanity_check_start(None, model)
        torch.testing.assert_close(model(x), plain)
        callback.on_sanity_check_end(None, model)
        with pytest.raises(ValueError, match="was not measured"):
            model(x)
        model.train()(x)
        callback.on_sanity_check_start(None, model)
        callback.on_exception(None, model, KeyboardInterrupt())
        assert not torch.equal(model.eval()(x), plain)


def test_lightning_gives_a_closed_loop_the_loss(lightning):
    from lowtide.lightning import PrecisionSchedule

    model, schedule = quantised("progressive 3,8 grad=8 window=1 threshold=0.01 patience=1")
    callback, trainer = PrecisionSchedule(schedule), types.SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, model)
    for loss in (1.0, 0.5, 0.5, 0.5):
        trainer.global_step += 1
        callback.on_train_batch_end(trainer, model, {"loss": torch.tensor(loss)}, None, 0)
    assert schedule.bits.forward == 8


def test_hugging_faces_trainer_may_evaluate_on_start(transformers, tmp_path):
    from lowtide.hugging_face import PrecisionSchedule

    arguments = types.SimpleNamespace(output_dir=str(tmp_path), eval_on_start=True)
    state = types.SimpleNamespace(global_step=0)
    model, schedule = quantised()
    callback, x = PrecisionSchedule(schedule), torch.randn(3, 4)
    callback.on_train_begin(arguments, state, None, model=model)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), nn.functional.linear(x, model[0].weight, model[0].bias))
        callback.on_evaluate(arguments, state, None, model=model, metrics={})
        with pytest.raises(ValueError, match="was not measured"):
            model(x)


def test_hugging_faces_trainer_saves_and_goes_on(transformers, tmp_path):
    from lowtide.hugging_face import PrecisionSchedule

    arguments = types.SimpleNamespace(output_dir=str(tmp_path))
    state = types.SimpleNamespace(global_step=0, is_world_process_zero=True, log_history=[])
    model, schedule = quantised()
    callback = PrecisionSchedule(schedule)
    callback.on_train_begin(arguments, state, None, model=model)
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        state.global_step += 1
        callback.on_step_end(arguments, state, None, model=model)
    state.log_history.append({"loss": 1.0})
    callback.on_log(arguments, state, None, logs={"loss": 1.0}, model=model)
    assert state.log_history[-1]["bits"] == 5
    state.log_history.append({"eval_loss": 1.0})
    callback.on_log(arguments, state, None, logs={"eval_loss": 1.0}, model=model)
    assert state.log_history[-1] == {"eval_loss": 1.0}
    (tmp_path / "checkpoint-3").mkdir()
    callback.on_save(arguments, state, None, model=model)
    assert [file.name for file in (tmp_path / "checkpoint-3").iterdir()] == ["lowtide.json"]

    twin, resumed = quantised()
    PrecisionSchedule(resumed).on_train_begin(arguments, state, None, model=twin)
    assert resumed.step_count == 3 and lowtide.cost(twin) == lowtide.cost(model)
    state.global_step = 7
    with pytest.raises(ValueError, match="goes on from step 7, and .*checkpoint-7/lowtide.json is missing"):
        PrecisionSchedule(quantised()[1]).on_train_begin(arguments, state, None, model=twin)
