# SPDX-License-Identifier: BSD-3-Clause
import subprocess
from pathlib import Path


def cmake_layout(conanfile):
    conanfile.cpp.build.bindir = "."


class CMakeToolchain:
    def __init__(self, conanfile):
        self.conanfile, self.cache_variables = conanfile, {}

    def generate(self):
        self.conanfile.cache_variables = dict(self.cache_variables)


class CMake:
    def __init__(self, conanfile):
        self.conanfile = conanfile

    def _run(self, *command):
        subprocess.run(["cmake", *map(str, command)], check=True, stdout=subprocess.DEVNULL)

    def configure(self):
        values = getattr(self.conanfile, "cache_variables", {})
        options = [f"-D{name}={'ON' if value is True else 'OFF' if value is False else value}" for name, value in values.items()]
        prefix = f"-DCMAKE_INSTALL_PREFIX={self.conanfile.package_folder}"
        self._run("-S", self.conanfile.source_folder, "-B", self.conanfile.build_folder, "-DCMAKE_BUILD_TYPE=Release", prefix, *options)

    def build(self):
        self._run("--build", self.conanfile.build_folder)

    def install(self):
        self._run("--install", self.conanfile.build_folder)
