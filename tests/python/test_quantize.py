import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

import lowtide


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(functional.relu(self.norm(self.conv2(functional.relu(self.conv1(x))))).mean((2, 3)))


def images():
    return torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(3))


def quantised(model=None, line="static 4 grad=8", **options):
    model = model or Small()
    schedule = lowtide.Schedule(line, steps=100)
    return lowtide.quantize_(model, schedule, **options), schedule


def test_keys_and_parameters_stay_and_it_can_be_undone():
    model = Small()
    before, parameters, classes = copy.deepcopy(model.state_dict()), list(model.parameters()), [type(m) for m in model.modules()]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    expected = model.eval()(images())
    quantised(model.train())
    assert isinstance(model.conv1, nn.Conv2d) and set(before) < set(model.state_dict())
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    model(images()).sum().backward()
    optimizer.step()
    assert all(not torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    lowtide.restore_(model)
    assert set(model.state_dict()) == set(before) and [type(m) for m in model.modules()] == classes
    fresh = Small()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.eval()(images()), model.eval()(images())) and not torch.equal(model(images()), expected)


def test_weights_without_ranges_are_loaded_strictly_and_ranges_come_back():
    model, _ = quantised()
    model(images())
    saved = model.state_dict()
    assert float(saved["conv1.activation_range"]) > 0
    other, _ = quantised()
    other.load_state_dict(saved)
    with torch.no_grad():
        assert torch.equal(other.eval()(images()), model.eval()(images()))
    other.load_state_dict(Small().state_dict())
    with pytest.raises(RuntimeError, match="conv1.weight"):
        other.load_state_dict({})


def test_bits_of_training_evaluation_and_precision():
    model, schedule = quantised(line="CR 3:8 n=1")
    with torch.no_grad():
        model(images())  # a range
        in_training = model(images())
        with lowtide.precision(model, bits=3):
            assert torch.equal(model(images()), in_training)
        model.eval()
        by_itself = model(images())
        with lowtide.precision(model, bits=8):
            assert torch.equal(model(images()), by_itself), "evaluation is at the schedule's highest bits"
            with lowtide.precision(model, bits="fp32"):
                full = model(images())
            assert torch.equal(model(images()), by_itself)
    assert not torch.equal(full, by_itself)
    with lowtide.precision(model, bits=3):
        assert torch.equal(model(images()), model(images()))
    with torch.enable_grad(), lowtide.precision(model, bits=(3, 8)):
        at_three = model(images())
    assert torch.equal(model(images()), at_three), "frozen statistics, and gradients: the step's bits"
    assert lowtide.cost(model).steps == 0
    for bits in (1, 33, "eight", (3, -1), 4.5, (3,), (3, 4, 5)):
        with pytest.raises(ValueError, match="expected 2 to 32"):
            with lowtide.precision(model, bits=bits):
                pass


def test_rules_for_single_layers():
    model, _ = quantised(layer_bits={"conv*": 6, "conv2": "fp32"})
    assert lowtide.layers(model) == [("conv1", "6"), ("conv2", "fp32"), ("fc", "scheduled")]
    with pytest.raises(ValueError, match=r"layer_bits: 'con1' matches no layer of the model .*; they are conv1, conv2, fc"):
        quantised(layer_bits={"con1": 8})
    model = Small()
    with pytest.raises(ValueError, match="'1' is not the precision of a layer"):
        quantised(model, layer_bits={"fc": 1})
    assert type(model.fc) is nn.Linear, "nothing was changed"


def test_costs_are_counted_as_they_run():
    model, schedule = quantised(line="table 4x1 8x99", layer_bits={"fc": "fp32"})
    macs = {"conv1": 4 * 8 * 3 * 9 * 81, "conv2": 4 * 8 * 9 * 16, "fc": 4 * 8 * 5}
    model(images()).sum().backward()
    with torch.no_grad():
        model(images())
    schedule.step()
    costs = lowtide.cost(model)
    assert {layer.name: layer.macs for layer in costs.layers} == macs
    assert costs.paper == sum(macs.values()) * (4 * 4 + 2 * 4 * 8)
    assert costs.actual == costs.paper + macs["fc"] * (3 * 32 * 32 - 80)
    assert costs.relative == costs.actual / (sum(macs.values()) * 3072)
    for _ in range(2):  # two passes make one step
        model(images()).sum().backward()
    schedule.step()
    assert lowtide.cost(model).paper == costs.paper + 2 * sum(macs.values()) * (64 + 2 * 64)
    assert "conv2" in str(lowtide.cost(model))


def test_what_is_not_counted_is_said():
    model = nn.ModuleDict({"conv": nn.Conv2d(1, 2, 3), "up": nn.ConvTranspose2d(2, 1, 3), "gru": nn.GRU(4, 4)})
    with pytest.warns(UserWarning) as warned:
        _, schedule = quantised(model)
    named = "up (ConvTranspose2d), gru (GRU)"
    assert [str(warning.message) for warning in warned] == [f"neither quantised nor counted in costs: {named}"]
    model["up"](model["conv"](torch.randn(1, 1, 5, 5))).sum().backward()
    schedule.step()
    costs = lowtide.cost(model)
    assert costs.not_counted == ("up (ConvTranspose2d)", "gru (GRU)") and str(costs).endswith(f"not counted: {named}")
    assert "not counted" not in str(lowtide.cost(trained_once(Small())))


def test_the_linear_layer_of_hugging_faces_gpt2_is_known():
    conv1d = type("Conv1D", (nn.Module,), {"__module__": "transformers.pytorch_utils"})
    with pytest.warns(UserWarning, match=r"neither quantised nor counted in costs: 1 \(Conv1D\)"):
        quantised(nn.Sequential(nn.Linear(3, 2), conv1d()))


def trained_once(model):
    _, schedule = quantised(model)
    model(images()).sum().backward()
    schedule.step()
    return model


def test_a_schedule_may_drive_two_models_and_forgets_those_that_are_gone():
    one, schedule = quantised()
    two = lowtide.quantize_(Small(), schedule)
    for model in (one, two):
        model(images()).sum().backward()
    schedule.step()
    assert lowtide.cost(one).steps == lowtide.cost(two).steps == 1
    lowtide.restore_(two)
    assert len(schedule.state_dict()["ledgers"]) == 1
    with pytest.raises(ValueError, match="Small is not quantised"):
        lowtide.cost(two)


def test_copies_compute_the_same():
    model, _ = quantised()
    model(images())
    twin = copy.deepcopy(model)
    assert torch.equal(twin(images()), model(images())) and twin.fc.weight is not model.fc.weight
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    lowtide.restore_(twin)
    assert type(twin.fc) is nn.Linear and len(lowtide.layers(model)) == 3


def test_noise_is_of_the_seed_the_step_and_the_call():
    def gradients(seed, step):
        torch.manual_seed(5)
        model, schedule = quantised(line="static 8 grad=3", seed=seed)
        for _ in range(step):
            schedule.step()
        first, second = (torch.autograd.grad(model(images()).sum(), model.conv1.weight)[0] for _ in range(2))
        assert not torch.equal(first, second)
        return first

    assert torch.equal(gradients(1, 2), gradients(1, 2))
    assert not torch.equal(gradients(1, 2), gradients(2, 2)) and not torch.equal(gradients(1, 2), gradients(1, 3))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_changes_ranges_alone(use_reentrant):
    results = []
    for run in (lambda model, x: model(x), lambda model, x: checkpoint(model, x, use_reentrant=use_reentrant)):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
        _, schedule = quantised(model, line="static 4 grad=4")
        x = images().requires_grad_()
        run(model, x).sum().backward()
        schedule.step()
        results.append((model[0].weight.grad, x.grad, lowtide.cost(model), float(model[0].activation_range)))
    (weight, input, cost, once), (weight_again, input_again, cost_again, twice) = results
    assert torch.equal(weight, weight_again) and torch.equal(input, input_again) and cost == cost_again
    # From 0 by a tenth of the way, once and twice.
    assert once == pytest.approx(0.1 * float(x.max() - x.min())) and twice == pytest.approx(1.9 * once)


def test_calls_are_counted_with_their_backward_pass():
    frozen, trained = nn.Linear(4, 3).requires_grad_(False), nn.Linear(3, 2)
    model, schedule = quantised(nn.Sequential(frozen, trained))
    model(torch.randn(5, 4)).sum().backward()
    model[1](torch.randn(5, 3))  # which nobody asks for its gradient
    schedule.step()
    assert [layer.macs for layer in lowtide.cost(model).layers] == [5 * 4 * 3, 5 * 3 * 2]
    loss = model(torch.randn(5, 4)).sum()
    lowtide.restore_(model)
    loss.backward()  # with nothing left to count in


class Derived(nn.Linear):
    pass


class WithForward(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class WithConvForward(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight - weight.mean(), bias)


def test_derived_classes_are_swapped_unless_they_compute_otherwise():
    model = nn.Sequential(Derived(4, 4), WithForward(4, 4), WithConvForward(4, 4, 1))
    quantised(model)
    assert [layer.name for layer in lowtide.layers(model)] == ["0"] and isinstance(model[0], Derived)
    lowtide.restore_(model)
    assert type(model[0]) is Derived


def test_tied_and_reparametrised_weights():
    embedding, head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
    head.weight = embedding.weight
    tied, _ = quantised(nn.Sequential(embedding, head))
    tied(torch.arange(10)).sum().backward()
    assert tied[1].weight is tied[0].weight and tied[0].weight.grad is not None
    normed, _ = quantised(nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4))))
    normed(torch.randn(3, 4)).sum().backward()
    assert all(p.grad is not None for p in normed.parameters())
    lowtide.restore_(normed)
    parametrize.remove_parametrizations(normed[0], "weight")
    assert type(normed[0]) is nn.Linear


def test_what_was_made_of_a_layer_since_is_not_restored():
    model, _ = quantised(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    parametrizations.orthogonal(model[1])
    with pytest.raises(ValueError, match="layer '1' is a ParametrizedQuantLinear.*remove its parametrisations first") as raised:
        lowtide.restore_(model)
    assert "\n" not in str(raised.value) and len(lowtide.layers(model)) == 2 and model(torch.randn(2, 4)).shape == (2, 4)
    parametrize.remove_parametrizations(model[1], "weight")
    lowtide.restore_(model)
    assert [type(module) for module in model] == [nn.Linear, nn.Linear]


CONVOLUTIONS = [
    dict(kernel_size=3),
    dict(kernel_size=3, padding=1, stride=2, groups=2),
    dict(kernel_size=(1, 5), padding=(0, 2), stride=(2, 1)),
    dict(kernel_size=3, padding=2, dilation=2),
    dict(kernel_size=3, padding="same"),
    dict(kernel_size=(4, 2), padding="same"),
    dict(kernel_size=3, padding="valid"),
    dict(kernel_size=3, padding=1, padding_mode="reflect"),
    dict(kernel_size=(3, 1), padding=(2, 0), padding_mode="circular", bias=False),
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_in_fp32_every_convolution_is_pytorchs(options):
    conv = nn.Conv2d(4, 6, **options)
    x = torch.randn(3, 4, 12, 11, requires_grad=True)
    for shape in (x,) if conv.padding_mode == "circular" else (x, x[0]):  # PyTorch's own does not take the second
        expected = conv(shape)
        gradient = torch.randn_like(expected)
        expected_gradients = torch.autograd.grad(expected, [x, *conv.parameters()], gradient)
        model, _ = quantised(nn.Sequential(conv), line="fp32")
        actual = model(shape)
        # Sums of 36 products in another order.
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        for a, b in zip(torch.autograd.grad(actual, [x, *conv.parameters()], gradient), expected_gradients):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        lowtide.restore_(model)


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_engines_agree(options):
    results = []
    for engine in ("simulated", "integer"):
        torch.manual_seed(2)
        model, _ = quantised(nn.Sequential(nn.Conv2d(4, 6, **options)), line="static 5 grad=8", engine=engine)
        x = torch.randn(3, 4, 12, 11, requires_grad=True)
        y = model(x)
        results.append((y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])))
    # The same codes, multiplied as floats or as bytes; 36 products, and 400 in a weight's gradient. An output that differs in
    # its last bit may have its error rounded to the next of 255 codes.
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-5)
    for a, b in zip(results[0][1:], results[1][1:]):
        assert float((a - b).norm() / b.norm()) < 5e-3


def test_a_linear_layer_takes_any_number_of_dimensions():
    x = torch.randn(2, 3, 5, 4)
    results = []
    for shape in ((30, 4), (2, 15, 4), (2, 3, 5, 4)):
        torch.manual_seed(4)
        model, _ = quantised(nn.Linear(4, 6), line="static 4 grad=3")
        y = model(x.view(shape))
        assert y.shape == (*shape[:-1], 6)
        results.append((y.flatten(), *torch.autograd.grad(y.square().sum(), model.parameters())))
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))
    assert model(x[0, 0, 0]).shape == (6,)


def test_autocast_is_left_outside():
    model, _ = quantised(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)), line="fp32")
    x = torch.randn(4, 8)
    expected = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(x), expected)
        assert model(x.bfloat16()).dtype == torch.float32


def test_wrong_input_is_a_value_error_with_the_layers_name():
    model, _ = quantised()
    with pytest.raises(ValueError, match="layer 'conv1': its input is 4 x 1 x 9 x 9; expected items x 3 channels"):
        model(torch.randn(4, 1, 9, 9))
    with pytest.raises(ValueError, match="layer 'fc': its input is 4 x 7; expected 8 features"):
        model.fc(torch.randn(4, 7))
    with pytest.raises(ValueError, match="smaller than its kernel"):
        model.conv2(torch.randn(4, 8, 2, 2))
    with pytest.raises(ValueError, match="its input is Long; expected float32"):
        model.fc(torch.ones(4, 8, dtype=torch.long))
    with pytest.raises(ValueError, match="its weight is Half"):
        model.half()(images())


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="ReLU has no layer to quantise"):
        quantised(nn.ReLU())
    model, schedule = quantised()
    with pytest.raises(ValueError, match="quantised already"):
        lowtide.quantize_(model, schedule)
    with pytest.raises(ValueError, match=r"unknown engine 'intger' \(did you mean 'integer'\?\)"):
        quantised(engine="intger")
    with pytest.raises(ValueError, match="model is None; expected a torch.nn.Module"):
        lowtide.quantize_(None, schedule)
    with pytest.raises(ValueError, match="schedule is 'CR 3:8'; expected a lowtide.Schedule"):
        lowtide.quantize_(Small(), "CR 3:8")
    for seed in (-1, 2 ** 64, 0.5):
        with pytest.raises(ValueError, match=f"seed is {seed}; expected a whole number"):
            quantised(seed=seed)
    with pytest.raises(ValueError, match="engine 'cuda'"):
        quantised(engine="cuda")
    with pytest.raises(ValueError, match="lowtide.quantize_"):
        with lowtide.precision(Small(), bits=8):
            pass


@pytest.mark.parametrize("line, message", [("waterfill 3:8 grad=8 budget=0.6", "chooses bits for layers by what they multiply"),
                                           ("table 5[4/6]x600 6[5/7]x400", "bits of 2 layers, and the network has 3")])
def test_what_fails_changes_nothing(line, message):
    model = Small()
    classes, keys = [type(module) for module in model.modules()], set(model.state_dict())
    with pytest.raises(ValueError, match=message):
        lowtide.quantize_(model, lowtide.Schedule(line, steps=1000))
    assert [type(module) for module in model.modules()] == classes and set(model.state_dict()) == keys
    lowtide.quantize_(model, lowtide.Schedule("static 8", steps=10))
    assert model(images()).shape == (4, 5)


def test_a_name_that_is_taken_is_seen_before_anything_changes():
    model = Small()
    model.fc.activation_min = 0.0
    with pytest.raises(ValueError, match="layer 'fc', a Linear, cannot be quantised: its 'activation_min' is where lowtide"):
        quantised(model)
    assert type(model.conv1) is nn.Conv2d


def test_an_evaluation_needs_ranges_that_were_measured():
    model, _ = quantised(line="static 8")
    with torch.no_grad(), pytest.raises(ValueError, match="layer 'conv1': its input's range was not measured") as raised:
        model.eval()(images())
    assert "\n" not in str(raised.value)
    with torch.no_grad(), lowtide.precision(model, "fp32"):
        model(images())
    model.train()(images())
    with torch.no_grad():
        model.eval()(images())
    full, _ = quantised(line="fp32")
    full(images())  # in fp32 nothing is measured, and an evaluation needs nothing
    with torch.no_grad():
        full.eval()(images())
        with lowtide.precision(full, bits=8), pytest.raises(ValueError, match="in training mode and in low precision"):
            full(images())


def test_an_input_that_is_always_zero_is_measured_too():
    model, _ = quantised(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    model(torch.randn(2, 4))
    with torch.no_grad():
        assert torch.allclose(model.eval()(torch.randn(2, 4)), model[2].bias, atol=0.1)  # but for its codes


def test_layers_without_weights_yet_are_refused():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(ValueError, match="layer '0', a LazyConv2d, cannot be quantised: it has no weights yet; give the model one"):
        quantised(model)
    model(images())
    quantised(model)
    assert model(images()).shape == (4, 3) and len(lowtide.layers(model)) == 2


def test_an_empty_batch_has_an_empty_result():
    model, _ = quantised()
    x = torch.randn(0, 3, 9, 9, requires_grad=True)
    y = model.fc(model.conv2(model.conv1(x)).mean((2, 3)))
    y.sum().backward()
    assert y.shape == (0, 5) and x.grad.shape == x.shape and not model.conv1.weight.grad.any()


def test_tables_with_bits_of_layers():
    model, schedule = quantised(line="table 5[4/6/8]x60 7[8/3/2]x40 grad=8", layer_bits={"fc": 5})
    twin, single = quantised(lowtide.restore_(copy.deepcopy(model)), line="static 5 grad=8",
                             layer_bits={"conv1": 4, "conv2": 6, "fc": 5})
    assert torch.equal(model(images()), twin(images()))
    for each in (model, twin):
        each(images()).sum().backward()
    schedule.step()
    single.step()
    macs = [4 * 8 * 3 * 9 * 81, 4 * 8 * 9 * 16, 4 * 8 * 5]
    assert [layer.macs for layer in lowtide.cost(model).layers] == macs
    assert lowtide.cost(model).actual == lowtide.cost(twin).actual
    assert lowtide.cost(model).paper == sum(n * (bits * bits + 2 * bits * 8) for n, bits in zip(macs, (4, 6, 8)))


def test_a_second_backward_pass_is_one_line():
    """Autograd makes a RuntimeError of it, as of its own."""
    model, _ = quantised(nn.Sequential(nn.Linear(4, 4)))
    loss = model(torch.randn(2, 4)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="^a second backward pass of one forward pass"):
        loss.backward()
    lstm, _ = quantised(nn.LSTM(4, 4))
    loss = lstm(torch.randn(2, 1, 4))[0].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="^a second backward pass of one forward pass"):
        loss.backward()


@pytest.mark.parametrize("model, call", [
    (nn.Conv2d(4, 3, 1), lambda model, x: model(x.view(2, 4, 3, 1))),
    (nn.Linear(4, 3), lambda model, x: model(x)),
    (nn.MultiheadAttention(4, 2), lambda model, x: model(x, x, x)[0]),
    (nn.LSTM(4, 3), lambda model, x: model(x)[0]),
])
@pytest.mark.parametrize("line", ["fp32", "static 8 grad=8"])
def test_a_gradient_of_a_gradient_is_refused(model, call, line):
    quantised(model, line=line)
    x = torch.randn(2, 3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="^a gradient of a gradient, which quantised layers do not have"):
        torch.autograd.grad(call(model, x).square().sum(), x, create_graph=True)
    lowtide.restore_(model)


def test_what_is_not_finite_is_seen():
    model, _ = quantised(nn.Sequential(nn.Linear(4, 4)))
    x = torch.randn(2, 4)
    x[0, 0] = math.nan
    assert model(x).isnan().any()
