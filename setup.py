"""Builds the module by CMake, against the torch that this Python has, in a folder for that torch and this Python. LOWTIDE_BUILD
names a build folder that is there; CMAKE_ARGS are further arguments, such as -DLOWTIDE_CUDA=ON."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = pathlib.Path(__file__).parent.resolve()


def configured_folder() -> pathlib.Path:
    try:
        import torch
    except ImportError:
        sys.exit("lowtide is built against the torch that is installed, which this build does not see: install torch, then "
                 "`pip install --no-build-isolation .`, since pip hides it otherwise")
    folder = SOURCE / "build-pip" / f"torch-{torch.__version__}-{sys.implementation.cache_tag}"
    subprocess.check_call([
        "cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLOWTIDE_PYTHON=ON",
        "-DLOWTIDE_TESTS=OFF", f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
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
