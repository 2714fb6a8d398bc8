"""What a model computes, as a torch.fx graph whose nodes know their values.

Every node is computed while it is traced, from two sets of inputs that differ in the sizes which are left open. So a size is a
plain number to the model's code unless it is open, and what depends on no input is a constant: masks, positions, slices of
weights. A node's ``meta["values"]`` are its two results."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

from torch import Tensor, fx, nn

from lowtide.modules import Quantised


def trace(model: nn.Module, names: List[str], runs: Sequence[Sequence[Tensor]]) -> fx.Graph:
    """``runs``: two sets of inputs, of these names."""
    tracer = _Tracer(names, list(zip(*runs)))
    # A layer alone is the only one of a network: its inside is not traced.
    root = nn.Sequential(model) if tracer.is_leaf_module(model, "") else model
    try:
        return tracer.trace(root)
    except Exception as error:  # whatever a model does with what stands for a tensor
        if type(error) is ValueError:  # one of ours
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{type(model).__name__} cannot be exported: torch.fx cannot trace it ({reason})") from None


class _Proxy(fx.Proxy):
    """Stands for a tensor, or for a size that is left open. What is known of it is told at once."""

    def _value(self) -> Any:
        return self.node.meta["values"][0]

    def __iter__(self) -> Any:
        value = self._value()
        return iter([self[i] for i in range(len(value))]) if isinstance(value, (tuple, list)) else self.tracer.iter(self)

    def __len__(self) -> Any:
        value = self._value()
        return self.size(0) if isinstance(value, Tensor) else len(value)

    def dim(self) -> int:
        return int(self._value().dim())

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @property
    def shape(self) -> Tuple[Union[int, fx.Proxy], ...]:
        one, other = (value.shape for value in self.node.meta["values"])
        return tuple(one[i] if one[i] == other[i] else self.tracer.create_proxy("call_method", "size", (self, i), {})
                     for i in range(len(one)))

    ndim = property(dim)
    device = property(lambda self: self._value().device)
    dtype = property(lambda self: self._value().dtype)
    is_cuda = property(lambda self: self._value().is_cuda)


class _Tracer(fx.Tracer):
    def __init__(self, names: List[str], inputs: List[Tuple[Tensor, ...]]) -> None:
        super().__init__()
        self._inputs = list(zip(names, inputs))
        self._latest: Dict[int, fx.Node] = {}  # by the tensor that an operator in place returns

    def create_args_for_root(self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None) -> Any:
        """The examples alone are inputs: other arguments keep their defaults."""
        return root_fn, [self.root, *(self.proxy(self._node("placeholder", *each)) for each in self._inputs)]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Quantised) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return super().call_module(m, forward, args, kwargs) if _has_proxy((args, kwargs)) else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Dict[str, Any]) -> Any:
        return attr_val  # a parameter too is a tensor like others until it meets an input

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any, **options: Any) -> fx.Proxy:
        proxy = super().create_proxy(kind, target, args, kwargs, *more, **options)
        node = proxy.node
        self._set_values(node, tuple(self._compute(node, run) for run in range(2)))
        for read in node.all_input_nodes:
            if read.op == "get_attr" and _is_stale(read):
                raise ValueError(f"the model's '{read.target}' is changed by its forward pass, which cannot be exported")
        if isinstance(node.meta["values"][0], Tensor):
            self._latest[id(node.meta["values"][0])] = node
        return proxy

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, fx.Proxy):
            return self._as_it_is_now(a.node)
        if isinstance(a, Tensor):
            names = [name for name, own in self._own_tensors() if own is a]
            return self._node("get_attr", names[0] if names else "constant", (a, a))
        return super().create_arg(a)

    def _own_tensors(self) -> List[Tuple[str, Tensor]]:
        return [*self.root.named_parameters(), *self.root.named_buffers()]

    def _as_it_is_now(self, node: fx.Node) -> fx.Node:
        """`x.relu_()` returns the tensor x: from then on x is what it returned."""
        node = self._latest.get(id(node.meta["values"][0]), node)
        if _is_stale(node):
            raise ValueError(f"'{node.name}' is changed in place through a view of it, and read again, which cannot be "
                             "exported")
        return node

    def _node(self, op: str, target: str, values: Tuple[Any, ...]) -> fx.Node:
        node = self.create_node(op, target, (), {})
        self._set_values(node, values)
        return node

    def _set_values(self, node: fx.Node, values: Tuple[Any, ...]) -> None:
        node.meta.update(values=values, versions=[_version(value) for value in values])

    def _compute(self, node: fx.Node, run: int) -> Any:
        args, kwargs = (fx.node.map_arg(each, lambda n: n.meta["values"][run]) for each in (node.args, node.kwargs))
        if node.op == "call_module":
            return self.root.get_submodule(node.target)(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) else 0  # counts changes in place, of views too


def _is_stale(node: fx.Node) -> bool:
    return [_version(value) for value in node.meta["values"]] != node.meta["versions"]


def _has_proxy(objects: Any) -> bool:
    found: List[fx.Proxy] = []
    fx.node.map_aggregate(objects, lambda x: found.append(x) if isinstance(x, fx.Proxy) else None)
    return bool(found)
