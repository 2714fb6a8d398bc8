"""Which precision each training step has."""

from __future__ import annotations

import contextlib
import json
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, SupportsFloat, Tuple, cast

import torch
from torch import nn

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
        self._models: List["weakref.ref[nn.Module]"] = []  # that quantize_ gave it

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

    def layers_at(self, step: int) -> Tuple[int, ...]:
        """Forward bits of the layers in a step, in the order of ``layers(model)``; empty where all have those of ``at(step)``."""
        return tuple(self._schedule.layers_at(expect.whole_number("step", step)))

    def step(self, loss: Optional[SupportsFloat] = None, *, closure: Optional[Callable[[], SupportsFloat]] = None) -> None:
        """Ends a training step, after the optimiser's.

        ``loss`` is the step's. Only a schedule that listens to it (``progressive``) needs it, and waits for the device.

        ``closure`` computes the loss of a batch of training items, the same each time, and returns it. Only a schedule that
        asks for losses between steps (``price``) needs it, and calls it after some steps, at two numbers of bits: without
        gradients, in the mode that the model is in, with the same random numbers of PyTorch. The model's buffers and PyTorch's
        random numbers are then what they were. What it multiplies is counted in costs.

        >>> schedule.step(closure=lambda: criterion(model(fixed_x), fixed_y))
        """
        if closure is not None and not callable(closure):
            raise ValueError(f"closure is {expect.shown(closure)}; expected a function that returns a loss")
        self._schedule.step(expect.number("loss", loss) if loss is not None and self._schedule.hears_losses else None,
                            None if closure is None else self._aside(closure))

    def look(self, lr: SupportsFloat, items: int) -> None:
        """Tells a schedule that asks how sensitive layers are (``waterfill``) of a step, between ``loss.backward()`` and the
        optimiser's step, before gradients are clipped; others need none.

        ``lr`` is the step's learning rate, ``items`` how many items its loss is the mean of. Reads the device after some steps;
        multiplies nothing.

        >>> loss.backward()
        >>> schedule.look(lr=optimizer.param_groups[0]["lr"], items=len(x))
        >>> optimizer.step()
        >>> schedule.step()
        """
        count = expect.whole_number("items", items)
        if count < 1:
            raise ValueError(f"items is {count}; expected 1 or more")
        parameters = [parameter for model in self._driven() for parameter in model.parameters()]
        self._schedule.look(parameters, expect.number("lr", lr), count)

    def _attach(self, model: nn.Module, quantization: _lowtide.Quantization, example_inputs: Optional[Tuple[Any, ...]]) -> None:
        if self._schedule.looks and example_inputs is None:
            raise ValueError(f"schedule {self.line!r} chooses bits for layers by what they multiply; expected "
                             "quantize_(…, example_inputs=(x,)), what the model is called with")

        def forward() -> None:
            with torch.no_grad(), _unchanged([model]):
                model(*cast(Tuple[Any, ...], example_inputs))

        self._schedule.attach(quantization, forward)
        self._models.append(weakref.ref(model))

    def _driven(self) -> List[nn.Module]:
        return [model for model in (reference() for reference in self._models) if model is not None]

    def _aside(self, closure: Callable[[], SupportsFloat]) -> Callable[[], float]:
        def loss() -> float:
            with torch.no_grad(), _unchanged(self._driven()):
                return expect.number("what closure returned", closure())
        return loss

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


@contextlib.contextmanager
def _unchanged(models: List[nn.Module]) -> Iterator[None]:
    """What the context does to buffers of the models and to PyTorch's random numbers is undone; these begin anew in it."""
    kept = [(module, name, buffer, buffer.clone()) for model in models for module in model.modules()
            for name, buffer in module._buffers.items() if buffer is not None]
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(0)
        try:
            yield
        finally:
            for module, name, buffer, value in kept:
                module._buffers[name] = buffer.copy_(value)


def _numbers(rates: Callable[[int], float]) -> Callable[[int], float]:
    def rate(step: int) -> float:
        value = rates(step)
        if not isinstance(value, SupportsFloat):  # nor a string, which float() takes too
            raise ValueError(f"rates({step}) is {expect.shown(value)}; expected a number")
        return float(value)

    if not callable(rates):
        raise ValueError(f"rates is {rates!r}; expected a function from a step to its learning rate")
    return rate
