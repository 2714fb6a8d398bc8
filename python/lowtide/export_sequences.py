"""Layers of sequences as nodes of an ONNX graph: attention, encoders, LSTMs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, cast

import torch
from torch import Tensor, nn

from lowtide.modules import QuantMultiheadAttention, Quantised, why_not

if TYPE_CHECKING:
    from lowtide.export_writer import Writer


class _Products:
    """What a module's products are quantised with; one without lowtide has floats."""

    def __init__(self, module: nn.Module) -> None:
        if why_not(module) is not None:
            raise ValueError(f"a {type(module).__name__} cannot be exported: {why_not(module)}")
        self.module = module if isinstance(module, Quantised) else None

    def bits(self, name: str) -> int:
        return 0 if self.module is None else self.module._lowtide_layers[name].evaluation_bits

    def range(self, name: str) -> Tuple[Tensor, Tensor]:
        return (torch.zeros(1), torch.zeros(1)) if self.module is None else self.module._range_of(name)


def attention(w: Writer, module: nn.MultiheadAttention, query: str, key: str, value: str,
              key_padding_mask: Optional[str] = None, need_weights: bool = True, attn_mask: Optional[str] = None,
              average_attn_weights: bool = True, is_causal: bool = False) -> Tuple[str, Optional[str]]:
    products, weights = _Products(module), QuantMultiheadAttention._weights(cast(Any, module))
    split = w.graph.integers([0, 0, module.num_heads, module.head_dim])

    def heads(name: str, x: str, order: List[int]) -> str:
        x = x if module.batch_first else w.node("Transpose", [x], perm=[1, 0, 2])
        y = w.layers.linear(x, *weights[name], products.range(name), products.bits(name))
        return w.node("Transpose", [w.node("Reshape", [y, split])], perm=order)

    q, k, v = heads("query", query, [0, 2, 1, 3]), heads("key", key, [0, 2, 3, 1]), heads("value", value, [0, 2, 1, 3])
    scores = w.node("Div", [w.layers.product(q, k, products.bits("scores")), w.graph.number(math.sqrt(module.head_dim))])
    if attn_mask is not None:
        scores = w.node("Add", [scores, _own_mask(w, attn_mask)])
    if key_padding_mask is not None:
        scores = w.node("Add", [scores, _padding(w, key_padding_mask)])
    attended = w.node("Softmax", [scores], axis=-1)
    context = w.node("Transpose", [w.layers.product(attended, v, products.bits("context"))], perm=[0, 2, 1, 3])
    output = w.call(module.out_proj, w.node("Reshape", [context, w.graph.integers([0, 0, module.embed_dim])]))
    if not module.batch_first:
        output = w.node("Transpose", [output], perm=[1, 0, 2])
    if not need_weights:
        return output, None
    return output, w.node("ReduceMean", [attended], axes=[1], keepdims=0) if average_attn_weights else attended


def _own_mask(w: Writer, mask: str) -> str:
    tensor = w.constant_or_none(mask)
    if tensor is None or tensor.dim() != 2:
        raise ValueError("attention with a mask that is computed from inputs, or is no matrix, cannot be exported")
    if tensor.dtype == torch.bool:
        tensor = torch.zeros(tensor.shape).masked_fill_(tensor, -math.inf)
    return w.graph.constant(tensor, "mask")


def _padding(w: Writer, mask: str) -> str:
    """What is added to the scores, from items × positions; where the mask is true, nobody looks."""
    mask, is_bool = w.node("Reshape", [mask, w.graph.integers([0, 1, 1, -1])]), w.dtype(mask) == torch.bool
    return w.node("Where", [mask, w.graph.number(-math.inf), w.graph.number(0)]) if is_bool else mask


def encoder_layer(w: Writer, layer: nn.TransformerEncoderLayer, src: str, src_mask: Optional[str] = None,
                  src_key_padding_mask: Optional[str] = None, is_causal: bool = False) -> str:
    def attend(x: str) -> str:
        return w.call(layer.self_attn, x, x, x, key_padding_mask=src_key_padding_mask, attn_mask=src_mask,
                      need_weights=False)[0]

    def feed_forward(x: str) -> str:
        return w.call(layer.linear2, _activated(w, layer.activation, w.call(layer.linear1, x)))

    def add(a: str, b: str) -> str:
        return w.node("Add", [a, b])

    if layer.norm_first:
        x = add(src, attend(w.call(layer.norm1, src)))
        return add(x, feed_forward(w.call(layer.norm2, x)))
    x = w.call(layer.norm1, add(src, attend(src)))
    return w.call(layer.norm2, add(x, feed_forward(x)))


def _activated(w: Writer, activation: Any, x: str) -> str:
    return w.call(activation, x) if isinstance(activation, nn.Module) else w.call_function(activation, x)


def encoder(w: Writer, module: nn.TransformerEncoder, src: str, mask: Optional[str] = None,
            src_key_padding_mask: Optional[str] = None, is_causal: Optional[bool] = None) -> str:
    for layer in module.layers:
        src = w.call(layer, src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    return src if module.norm is None else w.call(module.norm, src)


def lstm(w: Writer, module: nn.LSTM, x: str, hx: Optional[Tuple[str, str]] = None) -> Tuple[str, Tuple[str, str]]:
    if module.batch_first:
        x = w.node("Transpose", [x], perm=[1, 0, 2])
    name, one_layer = w.names[module], w.graph.integers([1, -1, module.hidden_size])
    lasts: List[List[str]] = []
    for layer in range(module.num_layers):
        outputs = []
        for suffix in (f"l{layer}", f"l{layer}_reverse") if module.bidirectional else (f"l{layer}",):
            w.graph.enter(f"{name}.{suffix}" if name else suffix)
            state = (_zero_state(w, x, module.hidden_size) if hx is None
                     else tuple(_state_of_layer(w, part, len(lasts)) for part in hx))
            output, hidden, cell = _one_direction(w, module, suffix, x, cast(Any, state))
            outputs.append(output)
            lasts.append([w.node("Reshape", [part, one_layer]) for part in (hidden, cell)])
        x = w.node("Concat", outputs, axis=2) if module.bidirectional else outputs[0]
    last_hidden, last_cell = (w.node("Concat", list(parts), axis=0) for parts in zip(*lasts))
    return w.node("Transpose", [x], perm=[1, 0, 2]) if module.batch_first else x, (last_hidden, last_cell)


def _one_direction(w: Writer, module: nn.LSTM, suffix: str, x: str, state: Tuple[str, str]) -> Tuple[str, str, str]:
    products, backwards = _Products(module), suffix.endswith("_reverse")
    weight, hidden_weight = getattr(module, f"weight_ih_{suffix}"), getattr(module, f"weight_hh_{suffix}")
    bias = (getattr(module, f"bias_ih_{suffix}") + getattr(module, f"bias_hh_{suffix}") if module.bias
            else weight.new_zeros(weight.size(0)))
    output, hidden, cell = w.layers.lstm(_reversed(w, x) if backwards else x, weight, hidden_weight, bias, state,
                                         products.range(f"input_{suffix}"), products.range(f"hidden_{suffix}"),
                                         products.bits(suffix))
    return _reversed(w, output) if backwards else output, hidden, cell


def _reversed(w: Writer, x: str) -> str:
    """Its first dimension from the end to the beginning."""
    last, before_first, axis, step = (w.graph.integers([number]) for number in (-1, -2 ** 31, 0, -1))
    return w.node("Slice", [x, last, before_first, axis, step])


def _zero_state(w: Writer, x: str, units: int) -> Tuple[str, str]:
    one, two, axis = (w.graph.integers([number]) for number in (1, 2, 0))
    items = w.node("Slice", [w.node("Shape", [x]), one, two, axis])
    zeros = w.node("ConstantOfShape", [w.node("Concat", [items, w.graph.integers([units])], axis=0)])
    return zeros, zeros


def _state_of_layer(w: Writer, state: str, layer: int) -> str:
    return w.node("Gather", [state, w.graph.constant(torch.tensor(layer), "layer")], axis=0)
