"""Training in low precision, on a schedule that lets the precision rise and fall.

>>> schedule = lowtide.Schedule("CR 3:8 n=8 grad=8", steps=2000)
>>> lowtide.quantize_(model, schedule)
>>> for x, y in loader:
...     loss = criterion(model(x), y)
...     optimizer.zero_grad(); loss.backward(); optimizer.step()
...     schedule.step()

A user's mistake is a ValueError of one line. See docs/python.md.
"""

import torch  # noqa: F401  the module takes the libraries that torch has loaded

from lowtide._lowtide import engine_names, version as __version__
from lowtide.cost import Cost, LayerCost, cost
from lowtide.export import Exported, export_onnx
from lowtide.quantize import LayerInfo, layers, precision, quantize_, restore_
from lowtide.run import Run, run
from lowtide.schedule import Bits, Schedule

__all__ = [
    "Bits",
    "Cost",
    "Exported",
    "LayerCost",
    "LayerInfo",
    "Run",
    "Schedule",
    "__version__",
    "cost",
    "engine_names",
    "export_onnx",
    "layers",
    "precision",
    "quantize_",
    "restore_",
    "run",
]
