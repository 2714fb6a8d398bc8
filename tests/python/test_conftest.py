"""What CTest is told of skipped and failed tests."""

import pathlib
import shutil
import subprocess
import sys

import pytest

CONFTEST = pathlib.Path(__file__).with_name("conftest.py")
SKIPS = "import pytest\ndef test_that_skips(): pytest.skip('a reason')\n"


@pytest.mark.parametrize("tests, code", [
    ("def test_that_passes(): pass\n", 0),
    (SKIPS, 77),
    ("import pytest\npytest.importorskip('what_is_not_installed')\n", 77),
    (SKIPS + "def test_that_fails(): assert False\n", 1),
    (SKIPS + "def test_that_is_broken(no_such_fixture): pass\n", 1),
], ids=["passed", "skipped", "all-skipped", "failed", "broken"])
def test_a_failure_is_no_skip(tests, code, tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == code
