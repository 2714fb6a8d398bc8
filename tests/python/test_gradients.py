"""A network in Python has the gradients of lowtide's own, with noise."""

import pytest
import torch
from torch.nn import functional

import _reference
import lowtide
from networks import CifarResNet8

STEP = 3


class LowtidesNorm(torch.nn.Module):
    """A batch normalisation that rounds as lowtide's does."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x):
        return _reference.batch_norm(x, self.weight, self.bias)


def with_lowtides_norms(model):
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.BatchNorm2d):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, LowtidesNorm(module))
    model.mean = _reference.pixel_mean
    return model


def gradients(model, images, labels, line, seed, engine):
    schedule = lowtide.Schedule(line, steps=100)
    lowtide.quantize_(model, schedule, layer_bits={"fc": "fp32"}, seed=seed, engine=engine)
    for _ in range(STEP):
        schedule.step()
    logits = model(images)
    functional.cross_entropy(logits, labels).backward()
    return {"logits": logits.detach(), **{name: p.grad for name, p in model.named_parameters()}}


@pytest.fixture
def batch():
    return torch.randn(9, 1, 28, 28), torch.randint(10, (9,))


def reference(model, batch, bits, seed, engine):
    weights = {name: p.detach() for name, p in model.named_parameters()}
    return _reference.image_model_gradients("cifar-resnet8", weights, *batch, bits, seed, STEP, engine)


# The fused passes of the engine `integer`, too, are those that single layers are made of.
@pytest.mark.parametrize("engine", ["simulated", "integer"])
@pytest.mark.parametrize("bits", [(5, 6), (8, 8), (12, 4)], ids=str)
def test_every_bit_is_the_same(batch, bits, engine):
    model = with_lowtides_norms(CifarResNet8())
    expected = reference(model, batch, bits, seed=7, engine=engine)
    other_noise = reference(model, batch, bits, seed=8, engine=engine)
    actual = gradients(model, *batch, f"static {bits[0]} grad={bits[1]}", seed=7, engine=engine)
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name
    assert not torch.equal(actual["conv1.weight"], other_noise["conv1.weight"])


# PyTorch's own normalisation differs in a float's last bit, and what is rounded to a few bits then differs somewhere by a
# whole code. In fp32 nothing but those last bits differ, through nine layers.
def test_with_pytorchs_norms_it_is_the_same_but_for_rounding(batch):
    model = CifarResNet8()
    expected = reference(model, batch, (0, 0), seed=7, engine="simulated")
    actual = gradients(model, *batch, "fp32", seed=7, engine="simulated")
    for name, tensor in expected.items():
        assert float((actual[name] - tensor).norm() / tensor.norm()) < 1e-4, name
