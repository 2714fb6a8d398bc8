"""What quantised modules do instead of their own forward pass: the same, with lowtide's products.

Each class is mixed into the class of the module that is swapped, before it: see swap(). It keeps the module's parameters, and
adds the running ranges of its inputs as buffers."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide import _lowtide


class Quantised(nn.Module):
    """A module whose products are lowtide's."""

    _lowtide_original: Type[nn.Module]  # what the module is without lowtide; set by swapped_class()
    _lowtide_layers: Dict[str, _lowtide.Layer]  # by part

    def _products(self) -> Dict[str, List[str]]:
        """The module's products by name ("" is the module's own), each with what it has a running range of."""
        raise NotImplementedError

    def _range_of(self, name: str) -> Tuple[Tensor, Tensor]:
        return getattr(self, name + "_min"), getattr(self, name + "_range")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: List[str], unexpected_keys: List[str], error_msgs: List[str]) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                                      error_msgs)
        # The weights of a network without lowtide have no ranges: those that are there stay.
        ranges = {prefix + name for name in range_buffers(self)}
        missing_keys[:] = [key for key in missing_keys if key not in ranges]


def range_buffers(module: Quantised, kind: Optional[Type[Quantised]] = None) -> List[str]:
    """The names of the buffers that lowtide adds to a module; ``kind`` is what it will be, where it is not yet."""
    names = [name for ranges in (kind or type(module))._products(module).values() for name in ranges]
    return [name + end for name in names for end in ("_min", "_range")]


class QuantConv2d(Quantised):
    weight: Tensor
    bias: Optional[Tensor]
    stride: Tuple[int, int]
    dilation: Tuple[int, int]
    groups: int
    padding_mode: str
    _reversed_padding_repeated_twice: List[int]  # left, right, top, bottom

    def _products(self) -> Dict[str, List[str]]:
        return {"": ["activation"]}

    def forward(self, input: Tensor) -> Tensor:
        if input.numel() == 0:  # nothing to multiply: the module's own
            return super().forward(input)
        x = input if input.dim() == 4 else input.unsqueeze(0)
        x, padding = self._padded(x)
        y = self._lowtide_layers[""].conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups,
                                            self._range_of("activation"), self.training)
        return y if input.dim() == 4 else y.squeeze(0)

    def _padded(self, x: Tensor) -> Tuple[Tensor, Tuple[int, int]]:
        """The input, and the zeros around it that are still to be imagined."""
        sides = self._reversed_padding_repeated_twice
        if self.padding_mode != "zeros":
            return functional.pad(x, sides, mode=self.padding_mode), (0, 0)
        if sides[0] != sides[1] or sides[2] != sides[3]:  # "same", with an even kernel
            return functional.pad(x, sides), (0, 0)
        return x, (sides[2], sides[0])


class QuantLinear(Quantised):
    weight: Tensor
    bias: Optional[Tensor]
    by_position = False  # gradients at the same position of their items share a range

    def _products(self) -> Dict[str, List[str]]:
        return {"": ["activation"]}

    def forward(self, input: Tensor) -> Tensor:
        if input.numel() == 0:
            return super().forward(input)
        return self._lowtide_layers[""].linear(input, self.weight, self.bias, self.by_position,
                                               self._range_of("activation"), self.training)


class QuantOutputProjection(QuantLinear):
    """The last linear layer of attention, which computes as the others there."""

    by_position = True


class QuantMultiheadAttention(Quantised):
    embed_dim: int
    num_heads: int
    head_dim: int
    dropout: float
    batch_first: bool
    in_proj_weight: Optional[Tensor]
    q_proj_weight: Tensor
    k_proj_weight: Tensor
    v_proj_weight: Tensor
    in_proj_bias: Optional[Tensor]
    out_proj: nn.Module

    # PyTorch's TransformerEncoderLayer has a kernel for evaluation that reads this module's weights instead of calling it,
    # unless this says that they are not what it takes them for. A property goes before the attribute of the same name.
    _qkv_same_embed_dim = property(lambda self: False)

    def _products(self) -> Dict[str, List[str]]:
        return {"query": ["query"], "key": ["key"], "value": ["value"], "scores": [], "context": []}

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Optional[Tensor] = None,
                need_weights: bool = True, attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
        if is_causal and attn_mask is None:
            raise ValueError("is_causal says what attn_mask is; expected that mask too")
        batched = query.dim() == 3
        query, key, value = (self._batch_first(x) for x in (query, key, value))
        items, length, source = query.size(0), query.size(1), key.size(1)
        weights = self._weights()
        q, k, v = (self._project(name, x, *weights[name])
                   for name, x in (("query", query), ("key", key), ("value", value)))
        scores = self._lowtide_layers["scores"].product(q, k.transpose(1, 2), items, self.training) / math.sqrt(self.head_dim)
        scores = scores.view(items, self.num_heads, length, source)
        for mask in self._masks(key_padding_mask, attn_mask, batched, scores):
            scores = scores + mask
        attention = functional.dropout(torch.softmax(scores, -1), self.dropout, self.training)
        context = self._lowtide_layers["context"].product(attention.view(-1, length, source), v, items, self.training)
        context = context.view(items, self.num_heads, length, self.head_dim).transpose(1, 2)
        output = self.out_proj(context.reshape(items, length, self.embed_dim))
        return self._as_asked(output, attention, batched, need_weights, average_attn_weights)

    def _batch_first(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _weights(self) -> Dict[str, Tuple[Tensor, Optional[Tensor]]]:
        names = ("query", "key", "value")
        weights = ((self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if self.in_proj_weight is None
                   else self.in_proj_weight.chunk(3))
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return {name: (weight, bias) for name, weight, bias in zip(names, weights, biases)}

    def _project(self, name: str, x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        """items · heads × length × units of a head"""
        y = self._lowtide_layers[name].linear(x, weight, bias, True, self._range_of(name), self.training)
        y = y.view(x.size(0), x.size(1), self.num_heads, self.head_dim).transpose(1, 2)
        return y.reshape(-1, x.size(1), self.head_dim)

    def _masks(self, key_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor], batched: bool,
               scores: Tensor) -> List[Tensor]:
        """What is added to the scores: minus infinity where a position must not look."""
        items, heads, length, source = scores.shape
        masks = []
        if attn_mask is not None:
            mask = attn_mask.bool() if attn_mask.dtype == torch.uint8 else attn_mask
            self._expect_mask("attn_mask", mask, (length, source), (items * heads, length, source))
            masks.append(mask if mask.dim() == 2 else mask.view(scores.shape))
        if key_padding_mask is not None:
            self._expect_mask("key_padding_mask", key_padding_mask, (items, source) if batched else (source,))
            masks.append(key_padding_mask.view(items, 1, 1, source))
        return [torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(mask, -math.inf)
                if mask.dtype == torch.bool else mask.to(scores.dtype) for mask in masks]

    def _expect_mask(self, what: str, mask: Tensor, *shapes: Tuple[int, ...]) -> None:
        if (mask.dtype == torch.bool or mask.is_floating_point()) and tuple(mask.shape) in shapes:
            return
        dtype, sizes = str(mask.dtype).replace("torch.", ""), " or ".join(" x ".join(map(str, shape)) for shape in shapes)
        raise ValueError(f"layer '{self._lowtide_layers['scores'].name}': its {what} is {' x '.join(map(str, mask.shape))} of "
                         f"{dtype}; expected {sizes} of bool or of floats")

    def _as_asked(self, output: Tensor, attention: Tensor, batched: bool, need_weights: bool,
                  average: bool) -> Tuple[Tensor, Optional[Tensor]]:
        weights = None if not need_weights else attention.mean(1) if average else attention
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights


class QuantTransformerEncoder(Quantised):
    """Computes nothing itself: its layers must be called, with tensors that they can read."""

    enable_nested_tensor = property(lambda self: False)
    use_nested_tensor = property(lambda self: False)

    def _products(self) -> Dict[str, List[str]]:
        return {}


class QuantLSTM(Quantised):
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool

    def _products(self) -> Dict[str, List[str]]:
        ends = ("", "_reverse") if self.bidirectional else ("",)
        suffixes = [f"l{layer}{end}" for layer in range(self.num_layers) for end in ends]
        return {suffix: [f"input_{suffix}", f"hidden_{suffix}"] for suffix in suffixes}

    def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        if not isinstance(input, Tensor):
            raise ValueError(f"layer '{self._lowtide_layers['l0'].name}': its input is a {type(input).__name__}; expected a "
                             "tensor, with the padding in it")
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        hidden, cell = self._states(x, hx, batched)
        last: List[Tuple[Tensor, Tensor]] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in (f"l{layer}", f"l{layer}_reverse") if self.bidirectional else (f"l{layer}",):
                output, state = self._run(suffix, x, (hidden[len(last)], cell[len(last)]))
                outputs.append(output)
                last.append(state)
            x = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
            if layer + 1 < self.num_layers:
                x = functional.dropout(x, self.dropout, self.training)
        hidden, cell = (torch.stack(states) for states in zip(*last))
        if not batched:
            return x.squeeze(1), (hidden.squeeze(1), cell.squeeze(1))
        return x.transpose(0, 1) if self.batch_first else x, (hidden, cell)

    def _states(self, x: Tensor, hx: Optional[Tuple[Tensor, Tensor]], batched: bool) -> Tuple[Tensor, Tensor]:
        """Of all layers and directions × batch × units."""
        if hx is None:
            zeros = x.new_zeros(len(self._lowtide_layers), x.size(1), self.hidden_size)
            return zeros, zeros
        count = len(self._lowtide_layers)
        expected = (count, x.size(1), self.hidden_size) if batched else (count, self.hidden_size)
        for state in hx:
            if tuple(state.shape) != expected:
                raise ValueError(f"layer '{self._lowtide_layers['l0'].name}': its states are {' x '.join(map(str, state.shape))}; "
                                 f"expected {' x '.join(map(str, expected))}")
        return (hx[0], hx[1]) if batched else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))

    def _run(self, suffix: str, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        weight, hidden_weight = getattr(self, f"weight_ih_{suffix}"), getattr(self, f"weight_hh_{suffix}")
        bias = (getattr(self, f"bias_ih_{suffix}") + getattr(self, f"bias_hh_{suffix}") if self.bias
                else weight.new_zeros(weight.size(0)))
        backwards = suffix.endswith("_reverse")
        output, hidden, cell = self._lowtide_layers[suffix].lstm(
            x.flip(0) if backwards else x, weight, hidden_weight, bias, state, self._range_of(f"input_{suffix}"),
            self._range_of(f"hidden_{suffix}"), self.training)
        return output.flip(0) if backwards else output, (hidden, cell)


# In this order: the last linear layer of attention is a Linear too.
REPLACEMENTS: List[Tuple[Type[nn.Module], Type[Quantised]]] = [
    (nn.Conv2d, QuantConv2d),
    (nn.modules.linear.NonDynamicallyQuantizableLinear, QuantOutputProjection),
    (nn.Linear, QuantLinear),
    (nn.MultiheadAttention, QuantMultiheadAttention),
    (nn.LSTM, QuantLSTM),
    (nn.TransformerEncoder, QuantTransformerEncoder),
]


def replacement_of(module: nn.Module) -> Optional[Type[Quantised]]:
    """What stands for the module; nothing for one that has no products, or a forward pass of its own."""
    for original, replacement in REPLACEMENTS:
        if isinstance(module, original):
            own = ("forward", "_conv_forward")
            same = all(getattr(type(module), name, None) is getattr(original, name, None) for name in own)
            return replacement if same else None
    return None


def is_left_out(module: nn.Module) -> bool:
    """Whether a module multiplies matrices that lowtide neither quantises nor counts."""
    kinds = (nn.modules.conv._ConvNd, nn.Linear, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
    return (isinstance(module, kinds) or _is_transformers_conv1d(module)) and not isinstance(module, Quantised)


def _is_transformers_conv1d(module: nn.Module) -> bool:
    """The linear layer of Hugging Face's GPT-2, of a library that is not imported here."""
    return any(kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") for kind in type(module).__mro__)


def why_not(module: nn.Module) -> Optional[str]:
    """What a module has that lowtide's products have not, or lacks."""
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        return "it has no weights yet; give the model one batch first"
    if isinstance(module, nn.MultiheadAttention) and (module.bias_k is not None or module.add_zero_attn):
        return "add_bias_kv and add_zero_attn are not there"
    if isinstance(module, nn.LSTM) and module.proj_size > 0:
        return "proj_size is not there"
    return None


def class_name(model: nn.Module) -> str:
    """Of a layer, the name that it has without lowtide."""
    return getattr(type(model), "_lowtide_original", type(model)).__name__


_CLASSES: Dict[Tuple[type, type], type] = {}


def swapped_class(replacement: type, original: type) -> type:
    """A class that is still the original one for whoever asks with isinstance; one for each pair."""
    key = (replacement, original)
    if key not in _CLASSES:
        _CLASSES[key] = type(f"Quant{original.__name__}", key, {"_lowtide_original": original})
    return _CLASSES[key]
