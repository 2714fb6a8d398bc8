"""`pip install .` from outside the tree; LOWTIDE_BUILD names the build that is there, which saves building once more."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
import torch

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


def test_an_isolated_build_finds_the_torch_that_is_installed(tmp_path):
    """As pip isolates it: by a sitecustomize.py on PYTHONPATH, which hides what is installed but the build's requirements."""
    for found in (importlib.util.find_spec(name) for name in ("setuptools", "pkg_resources")):  # the latter of old versions
        if found is not None:
            (tmp_path / found.name).symlink_to(found.submodule_search_locations[0])
    hide = "import sys; sys.path = [path for path in sys.path if not path.endswith(('site-packages', 'dist-packages'))]"
    (tmp_path / "sitecustomize.py").write_text(hide)
    shown = "import importlib.util; print(importlib.util.find_spec('torch'), file=sys.stderr)"
    isolated = build(shown, PYTHONPATH=str(tmp_path), PYTHONNOUSERSITE="1")
    assert isolated.stderr.splitlines()[0] == "None" and f"torch-{torch.__version__}-" in isolated.stdout, isolated.stderr
    assert isolated.stdout == build().stdout


def test_a_build_without_torch_says_what_to_do(tmp_path):
    without = build("sys.modules['torch'] = None", "sys.executable = '/bin/false'")
    assert without.returncode == 1 and "install torch first" in without.stderr.splitlines()[-1]
    assert "Traceback" not in without.stderr
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
