"""A callback for Hugging Face's Trainer. Importing this imports ``transformers``."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from typing import Any, Callable, Dict, Optional, SupportsFloat

from transformers import TrainerCallback

from lowtide.cost import cost
from lowtide.quantize import precision
from lowtide.schedule import Schedule

STATE_FILE = "lowtide.json"  # in a checkpoint's folder


class PrecisionSchedule(TrainerCallback):
    """Steps a schedule with the optimiser, saves it in checkpoints, and adds ``bits`` and ``relative_cost`` to the Trainer's
    log history.

    >>> schedule = lowtide.Schedule("CR 3:8 n=8 grad=8", steps=arguments.max_steps)
    >>> lowtide.quantize_(model, schedule)
    >>> Trainer(model, arguments, callbacks=[PrecisionSchedule(schedule)], ...).train()

    The Trainer evaluates without gradients, so at the bits that training ends with; before the first step (``eval_on_start``),
    when no range has been measured, in fp32. It tells callbacks no losses: a schedule
    that listens to them (``progressive``) cannot be used. ``closure`` is for ``price``, as :meth:`Schedule.step` has it;
    ``waterfill`` looks at gradients that the Trainer has clipped.
    """

    def __init__(self, schedule: Schedule, *, closure: Optional[Callable[[], SupportsFloat]] = None) -> None:
        self.schedule = schedule
        self.closure = closure
        self._evaluation_on_start = contextlib.ExitStack()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step != self.schedule.step_count:
            self._go_on(args, state)
        if state.global_step == 0 and getattr(args, "eval_on_start", False):  # the Trainer's next call
            self._evaluation_on_start.enter_context(precision(model, "fp32"))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._evaluation_on_start.close()

    def _go_on(self, args: Any, state: Any) -> None:
        saved = _folder(args, state) / STATE_FILE
        if not saved.exists():
            raise ValueError(f"the training goes on from step {state.global_step}, and {saved} is missing, which tells the "
                             "schedule's state")
        self.schedule.load_state_dict(json.loads(saved.read_text()))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.schedule.look(optimizer.param_groups[0]["lr"], args.train_batch_size * args.gradient_accumulation_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.schedule.step(closure=self.closure)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            saved = _folder(args, state) / STATE_FILE
            unfinished = saved.with_suffix(".new")
            unfinished.write_text(json.dumps(self.schedule.state_dict()))
            os.replace(unfinished, saved)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, model: Any = None,
               **kwargs: Any) -> None:
        if logs is not None and "loss" in logs:  # of training, not of an evaluation
            state.log_history[-1].update(bits=self.schedule.at(self.schedule.step_count - 1).forward,
                                         relative_cost=cost(model).relative)


def _folder(args: Any, state: Any) -> pathlib.Path:
    return pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}"
