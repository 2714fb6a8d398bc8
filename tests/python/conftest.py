import os
import subprocess

import pytest
import torch


SKIPPED = 77  # what CTest takes for it


def pytest_sessionfinish(session, exitstatus):
    """Skipped tests are seen in CTest, unless something failed, which must be seen as that."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    nothing_failed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if nothing_failed and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = SKIPPED


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
