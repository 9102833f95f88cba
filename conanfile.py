# SPDX-License-Identifier: BSD-3-Clause
# Conan recipe: `conan create .` puts the headers and their CMake configuration into the local cache. MPI, Boost.MPI, xsimd, xtensor and zlib are
# taken from the system: a cluster has an MPI of its own, and Boost.MPI has to be built with it.
import re
from pathlib import Path

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.system.package_manager import Apt

required_conan_version = ">=2.0"


class Lockstep(ConanFile):
    name = "lockstep"
    description = "Distributed SGD on CPU clusters: the recipe decides the bits"
    topics = ("sgd", "mpi", "deep-learning", "hpc", "header-only")
    license = "BSD-3-Clause"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"
    no_copy_source = True

    def set_version(self):
        lists = Path(self.recipe_folder, "CMakeLists.txt").read_text(encoding="utf-8")
        self.version = re.search(r"project\(lockstep VERSION ([0-9.]+)", lists)[1]

    def layout(self):
        cmake_layout(self)

    def validate(self):
        # A profile that names no standard is that of a compiler whose default may be older: the targets ask for C++20 themselves.
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 20)

    def system_requirements(self):
        # Packages of Debian and Ubuntu, as in scripts/setup. Where they come from modules: -c tools.system.package_manager:mode=report
        Apt(self).install(["libopenmpi-dev", "openmpi-bin", "libboost-mpi-dev", "libxsimd-dev", "libxtensor-dev", "zlib1g-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in "TESTS", "EXAMPLES", "BENCHMARKS", "TOOLS":
            toolchain.cache_variables[f"LOCKSTEP_{part}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_id(self):
        # Headers: one package for every compiler. The instruction set is that of the program: LOCKSTEP_ARCH.
        self.info.clear()

    def package_info(self):
        # The package's own configuration is found, none is made in its place.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/lockstep"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
