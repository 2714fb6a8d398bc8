"""Studies of a script: `lowtide study suite --command …`."""

import json
import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("train_small.py")
COMMAND = f"{sys.executable} {SCRIPT} {{out}} {{schedule}} {{seed}}"


def test_a_script_is_studied_as_recipes_are(tmp_path, program):
    study = ["study", "suite", "--out", tmp_path / "suite", "--steps", 20, "--schedules", "CR,static", "--seeds", 2, "--jobs", 2,
             "--threads", 2, "--cycles", 2, "--command", COMMAND]
    killed = subprocess.run([os.environ["LOWTIDE_PROGRAM"], *map(str, study)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env=dict(os.environ, KILL_AT="9"))
    assert killed.returncode == 2 and "4 of 4 runs failed" in killed.stdout and "SIGKILL" in killed.stdout
    printed = program(*study)
    assert "CR-seed1 goes on" in printed and "done: accuracy" in printed
    assert "4 done" in program("study", "status", tmp_path / "suite")
    run = json.loads((tmp_path / "suite" / "CR-seed2" / "run.json").read_text())
    assert run["schedule"] == "CR 3:8 n=2 grad=8" and run["seed"] == 2 and run["threads"] == 1
    analysis = program("study", "analyze", tmp_path / "suite")
    assert "train_small.py" in analysis and "| CR " in analysis and "| static " in analysis
    assert "done; what came out" in program(*study), "nothing is left to run"
    assert "CR" in program("advise", "--steps", 20, "--budget", 0.9, "--from", tmp_path / "suite")


def test_mistakes_are_named(tmp_path, program):
    study = ["study", "suite", "--out", tmp_path / "suite", "--steps", 20, "--schedules", "CR", "--seeds", 1, "--cycles", 2]
    assert "lacks {out}" in program(*study, "--command", "train {schedule} {seed}", code=2)
    assert "it ended without a result" in program(*study, "--command", "true {schedule} {seed} {out}", code=2)
