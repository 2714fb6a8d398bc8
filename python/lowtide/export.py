"""A trained model as an ONNX file."""

from __future__ import annotations

import contextlib
import dis
import inspect
import operator
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from lowtide import _lowtide, export_sequences
from lowtide.modules import QuantLinear, Quantised
from lowtide.quantize import precision


class Exported:
    """What the file computes, by libtorch: to measure a network on one's own data without a runtime."""

    def __init__(self, graph: _lowtide.GraphBuilder) -> None:
        self._runner = _lowtide.GraphRunner(graph)

    def __call__(self, *inputs: Tensor) -> Union[Tensor, Tuple[Tensor, ...]]:
        outputs = self._runner([x.detach().cpu() for x in inputs])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def export_onnx(model: nn.Module, example: Union[Tensor, Sequence[Tensor]], path: str, *, form: str = "exact",
                bits: Optional[Union[int, str]] = None) -> Exported:
    """Writes the model as it evaluates: at its schedule's evaluation bits, or at ``bits``.

    ``form``: ``"exact"`` computes what the model computes in evaluation mode; ``"qdq"`` has integer zero points, as runtimes have
    integer kernels for, and is another network: measure it on your data with what this returns. Batch normalisation behind a
    convolution is folded into it.

    ``example`` is one input, or all of them: their first dimension is left open, the others are fixed. Inputs are named as in
    ``forward``. A model that torch.fx cannot trace, or with an operator that is not known here, is a ValueError.
    """
    if form not in ("exact", "qdq"):
        raise ValueError(f"form is {form!r}; expected 'exact' or 'qdq'")
    examples = [example] if isinstance(example, Tensor) else list(example)
    with _evaluating(model), contextlib.ExitStack() as stack:
        if bits is not None:
            stack.enter_context(precision(model, bits))
        results = model(*examples)
        graph = _lowtide.GraphBuilder(type(model).__name__)
        _Writer(model, graph, _lowtide.LayerWriter(graph, form == "exact")).write(_trace(model), examples, results)
    graph.write(str(path), {"lowtide.model": type(model).__name__, "lowtide.form": form})
    return Exported(graph)


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


class _Proxy(fx.Proxy):
    def __iter__(self) -> Any:
        """Of `a, b = module(x)`. PyTorch 1.13 does not find its place in the code that Python 3.11 compiles."""
        frame = cast(Any, inspect.currentframe()).f_back
        for instruction in dis.get_instructions(frame.f_code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return iter([self[i] for i in range(instruction.argval)])
        return self.tracer.iter(self)


class _Tracer(fx.Tracer):
    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Quantised) or super().is_leaf_module(m, module_qualified_name)


def _trace(model: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(model)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{type(model).__name__} cannot be exported: torch.fx cannot trace it ({reason})") from None


class _Size(NamedTuple):
    """A size of a tensor, which is known when the graph is run."""

    dimension: int


Emit = Callable[..., Any]


class _Writer:
    def __init__(self, model: nn.Module, graph: _lowtide.GraphBuilder, layers: _lowtide.LayerWriter) -> None:
        self.modules = dict(model.named_modules())
        self.model, self.graph, self.layers = model, graph, layers
        self.values: Dict[fx.Node, Any] = {}
        self.names = {module: name for name, module in self.modules.items()}
        self.constants: Dict[str, Tensor] = {}  # the model's own, by their names in the graph
        self.types: Dict[str, torch.dtype] = {}  # of values that are known not to be floats

    def write(self, traced: fx.Graph, examples: List[Tensor], results: Any) -> None:
        remaining = list(examples)
        for node in traced.nodes:
            if node.op == "placeholder":
                if not remaining:
                    self.values[node] = node.args[0] if node.args else None
                    continue
                like = remaining.pop(0)
                self.values[node] = value = self.graph.input(node.name, like, _open_shape(like))
                self.types[value] = like.dtype
            elif node.op == "output":
                self._write_outputs(node.args[0], results)
            elif node not in self.values:
                self.values[node] = self._emit(node)
        if remaining:
            raise ValueError(f"{len(examples)} inputs in example; {type(self.model).__name__} takes "
                             f"{len(examples) - len(remaining)}")

    def node(self, op: str, inputs: List[str], **attributes: Any) -> str:
        return self.graph.node(op, inputs, attributes)

    def value(self, x: Any) -> str:
        """Of a tensor of the graph, or of a number."""
        if isinstance(x, str):
            return x
        if isinstance(x, (int, float)):
            return self.graph.number(float(x))
        raise ValueError(f"a {type(x).__name__} where a tensor is expected cannot be exported")

    def _write_outputs(self, outputs: Any, results: Any) -> None:
        several = isinstance(outputs, (tuple, list))
        for i, (output, result) in enumerate(zip(outputs, results) if several else [(outputs, results)]):
            value = self.values[output]
            if not isinstance(value, str) or not isinstance(result, Tensor):
                raise ValueError(f"output {i} is a {type(result).__name__}; expected tensors, or one tuple of them")
            self.graph.output(value, f"output{i}" if several else "output", result, _open_shape(result))

    def _emit(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return self._constant(cast(str, node.target))
        args = fx.node.map_arg(node.args, lambda n: self.values[n])
        kwargs = fx.node.map_arg(node.kwargs, lambda n: self.values[n])
        self.graph.enter(node.name)
        if node.op == "call_module":
            return self._emit_module(node, args, kwargs)
        return self.call_function(node.target, *args, **kwargs)

    def _emit_module(self, node: fx.Node, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        name = cast(str, node.target)
        module = self.modules[name]
        self.graph.enter(name)
        if isinstance(module, nn.Conv2d):
            return self._emit_conv(node, module, args[0])
        return self.call(module, *args, **kwargs)

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
            raise ValueError(f"the operator {_name_of(function)} cannot be exported")
        return self._called(emit, _name_of(function), self, *args, **kwargs)

    @staticmethod
    def _called(emit: Emit, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return emit(*args, **kwargs)
        except TypeError as error:  # an argument that the operator has and that is not known here
            raise ValueError(f"{name} cannot be exported: {error}") from None

    def _emit_conv(self, node: fx.Node, conv: nn.Conv2d, x: str) -> str:
        """With the batch normalisation that follows, if nobody else reads what lies between."""
        sides = conv._reversed_padding_repeated_twice  # left, right, top, bottom
        if conv.padding_mode != "zeros" or sides[0] != sides[1] or sides[2] != sides[3]:
            raise ValueError(f"layer '{node.target}' cannot be exported: its padding is not of zeros, alike on both sides")
        norm, users = None, list(node.users)
        if len(users) == 1 and users[0].op == "call_module":
            following = self.modules[cast(str, users[0].target)]
            if isinstance(following, nn.BatchNorm2d) and following.running_mean is not None:
                norm = _factor_and_shift(following)
        span, bits = _quantisation(conv)
        y = self.layers.conv(x, conv.weight, conv.bias, norm, cast(Any, conv.stride), (sides[2], sides[0]),
                             cast(Any, conv.dilation), conv.groups, span, bits)
        if norm is not None:
            self.values[users[0]] = y
        return y

    def _constant(self, name: str) -> str:
        owner, _, leaf = name.rpartition(".")
        tensor = getattr(self.modules[owner], leaf)
        value = self.graph.constant(tensor, name)
        self.constants[value] = tensor
        self.types[value] = tensor.dtype
        return value


def _open_shape(tensor: Tensor) -> List[Union[int, str]]:
    return ["items", *tensor.shape[1:]] if tensor.dim() > 0 else []


def _name_of(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _quantisation(module: nn.Module) -> Tuple[Tuple[Tensor, Tensor], int]:
    if isinstance(module, Quantised):
        return module._range_of("activation"), module._lowtide_layers[""].evaluation_bits
    return (torch.zeros(1), torch.zeros(1)), 0


def _factor_and_shift(norm: nn.BatchNorm2d) -> Tuple[Tensor, Tensor]:
    factor = (cast(Tensor, norm.running_var).double() + norm.eps).rsqrt()
    if norm.affine:
        factor = factor * norm.weight
    shift = -cast(Tensor, norm.running_mean) * factor
    return factor.float(), (shift + norm.bias if norm.affine else shift).float()


def _pair(value: Union[int, Sequence[int]]) -> List[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _linear(w: _Writer, module: nn.Linear, x: str) -> str:
    span, bits = _quantisation(module)
    return w.layers.linear(x, module.weight, module.bias, span, bits)


def _batch_norm(w: _Writer, module: nn.BatchNorm2d, x: str) -> str:
    if module.running_mean is None:
        raise ValueError("a batch normalisation without running statistics cannot be exported")
    factor, shift = (w.graph.constant(v.view(-1, 1, 1), "norm") for v in _factor_and_shift(module))
    return w.node("Add", [w.node("Mul", [x, factor]), shift])


def _layer_norm(w: _Writer, module: nn.LayerNorm, x: str) -> str:
    if len(module.normalized_shape) != 1 or not module.elementwise_affine:
        raise ValueError("a layer normalisation over several dimensions, or without weights, cannot be exported")
    bias = torch.zeros_like(module.weight) if module.bias is None else module.bias
    return w.node("LayerNormalization", [x, w.graph.constant(module.weight, "weight"), w.graph.constant(bias, "bias")],
                  axis=-1, epsilon=float(module.eps))


def _gelu(w: _Writer, x: str, approximate: str = "none") -> str:
    if approximate != "none":
        raise ValueError(f"gelu with approximate={approximate!r} cannot be exported")
    erf = w.node("Erf", [w.node("Mul", [x, w.graph.number(0.5 ** 0.5)])])
    return w.node("Mul", [w.node("Mul", [x, w.graph.number(0.5)]), w.node("Add", [erf, w.graph.number(1)])])


def _clip(w: _Writer, x: str, low: float, high: float) -> str:
    return w.node("Clip", [x, w.graph.number(low), w.graph.number(high)])


def _pool(w: _Writer, op: str, x: str, kernel: Any, stride: Any, padding: Any, ceil: bool, **more: Any) -> str:
    if ceil:
        raise ValueError("pooling with ceil_mode cannot be exported")
    return w.node(op, [x], kernel_shape=_pair(kernel), strides=_pair(kernel if stride in (None, []) else stride),
                  pads=_pair(padding) * 2, **more)


def _max_pool(w: _Writer, x: str, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False, return_indices: bool = False) -> str:
    if _pair(dilation) != [1, 1] or return_indices:
        raise ValueError("max pooling with dilation, or with indices, cannot be exported")
    return _pool(w, "MaxPool", x, kernel_size, stride, padding, ceil_mode)


def _avg_pool(w: _Writer, x: str, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
              count_include_pad: bool = True, divisor_override: Optional[int] = None) -> str:
    if not count_include_pad or divisor_override is not None:
        raise ValueError("average pooling with a divisor of its own cannot be exported")
    return _pool(w, "AveragePool", x, kernel_size, stride, padding, ceil_mode, count_include_pad=1)


def _adaptive_pool(w: _Writer, x: str, output_size: Any) -> str:
    if _pair(output_size) != [1, 1]:
        raise ValueError("adaptive average pooling to other than one pixel cannot be exported")
    return w.node("GlobalAveragePool", [x])


def _flatten(w: _Writer, x: str, start_dim: int = 0, end_dim: int = -1) -> str:
    if (start_dim, end_dim) != (1, -1):
        raise ValueError("flatten that does not begin at dimension 1 and end at the last cannot be exported")
    return w.node("Flatten", [x], axis=1)


def _mean(w: _Writer, x: str, dim: Any = None, keepdim: bool = False) -> str:
    if dim is None:
        raise ValueError("a mean over all dimensions cannot be exported")
    return w.node("ReduceMean", [x], axes=[dim] if isinstance(dim, int) else list(dim), keepdims=int(keepdim))


def _softmax(w: _Writer, x: str, dim: Optional[int] = None, **_: Any) -> str:
    if dim != -1:
        raise ValueError("a softmax over another dimension than the last (-1) cannot be exported")
    return w.node("Softmax", [x], axis=-1)


def _reshape(w: _Writer, x: str, *shape: Any) -> str:
    sizes = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    for place, size in enumerate(sizes):
        if isinstance(size, _Size):
            if size.dimension != place:
                raise ValueError("a reshape that moves a size that is left open cannot be exported")
            sizes[place] = 0  # as it is there
    return w.node("Reshape", [x, w.graph.integers(sizes)])


def _size(w: _Writer, x: str, dim: Optional[int] = None) -> Any:
    return [_Size(i) for i in range(8)] if dim is None else _Size(dim)


def _getattr(w: _Writer, x: str, name: str) -> Any:
    if name != "shape":
        raise ValueError(f"the attribute {name} of a tensor cannot be exported")
    return _size(w, x)


def _getitem(w: _Writer, x: Any, index: Any) -> Any:
    if not isinstance(x, (list, tuple)):
        raise ValueError("indexing of a tensor cannot be exported")
    return x[index]


def _permute(w: _Writer, x: str, *order: Any) -> str:
    return w.node("Transpose", [x], perm=list(order[0]) if isinstance(order[0], (tuple, list)) else list(order))


def _cat(w: _Writer, tensors: Sequence[str], dim: int = 0) -> str:
    return w.node("Concat", list(tensors), axis=dim)


def _same(w: _Writer, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _dropout(w: _Writer, x: str, p: float = 0.5, training: bool = True, inplace: bool = False) -> str:
    if training and p > 0:
        raise ValueError("dropout that goes on in evaluation cannot be exported")
    return x


def _unary(op: str) -> Emit:
    return lambda w, x, inplace=False: w.node(op, [x])


def _binary(op: str) -> Emit:
    return lambda w, a, b: w.node(op, [w.value(a), w.value(b)])


def _equal(w: _Writer, a: str, b: Any) -> str:
    if isinstance(b, int) and w.types.get(a) == torch.int64:
        b = w.graph.integers([b])
    return _bool(w, w.node("Equal", [w.value(a), w.value(b)]))


def _not(w: _Writer, x: str) -> str:
    return _bool(w, w.node("Not", [x]))


def _bool(w: _Writer, value: str) -> str:
    w.types[value] = torch.bool
    return value


def _of_module(emit: Emit, *names: str) -> Emit:
    """A function, with the attributes of the module that stands for it."""
    return lambda w, module, x: emit(w, x, *(getattr(module, name) for name in names))


POOL = ("kernel_size", "stride", "padding")
MODULES: Dict[type, Emit] = {
    QuantLinear: _linear,
    nn.MultiheadAttention: export_sequences.attention,
    nn.LSTM: export_sequences.lstm,
    nn.TransformerEncoderLayer: export_sequences.encoder_layer,
    nn.TransformerEncoder: export_sequences.encoder,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.ReLU: _of_module(_unary("Relu")),
    nn.ReLU6: lambda w, module, x: _clip(w, x, 0, 6),
    nn.Sigmoid: _of_module(_unary("Sigmoid")),
    nn.Tanh: _of_module(_unary("Tanh")),
    nn.GELU: _of_module(_gelu, "approximate"),
    nn.Softmax: _of_module(_softmax, "dim"),
    nn.MaxPool2d: _of_module(_max_pool, *POOL, "dilation", "ceil_mode", "return_indices"),
    nn.AvgPool2d: _of_module(_avg_pool, *POOL, "ceil_mode", "count_include_pad", "divisor_override"),
    nn.AdaptiveAvgPool2d: _of_module(_adaptive_pool, "output_size"),
    nn.Flatten: _of_module(_flatten, "start_dim", "end_dim"),
    nn.Embedding: lambda w, module, x: w.node("Gather", [w.graph.constant(module.weight, "weight"), x]),
    nn.Dropout: lambda w, module, x: x,
    nn.Dropout2d: lambda w, module, x: x,
    nn.Identity: lambda w, module, x: x,
}

FUNCTIONS: Dict[Any, Emit] = {
    operator.add: _binary("Add"), operator.iadd: _binary("Add"), torch.add: _binary("Add"),
    operator.sub: _binary("Sub"), torch.sub: _binary("Sub"),
    operator.mul: _binary("Mul"), operator.imul: _binary("Mul"), torch.mul: _binary("Mul"),
    operator.truediv: _binary("Div"), torch.div: _binary("Div"),
    operator.matmul: _binary("MatMul"), torch.matmul: _binary("MatMul"),
    operator.eq: _equal, torch.eq: _equal, operator.ne: lambda w, a, b: _not(w, _equal(w, a, b)),
    operator.invert: _not, torch.logical_not: _not,
    operator.getitem: _getitem, getattr: _getattr,
    functional.relu: _unary("Relu"), torch.relu: _unary("Relu"), functional.relu6: lambda w, x, inplace=False: _clip(w, x, 0, 6),
    functional.gelu: _gelu, torch.sigmoid: _unary("Sigmoid"), torch.tanh: _unary("Tanh"),
    functional.softmax: _softmax, torch.softmax: _softmax,
    functional.max_pool2d: _max_pool, torch.max_pool2d: _max_pool, functional.avg_pool2d: _avg_pool,
    functional.adaptive_avg_pool2d: _adaptive_pool,
    torch.flatten: _flatten, torch.mean: _mean, torch.cat: _cat, torch.reshape: _reshape, torch.permute: _permute,
    functional.dropout: _dropout,
}

METHODS: Dict[str, Emit] = {
    "add": _binary("Add"), "add_": _binary("Add"), "sub": _binary("Sub"), "mul": _binary("Mul"), "div": _binary("Div"),
    "matmul": _binary("MatMul"),
    "relu": _unary("Relu"), "relu_": _unary("Relu"), "sigmoid": _unary("Sigmoid"), "tanh": _unary("Tanh"),
    "softmax": _softmax, "mean": _mean, "flatten": _flatten, "view": _reshape, "reshape": _reshape, "permute": _permute,
    "size": _size, "contiguous": _same, "eq": _equal, "ne": lambda w, a, b: _not(w, _equal(w, a, b)),
}
