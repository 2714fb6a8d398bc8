"""Run folders, which ``lowtide compare``, ``report``, ``serve`` and ``advise`` read."""

from __future__ import annotations

import json
import os
import sys
import time
from types import TracebackType
from typing import Any, Mapping, Optional, SupportsFloat, Type, Union

import torch
from torch import nn

from lowtide import _lowtide, expect
from lowtide.modules import class_name
from lowtide.quantize import _device, _quantizations
from lowtide.schedule import Schedule


class Run:
    """A run folder that is being written; see :func:`lowtide.run`."""

    def __init__(self, folder: str, about: Mapping[str, Any], quantization: _lowtide.Quantization, schedule: Schedule,
                 metric: str, resume: bool) -> None:
        self._schedule = schedule
        self._metric = metric
        self._run: Optional[_lowtide.Run] = _lowtide.Run(folder, json.dumps(about), quantization, metric,
                                                         schedule.step_count, resume)
        self._started = time.monotonic() - self._open().seconds_before
        self._last_log = time.monotonic()

    @property
    def seconds(self) -> float:
        """Of this run so far, earlier processes included."""
        return time.monotonic() - self._started

    def log(self, *, loss: SupportsFloat, lr: Optional[float] = None, items: Optional[int] = None,
            **metric: SupportsFloat) -> None:
        """A line of training: means over the steps since the line before, after ``schedule.step()``.

        The metric is given by its name, as ``accuracy=0.9``; ``items`` is how many were trained on since the line before.
        """
        step = self._schedule.step_count
        if step == 0:
            raise ValueError("log() tells of steps that were made; expected schedule.step() before it")
        now = time.monotonic()
        speed = None if items is None else expect.number("items", items) / max(now - self._last_log, 1e-9)
        self._open().log(step, expect.number("loss", loss), self._value(metric), _number("lr", lr), speed,
                         self._schedule.at(step - 1), self.seconds)
        self._last_log = now

    def evaluate(self, split: str, *, loss: Optional[SupportsFloat] = None, **metric: SupportsFloat) -> None:
        """A line of evaluation of ``"valid"``, the held-out items, or ``"test"``."""
        if split not in ("valid", "test"):
            raise ValueError(f"split is {split!r}; expected 'valid' or 'test'")
        self._log_evaluation(split, self._expected(metric), _number("loss", loss), is_final=False)
        self._last_log = time.monotonic()

    def finish(self, *, test: SupportsFloat, valid: Optional[SupportsFloat] = None,
               test_loss: Optional[SupportsFloat] = None) -> None:
        """The metric on the test set, and on the held-out items, after the last step: writes result.json, and the run is
        finished."""
        step = self._schedule.step_count
        of_test, loss, of_valid = expect.number("test", test), _number("test_loss", test_loss), _number("valid", valid)
        if of_valid is not None:
            self._log_evaluation("valid", of_valid, None, is_final=True)
        self._log_evaluation("test", of_test, loss, is_final=True)
        self._open().save_ledger(step, max(step, self._schedule.steps))
        self._open().finish(step, of_test, loss, of_valid, self._schedule.evaluation_bits.forward, self.seconds)

    def _log_evaluation(self, split: str, value: float, loss: Optional[float], is_final: bool) -> None:
        self._open().evaluate(self._schedule.step_count, split, value, loss, self._schedule.evaluation_bits.forward, self.seconds,
                              is_final)

    def _open(self) -> _lowtide.Run:
        if self._run is None:
            raise ValueError("this run was closed, at the end of its `with`; lowtide.run(…, resume=True) opens it again")
        return self._run

    def _value(self, metric: Mapping[str, SupportsFloat]) -> Optional[float]:
        for name in metric:
            if name != self._metric:
                raise ValueError(f"{name} is not the metric of this run; expected {self._metric}")
        return _number(self._metric, metric.get(self._metric))

    def _expected(self, metric: Mapping[str, SupportsFloat]) -> float:
        value = self._value(metric)
        if value is None:
            raise ValueError(f"an evaluation tells the run's metric; expected {self._metric}=…")
        return value

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._run = None  # closes the folder's files, and gives up its lock


def run(folder: Union[str, "os.PathLike[str]"], model: nn.Module, schedule: Schedule, *, name: Optional[str] = None,
        data: str = "", metric: str = "accuracy", settings: Optional[Mapping[str, Any]] = None,
        resume: bool = False) -> Run:
    """Opens a run folder for a quantised model: a context that is logged to.

    >>> with lowtide.run("runs/mine", model, schedule, data="fashion-mnist") as run:
    ...     run.log(loss=0.3, accuracy=0.9, lr=0.1, items=12800)
    ...     run.evaluate("valid", accuracy=0.88)
    ...     run.finish(test=0.87, valid=0.88)

    ``name`` is the network's (else the model's class), ``data`` that of the data set, ``metric`` what it is judged by:
    accuracy, mAP, perplexity or loss. Runs are compared where these, and their steps, are the same; ``settings``, such as
    ``{"lr": 0.1}``, are kept with the run. ``resume``: a run that is in the folder goes on after ``schedule.step_count``, which
    ``schedule.load_state_dict()`` has set; where there is none, one begins. A run whose schedule, seed, steps, names or
    settings are others than those in the folder is a ValueError.
    """
    path = expect.path("folder", folder)
    network = expect.string("name", name or class_name(model))
    for what, value in (("data", data), ("metric", metric)):
        expect.string(what, value)
    expect.kind("schedule", schedule, Schedule, "a lowtide.Schedule")
    quantizations = _quantizations(model)
    if len(quantizations) > 1:
        raise ValueError(f"{type(model).__name__} was quantised in {len(quantizations)} parts; a run is of one")
    quantization = quantizations[0]
    if not schedule._schedule.drives(quantization):
        raise ValueError(f"schedule is {schedule!r}, which {class_name(model)} does not follow; expected the one that "
                         "quantize_ was given")
    device = _device(model).type
    recipe = {
        "model": network,
        "data": data,
        "schedule": schedule.line,
        "steps": schedule.steps,
        "layer-bits": quantization.rules,
        "engine": quantization.engine,
        "seed": quantization.seed,
        "device": device,
    }
    recipe.update(_plain(settings or {}, recipe))
    about = {
        "recipe": recipe,
        "schedule": schedule.line,
        "seed": quantization.seed,
        "program": f"lowtide {_lowtide.version}",
        "script": sys.argv[0],
        "device": device,
        "threads": torch.get_num_threads(),
    }
    if device == "cuda":
        about["tf32"] = {"convolutions": torch.backends.cudnn.allow_tf32, "products": torch.backends.cuda.matmul.allow_tf32}
    return Run(path, about, quantization, schedule, metric, resume)


def _plain(settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in settings.items():
        if key in recipe:
            raise ValueError(f"settings: '{key}' is what lowtide.run itself writes; expected another name")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError(f"settings: '{key}' is {expect.shown(value)}; expected numbers, strings, or lists of them") from None
    return settings


def _number(what: str, value: Optional[SupportsFloat]) -> Optional[float]:
    return None if value is None else expect.number(what, value)
