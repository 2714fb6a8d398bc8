"""Builds the module by CMake, against the torch that this Python has, in a folder for that torch and this Python. LOWTIDE_BUILD
names a build folder that is there; CMAKE_ARGS are further arguments, such as -DLOWTIDE_CUDA=ON."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import Tuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = pathlib.Path(__file__).parent.resolve()


def installed_torch() -> Tuple[str, str]:
    """Its version, and where its CMake files are."""
    try:
        import torch
    except ImportError:
        return hidden_torch()
    return torch.__version__, torch.utils.cmake_prefix_path


def hidden_torch() -> Tuple[str, str]:
    """pip isolates a build by two variables (pip/_internal/build_env.py): without them the same Python sees what is installed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    code = "import torch; print(torch.__version__, torch.utils.cmake_prefix_path, sep='\\n')"
    asked = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           text=True)
    if asked.returncode != 0:
        sys.exit(f"lowtide is built against the torch that is installed, and {sys.executable} has none: install torch first; where "
                 "the build is isolated in an environment of its own, `pip install --no-build-isolation .`")
    version, prefix = asked.stdout.splitlines()[-2:]
    return version, prefix


def configured_folder() -> pathlib.Path:
    version, prefix = installed_torch()
    folder = SOURCE / "build-pip" / f"torch-{version}-{sys.implementation.cache_tag}"
    subprocess.check_call([
        "cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLOWTIDE_PYTHON=ON",
        "-DLOWTIDE_TESTS=OFF", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DPython3_EXECUTABLE={sys.executable}", *shlex.split(os.environ.get("CMAKE_ARGS", ""))])
    return folder


def given_folder(name: str) -> pathlib.Path:
    folder = pathlib.Path(name)
    if not (folder / "CMakeCache.txt").exists():
        sys.exit(f"LOWTIDE_BUILD is {name}, where no build of CMake is; expected one, or none to have one made")
    return folder


class CMakeBuild(build_ext):
    def build_extension(self, extension: Extension) -> None:
        given = os.environ.get("LOWTIDE_BUILD")
        folder = given_folder(given) if given else configured_folder()
        subprocess.check_call(["cmake", "--build", folder, "--target", "_lowtide"])
        module = pathlib.Path(self.get_ext_fullpath(extension.name))
        built = folder / "python" / "lowtide" / module.name
        if not built.exists():
            sys.exit(f"{folder} builds no {module.name}: it is for another Python than {sys.executable}")
        module.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(built, module)


setup(ext_modules=[Extension("lowtide._lowtide", sources=[])], cmdclass={"build_ext": CMakeBuild},
      options={"build": {"build_base": "build-pip/setuptools"}, "egg_info": {"egg_base": "python"}})
