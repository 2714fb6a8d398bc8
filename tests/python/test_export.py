import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch
from networks import CifarResNet8
from torch import nn
from torch.nn import functional

import lowtide

RUNTIME = Path(__file__).resolve().parent.parent / "export"


def run_in_onnxruntime(path, inputs, folder):
    """What ONNX Runtime computes, by the script of the C++ tests: tensors go by safetensors files."""
    if not shutil.which("node") or not (RUNTIME / "node_modules/onnxruntime-node").exists():
        pytest.skip("onnxruntime-node is not installed (scripts/setup.sh tests)")
    header, data = {}, b""
    for name, x in inputs.items():
        raw = x.contiguous().numpy().tobytes()
        header[name] = {"dtype": {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}[x.dtype], "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "inputs").write_bytes(struct.pack("<Q", len(text)) + text + data)
    subprocess.run(["node", RUNTIME / "run_onnx.mjs", path, folder / "inputs", folder / "outputs"], check=True)
    whole = (folder / "outputs").read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    results = {}
    for name, entry in json.loads(whole[8:start]).items():
        begin, end = entry["data_offsets"]
        results[name] = torch.frombuffer(bytearray(whole[start + begin:start + end]), dtype=torch.float32).view(entry["shape"])
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


def trained(model, *shape, line="static 6 grad=8"):
    lowtide.quantize_(model, lowtide.Schedule(line, steps=100))
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
    assert weights < (tmp_path / "codes.onnx").stat().st_size < weights + 30000
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


@pytest.mark.parametrize("model, message", [
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
        (dict(bits=99), "bits is 99"),
        (dict(form="qdq", bits=12), "12 bits in the form qdq"),
    ]:
        given = dict(path=tmp_path / "m.onnx", **arguments) if "path" not in arguments else arguments
        model = trained(Varied(), 3, 8, 8)
        with pytest.raises(ValueError) as raised:
            lowtide.export_onnx(model, x, **given)
        assert message in str(raised.value) and "\n" not in str(raised.value)
