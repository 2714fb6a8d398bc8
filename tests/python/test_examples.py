"""The examples, in brief, on real data: networks that lowtide does not have learn on a cyclic schedule."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")


def example(name, *arguments, **environment):
    done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **environment))
    assert done.returncode == 0, done.stdout
    return done.stdout


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


@pytest.mark.skipif(not FASHION_MNIST.exists(), reason="dataset-fashion-mnist is missing")
def test_a_convnext_learns_images(tmp_path, program):
    printed = example("images.py", "--steps", 60, "--batch", 32, "--out", tmp_path / "run")
    result = result_of(tmp_path / "run")
    assert result["test"] > 0.4 and 0.03 < result["relative_cost"] < 0.05  # by chance: 0.1
    assert "first.0.depthwise" in printed
    assert "convnext" in json.dumps(json.loads(program("compare", tmp_path / "run", "--json")))


@pytest.mark.skipif(not TEXT.exists(), reason="there is no text to read")
def test_a_gpt_learns_text(tmp_path, program):
    example("text.py", "--text", TEXT, "--steps", 150, "--out", tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    # Letters by their frequency alone give a loss of 3.05.
    assert lines[2]["step"] == 150 and lines[2]["loss"] < 2.8
    assert result_of(tmp_path / "run")["metric"] == "perplexity"
    assert "perplexity" in program("compare", tmp_path / "run")


@pytest.mark.skipif(not TEXT.exists(), reason="there is no text to read")
def test_a_text_that_was_stopped_goes_on(tmp_path):
    def arguments(folder):
        return "text.py", "--text", TEXT, "--steps", 110, "--batch", 4, "--out", tmp_path / folder

    name, *others = map(str, arguments("stopped"))
    with subprocess.Popen([sys.executable, EXAMPLES / name, *others], stdout=subprocess.PIPE, text=True) as stopped:
        while not (tmp_path / "stopped" / "state.pt").exists() and stopped.poll() is None:
            time.sleep(0.01)
        stopped.kill()
    example(*arguments("stopped"))
    example(*arguments("whole"))
    stopped, whole = ([(line["step"], line.get("loss")) for line in lines_of(tmp_path / folder)] for folder in ("stopped", "whole"))
    assert stopped == whole and [step for step, _ in whole][:2] == [50, 100]
