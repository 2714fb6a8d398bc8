import importlib
import json
import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from networks import CifarResNet8
from torch import nn
from torch.nn import functional

import lowtide
from lowtide import export_operators

TESTS = Path(__file__).resolve().parent.parent
RUNTIME = TESTS / "export"
TYPES = {"F32": torch.float32, "I32": torch.int32, "I64": torch.int64, "BOOL": torch.bool}


def run_in_onnxruntime(path, inputs, folder):
    """What ONNX Runtime computes, by the script of the C++ tests: tensors go by safetensors files."""
    if not shutil.which("node") or not (RUNTIME / "node_modules/onnxruntime-node").exists():
        pytest.skip("onnxruntime-node is not installed (scripts/setup.sh tests)")
    header, data = {}, b""
    for name, x in inputs.items():
        raw = x.contiguous().numpy().tobytes()
        dtype = next(known for known, own in TYPES.items() if own == x.dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "inputs").write_bytes(struct.pack("<Q", len(text)) + text + data)
    subprocess.run(["node", RUNTIME / "run_onnx.mjs", path, folder / "inputs", folder / "outputs"], check=True)
    whole = (folder / "outputs").read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    results = {}
    for name, entry in json.loads(whole[8:start]).items():
        begin, end = entry["data_offsets"]
        content = bytearray(whole[start + begin:start + end])
        results[name] = torch.frombuffer(content, dtype=TYPES[entry["dtype"]]).view(entry["shape"])
    return results


class Varied(nn.Module):
    """One of most operators that are known."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8, bias=False), nn.BatchNorm2d(8),
                                       nn.ReLU6(), nn.Dropout2d(0.3))
        self.pool = nn.MaxPool2d(2)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))
        self.layer_norm = nn.LayerNorm(16)
        self.fc1, self.fc2 = nn.Linear(16, 12), nn.Linear(12, 5)

    def forward(self, images):
        x = functional.gelu(self.conv1(self.norm(images)))
        y = self.pool(x + 0.5 * self.depthwise(x) * self.scale)
        y = torch.cat([y, functional.avg_pool2d(x, 2).sigmoid()], 1)
        z = y.mean((2, 3)).view(y.size(0), -1)
        z = functional.dropout(torch.tanh(self.fc1(self.layer_norm(z))), training=self.training)
        return self.fc2(z), z.softmax(-1)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, words):
        return self.fc(self.embedding(words).permute(1, 0, 2).reshape(-1, 8))


class Recurrent(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=batch_first, bias=batch_first)
        self.fc = nn.Linear(6, 20)

    def forward(self, words):
        y, (hidden, cell) = self.lstm(self.embedding(words))
        return self.fc(y), hidden, cell


class Attending(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.register_buffer("mask", torch.ones(5, 5).triu(1).bool())
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        y, weights = self.attention(x, x, x, attn_mask=self.mask)
        return self.fc(x + y), weights


def assert_equal(actual, expected):
    """To 1e-4 but where a code falls the other way, as a sum in another order may have it: that moves all of an item a little."""
    differences = (actual - expected).abs().flatten(1).amax(1)
    assert differences.median() <= 1e-4 and differences.max() <= 0.05 * expected.abs().max()


def trained(model, *shape, line="static 6 grad=8", engine="auto"):
    lowtide.quantize_(model, lowtide.Schedule(line, steps=100), engine=engine)
    for _ in range(10):  # ranges and statistics
        model(torch.randn(4, *shape))
    return model.eval()


@pytest.mark.parametrize("make, shape", [(CifarResNet8, (1, 12, 12)), (Varied, (3, 8, 8))])
@pytest.mark.parametrize("bits", [None, 8, 12, "fp32"])
def test_exact_is_the_evaluation_in_a_runtime_too(make, shape, bits, tmp_path):
    model = trained(make(), *shape)
    x = torch.randn(5, *shape)  # other items than the example's
    exported = lowtide.export_onnx(model, torch.randn(2, *shape), tmp_path / "m.onnx", bits=bits)
    with torch.no_grad(), lowtide.precision(model, 6 if bits is None else bits):
        expected = model(x)
    single = isinstance(expected, torch.Tensor)
    for ours, theirs in zip([exported(x)] if single else exported(x), [expected] if single else expected):
        assert_equal(ours, theirs)
    results = run_in_onnxruntime(tmp_path / "m.onnx", {"x" if single else "images": x}, tmp_path)
    for name, theirs in zip(sorted(results), [expected] if single else expected):
        assert_equal(results[name], theirs)


class Features(CifarResNet8):
    """All but the mean over pixels and what is behind it, sums of floats that each program orders in its own way."""

    def forward(self, x):
        x = functional.relu(self.norm1(self.conv1(x)))
        return self.group3[0](self.group2[0](self.group1[0](x)))


@pytest.mark.parametrize("bits", [8, 5])
def test_exact_is_equal_to_the_bit_with_pytorchs_normalisation(bits, tmp_path):
    model = Features()
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.normal_(norm.bias)
    trained(model, 1, 12, 12, engine="integer")
    x = torch.randn(64, 1, 12, 12)
    exported = lowtide.export_onnx(model, x[:2], tmp_path / "m.onnx", bits=bits)
    with torch.no_grad(), lowtide.precision(model, bits):
        expected = model(x)
    assert expected.abs().max() > 1 and torch.equal(exported(x), expected)
    assert torch.equal(run_in_onnxruntime(tmp_path / "m.onnx", {"x": x}, tmp_path)["output"], expected)


def test_qdq_is_what_is_measured(tmp_path):
    model = trained(CifarResNet8(), 1, 12, 12, line="static 8 grad=8")
    x = torch.randn(5, 1, 12, 12)
    exported = lowtide.export_onnx(model, x[:1], tmp_path / "m.onnx", form="qdq")
    with torch.no_grad():
        expected = model(x)
    assert not torch.equal(exported(x), expected) and (exported(x) - expected).abs().max() < 0.1 * expected.abs().max()
    results = run_in_onnxruntime(tmp_path / "m.onnx", {"x": x}, tmp_path)
    assert_equal(results["output"], exported(x))


def test_codes_are_bytes_and_norms_are_folded(tmp_path):
    model = trained(CifarResNet8(), 1, 12, 12)
    x = torch.randn(1, 1, 12, 12)
    lowtide.export_onnx(model, x, tmp_path / "codes.onnx")
    lowtide.export_onnx(model, x, tmp_path / "floats.onnx", bits="fp32")
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 4)
    assert weights < (tmp_path / "codes.onnx").stat().st_size < weights + 40000
    assert (tmp_path / "floats.onnx").stat().st_size > 4 * weights
    assert b"/Mul" not in (tmp_path / "floats.onnx").read_bytes()


def test_words_and_models_without_quantisation(tmp_path):
    model = Words()
    words = torch.randint(0, 20, (4, 3))
    assert torch.allclose(lowtide.export_onnx(model, words, tmp_path / "m.onnx")(words), model(words), atol=1e-6)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("make, draw", [(Recurrent, lambda: torch.randint(0, 20, (5, 5))),
                                        (Attending, lambda: torch.randn(5, 5, 8))])
def test_lstms_and_attention(make, draw, batch_first, tmp_path):
    model = make(batch_first)
    lowtide.quantize_(model, lowtide.Schedule("static 8 grad=8", steps=10))
    for _ in range(10):
        model(draw())
    model.eval()
    x = draw()
    exported = lowtide.export_onnx(model, draw(), tmp_path / "m.onnx")
    with torch.no_grad():
        expected = model(x)
    results = run_in_onnxruntime(tmp_path / "m.onnx", {"x" if make is Attending else "words": x}, tmp_path)
    for i, (ours, theirs) in enumerate(zip(exported(x), expected)):
        assert_equal(ours, theirs)
        assert_equal(results[f"output{i}"], theirs)


class BothWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x):
        y, (hidden, cell) = self.lstm(x)
        return y, hidden, cell


class Encoder(nn.Module):
    """Sentences of words, of which 0 is none."""

    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8) if options.get("norm_first") else None)

    def forward(self, words):
        x = self.encoder(self.embedding(words), src_key_padding_mask=words == 0)
        return x, x.mean(1)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation=nn.GELU())
        self.register_buffer("mask", torch.full((5, 5), -float("inf")).triu(1))

    def forward(self, x, padding):
        return self.layer(x, self.mask, padding), x


def draw_words():
    words = torch.randint(1, 20, (5, 5))
    words[2, 3:] = 0
    return words


def draw_padded():
    return torch.randn(5, 5, 8), torch.arange(5).view(1, -1) >= torch.tensor([5, 4, 5, 3, 1]).view(-1, 1)


@pytest.mark.parametrize("line", ["static 8 grad=8", None], ids=str)  # quantised, and as PyTorch has it
@pytest.mark.parametrize("make, draw, names", [
    (BothWays, lambda: torch.randn(5, 5, 8), ["x"]),
    (Encoder, draw_words, ["words"]),
    (lambda: Encoder(norm_first=True, activation="gelu"), draw_words, ["words"]),
    (Masked, draw_padded, ["x", "padding"]),
], ids=["lstm", "encoder", "norm-first", "masks"])
def test_both_directions_and_encoders(make, draw, names, line, tmp_path):
    def inputs():
        drawn = draw()
        return drawn if isinstance(drawn, tuple) else (drawn,)

    torch.manual_seed(1)
    model = make()
    if line is not None:
        lowtide.quantize_(model, lowtide.Schedule(line, steps=10))
        for _ in range(10):
            model(*inputs())
    model.eval()
    given = inputs()
    exported = lowtide.export_onnx(model, inputs(), tmp_path / "m.onnx")
    expected = model(*given)
    results = run_in_onnxruntime(tmp_path / "m.onnx", dict(zip(names, given)), tmp_path)
    for i, (ours, theirs) in enumerate(zip(exported(*given), expected)):
        assert_equal(ours, theirs.detach())
        assert_equal(results[f"output{i}"], theirs.detach())


@pytest.mark.parametrize("directions", [1, 2])
def test_a_given_state_of_an_lstm(directions, tmp_path):
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 6, bidirectional=directions == 2)

        def forward(self, x, hidden, cell):
            return self.lstm(x, (hidden, cell))[0]

    model = Stateful()
    lowtide.quantize_(model, lowtide.Schedule("static 8 grad=8", steps=10))
    inputs = torch.randn(5, 3, 4), torch.randn(directions, 3, 6), torch.randn(directions, 3, 6)
    for _ in range(10):
        model(*inputs)
    with torch.no_grad():
        expected = model.eval()(*inputs)
    assert_equal(lowtide.export_onnx(model, inputs, tmp_path / "m.onnx")(*inputs), expected)


def test_modes_and_bits_are_put_back(tmp_path):
    model = trained(CifarResNet8(), 1, 12, 12).train()
    model.norm1.eval()
    lowtide.export_onnx(model, torch.randn(1, 1, 12, 12), tmp_path / "m.onnx", bits=3)
    assert model.training and model.fc.training and not model.norm1.training
    assert model.conv1._lowtide_layers[""].evaluation_bits == 6


class Rolled(nn.Module):
    def forward(self, x):
        return torch.roll(x, 1)


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Asserting(nn.Module):
    def forward(self, x):
        if not isinstance(x, torch.Tensor):
            raise AssertionError
        return x + 1


class InAList(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.ReLU()]

    def forward(self, x):
        return self.layers[0](x)


@pytest.mark.parametrize("model, message", [
    (Asserting(), "Asserting cannot be exported: torch.fx cannot trace it (AssertionError)"),
    (InAList(), "InAList cannot be exported: torch.fx cannot trace it (module is not installed as a submodule)"),
    (Rolled(), "the operator roll cannot be exported"),
    (Branching(), "Branching cannot be exported: torch.fx cannot trace it"),
    (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")), "layer '0' cannot be exported: its padding"),
    (nn.Sequential(nn.Hardswish()), "layer '0', a Hardswish, cannot be exported"),
    (nn.Sequential(nn.MaxPool2d(2, ceil_mode=True)), "ceil_mode cannot be exported"),
    (nn.Sequential(nn.AdaptiveAvgPool2d(2)), "adaptive average pooling to other than one pixel cannot be exported"),
])
def test_what_cannot_be_exported_is_one_line(model, message, tmp_path):
    with pytest.raises(ValueError) as raised:
        lowtide.export_onnx(model.eval(), torch.randn(1, 3, 8, 8), tmp_path / "m.onnx")
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert not (tmp_path / "m.onnx").exists()


def test_mistakes_are_one_line(tmp_path):
    x = torch.randn(1, 3, 8, 8)
    for arguments, message in [
        (dict(form="int8"), "form is 'int8'; expected 'exact' or 'qdq'"),
        (dict(path=tmp_path / "nowhere" / "m.onnx"), "cannot write"),
        (dict(path=None), "path is None; expected a path"),
        (dict(bits=99), "bits is 99"),
        (dict(form="qdq", bits=12), "12 bits in the form qdq"),
    ]:
        given = dict(path=tmp_path / "m.onnx", **arguments) if "path" not in arguments else arguments
        model = trained(Varied(), 3, 8, 8)
        with pytest.raises(ValueError) as raised:
            lowtide.export_onnx(model, x, **given)
        assert message in str(raised.value) and "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="model is None; expected a torch.nn.Module"):
        lowtide.export_onnx(None, x, tmp_path / "m.onnx")
    exported = lowtide.export_onnx(nn.ReLU(), x, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"input 'input' is \[1, 2\]; expected a tensor"):
        exported([1, 2])


def exported_and_run(model, inputs, path, others=None, **options):
    """What is computed from other inputs than the example by libtorch, and by the runtime; and what the model says."""
    others = inputs if others is None else others
    exported = lowtide.export_onnx(model.eval(), list(inputs.values()), path / "m.onnx", **options)
    ours, results = exported(*others.values()), run_in_onnxruntime(path / "m.onnx", others, path)
    with torch.no_grad():
        expected = model(*(x.clone() for x in others.values()))
    if isinstance(expected, torch.Tensor):
        return [(ours, results["output"], expected)]
    return [(mine, results[f"output{i}"], theirs) for i, (mine, theirs) in enumerate(zip(ours, expected))]


def assert_all_equal(triples):
    for ours, runtimes, theirs in triples:
        assert ours.dtype == runtimes.dtype == theirs.dtype
        # Sums of a few hundred floats, in another order.
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(runtimes, theirs, rtol=1e-4, atol=1e-4)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = x - 1
        functional.relu(y, inplace=True)
        y *= 2
        z = x * 3
        self.relu(z)
        return y.add_(1) + z, y


class ThroughAView(nn.Module):
    def forward(self, x):
        y = x + 1
        y.view(-1).mul_(2)
        return y


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += x.sum()
        return x + 1


def test_what_changes_in_place_is_what_comes_out(tmp_path):
    assert_all_equal(exported_and_run(InPlace(), {"x": torch.randn(3, 4)}, tmp_path))
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="changed in place through a view of it"):
        lowtide.export_onnx(ThroughAView(), x, tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="the model's 'seen' is changed by its forward pass"):
        lowtide.export_onnx(Counting(), x, tmp_path / "other.onnx")
    assert torch.equal(x, torch.ones(2, 3)) and not (tmp_path / "other.onnx").exists()


class Types(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("wide", torch.tensor(0.25, dtype=torch.float64))

    def forward(self, number, x, flag):
        long = number.long()
        return long * x, long / 2, long + 1, (number == 3) * x, ~flag, torch.cat([long, number], 1), self.wide * x + flag


def test_types_are_promoted_as_pytorch_does(tmp_path):
    inputs = {"number": torch.arange(6, dtype=torch.int32).view(2, 3), "x": torch.randn(2, 3),
              "flag": torch.tensor([[True, False, True], [False, False, True]])}
    assert_all_equal(exported_and_run(Types(), inputs, tmp_path))


class Arithmetic(nn.Module):
    """What the other networks here have not."""

    def forward(self, x):
        a, b = x.split([2, 4], 1)
        c, d = a.unbind(1)
        root = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        chosen = torch.where(x == x, torch.exp(-x), x)
        return (root, chosen, 1 - functional.silu(b) / 2, torch.sqrt(c ** 2 + d ** 2), functional.gelu(x, approximate="tanh"),
                x[:, None, 1:-1, 0] - x[:, 1:5, -1].unsqueeze(1), x[0:1, ..., 1], x.mean(), x.squeeze(0).flatten(-2),
                torch.cat([x, x.transpose(1, 2).reshape(x.shape[0], 6, 5)], -1))


def test_arithmetic_and_indices(tmp_path):
    draw = lambda items: {"x": torch.randn(items, 6, 5)}  # noqa: E731
    assert_all_equal(exported_and_run(Arithmetic(), draw(2), tmp_path, draw(4)))


class Doubles(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        return x * self.scale


def test_types_that_graphs_have_not_are_named(tmp_path):
    with pytest.raises(ValueError, match="'mul' is float64, which cannot be exported; expected one of float32"):
        lowtide.export_onnx(Doubles(), torch.randn(2, 3), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="input 'x' of the example is float16, which cannot be exported; expected one of float32"):
        lowtide.export_onnx(Rolled(), torch.randn(2, 3).half(), tmp_path / "m.onnx")


def test_a_graph_that_computes_something_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(export_operators.FUNCTIONS, torch.tanh, export_operators.FUNCTIONS[torch.sigmoid])
    with pytest.raises(ValueError, match="Varied cannot be exported: output 0 of its graph is not what the model computes"):
        lowtide.export_onnx(trained(Varied(), 3, 8, 8), torch.randn(2, 3, 8, 8), tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


class Sequences(nn.Module):
    """Words first, as PyTorch's LSTM has them by default; items second."""

    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.fc = nn.Embedding(20, 8), nn.LSTM(8, 6), nn.Linear(6, 20)

    def forward(self, input, hidden, cell):
        y, (hidden, cell) = self.lstm(self.embedding(input), (hidden, cell))
        return self.fc(y), hidden, cell


def draw_sequences(length, items):
    return {"input": torch.randint(20, (length, items)), "hidden": torch.randn(1, items, 6), "cell": torch.randn(1, items, 6)}


def test_open_dimensions_are_those_that_were_named(tmp_path):
    axes = {"input": {0: "length", 1: "items"}, "hidden": {1: "items"}, "cell": {1: "items"}}
    assert_all_equal(exported_and_run(Sequences(), draw_sequences(5, 3), tmp_path, draw_sequences(7, 2), dynamic_axes=axes))
    # By default the first of the words alone: there is one layer of states, whatever their length.
    assert_all_equal(exported_and_run(Sequences(), draw_sequences(5, 3), tmp_path, draw_sequences(7, 3)))
    with pytest.raises(subprocess.CalledProcessError):
        exported_and_run(Sequences(), draw_sequences(5, 3), tmp_path, draw_sequences(7, 2), dynamic_axes={})


def test_open_dimensions_need_no_names(tmp_path):
    model, x, other = nn.Sequential(nn.Linear(8, 3)), {"input": torch.randn(5, 2, 8)}, {"input": torch.randn(4, 7, 8)}
    assert_all_equal(exported_and_run(model, x, tmp_path, other, dynamic_axes={"input": [0, 1]}))
    assert b"input.1" in (tmp_path / "m.onnx").read_bytes()


def test_a_size_that_a_model_does_not_take_otherwise_is_fixed(tmp_path):
    model, x = Attending(batch_first=False).eval(), torch.randn(5, 2, 8)  # its mask is of 5 words
    lowtide.export_onnx(model, x, tmp_path / "m.onnx")
    assert b"items" not in (tmp_path / "m.onnx").read_bytes()
    for axes, message in [
        ({"x": {0: "length"}}, "dynamic_axes: Attending does not take other sizes than the example's"),
        ({"y": {0: "length"}}, "dynamic_axes: no input is called 'y'; expected one of x"),
        ({"x": {3: "length"}}, "dynamic_axes: 'x' has no dimension 3; expected 0 to 2"),
        ({"x": {0: "n", 1: "n"}}, "dynamic_axes: 'n' is 5 in the example, and 2 in 'x'; expected one size"),
        ({"x": {0: 7}}, "dynamic_axes: 'x' has {0: 7}; expected dimensions with a name each, such as {0: 'items'}"),
        ({"x": 0}, "dynamic_axes: 'x' has 0; expected dimensions with a name each"),
        ([0], "dynamic_axes is [0]; expected a dict of inputs"),
    ]:
        with pytest.raises(ValueError) as raised:
            lowtide.export_onnx(model, x, tmp_path / "m.onnx", dynamic_axes=axes)
        assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def attention_of_pytorch_2(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """torch.nn.functional.scaled_dot_product_attention as its documentation defines it."""
    if torch.overrides.has_torch_function((query, key, value)):
        return torch.overrides.handle_torch_function(attention_of_pytorch_2, (query, key, value), query, key, value,
                                                     attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    scores = query @ key.transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.softmax(scores, -1) @ value


class OfPytorch2(nn.Module):
    def __init__(self, attend, **options):
        super().__init__()
        self.attend, self.options = attend, options
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        return self.attend(self.query(x), self.key(x), self.value(x), **self.options)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": torch.ones(5, 5).tril().bool()},
                                     {"attn_mask": torch.randn(5, 5)}], ids=lambda options: ",".join(options))
def test_the_attention_of_pytorch_2(options, tmp_path, monkeypatch):
    monkeypatch.setitem(export_operators.FUNCTIONS, attention_of_pytorch_2, export_operators._attention)
    own = getattr(functional, "scaled_dot_product_attention", None)
    for attend in filter(None, (attention_of_pytorch_2, own)):
        assert_all_equal(exported_and_run(OfPytorch2(attend, **options), {"x": torch.randn(3, 5, 8)}, tmp_path))


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(input=functional.relu(input=self.norm(input=self.conv(input=x))))


def test_the_first_argument_may_be_named(tmp_path):
    assert_all_equal(exported_and_run(ByKeyword(), {"x": torch.randn(2, 3, 8, 8)}, tmp_path))


class Optional(nn.Module):
    def forward(self, x, mask=None, *, factor=2):
        return x * factor if mask is None else x * mask


def test_arguments_that_are_not_given_keep_their_defaults(tmp_path):
    x = torch.randn(2, 3)
    assert_all_equal(exported_and_run(Optional(), {"x": x}, tmp_path))
    assert_all_equal(exported_and_run(Optional(), {"x": x, "mask": torch.randn(2, 3)}, tmp_path))
    with pytest.raises(ValueError, match=r"3 inputs in example; Optional takes \(x, mask=None, \*, factor=2\)"):
        lowtide.export_onnx(Optional(), [x, x, x], tmp_path / "m.onnx")
    exported = lowtide.export_onnx(Optional(), x, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="2 inputs; expected 1: x"):
        exported(x, x)


def test_ranges_that_were_never_measured_are_refused(tmp_path):
    model = lowtide.quantize_(CifarResNet8(), lowtide.Schedule("static 8", steps=10))
    x = torch.randn(2, 1, 12, 12)
    with pytest.raises(ValueError, match="layer 'conv1': its input's range was not measured; expected batches in training mode"):
        lowtide.export_onnx(model, x, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    lowtide.export_onnx(model, x, tmp_path / "m.onnx", bits="fp32")


class SelfAttention(nn.Module):
    """As textbooks write it."""

    def __init__(self, units, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, x):
        items, length, units = x.shape
        q, k, v = (part.view(items, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if hasattr(functional, "scaled_dot_product_attention"):
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
            y = scores.masked_fill(~self.causal[:length, :length], -math.inf).softmax(-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(items, length, units))


class PlainGpt(nn.Module):
    def __init__(self, characters=20, units=16, length=8):
        super().__init__()
        self.token, self.position = nn.Embedding(characters, units), nn.Embedding(length, units)
        self.norms = nn.ModuleList(nn.LayerNorm(units) for _ in range(4))
        self.attention = nn.ModuleList(SelfAttention(units, 4, length) for _ in range(2))
        self.expand = nn.ModuleList(nn.Linear(units, 32) for _ in range(2))
        self.contract = nn.ModuleList(nn.Linear(32, units) for _ in range(2))
        self.final = nn.LayerNorm(units)

    def forward(self, text):
        x = self.token(text) + self.position(torch.arange(text.size(1), device=text.device))
        for i in range(2):
            x = x + self.attention[i](self.norms[2 * i](x))
            x = x + self.contract[i](functional.gelu(self.expand[i](self.norms[2 * i + 1](x))))
        return functional.linear(self.final(x)[:, -1], self.token.weight)


def example_gpt():
    sys.path.insert(0, str(TESTS.parent / "examples" / "python"))
    return importlib.import_module("text").GPT(20)


@pytest.mark.parametrize("make, length", [(PlainGpt, 8), (example_gpt, 64)], ids=["plain", "example"])
def test_a_gpt(make, length, tmp_path):
    model, draw = make(), lambda items: {"text": torch.randint(20, (items, length))}
    assert_all_equal(exported_and_run(model, draw(2), tmp_path, draw(3)))
    lowtide.quantize_(model.train(), lowtide.Schedule("static 8", steps=10))
    for _ in range(10):
        model(draw(4)["text"])
    for ours, runtimes, theirs in exported_and_run(model, draw(2), tmp_path, draw(3)):
        assert_equal(ours, theirs)
        assert_equal(runtimes, theirs)
