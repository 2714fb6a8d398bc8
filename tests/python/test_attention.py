import pytest
import torch
from torch import nn

import lowtide

CASES = [
    dict(),
    dict(batch_first=True),
    dict(batch_first=True, bias=False),
    dict(kdim=12, vdim=20),
]
UNITS, HEADS, ITEMS, LENGTH, SOURCE = 16, 4, 3, 5, 7


def quantised(model, line="fp32", **options):
    return lowtide.quantize_(model, lowtide.Schedule(line, steps=10), **options)


def inputs(options):
    def make(length, features):
        shape = (ITEMS, length, features) if options.get("batch_first") else (length, ITEMS, features)
        return torch.randn(shape, requires_grad=True)
    return make(LENGTH, UNITS), make(SOURCE, options.get("kdim", UNITS)), make(SOURCE, options.get("vdim", UNITS))


def masks():
    return [
        {},
        {"attn_mask": torch.triu(torch.ones(LENGTH, SOURCE, dtype=torch.bool), 3)},
        {"attn_mask": torch.randn(ITEMS * HEADS, LENGTH, SOURCE), "average_attn_weights": False},
        {"key_padding_mask": torch.arange(SOURCE).expand(ITEMS, SOURCE) > torch.tensor([[3], [6], [5]]),
         "need_weights": False},
    ]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_in_fp32_it_is_pytorchs(options):
    attention = nn.MultiheadAttention(UNITS, HEADS, **options)
    for call in masks():
        x = inputs(options)
        expected, expected_weights = attention(*x, **call)
        gradient = torch.randn_like(expected)
        wanted = [*x, *attention.parameters()]
        expected_gradients = torch.autograd.grad(expected, wanted, gradient)
        quantised(attention)
        actual, weights = attention(*x, **call)
        # Sums of 20 products, and a softmax, in another order.
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        if expected_weights is not None:
            torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-5)
        for a, b in zip(torch.autograd.grad(actual, wanted, gradient), expected_gradients):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        lowtide.restore_(attention)


def test_without_a_batch():
    attention = nn.MultiheadAttention(UNITS, HEADS).eval()
    x = torch.randn(LENGTH, UNITS)
    for call in ({}, {"key_padding_mask": torch.arange(LENGTH) > 2, "attn_mask": torch.randn(HEADS, LENGTH, LENGTH)}):
        expected = attention(x, x, x, **call)
        quantised(attention)
        for a, b in zip(attention(x, x, x, **call), expected):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        lowtide.restore_(attention)


def test_the_weights_that_it_returns_are_those_after_dropout():
    attention = nn.MultiheadAttention(UNITS, HEADS, dropout=0.5)
    x = torch.randn(LENGTH, ITEMS, UNITS)
    torch.manual_seed(3)
    expected = attention(x, x, x)
    assert (expected[1] == 0).any()
    quantised(attention)
    torch.manual_seed(3)
    for a, b in zip(attention(x, x, x), expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_a_mask_of_bytes_is_one_of_bools():
    attention = quantised(nn.MultiheadAttention(UNITS, HEADS))
    mask = torch.ones(LENGTH, SOURCE).triu(3)
    x = inputs({})
    assert torch.equal(attention(*x, attn_mask=mask.byte())[0], attention(*x, attn_mask=mask.bool())[0])


@pytest.mark.parametrize("call, message", [
    ({"attn_mask": torch.ones(LENGTH, SOURCE, dtype=torch.long)}, "its attn_mask is 5 x 7 of int64; expected 5 x 7 or 12 x 5 x 7"),
    ({"attn_mask": torch.zeros(1, SOURCE)}, "its attn_mask is 1 x 7 of float32; expected 5 x 7 or"),
    ({"attn_mask": torch.zeros(LENGTH, 1)}, "its attn_mask is 5 x 1"),
    ({"attn_mask": torch.zeros(HEADS, LENGTH, SOURCE)}, "its attn_mask is 4 x 5 x 7"),
    ({"key_padding_mask": torch.zeros(ITEMS, SOURCE, dtype=torch.uint8)}, "its key_padding_mask is 3 x 7 of uint8; expected 3 x 7"),
    ({"key_padding_mask": torch.zeros(ITEMS * SOURCE, dtype=torch.bool)}, "its key_padding_mask is 21 of bool; expected 3 x 7 of"),
    ({"key_padding_mask": torch.zeros(SOURCE, ITEMS, dtype=torch.bool)}, "its key_padding_mask is 7 x 3"),
], ids=range(7))
def test_masks_that_do_not_fit_are_refused(call, message):
    model = nn.ModuleDict({"attn": nn.MultiheadAttention(UNITS, HEADS)})
    quantised(model)
    with pytest.raises(ValueError, match=f"layer 'attn.scores': {message}") as raised:
        model["attn"](*inputs({}), **call)
    assert "\n" not in str(raised.value)


def test_its_six_products_are_counted_and_have_rules():
    attention = nn.MultiheadAttention(UNITS, HEADS, batch_first=True)
    schedule = lowtide.Schedule("static 8", steps=10)
    lowtide.quantize_(nn.ModuleDict({"attn": attention}), schedule, layer_bits={"attn.scores": "fp32"})
    x = torch.randn(ITEMS, LENGTH, UNITS)
    attention(x, x, x)[0].sum().backward()
    schedule.step()
    rows = ITEMS * LENGTH
    counted = {layer.name: (layer.macs, layer.precision) for layer in lowtide.cost(attention).layers}
    assert counted == {
        "attn.query": (rows * UNITS * UNITS, "scheduled"),
        "attn.key": (rows * UNITS * UNITS, "scheduled"),
        "attn.value": (rows * UNITS * UNITS, "scheduled"),
        "attn.scores": (rows * LENGTH * UNITS, "fp32"),
        "attn.context": (rows * LENGTH * UNITS, "scheduled"),
        "attn.out_proj": (rows * UNITS * UNITS, "scheduled"),
    }


@pytest.mark.parametrize("engine", ["simulated", "integer"])
def test_an_encoder_is_evaluated_in_low_precision_too(engine):
    """PyTorch has a shortcut for evaluation, which would compute in fp32 behind our back."""
    layer = nn.TransformerEncoderLayer(UNITS, HEADS, 32, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    x = torch.randn(ITEMS, LENGTH, UNITS)
    padding = torch.arange(LENGTH).expand(ITEMS, LENGTH) > torch.tensor([[4], [3], [4]])
    with torch.no_grad():
        full = encoder.eval()(x)
    quantised(encoder, "static 3", engine=engine)
    for _ in range(50):  # running ranges settle
        encoder.train()(x)
    encoder.eval()
    with torch.no_grad():
        assert float((encoder(x) - full).abs().max()) > 0.05
        assert encoder(x, src_key_padding_mask=padding).shape == x.shape
        with lowtide.precision(encoder, bits="fp32"):
            torch.testing.assert_close(encoder(x), full, rtol=1e-5, atol=1e-5)
    lowtide.restore_(encoder)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x), full, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_is_said():
    attention = nn.MultiheadAttention(UNITS, HEADS, add_bias_kv=True)
    with pytest.raises(ValueError, match="layer '0', a MultiheadAttention, cannot be quantised: add_bias_kv"):
        quantised(nn.Sequential(attention))
    assert type(attention) is nn.MultiheadAttention
    attention = quantised(nn.MultiheadAttention(UNITS, HEADS))
    with pytest.raises(ValueError, match="expected that mask too"):
        attention(*inputs({}), is_causal=True)
