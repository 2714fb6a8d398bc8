import copy
import json
import pickle

import pytest
import torch

import lowtide


def test_bits_are_those_of_the_program(program):
    line = "delayed 10% CR 3:8 n=4 grad=8 then fp32 last=5%"
    schedule = lowtide.Schedule(line, steps=200)
    runs = json.loads(program("schedule", line, "--steps", 200, "--json"))["runs"]
    assert [schedule.at(step).forward for step in range(200)] == [bits for bits, steps in runs for _ in range(steps)]
    assert schedule.at(5) == (8, 8) and schedule.evaluation_bits == (0, 0)


def test_steps_like_a_learning_rate_scheduler():
    schedule = lowtide.Schedule("CR 3:8", steps=16)
    assert schedule.line == "CR 3:8 n=8 grad=8" and schedule.bits == schedule.at(0) == (3, 8)
    schedule.step()
    assert schedule.step_count == 1 and schedule.bits == schedule.at(1) == lowtide.Bits(6, 8)  # 5.5, half a cosine
    assert schedule.evaluation_bits.forward == 8


def test_a_closed_loop_goes_on_from_its_state():
    def losses(step):
        return max(1 - 0.3 * step, 0.1)

    def make():
        return lowtide.Schedule("progressive 3,4,6,8 grad=8 window=2 threshold=0.01 patience=1", steps=30)

    whole, bits = make(), []
    for step in range(30):
        bits.append(whole.bits)
        whole.step(loss=torch.tensor(losses(step)))
        if step == 11:
            state = whole.state_dict()
    assert bits[0] == (3, 8) and bits[-1] == (8, 8)
    resumed = make()
    resumed.load_state_dict(state)
    for step in range(12, 30):
        assert resumed.bits == bits[step]
        resumed.step(loss=losses(step))


def test_a_table_may_be_a_file(tmp_path, program):
    (tmp_path / "bits.csv").write_text("step,bits\n0,8\n3,4\n9,4\n")
    line = f"table @{tmp_path / 'bits.csv'} grad=6"
    schedule = lowtide.Schedule(line, steps=10)
    assert schedule.line == "table 8x3 4x7 grad=6" and [schedule.at(step).forward for step in range(10)] == [8] * 3 + [4] * 7
    runs = json.loads(program("schedule", line, "--steps", 10, "--json"))["runs"]
    assert [schedule.at(step).forward for step in range(10)] == [bits for bits, steps in runs for _ in range(steps)]
    (tmp_path / "bits.csv").write_text("step,bits\n0,99\n")
    with pytest.raises(ValueError, match="bits.csv") as raised:
        lowtide.Schedule(line, steps=10)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="missing.csv"):
        lowtide.Schedule(f"table @{tmp_path / 'missing.csv'}", steps=10)


def test_matched_follows_the_rates_it_is_given():
    schedule = lowtide.Schedule("matched 3:8 grad=8 budget=0.6", steps=100, rates=lambda step: 1.0 if step < 50 else 0.01)
    assert schedule.at(0).forward < schedule.at(99).forward
    with pytest.raises(ValueError, match="follows the learning rate"):
        lowtide.Schedule("matched 3:8 grad=8 budget=0.6", steps=100)


@pytest.mark.parametrize("line, steps, message", [
    ("CX 3:8", 100, "schedule 'CX 3:8': unknown name 'CX'"),
    ("CR 3:99", 100, "schedule 'CR 3:99'"),
    ("CR 3:8 n=8", 4, "schedule 'CR 3:8 n=8 grad=8'"),
])
def test_a_mistake_is_a_value_error_of_one_line(line, steps, message):
    with pytest.raises(ValueError) as raised:
        lowtide.Schedule(line, steps=steps)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


@pytest.mark.parametrize("arguments, message", [
    (dict(line=None, steps=10), "a schedule's line is None"),
    (dict(line="CR", steps=10.5), "steps is 10.5; expected a whole number"),
    (dict(line="CR", steps=2 ** 70), "expected a whole number"),
    (dict(line="matched 3:8 grad=8 budget=0.6", steps=10, rates=0.1), "rates is 0.1; expected a function"),
    (dict(line="matched 3:8 grad=8 budget=0.6", steps=10, rates=str), "is '0'; expected a number"),
])
def test_a_wrong_type_is_a_value_error_too(arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        lowtide.Schedule(**arguments)
    assert "\n" not in str(raised.value)


def test_wrong_types_of_what_it_is_asked_and_told():
    schedule = lowtide.Schedule("progressive 3,8 grad=8", steps=10)
    for wrong, message in [(lambda: schedule.at(1.5), "step is 1.5; expected a whole number"),
                           (lambda: schedule.at(2 ** 63), "expected a whole number"),
                           (lambda: schedule.step("abc"), "loss is 'abc'; expected a number"),
                           (lambda: schedule.step(torch.ones(20, 20)), r"loss is tensor\(\[.*expected a number")]:
        with pytest.raises(ValueError, match=message) as raised:
            wrong()
        assert "\n" not in str(raised.value)
    assert schedule.at(torch.tensor(3)) == (3, 8)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="^cannot pickle 'lowtide._lowtide.Schedule' object$"):
            copied(schedule)


def test_a_state_of_another_schedule_is_refused():
    state = lowtide.Schedule("CR 3:8", steps=100).state_dict()
    with pytest.raises(ValueError, match='whose line is "CR 3:8 n=8 grad=8"; expected "RR 3:8 n=8 grad=8"'):
        lowtide.Schedule("RR 3:8", steps=100).load_state_dict(state)
    with pytest.raises(ValueError, match="whose steps is 100; expected 200"):
        lowtide.Schedule("CR 3:8", steps=200).load_state_dict(state)
    with pytest.raises(ValueError, match="this is no state of a schedule"):
        lowtide.Schedule("CR 3:8", steps=200).load_state_dict({"model": torch.zeros(1)})
    with pytest.raises(ValueError, match="listens to the loss"):
        lowtide.Schedule("progressive 3,8 grad=8", steps=10).step()
