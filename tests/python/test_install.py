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


def build(*statements, **environment):
    """What setup.py says to building the module, which it must not begin."""
    code = ["import runpy, subprocess, sys", "subprocess.check_call = lambda command: print(*command)", *statements,
            "sys.argv = ['setup.py', 'build_ext', '--inplace']", "runpy.run_path('setup.py', run_name='__main__')"]
    own = {name: value for name, value in os.environ.items() if name not in ("LOWTIDE_BUILD", "CMAKE_ARGS")}
    return subprocess.run([sys.executable, "-c", "\n".join(code)], cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env=dict(own, **environment))


def test_a_build_without_torch_says_what_to_do(tmp_path):
    isolated = build("sys.modules['torch'] = None")
    assert isolated.returncode == 1 and "pip install --no-build-isolation ." in isolated.stderr.splitlines()[-1]
    assert "Traceback" not in isolated.stderr
    elsewhere = build(LOWTIDE_BUILD=str(tmp_path))
    assert elsewhere.returncode == 1 and "where no build of CMake is" in elsewhere.stderr.splitlines()[-1]


def test_another_torch_and_other_arguments_are_another_build():
    """The folder's name has the version; what a folder was configured with before is told again."""
    ones = build(CMAKE_ARGS="-DLOWTIDE_CUDA=ON").stdout
    other = build("import torch", "torch.__version__ = '9.8'").stdout
    assert "-DLOWTIDE_CUDA=ON" in ones and "torch-9.8-" not in ones and "torch-9.8-" in other


def test_the_version_is_that_of_the_program(program):
    assert f"lowtide {lowtide.__version__}" in program("--version")
    assert f'version = "{lowtide.__version__}"' in (SOURCE / "pyproject.toml").read_text()
