import pytest
import torch
from torch import nn

import lowtide

CASES = [
    dict(),
    dict(num_layers=2, bidirectional=True),
    dict(batch_first=True, bias=False),
]
TIME, ITEMS, INPUTS, UNITS = 6, 3, 5, 7


def quantised(model, line="fp32", **options):
    return lowtide.quantize_(model, lowtide.Schedule(line, steps=10), **options)


def states(options):
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    return tuple(torch.randn(count, ITEMS, UNITS, requires_grad=True) for _ in range(2))


@pytest.mark.parametrize("options", CASES, ids=str)
def test_in_fp32_it_is_pytorchs(options):
    lstm = nn.LSTM(INPUTS, UNITS, **options)
    x = torch.randn((ITEMS, TIME, INPUTS) if options.get("batch_first") else (TIME, ITEMS, INPUTS), requires_grad=True)
    state = states(options)

    def all_of(module):
        output, (hidden, cell) = module(x, state)
        loss = (output * output).sum() + 2 * hidden.sum() + (cell ** 2).sum()
        return output, hidden, cell, *torch.autograd.grad(loss, [x, *state, *module.parameters()])

    expected = all_of(lstm)
    quantised(lstm)
    for a, b in zip(all_of(lstm), expected):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # sums of a dozen products, six steps deep
    lowtide.restore_(lstm)
    assert all(torch.equal(a, b) for a, b in zip(all_of(lstm), expected))


def test_without_a_batch_and_without_a_state():
    lstm = nn.LSTM(INPUTS, UNITS)
    x = torch.randn(TIME, INPUTS)
    expected, (hidden, cell) = lstm(x)
    quantised(lstm)
    actual, last = lstm(x)
    torch.testing.assert_close((actual, *last), (expected, hidden, cell), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["simulated", "integer"])
def test_it_learns_in_low_precision(engine):
    """To tell the sign of a sum of what it has read."""
    lstm, head = nn.LSTM(1, 16, dropout=0.1, num_layers=2), nn.Linear(16, 1)
    model = nn.ModuleDict({"lstm": lstm, "head": head})
    schedule = lowtide.Schedule("CR 4:8 n=4", steps=120)
    lowtide.quantize_(model, schedule, engine=engine)
    assert [layer.name for layer in lowtide.layers(model)] == ["lstm.l0", "lstm.l1", "head"]
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for _ in range(120):
        x = torch.randn(8, 32, 1)
        hidden = lstm(x)[1][0][-1]
        loss = nn.functional.binary_cross_entropy_with_logits(head(hidden), (x.sum(0) > 0).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss))
    assert losses[0] > 0.6 and sum(losses[-10:]) / 10 < 0.35  # by chance it is log 2
    assert float(lstm.hidden_l1_range) > 0
    assert lowtide.cost(model).layers[1].macs == 8 * 32 * 4 * 16 * 32


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="a LSTM, cannot be quantised: proj_size"):
        quantised(nn.Sequential(nn.LSTM(INPUTS, UNITS, proj_size=3)))
    lstm = quantised(nn.LSTM(INPUTS, UNITS))
    packed = nn.utils.rnn.pack_sequence([torch.randn(4, INPUTS), torch.randn(2, INPUTS)])
    with pytest.raises(ValueError, match="its input is a PackedSequence; expected a tensor"):
        lstm(packed)
    x = torch.randn(TIME, ITEMS, INPUTS)
    for sizes in ((3, ITEMS, UNITS), (ITEMS, UNITS)):
        state = torch.zeros(sizes)
        with pytest.raises(ValueError, match=f"layer 'l0': its states are {' x '.join(map(str, sizes))}; expected 1 x 3 x 7"):
            lstm(x, (state, state))
    with pytest.raises(ValueError, match="layer 'l0': its states are 1 x 3 x 7; expected 2 x 3 x 7"):
        quantised(nn.LSTM(INPUTS, UNITS, num_layers=2))(x, (torch.zeros(1, ITEMS, UNITS),) * 2)
    with pytest.raises(ValueError, match="layer 'l0': its states are 1 x 3 x 7; expected 1 x 7"):
        lstm(x[:, 0], (torch.zeros(1, ITEMS, UNITS),) * 2)
    with pytest.raises(ValueError, match="layer 'l0': its input is 6 x 3 x 4; expected time x batch x 5 features"):
        lstm(torch.randn(TIME, ITEMS, 4))
