"""Swapping the layers of a model, and the precision in force."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Type, Union, cast

import torch
from torch import nn

from lowtide import _lowtide, expect
from lowtide.modules import Quantised, is_left_out, range_buffers, replacement_of, swapped_class, why_not
from lowtide.schedule import Bits, Schedule


class LayerInfo(NamedTuple):
    """A quantised layer: its name, and the precision that its rule gives it ("scheduled", "8", "fp32")."""

    name: str
    precision: str


def quantize_(model: nn.Module, schedule: Schedule, *, layer_bits: Optional[Mapping[str, Union[int, str]]] = None,
              seed: int = 1, engine: str = "auto", example_inputs: Optional[Tuple[Any, ...]] = None) -> nn.Module:
    """Lets the model's layers compute in low precision from now on, with the bits of the schedule; returns the model.

    ``Conv2d``, ``Linear``, ``LSTM`` and ``MultiheadAttention`` are swapped in place, also in classes derived from them
    without a forward pass of their own. Parameters stay the same objects: an optimiser that was made before goes on. Every
    key of ``state_dict()`` stays; running ranges of activations come on top, as buffers, and weights that were saved without
    them can be loaded.

    In training mode, and wherever gradients are asked for, layers compute at the schedule's bits of the step; in evaluation
    mode without gradients at ``schedule.evaluation_bits``. A warning names other layers that multiply matrices: they stay in
    fp32, and no cost counts them.

    ``layer_bits``: layers with bits of their own, as ``{"conv1": 8, "*.shortcut": "fp32"}``; * and ? are wildcards and the
    last that matches wins. ``seed`` is that of stochastic rounding. ``engine``: ``"simulated"``, ``"integer"`` (CPU),
    ``"cuda"``, or ``"auto"``. ``example_inputs``: what the model is called with, such as ``(x,)`` with a batch; only a schedule
    that chooses bits for each layer (``waterfill``) needs them, and calls the model once, without gradients.
    """
    expect.model(model)
    expect.kind("schedule", schedule, Schedule, "a lowtide.Schedule")
    if not isinstance(seed, int) or not 0 <= seed < 2 ** 64:
        raise ValueError(f"seed is {seed!r}; expected a whole number from 0 to 2^64 - 1")
    if not isinstance(engine, str):
        raise ValueError(f"engine is {engine!r}; expected 'auto' or one of {', '.join(_lowtide.engine_names())}")
    if not isinstance(layer_bits, (Mapping, type(None))):
        raise ValueError(f"layer_bits is {layer_bits!r}; expected a dict, such as {{'fc': 'fp32'}}")
    if not isinstance(example_inputs, (tuple, list, type(None))):
        raise ValueError(f"example_inputs is {expect.shown(example_inputs)}; expected a tuple, such as (x,)")
    found = _replaceable(model)
    if _quantised(model):
        raise ValueError("the model is quantised already; call lowtide.restore_(model) first")
    if not found:
        raise ValueError(f"{type(model).__name__} has no layer to quantise: no Conv2d, Linear, LSTM or MultiheadAttention")
    rules = [f"{pattern}={bits}" for pattern, bits in (layer_bits or {}).items()]
    quantization = _lowtide.Quantization(engine, _device(model).type, seed, rules)
    parts = [{part: _lowtide.Layer(quantization, _layer_name(name, part), has_weights=bool(inputs))
              for part, inputs in kind._products(cast(Quantised, module)).items()} for name, module, kind in found]
    quantization.check_rules()
    for (_, module, kind), module_layers in zip(found, parts):  # nothing has been changed so far
        _swap(module, kind, module_layers, _device(module, model))
    try:
        schedule._attach(model, quantization, None if example_inputs is None else tuple(example_inputs))
    except BaseException:
        restore_(model)
        raise
    if _left_out(model):
        warnings.warn(f"neither quantised nor counted in costs: {', '.join(_left_out(model))}", stacklevel=2)
    return model


def restore_(model: nn.Module) -> nn.Module:
    """Undoes :func:`quantize_`: the modules are PyTorch's own again, with their weights as they are now."""
    for module in _quantised(model):
        if "_lowtide_original" not in vars(type(module)):
            name = next(name for name, one in model.named_modules() if one is module)
            raise ValueError(f"layer '{name or 'model'}' is a {type(module).__name__}, which was made of it after quantize_; "
                             "expected it as quantize_ left it: remove its parametrisations first")
    for module in _quantised(model):
        for buffer in range_buffers(module):
            delattr(module, buffer)
        del module._lowtide_layers
        setattr(module, "__class__", type(module)._lowtide_original)
    return model


@contextlib.contextmanager
def precision(model: nn.Module, bits: Union[int, str, Tuple[int, int]]) -> Iterator[nn.Module]:
    """Within the context the model computes at these bits, whatever its schedule says; 0 or "fp32": not quantised.

    Gradients have the same bits unless a pair says otherwise. Layers with bits of their own keep them. No costs are counted:
    this is for evaluation.
    """
    pair = _bits(bits)
    quantizations = _quantizations(model)
    before = [quantization.overridden for quantization in quantizations]
    for quantization in quantizations:
        quantization.override_bits(pair)
    try:
        yield model
    finally:
        for quantization, bits_before in zip(quantizations, before):
            quantization.override_bits(bits_before)


def layers(model: nn.Module) -> List[LayerInfo]:
    """The quantised layers of a model, by the names that ``layer_bits`` and costs know them by."""
    _quantizations(model)
    return [LayerInfo(layer.name, layer.precision)
            for module in _quantised(model) for layer in module._lowtide_layers.values()]


def _swap(module: nn.Module, kind: Type[Quantised], layers: Dict[str, _lowtide.Layer], device: torch.device) -> None:
    module.__class__ = swapped_class(kind, type(module))
    swapped = cast(Quantised, module)
    swapped._lowtide_layers = layers
    for buffer in range_buffers(swapped):
        swapped.register_buffer(buffer, torch.zeros(1, device=device))


def _replaceable(model: nn.Module) -> List[Tuple[str, nn.Module, Type[Quantised]]]:
    found = []
    for name, module in model.named_modules():
        replacement = None if isinstance(module, Quantised) else replacement_of(module)
        if replacement is None:
            continue
        reason = why_not(module) or _clash(module, replacement)
        if reason is not None:
            raise ValueError(f"layer '{name or 'model'}', a {type(module).__name__}, cannot be quantised: {reason}")
        found.append((name, module, replacement))
    return found


def _clash(module: nn.Module, replacement: Type[Quantised]) -> Optional[str]:
    """A derived class may have something of its own under a name that lowtide needs."""
    names = [name for name in range_buffers(cast(Quantised, module), replacement) if hasattr(module, name)]
    return f"its '{names[0]}' is where lowtide keeps a range" if names else None


def _left_out(model: nn.Module) -> List[str]:
    return [f"{name or 'model'} ({type(module).__name__})" for name, module in model.named_modules() if is_left_out(module)]


def _quantised(model: nn.Module) -> List[Quantised]:
    expect.model(model)
    return [module for module in model.modules() if isinstance(module, Quantised)]


def _quantizations(model: nn.Module) -> List[_lowtide.Quantization]:
    """Of the model, or of its parts where they were quantised one by one."""
    found: Dict[int, _lowtide.Quantization] = {}
    for module in _quantised(model):
        for layer in module._lowtide_layers.values():
            found.setdefault(id(layer.quantization), layer.quantization)
    if not found:
        raise ValueError(f"{type(model).__name__} is not quantised; call lowtide.quantize_(model, schedule) first")
    return list(found.values())


def _layer_name(module: str, part: str) -> str:
    return ".".join(word for word in (module, part) if word) or "model"


def _device(*modules: nn.Module) -> torch.device:
    tensors = itertools.chain.from_iterable(itertools.chain(module.parameters(), module.buffers()) for module in modules)
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def _bits(bits: Union[int, str, Tuple[int, int]]) -> Bits:
    pair = bits if isinstance(bits, tuple) else (bits, bits)
    numbers = [0 if one == "fp32" else one for one in pair]
    if len(numbers) != 2 or not all(isinstance(one, int) and (one == 0 or 2 <= one <= 32) for one in numbers):
        raise ValueError(f"bits is {expect.shown(bits)}; expected 2 to 32, or 0 or 'fp32' for fp32, or a pair of these")
    return Bits(*numbers)
