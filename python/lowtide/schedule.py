"""Which precision each training step has."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, NamedTuple, Optional, SupportsFloat

from lowtide import _lowtide, expect


class Bits(NamedTuple):
    """Bits of weights and activations, and of gradients; 0 is fp32."""

    forward: int
    backward: int


class Schedule:
    """A precision schedule over a training of ``steps`` steps, with its position.

    ``line`` is any schedule of lowtide, as its program takes it: ``"CR 3:8 n=8 grad=8"``, ``"static 8"``, ``"fp32"``,
    ``"delayed 25% RR 3:8"``; docs/schedules.md has all of them. Like a learning-rate scheduler, it has ``step()`` and
    ``state_dict()``; the models that :func:`lowtide.quantize_` gave it have its bits.

    ``rates`` tells the learning rate of a step, which the schedule ``matched`` follows; no other needs it.
    """

    def __init__(self, line: str, steps: int, rates: Optional[Callable[[int], float]] = None) -> None:
        if not isinstance(line, str):
            raise ValueError(f"a schedule's line is {expect.shown(line)}; expected a string, such as 'CR 3:8 n=8 grad=8'")
        self._schedule = _lowtide.Schedule(line, expect.whole_number("steps", steps), None if rates is None else _numbers(rates))

    @property
    def line(self) -> str:
        """The whole line, with every parameter."""
        return self._schedule.line

    @property
    def steps(self) -> int:
        """The steps that the schedule is laid over."""
        return self._schedule.steps

    @property
    def step_count(self) -> int:
        """The steps that were made."""
        return self._schedule.step_count

    @property
    def bits(self) -> Bits:
        """The bits of the next step."""
        return self.at(self.step_count)

    @property
    def evaluation_bits(self) -> Bits:
        """What training ends with: the highest bits, or those of the schedule's tail. Models are evaluated at them."""
        return Bits(*self._schedule.evaluation)

    def at(self, step: int) -> Bits:
        """The bits of a step, counted from 0. Steps beyond the last have its bits."""
        return Bits(*self._schedule.at(expect.whole_number("step", step)))

    def step(self, loss: Optional[SupportsFloat] = None) -> None:
        """Ends a training step, after the optimiser's.

        ``loss`` is the step's. Only a schedule that listens to it (``progressive``) needs it, and waits for the device.
        """
        self._schedule.step(expect.number("loss", loss) if loss is not None and self._schedule.is_stateful else None)

    def state_dict(self) -> Dict[str, Any]:
        """All that a training needs to go on, beside the states of model and optimiser: the position, what a closed loop
        has observed, and the ledgers of its models."""
        return json.loads(self._schedule.state())

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where ``state_dict()`` was asked for. Models must have been quantised before, as they were then."""
        try:
            text = json.dumps(state)
        except TypeError as error:
            raise ValueError(f"this is no state of a schedule: {error}") from None
        self._schedule.restore(text)

    def __repr__(self) -> str:
        return f"lowtide.Schedule({self.line!r}, steps={self.steps}), step {self.step_count}"


def _numbers(rates: Callable[[int], float]) -> Callable[[int], float]:
    def rate(step: int) -> float:
        value = rates(step)
        if not isinstance(value, SupportsFloat):  # nor a string, which float() takes too
            raise ValueError(f"rates({step}) is {expect.shown(value)}; expected a number")
        return float(value)

    if not callable(rates):
        raise ValueError(f"rates is {rates!r}; expected a function from a step to its learning rate")
    return rate
