import os
import subprocess

import pytest
import torch


@pytest.fixture(autouse=True)
def fixed_random_numbers():
    torch.manual_seed(1)


@pytest.fixture
def program():
    """Runs `lowtide` with some arguments, and expects an exit code, or any; its output."""
    def run(*arguments, code=0):
        done = subprocess.run([os.environ["LOWTIDE_PROGRAM"], *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        assert code is None or done.returncode == code, done.stdout
        return done.stdout

    return run
