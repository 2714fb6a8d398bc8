"""What a training has cost so far, in bit operations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Tuple

from torch import nn

from lowtide.quantize import _left_out, _quantizations


@dataclass(frozen=True)
class LayerCost:
    """One layer's share. ``macs``: multiply-accumulates of its forward pass in the first step."""

    name: str
    macs: int
    precision: str
    paper: int
    actual: int


@dataclass(frozen=True)
class Cost:
    """Bit operations of the steps so far, exact. ``paper`` counts every layer at the scheduled bits, as the papers do,
    ``actual`` each at the bits that it ran at. ``relative`` and ``relative_paper`` are shares of the same steps in fp32.
    ``not_counted`` names layers that lowtide does not quantise, and whose products are in none of these."""

    steps: int
    layers: Tuple[LayerCost, ...]
    paper: int
    actual: int
    relative: float
    relative_paper: float
    table: str
    not_counted: Tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.table + (f"\nnot counted: {', '.join(self.not_counted)}" if self.not_counted else "")


def cost(model: nn.Module) -> Cost:
    """The ledger of a quantised model, layer by layer: multiply-accumulates as they ran in training, counted when
    ``schedule.step()`` ends a step. Calls without gradients are not counted."""
    quantizations = _quantizations(model)
    if len(quantizations) > 1:
        raise ValueError(f"{type(model).__name__} was quantised in {len(quantizations)} parts; ask for the cost of each")
    ledger = json.loads(quantizations[0].ledger_json())
    layers = tuple(LayerCost(layer["name"], layer["macs"], layer["precision"], int(layer["paper"]["total"]),
                             int(layer["actual"]["total"])) for layer in ledger["layers"])
    relative = {count: float("nan") if value is None else value for count, value in ledger["relative_cost"].items()}
    return Cost(ledger["items"], layers, int(ledger["paper"]["total"]), int(ledger["actual"]["total"]),
                relative["actual"], relative["paper"], quantizations[0].ledger_table(), tuple(_left_out(model)))
