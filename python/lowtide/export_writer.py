"""A traced model as an ONNX graph, node by node."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple, Union, cast

import torch
from torch import Tensor, fx, nn

from lowtide import _lowtide
from lowtide.export_operators import FUNCTIONS, METHODS, MODULES, ONNX_TYPES, OPEN, Emit, factor_and_shift, quantisation
from lowtide.modules import Quantised, class_name

Values = Tuple[Any, Any]  # of a node, from the two sets of inputs
Shapes = Tuple[torch.Size, torch.Size]


class Writer:
    def __init__(self, model: nn.Module, form: str, symbols: Mapping[str, Tuple[int, int]]) -> None:
        """``symbols``: the names of open sizes, with those of the two sets of inputs."""
        self.model, self.symbols = model, symbols
        self.modules = dict(model.named_modules())
        self.names = {module: name for name, module in self.modules.items()}
        self.graph = _lowtide.GraphBuilder(class_name(model))
        self.is_exact = form == "exact"
        self.layers = _lowtide.LayerWriter(self.graph, self.is_exact)
        self.results: Values = (None, None)  # of the node at hand
        self._values: Dict[fx.Node, Any] = {}  # what stands for a node: a value of the graph, or what Python knows
        self._tensors: Dict[str, Values] = {}  # of values of the graph
        self._constants: Dict[str, Tensor] = {}

    def write(self, traced: fx.Graph) -> _lowtide.GraphBuilder:
        for node in traced.nodes:
            if node.op == "output":
                self._write_outputs(node.args[0])
            elif node not in self._values:
                self.results = node.meta["values"]
                self._values[node] = value = self._emit(node)
                self._remember(value, self.results)
        return self.graph

    # What operators ask for.

    def node(self, op: str, inputs: List[str], **attributes: Any) -> str:
        return self.graph.node(op, inputs, attributes)

    def cast(self, x: Any, dtype: torch.dtype) -> str:
        """A tensor of the graph, or a number, as one of this type."""
        if isinstance(x, (int, float)):
            return self.graph.constant(torch.tensor(x, dtype=dtype), "number")
        if not isinstance(x, str):
            what = "size that is left open" if x is OPEN else type(x).__name__
            raise ValueError(f"a {what}, where a tensor or a number is expected, cannot be exported")
        if self.dtype(x) == dtype:
            return x
        value = self.node("Cast", [x], to=ONNX_TYPES[known_type(dtype, "a tensor")])
        self._remember(value, tuple(tensor.to(dtype) for tensor in self._tensors[x]))
        return value

    def common_type(self, a: Any, b: Any) -> torch.dtype:
        """That of a and b together, as PyTorch promotes them."""
        known = [self._tensors[x][0] if x in self._tensors else x for x in (a, b)]
        return torch.result_type(*known) if all(isinstance(x, (Tensor, int, float)) for x in known) else torch.float32

    def dtype(self, x: str) -> torch.dtype:
        return self._tensors[x][0].dtype if x in self._tensors else torch.float32  # inside a layer

    def result_type(self) -> torch.dtype:
        return cast(torch.dtype, self.results[0].dtype)

    def shapes(self, x: str) -> Shapes:
        one, other = self._tensors[x]
        return one.shape, other.shape

    def result_shapes(self) -> Shapes:
        return self.results[0].shape, self.results[1].shape

    def dim(self, x: str) -> int:
        return len(self.shapes(x)[0])

    def fixed_size(self, x: str, dim: int) -> int:
        one, other = (shape[dim] for shape in self.shapes(x))
        if one != other:
            raise ValueError("an operator that takes a size apart which is left open cannot be exported")
        return one

    def constant(self, x: str) -> Tensor:
        if x not in self._constants:
            raise ValueError("weights that are computed from inputs cannot be exported")
        return self._constants[x]

    def constant_or_none(self, x: str) -> Optional[Tensor]:
        return self._constants.get(x)

    # Layers and functions.

    def call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        name = self.names[module]
        self.graph.enter(name)
        for kind, emit in MODULES.items():
            # Not of a class derived from it that computes otherwise.
            if isinstance(module, kind) and (isinstance(module, Quantised) or type(module).forward is kind.forward):
                return self._called(emit, name, self, module, *args, **kwargs)
        raise ValueError(f"layer '{name}', a {type(module).__name__}, cannot be exported")

    def call_function(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        emit = (METHODS if isinstance(function, str) else FUNCTIONS).get(function)
        if emit is None:
            name = f"attribute {args[1]} of a tensor" if function is getattr else f"operator {_name_of(function)}"
            raise ValueError(f"the {name} cannot be exported")
        return self._called(emit, _name_of(function), self, *args, **kwargs)

    @staticmethod
    def _called(emit: Emit, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return emit(*args, **kwargs)
        except (TypeError, KeyError) as error:  # an argument that the operator has and that is not known here
            raise ValueError(f"{name} cannot be exported: {str(error).splitlines()[0]}") from None

    def _emit(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            name, like = cast(str, node.target), self.results[0]
            return self.graph.input(name, like, self._open_shape(name))
        for result in _tensors_in(self.results[0]):
            if node.op != "get_attr":
                known_type(result.dtype, f"'{node.name}'")
        if not _tensors_in(self.results[0]):
            return self.results[0] if self.results[0] == self.results[1] else OPEN
        if node.op == "get_attr":
            return self._emit_constant(cast(str, node.target), self.results[0])
        args = fx.node.map_arg(node.args, lambda n: self._values[n])
        kwargs = dict(fx.node.map_arg(node.kwargs, lambda n: self._values[n]))
        if "input" in kwargs:  # as PyTorch calls the first
            args = (kwargs.pop("input"), *args)
        self.graph.enter(node.name)
        if node.op != "call_module":
            return self.call_function(node.target, *args, **kwargs)
        module = self._module(node)
        return self._emit_conv(node, module, args[0]) if isinstance(module, nn.Conv2d) else self.call(module, *args, **kwargs)

    def _emit_constant(self, name: str, tensor: Tensor) -> str:
        stored = tensor.float() if tensor.is_floating_point() else tensor
        known_type(stored.dtype, f"'{name}'")
        value = self.graph.constant(stored, name)
        self.results = (stored, stored)
        self._constants[value] = stored
        return value

    def _emit_conv(self, node: fx.Node, conv: nn.Conv2d, x: str) -> str:
        """With the batch normalisation that follows, if nobody else reads what lies between, and no codes are to be the same."""
        name = self.names[conv]
        self.graph.enter(name)
        sides = conv._reversed_padding_repeated_twice  # left, right, top, bottom
        if conv.padding_mode != "zeros" or sides[0] != sides[1] or sides[2] != sides[3]:
            raise ValueError(f"layer '{name}' cannot be exported: its padding is not of zeros, alike on both sides")
        if self.dim(x) != 4:
            raise ValueError(f"layer '{name}' cannot be exported: its input is one image without a batch")
        span, bits = quantisation(conv)
        norm, following = None, None if self.is_exact and bits > 0 else self._norm_behind(node)
        if following is not None:
            norm = factor_and_shift(cast(nn.BatchNorm2d, self._module(following)))
        y = self.layers.conv(x, conv.weight, conv.bias, norm, cast(Any, conv.stride), (sides[2], sides[0]),
                             cast(Any, conv.dilation), conv.groups, span, bits)
        if following is not None:
            self._values[following] = y
        return y

    def _norm_behind(self, conv: fx.Node) -> Optional[fx.Node]:
        readers = [node for node in conv.users if _tensors_in(node.meta.get("values", conv.meta["values"])[0])]
        if len(readers) != 1 or readers[0].op != "call_module":
            return None
        module = self._module(readers[0])
        return readers[0] if type(module) is nn.BatchNorm2d and module.running_mean is not None else None

    def _module(self, node: fx.Node) -> nn.Module:
        target = cast(str, node.target)
        return self.modules[target] if target in self.modules else self.model  # which was traced as a layer

    def _remember(self, value: Any, results: Values) -> None:
        if isinstance(value, str):
            self._tensors[value] = results
        elif isinstance(value, (tuple, list)):
            for part, one, other in zip(value, *results):
                self._remember(part, (one, other))

    # Inputs and outputs.

    def _open_shape(self, name: str) -> List[Union[int, str]]:
        """Open sizes by the names that they were given; one that is another function of those by a name of its own."""
        known = {sizes: symbol for symbol, sizes in self.symbols.items()}
        return [one if one == other else known.get((one, other), f"{name}.{i}")
                for i, (one, other) in enumerate(zip(*self.result_shapes()))]

    def _write_outputs(self, outputs: Any) -> None:
        several = isinstance(outputs, (tuple, list))
        for i, node in enumerate(outputs if several else [outputs]):
            value = self._values.get(node) if isinstance(node, fx.Node) else None
            if not isinstance(value, str):
                raise ValueError(f"output {i} is no tensor; expected a model that returns tensors, or one tuple of them")
            name = f"output{i}" if several else "output"
            if name in self._values.values():
                raise ValueError(f"an input is called '{name}', as an output will be; expected another name in forward")
            self.results = self._tensors[value]
            self.graph.output(value, name, self.results[0], self._open_shape(name))


def _tensors_in(value: Any) -> List[Tensor]:
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in _tensors_in(part)]
    return [value] if isinstance(value, Tensor) else []


def known_type(dtype: torch.dtype, what: str) -> torch.dtype:
    if dtype not in ONNX_TYPES:
        names = ", ".join(str(known).replace("torch.", "") for known in ONNX_TYPES)
        raise ValueError(f"{what} is {str(dtype).replace('torch.', '')}, which cannot be exported; expected one of {names}")
    return dtype


def _name_of(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))
