"""`pip install .` from outside the tree; LOWTIDE_BUILD names the build that is there, which saves building once more."""

import os
import pathlib
import subprocess
import sys

import pytest

import lowtide

SOURCE = pathlib.Path(__file__).parents[2]


def test_pip_installs_a_package_that_works(tmp_path):
    pytest.importorskip("pip")
    pytest.importorskip("wheel")
    installed = subprocess.run([sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
                                "--target", tmp_path, SOURCE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert installed.returncode == 0, installed.stdout
    code = "import lowtide; print(lowtide.__file__, lowtide.__version__, lowtide.Schedule('CR', steps=2000))"
    used = subprocess.run([sys.executable, "-c", code], cwd="/", env=dict(os.environ, PYTHONPATH=str(tmp_path)),
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    assert used.startswith(str(tmp_path)) and lowtide.__version__ in used and "CR 3:8 n=8 grad=8" in used
    assert (tmp_path / "lowtide" / "py.typed").exists()


def test_the_version_is_that_of_the_program(program):
    assert f"lowtide {lowtide.__version__}" in program("--version")
    assert f'version = "{lowtide.__version__}"' in (SOURCE / "pyproject.toml").read_text()
