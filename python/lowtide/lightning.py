"""A callback for Lightning. Importing this imports ``lightning``, or ``pytorch_lightning`` where that is what is there."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Optional, SupportsFloat

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from lowtide.cost import cost
from lowtide.quantize import precision
from lowtide.schedule import Schedule


class PrecisionSchedule(Callback):
    """Steps a schedule with the optimiser, saves it in checkpoints, and logs ``bits`` and ``relative_cost``.

    >>> schedule = lowtide.Schedule("CR 3:8 n=8 grad=8", steps=trainer_steps)
    >>> lowtide.quantize_(module, schedule)
    >>> Trainer(max_steps=trainer_steps, callbacks=[PrecisionSchedule(schedule)]).fit(module, data)

    Lightning validates without gradients, so at the bits that training ends with; its sanity check, before any range has been
    measured, in fp32. A schedule that listens to the loss hears
    that of the step's last batch. ``closure`` is for ``price``, as :meth:`Schedule.step` has it; ``items``, how many the loss of
    a step is the mean of, for ``waterfill``.
    """

    def __init__(self, schedule: Schedule, *, closure: Optional[Callable[[], SupportsFloat]] = None,
                 items: Optional[int] = None) -> None:
        self.schedule = schedule
        self.closure = closure
        self.items = items
        self._steps_seen = 0  # of the trainer
        self._sanity_check = contextlib.ExitStack()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._sanity_check.enter_context(precision(pl_module, "fp32"))

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        self._sanity_check.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._sanity_check.close()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self.items is not None:
            self.schedule.look(optimizer.param_groups[0]["lr"], self.items)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # Batches whose gradients are only accumulated make no step; with several optimisers one batch makes several.
        if trainer.global_step == self._steps_seen:
            return
        self._steps_seen = trainer.global_step
        bits = self.schedule.bits.forward
        self.schedule.step(outputs.get("loss") if isinstance(outputs, dict) else outputs, closure=self.closure)
        pl_module.log("bits", float(bits))
        pl_module.log("relative_cost", cost(pl_module).relative)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps_seen = trainer.global_step

    def state_dict(self) -> Dict[str, Any]:
        return self.schedule.state_dict()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.schedule.load_state_dict(state_dict)
