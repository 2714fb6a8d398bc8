"""Layers and operators of PyTorch as nodes of an ONNX graph."""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide import export_sequences
from lowtide.modules import QuantLinear, Quantised

if TYPE_CHECKING:
    from lowtide.export_writer import Writer

Emit = Callable[..., Any]
Numbers = Union[int, Sequence[int]]

ONNX_TYPES = {torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int32: 6, torch.int64: 7, torch.bool: 9}
FLOAT, DOUBLE = 1, 11
BEYOND = 2 ** 31 - 1  # the end of a slice to the last


class OpenSize:
    """Stands for a size that is left open, and for what is computed from it."""


OPEN = OpenSize()


def quantisation(module: nn.Module) -> Tuple[Tuple[Tensor, Tensor], int]:
    """The range and the bits of a layer's input; 0 bits without lowtide."""
    if isinstance(module, Quantised):
        return module._range_of("activation"), module._lowtide_layers[""].evaluation_bits
    return FLOATS


FLOATS = (torch.zeros(1), torch.zeros(1)), 0


def factor_and_shift(norm: nn.BatchNorm2d) -> Tuple[Tensor, Tensor]:
    factor = (cast(Tensor, norm.running_var).double() + norm.eps).rsqrt()
    if norm.affine:
        factor = factor * norm.weight
    shift = -cast(Tensor, norm.running_mean) * factor
    return factor.float(), (shift + norm.bias if norm.affine else shift).float()


def norm_as_evaluated(w: Writer, norm: nn.BatchNorm2d, x: str) -> str:
    """Rounded as PyTorch's kernel for evaluation rounds on a CPU: x·factor + shift, with numbers that the kernel itself tells.

    With FMA it rounds the sum alone. In doubles the product is exact, and the sum is rounded before it becomes a float: that
    is another float for one in 2^29 or so.
    """
    mean, variance, weight, bias = (None if tensor is None else tensor.detach().cpu().float() for tensor in
                                    (norm.running_mean, norm.running_var, norm.weight, norm.bias))

    def kernel(values: Tensor, mean: Optional[Tensor] = mean, bias: Optional[Tensor] = bias) -> Tensor:
        return functional.batch_norm(values, mean, variance, weight, bias, eps=norm.eps)

    shape = (1, norm.num_features, 1, 1)
    factor = kernel(torch.ones(shape), torch.zeros(norm.num_features), None)[0]
    shift = kernel(torch.zeros(shape))[0]
    values = torch.linspace(-3, 3, 199).repeat(norm.num_features, 1).view(1, norm.num_features, 199, 1)
    is_fused = torch.equal(kernel(values), (values.double() * factor + shift).float())
    if not is_fused:
        factor, shift = (w.graph.constant(number, "norm") for number in (factor, shift))
        return w.node("Add", [w.node("Mul", [x, factor]), shift])
    factor, shift = (w.graph.constant(number.double(), "norm") for number in (factor, shift))
    y = w.node("Add", [w.node("Mul", [w.node("Cast", [x], to=DOUBLE), factor]), shift])
    return w.node("Cast", [y], to=FLOAT)


def _pair(value: Numbers) -> List[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _linear(w: Writer, module: nn.Linear, x: str) -> str:
    return w.layers.linear(x, module.weight, module.bias, *quantisation(module))


def _linear_function(w: Writer, x: str, weight: str, bias: Optional[str] = None) -> str:
    return w.layers.linear(x, w.constant(weight), None if bias is None else w.constant(bias), *FLOATS)


def _batch_norm(w: Writer, module: nn.BatchNorm2d, x: str) -> str:
    if module.running_mean is None:
        raise ValueError("a batch normalisation without running statistics cannot be exported")
    if w.is_exact:
        return norm_as_evaluated(w, module, x)
    factor, shift = (w.graph.constant(v.view(-1, 1, 1), "norm") for v in factor_and_shift(module))
    return w.node("Add", [w.node("Mul", [x, factor]), shift])


def _layer_norm(w: Writer, x: str, normalized_shape: Sequence[int], weight: Optional[Tensor] = None,
                bias: Optional[Tensor] = None, eps: float = 1e-5) -> str:
    if len(normalized_shape) != 1:
        raise ValueError("a layer normalisation over several dimensions cannot be exported")
    weight = torch.ones(normalized_shape[0]) if weight is None else weight
    bias = torch.zeros(normalized_shape[0]) if bias is None else bias
    return w.node("LayerNormalization", [x, w.graph.constant(weight, "weight"), w.graph.constant(bias, "bias")],
                  axis=-1, epsilon=float(eps))


def _layer_norm_function(w: Writer, x: str, normalized_shape: Sequence[int], weight: Optional[str] = None,
                         bias: Optional[str] = None, eps: float = 1e-5) -> str:
    own = (None if value is None else w.constant(value) for value in (weight, bias))
    return _layer_norm(w, x, normalized_shape, *own, eps)


def _embedding(w: Writer, module: nn.Embedding, x: str) -> str:
    if module.max_norm is not None:
        raise ValueError("an embedding with max_norm, which changes its weights, cannot be exported")
    return w.node("Gather", [w.graph.constant(module.weight, "weight"), x])


def _gelu(w: Writer, x: str, approximate: str = "none") -> str:
    if approximate == "tanh":
        cube = w.node("Mul", [w.node("Mul", [x, x]), w.node("Mul", [x, w.graph.number(0.044715)])])
        inner = w.node("Tanh", [w.node("Mul", [w.node("Add", [x, cube]), w.graph.number(math.sqrt(2 / math.pi))])])
    else:
        inner = w.node("Erf", [w.node("Mul", [x, w.graph.number(0.5 ** 0.5)])])
    return w.node("Mul", [w.node("Mul", [x, w.graph.number(0.5)]), w.node("Add", [inner, w.graph.number(1)])])


def _silu(w: Writer, x: str, inplace: bool = False) -> str:
    return w.node("Mul", [x, w.node("Sigmoid", [x])])


def _relu6(w: Writer, x: str, inplace: bool = False) -> str:
    return w.node("Clip", [x, w.graph.number(0), w.graph.number(6)])


def _pool(w: Writer, op: str, x: str, kernel: Any, stride: Any, padding: Any, ceil: bool, **more: Any) -> str:
    if ceil:
        raise ValueError("pooling with ceil_mode cannot be exported")
    return w.node(op, [x], kernel_shape=_pair(kernel), strides=_pair(kernel if stride in (None, []) else stride),
                  pads=_pair(padding) * 2, **more)


def _max_pool(w: Writer, x: str, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False, return_indices: bool = False) -> str:
    if _pair(dilation) != [1, 1] or return_indices:
        raise ValueError("max pooling with dilation, or with indices, cannot be exported")
    return _pool(w, "MaxPool", x, kernel_size, stride, padding, ceil_mode)


def _avg_pool(w: Writer, x: str, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
              count_include_pad: bool = True, divisor_override: Optional[int] = None) -> str:
    if not count_include_pad or divisor_override is not None:
        raise ValueError("average pooling with a divisor of its own cannot be exported")
    return _pool(w, "AveragePool", x, kernel_size, stride, padding, ceil_mode, count_include_pad=1)


def _adaptive_pool(w: Writer, x: str, output_size: Any) -> str:
    if _pair(output_size) != [1, 1]:
        raise ValueError("adaptive average pooling to other than one pixel cannot be exported")
    return w.node("GlobalAveragePool", [x])


def _mean(w: Writer, x: str, dim: Optional[Numbers] = None, keepdim: bool = False) -> str:
    axes = list(range(w.dim(x))) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return w.node("ReduceMean", [x], axes=axes, keepdims=int(keepdim))


def _softmax(w: Writer, x: str, dim: Optional[int] = None, **_: Any) -> str:
    if dim is None or dim % w.dim(x) != w.dim(x) - 1:
        raise ValueError("a softmax over another dimension than the last (-1) cannot be exported")
    return w.node("Softmax", [x], axis=-1)


def _attention(w: Writer, query: str, key: str, value: str, attn_mask: Optional[str] = None, dropout_p: float = 0.0,
               is_causal: bool = False, scale: Optional[float] = None) -> str:
    if dropout_p > 0:
        raise ValueError("attention with dropout that goes on in evaluation cannot be exported")
    factor = scale if scale is not None else w.fixed_size(query, -1) ** -0.5
    scores = w.node("Mul", [w.node("MatMul", [query, _transpose(w, key, -2, -1)]), w.graph.number(factor)])
    if is_causal:
        length, source = (w.fixed_size(x, -2) for x in (query, key))
        mask = w.graph.constant(torch.ones(length, source, dtype=torch.bool).tril(), "mask")
        scores = w.node("Where", [mask, scores, w.graph.number(-math.inf)])
    if attn_mask is not None and w.dtype(attn_mask) == torch.bool:
        scores = w.node("Where", [attn_mask, scores, w.graph.number(-math.inf)])
    elif attn_mask is not None:
        scores = w.node("Add", [scores, attn_mask])
    return w.node("MatMul", [w.node("Softmax", [scores], axis=-1), value])


def _reshaped(w: Writer, x: str, *_: Any, **__: Any) -> str:
    """To the shape of the result. An open size is told by 0, as it is in x at the same place, or by -1, once."""
    before, after = w.shapes(x), w.result_shapes()
    sizes, unknown = [], 0
    for i, (one, other) in enumerate(zip(*after)):
        is_open = one != other
        is_kept = is_open and i < len(before[0]) and (before[0][i], before[1][i]) == (one, other)
        unknown += is_open and not is_kept
        sizes.append(one if not is_open else 0 if is_kept else -1)
    if unknown > 1:
        raise ValueError("a reshape that moves several open sizes cannot be exported")
    return w.node("Reshape", [x, w.graph.integers(sizes)])


def _permute(w: Writer, x: str, *order: Any) -> str:
    dims = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
    return w.node("Transpose", [x], perm=[dim % w.dim(x) for dim in dims])


def _transpose(w: Writer, x: str, dim0: int, dim1: int) -> str:
    order = list(range(w.dim(x)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return w.node("Transpose", [x], perm=order)


def _slice(w: Writer, x: str, starts: List[int], ends: List[int], axes: List[int]) -> str:
    return w.node("Slice", [x, *(w.graph.integers(numbers) for numbers in (starts, ends, axes))])


def _index(w: Writer, x: str, position: int, axis: int) -> str:
    return w.node("Gather", [x, w.graph.constant(torch.tensor(position), "index")], axis=axis)


def _getitem(w: Writer, x: Any, index: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return x[index]
    indices = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in indices:
        place = indices.index(Ellipsis)
        indices[place:place + 1] = [slice(None)] * (w.dim(x) - sum(i is not None for i in indices) + 1)
    axes = [i for i in indices if i is not None]
    slices, numbers = [], []
    for axis, one in enumerate(axes):
        if isinstance(one, slice) and one.step in (None, 1) and OPEN not in (one.start, one.stop):
            if one != slice(None):
                slices.append((one.start or 0, BEYOND if one.stop is None else one.stop, axis))
        elif type(one) is int:
            numbers.append((one, axis))
        else:
            raise ValueError("indexing by other than numbers and slices cannot be exported")
    if slices:
        x = _slice(w, x, *(list(column) for column in zip(*slices)))
    for number, axis in reversed(numbers):
        x = _index(w, x, number, axis)
    if None in indices:
        new = [i for i, one in enumerate([i for i in indices if type(i) is not int]) if one is None]
        x = w.node("Unsqueeze", [x, w.graph.integers(new)])
    return x


def _parts(w: Writer, x: str, *_: Any, dim: int = 0) -> Tuple[str, ...]:
    """Of chunk and split: as long as the results are."""
    parts, start = [], 0
    for one, other in zip(*w.results):
        if one.size(dim) != other.size(dim):
            raise ValueError("parts of a size that is left open cannot be exported")
        parts.append(_slice(w, x, [start], [start + one.size(dim)], [dim % one.dim()]))
        start += one.size(dim)
    return tuple(parts)


def _chunk(w: Writer, x: str, size: Any, dim: int = 0) -> Tuple[str, ...]:
    return _parts(w, x, dim=dim)


def _unbind(w: Writer, x: str, dim: int = 0) -> Tuple[str, ...]:
    return tuple(_index(w, x, i, dim % w.dim(x)) for i in range(w.fixed_size(x, dim)))


def _cat(w: Writer, tensors: Sequence[str], dim: int = 0) -> str:
    dtype = functools.reduce(torch.promote_types, (w.dtype(x) for x in tensors))
    return w.node("Concat", [w.cast(x, dtype) for x in tensors], axis=dim)


def _masked_fill(w: Writer, x: str, mask: str, value: Any) -> str:
    return w.node("Where", [mask, w.cast(value, w.dtype(x)), x])


def _where(w: Writer, condition: str, a: Any, b: Any) -> str:
    dtype = w.common_type(a, b)
    return w.node("Where", [condition, w.cast(a, dtype), w.cast(b, dtype)])


def _same(w: Writer, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _to(w: Writer, x: str, *_: Any, **__: Any) -> str:
    return w.cast(x, w.result_type())


def _dropout(w: Writer, x: str, p: float = 0.5, training: bool = True, inplace: bool = False) -> str:
    if training and p > 0:
        raise ValueError("dropout that goes on in evaluation cannot be exported")
    return x


def _unary(op: str) -> Emit:
    return lambda w, x, inplace=False: w.node(op, [x])


def _binary(op: str) -> Emit:
    def emit(w: Writer, a: Any, b: Any) -> str:
        dtype = w.common_type(a, b)
        if dtype == torch.bool:
            raise ValueError(f"{op} of two bools cannot be exported")
        if op == "Div" and not dtype.is_floating_point:
            dtype = torch.float32
        return w.node(op, [w.cast(a, dtype), w.cast(b, dtype)])

    return emit


def _negative(w: Writer, x: str) -> str:
    return w.node("Mul", [x, w.cast(-1, w.dtype(x))])


def _rsqrt(w: Writer, x: str) -> str:
    return w.node("Div", [w.graph.number(1), w.node("Sqrt", [x])])


def _equal(w: Writer, a: str, b: Any) -> str:
    dtype = w.common_type(a, b)
    return w.node("Equal", [w.cast(a, dtype), w.cast(b, dtype)])


def _unequal(w: Writer, a: str, b: Any) -> str:
    return w.node("Not", [_equal(w, a, b)])


def _not(w: Writer, x: str) -> str:
    if w.dtype(x) != torch.bool:
        raise ValueError("~ of other than bools cannot be exported")
    return w.node("Not", [x])


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
    nn.LayerNorm: _of_module(_layer_norm, "normalized_shape", "weight", "bias", "eps"),
    nn.ReLU: _of_module(_unary("Relu")),
    nn.ReLU6: _of_module(_relu6),
    nn.Sigmoid: _of_module(_unary("Sigmoid")),
    nn.Tanh: _of_module(_unary("Tanh")),
    nn.GELU: _of_module(_gelu, "approximate"),
    nn.SiLU: _of_module(_silu),
    nn.Softmax: _of_module(_softmax, "dim"),
    nn.MaxPool2d: _of_module(_max_pool, *POOL, "dilation", "ceil_mode", "return_indices"),
    nn.AvgPool2d: _of_module(_avg_pool, *POOL, "ceil_mode", "count_include_pad", "divisor_override"),
    nn.AdaptiveAvgPool2d: _of_module(_adaptive_pool, "output_size"),
    nn.Flatten: _of_module(_reshaped),
    nn.Embedding: _embedding,
    nn.Dropout: _of_module(_same),
    nn.Dropout2d: _of_module(_same),
    nn.Identity: _of_module(_same),
}

FUNCTIONS: Dict[Any, Emit] = {
    operator.add: _binary("Add"), operator.iadd: _binary("Add"), torch.add: _binary("Add"),
    operator.sub: _binary("Sub"), operator.isub: _binary("Sub"), torch.sub: _binary("Sub"),
    operator.mul: _binary("Mul"), operator.imul: _binary("Mul"), torch.mul: _binary("Mul"),
    operator.truediv: _binary("Div"), operator.itruediv: _binary("Div"), torch.div: _binary("Div"),
    operator.pow: _binary("Pow"), torch.pow: _binary("Pow"), operator.neg: _negative, torch.neg: _negative,
    operator.matmul: _binary("MatMul"), torch.matmul: _binary("MatMul"), torch.bmm: _binary("MatMul"),
    operator.eq: _equal, torch.eq: _equal, operator.ne: _unequal, torch.ne: _unequal,
    operator.invert: _not, torch.logical_not: _not, torch.where: _where, torch.masked_fill: _masked_fill,
    operator.getitem: _getitem,
    functional.relu: _unary("Relu"), torch.relu: _unary("Relu"), functional.relu6: _relu6,
    functional.gelu: _gelu, functional.silu: _silu, torch.sigmoid: _unary("Sigmoid"), torch.tanh: _unary("Tanh"),
    torch.exp: _unary("Exp"), torch.sqrt: _unary("Sqrt"), torch.rsqrt: _rsqrt,
    functional.softmax: _softmax, torch.softmax: _softmax,
    functional.linear: _linear_function, functional.layer_norm: _layer_norm_function,
    functional.max_pool2d: _max_pool, torch.max_pool2d: _max_pool, functional.avg_pool2d: _avg_pool,
    functional.adaptive_avg_pool2d: _adaptive_pool,
    torch.flatten: _reshaped, torch.reshape: _reshaped, torch.squeeze: _reshaped, torch.unsqueeze: _reshaped,
    torch.permute: _permute, torch.transpose: _transpose, torch.mean: _mean, torch.cat: _cat,
    torch.chunk: _chunk, torch.split: _chunk, torch.unbind: _unbind,
    functional.dropout: _dropout,
}
if hasattr(functional, "scaled_dot_product_attention"):  # PyTorch 2
    FUNCTIONS[functional.scaled_dot_product_attention] = _attention

METHODS: Dict[str, Emit] = {
    "add": _binary("Add"), "sub": _binary("Sub"), "mul": _binary("Mul"), "div": _binary("Div"), "pow": _binary("Pow"),
    "neg": _negative, "matmul": _binary("MatMul"), "bmm": _binary("MatMul"),
    "relu": _unary("Relu"), "sigmoid": _unary("Sigmoid"), "tanh": _unary("Tanh"), "exp": _unary("Exp"),
    "sqrt": _unary("Sqrt"), "rsqrt": _rsqrt,
    "softmax": _softmax, "mean": _mean, "masked_fill": _masked_fill, "eq": _equal, "ne": _unequal,
    "flatten": _reshaped, "view": _reshaped, "reshape": _reshaped, "squeeze": _reshaped, "unsqueeze": _reshaped,
    "permute": _permute, "transpose": _transpose, "chunk": _chunk, "split": _chunk, "unbind": _unbind,
    "contiguous": _same, "detach": _same, "clone": _same,
    "to": _to, "type_as": _to, "float": _to, "long": _to, "int": _to, "bool": _to,
}
# What changes its tensor computes the same; export_trace sees to it that the tensor is what came out from then on.
METHODS.update({f"{name}_": METHODS[name] for name in ("add", "sub", "mul", "div", "relu", "sigmoid", "tanh", "masked_fill")})
