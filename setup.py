"""Builds the module by CMake, against the torch that this Python has. LOWTIDE_BUILD names a build folder to use; CMAKE_ARGS
are further arguments, such as -DLOWTIDE_CUDA=ON."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = pathlib.Path(__file__).parent.resolve()


def torch_prefix() -> str:
    try:
        import torch
    except ImportError:
        sys.exit("lowtide is built against the torch that is installed, and there is none: install torch, then "
                 "pip install --no-build-isolation .")
    return torch.utils.cmake_prefix_path


class CMakeBuild(build_ext):
    def build_extension(self, extension: Extension) -> None:
        folder = pathlib.Path(os.environ.get("LOWTIDE_BUILD", SOURCE / "build-pip"))
        if not (folder / "CMakeCache.txt").exists():
            subprocess.check_call([
                "cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLOWTIDE_PYTHON=ON",
                "-DLOWTIDE_TESTS=OFF", f"-DCMAKE_PREFIX_PATH={torch_prefix()}", f"-DPython3_EXECUTABLE={sys.executable}",
                *shlex.split(os.environ.get("CMAKE_ARGS", ""))])
        subprocess.check_call(["cmake", "--build", folder, "--target", "_lowtide"])
        module = pathlib.Path(self.get_ext_fullpath(extension.name))
        module.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "python" / "lowtide" / module.name, module)


setup(ext_modules=[Extension("lowtide._lowtide", sources=[])], cmdclass={"build_ext": CMakeBuild},
      options={"build": {"build_base": "build-pip/setuptools"}, "egg_info": {"egg_base": "python"}})
