"""A trained model as an ONNX file."""

from __future__ import annotations

import contextlib
import inspect
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from lowtide import _lowtide, expect
from lowtide.export_trace import trace
from lowtide.export_writer import Writer, known_type
from lowtide.modules import Quantised, class_name
from lowtide.quantize import layers, precision

Axes = Mapping[str, Union[Mapping[int, str], Sequence[int]]]
Sizes = Dict[str, Tuple[int, int]]  # open ones by name, in the example and in other inputs


class Exported:
    """What the file computes, by libtorch: to measure a network on one's own data without a runtime."""

    def __init__(self, graph: _lowtide.GraphBuilder, names: Sequence[str]) -> None:
        self._runner = _lowtide.GraphRunner(graph)
        self._names = list(names)

    def __call__(self, *inputs: Tensor) -> Union[Tensor, Tuple[Tensor, ...]]:
        if len(inputs) != len(self._names):
            raise ValueError(f"{len(inputs)} inputs; expected {len(self._names)}: {', '.join(self._names)}")
        for name, x in zip(self._names, inputs):
            expect.kind(f"input '{name}'", x, Tensor, "a tensor")
        outputs = self._runner([x.detach().cpu() for x in inputs])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def export_onnx(model: nn.Module, example: Union[Tensor, Sequence[Tensor]], path: Union[str, "os.PathLike[str]"], *,
                form: str = "exact", bits: Optional[Union[int, str]] = None, dynamic_axes: Optional[Axes] = None) -> Exported:
    """Writes the model as it evaluates: at its schedule's evaluation bits, or at ``bits``.

    ``form``: ``"exact"`` computes what the model computes in evaluation mode; ``"qdq"`` has integer zero points, as runtimes
    have integer kernels for, and is another network: measure it on your data with what this returns. Batch normalisation
    behind a convolution is folded into it in ``"qdq"`` and in fp32.

    ``example`` is one input, or all of them. Inputs are named as in ``forward``. ``dynamic_axes`` are the dimensions that are
    left open, each with a name, as ``{"words": {0: "length", 1: "items"}}``, or without, as ``{"words": [0, 1]}``; those of
    outputs follow. Without it the first dimension of the first input is open, as "items", and that of every other input of the
    same size, if the model takes another size; with ``{}`` none is.

    Before the file is written, its graph is run on the example, and on one with other open sizes, and compared with the model.
    A model that torch.fx cannot trace, that has an operator which is not known here, or of which the graph computes
    something else is a ValueError.
    """
    expect.model(model)
    file = expect.path("path", path)
    if form not in ("exact", "qdq"):
        raise ValueError(f"form is {form!r}; expected 'exact' or 'qdq'")
    if not isinstance(example, (Tensor, list, tuple)):
        raise ValueError(f"example is a {type(example).__name__}; expected a tensor, or all inputs in a list")
    examples = [example] if isinstance(example, Tensor) else list(example)
    names = _input_names(model, examples)
    with _evaluating(model), contextlib.ExitStack() as stack:
        if bits is not None:
            stack.enter_context(precision(model, bits))
        symbols, others = _open_sizes(model, dict(zip(names, examples)), dynamic_axes)
        runs = [[x.clone() for x in inputs] for inputs in (examples, others)]
        graph = Writer(model, form, symbols).write(trace(model, names, runs))
        _check(model, names, (examples, others), symbols, graph)
    graph.write(file, {"lowtide.model": class_name(model), "lowtide.form": form})
    return Exported(graph, names)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _input_names(model: nn.Module, examples: List[Any]) -> List[str]:
    """Of the arguments of forward that the examples are given to."""
    signature = inspect.signature(model.forward)
    try:
        given = signature.bind(*examples).arguments
    except TypeError:
        raise ValueError(f"{len(examples)} inputs in example; {type(model).__name__} takes {signature}") from None
    names: List[str] = []
    for name, value in given.items():
        several = signature.parameters[name].kind == inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}{i}" for i in range(len(value))] if several else [name]
    for name, x in zip(names, examples):
        if not isinstance(x, Tensor):
            raise ValueError(f"input '{name}' of the example is a {type(x).__name__}; expected a tensor")
        known_type(x.dtype, f"input '{name}' of the example")
        if x.numel() == 0:
            raise ValueError(f"input '{name}' of the example is empty; expected some items")
    return names


def _open_sizes(model: nn.Module, examples: Dict[str, Tensor], axes: Optional[Axes]) -> Tuple[Sizes, List[Tensor]]:
    """The open sizes by name, and inputs in which each of them is another."""
    inputs = list(examples.values())
    model(*(x.clone() for x in inputs))  # what it does not take is PyTorch's error, or a layer's
    symbols, others = _larger(examples, _first_dimensions(examples) if axes is None else axes)
    try:
        model(*(x.clone() for x in others))
    except Exception as error:  # whatever a model says to sizes that it does not take
        if axes is None:
            return {}, inputs
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"dynamic_axes: {type(model).__name__} does not take other sizes than the example's "
                         f"({reason})") from None
    return symbols, others


def _first_dimensions(examples: Dict[str, Tensor]) -> Axes:
    sizes = [x.size(0) if x.dim() > 0 else None for x in examples.values()]
    return {name: {0: "items"} for name, size in zip(examples, sizes) if size is not None and size == sizes[0]}


def _larger(examples: Dict[str, Tensor], axes: Axes) -> Tuple[Sizes, List[Tensor]]:
    """Each open size by another number, so that it is known again in what the model returns."""
    symbols: Sizes = {}
    larger = dict(examples)
    for name, dimensions in _named(axes).items():
        if name not in examples:
            raise ValueError(f"dynamic_axes: no input is called '{name}'; expected one of {', '.join(examples)}")
        for dim, symbol in dimensions.items():
            x = larger[name]
            if not isinstance(dim, int) or not 0 <= dim < x.dim():
                raise ValueError(f"dynamic_axes: '{name}' has no dimension {dim!r}; expected 0 to {x.dim() - 1}")
            size = x.size(dim)
            one, other = symbols.setdefault(symbol, (size, size + len(symbols) + 1))
            if one != size:
                raise ValueError(f"dynamic_axes: '{symbol}' is {one} in the example, and {size} in '{name}'; expected one size")
            larger[name] = x.index_select(dim, torch.arange(other, device=x.device) % size)
    return symbols, list(larger.values())


def _named(axes: Axes) -> Dict[str, Dict[int, str]]:
    """Open dimensions without a name have one that no other has."""
    expect.kind("dynamic_axes", axes, Mapping, "a dict of inputs, such as {'x': {0: 'items'}}")
    named: Dict[str, Dict[int, str]] = {}
    for name, given in axes.items():
        names = dict(given) if isinstance(given, Mapping) else given
        if isinstance(names, (list, tuple)):
            names = {dim: f"{name}.{dim}" for dim in names}
        if not isinstance(names, dict) or not all(isinstance(symbol, str) for symbol in names.values()):
            raise ValueError(f"dynamic_axes: '{name}' has {expect.shown(given)}; expected dimensions with a name each, such as "
                             "{0: 'items'}")
        named[name] = names
    return named


def _check(model: nn.Module, names: List[str], runs: Sequence[Sequence[Tensor]], symbols: Sizes,
           graph: _lowtide.GraphBuilder) -> None:
    """That the graph computes what the model does: in fp32, since a float's last bit may decide on a code."""
    own_bits = [layer.precision for layer in layers(model)] if _is_quantised(model) else []
    with precision(model, "fp32") if own_bits else contextlib.nullcontext():
        if own_bits:
            traced = trace(model, names, [[x.clone() for x in inputs] for inputs in runs])
            graph = Writer(model, "exact", symbols).write(traced)
        # Floats are added in another order; a GPU's TF32, and codes of layers that have bits of their own, are coarser.
        is_exact = all(x.is_cpu for x in runs[0]) and set(own_bits) <= {"scheduled", "fp32"}
        for inputs in runs:
            _compare(model, Exported(graph, names), inputs, 1e-4 if is_exact else 1e-2)


def _compare(model: nn.Module, exported: Exported, inputs: Sequence[Tensor], tolerance: float) -> None:
    with torch.enable_grad():  # without gradients PyTorch's encoders have zeros at padded positions
        expected = _tuple(model(*(x.clone() for x in inputs)))
    try:
        actual = _tuple(exported(*inputs))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{type(model).__name__} cannot be exported: its graph fails ({reason})") from None
    for i, (ours, theirs) in enumerate(zip(actual, expected)):
        if not _agree(ours, theirs.detach().cpu(), tolerance):
            sizes = ", ".join(" x ".join(map(str, x.shape)) for x in inputs)
            raise ValueError(f"{type(model).__name__} cannot be exported: output {i} of its graph is not what the model computes, "
                             f"with inputs of {sizes}")


def _is_quantised(model: nn.Module) -> bool:
    return any(isinstance(module, Quantised) for module in model.modules())


def _tuple(outputs: Any) -> Tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def _agree(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    finite = expected.isfinite()
    if not torch.equal(actual.isfinite(), finite):
        return False
    scale = float(expected[finite].norm()) + 1e-6
    return float((actual - expected)[finite].norm()) <= tolerance * scale
