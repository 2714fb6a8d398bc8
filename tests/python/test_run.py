"""Run folders that Python writes, as the program reads them."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest
import torch
from torch import nn

import lowtide


def train(folder, line="CR 3:8 n=2 grad=8", steps=12, **options):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    schedule = lowtide.Schedule(line, steps=steps)
    lowtide.quantize_(model, schedule, layer_bits={"2": "fp32"}, seed=5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with lowtide.run(folder, model, schedule, name="perceptron", data="drawn", settings={"lr": 0.1}, **options) as run:
        for _ in range(steps):
            x = torch.randn(16, 6)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            run.log(loss=loss, accuracy=0.5, lr=0.1, items=16)
        run.evaluate("valid", accuracy=0.75, loss=0.6)
        run.finish(test=0.7, valid=0.75, test_loss=0.65)
    return model


def test_the_program_compares_and_reports_it(tmp_path, program):
    model = train(tmp_path / "cyclic")
    train(tmp_path / "static", "static 8")
    table = program("compare", tmp_path)
    assert "cyclic" in table and "70.00 %" in table and "75.00 %" in table and "CR 3:8 n=2 grad=8" in table
    compared = {run["run"]: run for run in json.loads(program("compare", tmp_path, "--json"))}
    cyclic = compared["cyclic"]
    assert (cyclic["model"], cyclic["data"], cyclic["steps"], cyclic["eval_bits"]) == ("perceptron", "drawn", 12, 8)
    costs = lowtide.cost(model)
    assert cyclic["relative_cost_actual"] == pytest.approx(costs.relative) and costs.relative > costs.relative_paper


def test_the_page_shows_its_layers(tmp_path, program):
    train(tmp_path / "run")
    told = program("report", tmp_path, "--html", tmp_path / "page.html", code=None)
    if "built without Node" in told or "left out of this program" in told:
        pytest.skip("the program was built without the report's page")
    page = (tmp_path / "page.html").read_text()
    assert "perceptron" in page and '"layers":[{"name":"0","macs":768,"precision":"scheduled"' in page


def test_the_server_shows_it_live(tmp_path, program):
    train(tmp_path / "run")
    told = program("report", tmp_path, "--html", tmp_path / "page.html", code=None)
    if "built without Node" in told or "left out of this program" in told:
        pytest.skip("the program was built without the report's page")
    with subprocess.Popen([os.environ["LOWTIDE_PROGRAM"], "serve", tmp_path, "--port", "0"], stdout=subprocess.PIPE,
                          text=True) as server:
        try:
            address = server.stdout.readline().split()[0].rstrip("/")
            runs = json.loads(urllib.request.urlopen(f"{address}/api/runs?since=0", timeout=30).read())
        finally:
            server.terminate()
    assert '"perceptron"' in json.dumps(runs) and "CR 3:8 n=2 grad=8" in json.dumps(runs)


def test_what_goes_on_is_the_same_run(tmp_path):
    def begin(line="CR 3:8 n=2 grad=8", seed=5, steps=12, lr=0.1, resume=True):
        schedule = lowtide.Schedule(line, steps=steps)
        model = lowtide.quantize_(nn.Sequential(nn.Linear(2, 2)), schedule, seed=seed)
        with lowtide.run(tmp_path / "run", model, schedule, settings={"lr": lr}, resume=resume) as run:
            schedule.step()
            run.log(loss=1)

    begin()
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    for other, message in [
        (dict(line="static 8"), 'the run in it has schedule "CR 3:8 n=2 grad=8", and "static 8 grad=8" is asked for'),
        (dict(seed=6), "the run in it has seed 5, and 6 is asked for"),
        (dict(steps=13), "the run in it has steps 12, and 13 is asked for"),
        (dict(lr=0.2), "the run in it has lr 0.1, and 0.2 is asked for"),
    ]:
        with pytest.raises(ValueError, match=message) as raised:
            begin(**other)
        assert "\n" not in str(raised.value) and str(tmp_path / "run") in str(raised.value)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    begin()


def test_its_files_are_those_of_the_contract(tmp_path):
    train(tmp_path / "run")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["format"] == 1 and run["seed"] == 5 and run["schedule"] == "CR 3:8 n=2 grad=8"
    assert run["recipe"]["lr"] == 0.1 and run["recipe"]["layer-bits"] == ["2=fp32"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    training = [line for line in lines if "split" not in line]
    assert [line["step"] for line in training] == list(range(1, 13))
    assert [line["bits"] for line in training[:2]] == [3, 3] and training[-1]["bits"] == 8
    assert [(line["split"], line.get("final", False)) for line in lines if "split" in line] == [
        ("valid", False), ("valid", True), ("test", True)]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test"] == 0.7 and result["test_loss"] == 0.65 and result["steps"] == 12
    assert (tmp_path / "run" / "checkpoints" / "step-00000012.safetensors").exists()


def test_on_a_gpu_it_says_what_tf32_was(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["lowtide.run"], "_device", lambda model: torch.device("cuda"))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    schedule = lowtide.Schedule("static 8", steps=5)
    model = lowtide.quantize_(nn.Linear(2, 2), schedule)
    with lowtide.run(tmp_path / "run", model, schedule):
        about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["tf32"] == {"convolutions": True, "products": False} and about["recipe"]["model"] == "Linear"


def test_a_run_is_of_the_schedule_that_drives_the_model(tmp_path):
    schedule, other = lowtide.Schedule("static 8", steps=5), lowtide.Schedule("CR 3:8", steps=100)
    model = lowtide.quantize_(nn.Linear(2, 2), schedule)
    lowtide.quantize_(nn.Linear(2, 2), other)
    with pytest.raises(ValueError, match="which Linear does not follow; expected the one that quantize_ was given") as raised:
        lowtide.run(tmp_path / "run", model, other)
    assert "\n" not in str(raised.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("options, message", [
    (dict(folder=5), "folder is 5; expected a path"),
    (dict(model=None), "model is None; expected a torch.nn.Module"),
    (dict(schedule="CR"), "schedule is 'CR'; expected a lowtide.Schedule"),
    (dict(name=5), "name is 5; expected a string"),
    (dict(data=None), "data is None; expected a string"),
    (dict(metric=None), "metric is None; expected a string"),
    (dict(settings={"lr": torch.ones(20, 20)}), "settings: 'lr' is tensor"),
])
def test_wrong_types_are_value_errors(options, message, tmp_path):
    schedule = lowtide.Schedule("static 8", steps=5)
    model = lowtide.quantize_(nn.Linear(2, 2), schedule)
    with pytest.raises(ValueError, match=message) as raised:
        lowtide.run(**{**dict(folder=tmp_path / "run", model=model, schedule=schedule), **options})
    assert "\n" not in str(raised.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("line, message", [
    (dict(loss=1, lr="x"), "lr is 'x'; expected a number"),
    (dict(loss=None), "loss is None; expected a number"),
    (dict(loss=[1]), r"loss is \[1\]; expected a number"),
    (dict(loss=torch.ones(20, 20)), "loss is tensor.*; expected a number"),
    (dict(loss=1, items="many"), "items is 'many'; expected a number"),
    (dict(loss=1, accuracy="good"), "accuracy is 'good'; expected a number"),
])
def test_a_line_is_of_numbers(line, message, tmp_path):
    schedule = lowtide.Schedule("static 8", steps=5)
    model = lowtide.quantize_(nn.Linear(2, 2), schedule)
    schedule.step()
    with lowtide.run(tmp_path / "run", model, schedule) as run:
        with pytest.raises(ValueError, match=message) as raised:
            run.log(**line)
        assert "\n" not in str(raised.value)
        with pytest.raises(ValueError, match="test is None; expected a number"):
            run.finish(test=None)


def test_mistakes_are_named(tmp_path, program):
    train(tmp_path / "run")
    with pytest.raises(ValueError, match="run: this run is finished"):
        train(tmp_path / "run", resume=True)
    assert "written by the script" in program("train", "--resume", tmp_path / "run", code=2)
    assert "written by the script" in program("eval", tmp_path / "run", code=2)
    schedule = lowtide.Schedule("static 8", steps=5)
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="not quantised"):
        lowtide.run(tmp_path / "new", model, schedule)
    lowtide.quantize_(model, schedule)
    with pytest.raises(ValueError, match="unknown metric 'f1'"):
        lowtide.run(tmp_path / "new", model, schedule, metric="f1")
    with lowtide.run(tmp_path / "new", model, schedule) as run:
        with pytest.raises(ValueError, match="expected schedule.step"):
            run.log(loss=1)
        schedule.step()
        with pytest.raises(ValueError, match="f1 is not the metric of this run; expected accuracy"):
            run.log(loss=1, f1=0.3)
        with pytest.raises(ValueError, match="split is 'dev'"):
            run.evaluate("dev", accuracy=1)
        with pytest.raises(ValueError, match="expected accuracy="):
            run.evaluate("valid", loss=1)
        with pytest.raises(ValueError, match="another process is writing this run"):
            lowtide.run(tmp_path / "new", model, schedule)
        run.log(loss=1)
    with pytest.raises(ValueError, match="this run was closed"):
        run.log(loss=1)
    for settings, message in [({"lr": torch.ones(1)}, "settings: 'lr' is tensor"), ({"lr": float("nan")}, "settings: 'lr' is nan"),
                              ({"seed": 3}, "settings: 'seed' is what lowtide.run itself writes")]:
        with pytest.raises(ValueError, match=message):
            lowtide.run(tmp_path / "other", model, schedule, settings=settings)
    with pytest.raises(ValueError, match="holds a run already"):
        lowtide.run(tmp_path / "new", model, schedule)
