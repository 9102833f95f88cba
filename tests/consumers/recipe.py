#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""recipe.py REPOSITORY FOLDER COMPILER: runs every method of conanfile.py and test_package/conanfile.py with a stand-in for Conan (conan_stub/), in the order
of `conan create`. CMake is the real one, Conan is not: consumers/conan is the test with Conan, where it is installed."""
import importlib.util
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "conan_stub"))
sys.dont_write_bytecode = True
from conan.errors import ConanInvalidConfiguration  # noqa: E402


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expect(what, text):
    if not what:
        sys.exit(f"recipe: {text}")


def main(root, folder, compiler):
    os.environ["CXX"] = compiler
    shutil.rmtree(folder, ignore_errors=True)
    for part in "build", "package", "test":
        (folder / part).mkdir(parents=True)
    recipe_type = load(root / "conanfile.py", "recipe").Lockstep
    folders = {"recipe_folder": str(root), "source_folder": str(root), "build_folder": str(folder / "build"), "package_folder": str(folder / "package")}
    recipe = recipe_type(**folders, settings={"compiler.cppstd": "20"})
    recipe.set_version()
    expect(recipe.version and recipe.version[0].isdigit(), f"the version is {recipe.version}")
    for standard, is_right in ("20", True), ("gnu20", True), ("23", True), ("17", False), ("gnu14", False), (None, True):
        try:
            recipe_type(**folders, settings={"compiler.cppstd": standard}).validate()
            accepted = True
        except ConanInvalidConfiguration:
            accepted = False
        expect(accepted == is_right, f"validate() {'takes' if accepted else 'refuses'} C++ {standard}")
    recipe.layout()
    recipe.system_requirements()
    setup = (root / "scripts/setup").read_text(encoding="utf-8")
    for package in recipe.system_packages:
        expect(package in setup, f"scripts/setup does not know the package {package}")
    recipe.generate()
    recipe.build()
    recipe.package()
    recipe.package_id()
    expect(not recipe.info.settings and not recipe.info.options and not recipe.info.requires, "package_id() leaves something")
    recipe.package_info()
    for directory in recipe.cpp_info.builddirs:
        expect((folder / "package" / directory / "lockstep-config.cmake").exists(), f"there is no configuration in {directory}")
    expect((folder / "package/include/lockstep/lockstep.hpp").exists(), "the headers are not packaged")
    expect(not list((folder / "package").rglob("*.a")), "a library is packaged")

    package_test = load(root / "test_package/conanfile.py", "package_test").LockstepTest
    test = package_test(source_folder=str(root / "test_package"), build_folder=str(folder / "test"))
    test.requirements()
    expect(test.required == [test.tested_reference_str], "test_package does not require the package")
    test.layout()
    # What CMakeDeps and CMakeToolchain would say; that it is built is the question, so the compiler need not try hard.
    test.cache_variables = {"CMAKE_PREFIX_PATH": folder / "package", "CMAKE_CXX_FLAGS_RELEASE": "-O0"}
    test.build()
    test.test()
    expect(test.commands, "test_package runs nothing")
    print("recipe: all methods ran, with a stand-in for Conan")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
