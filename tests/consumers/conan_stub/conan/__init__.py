# SPDX-License-Identifier: BSD-3-Clause
"""As much of Conan 2's interface as the recipes of this repository use, for machines without Conan: it is no proof that Conan takes them."""


class Settings(dict):
    def get_safe(self, name, default=None):
        return self.get(name, default)


class Info:
    def __init__(self):
        self.settings, self.options, self.requires = {"compiler": "gcc"}, {"march": "native"}, ["zlib"]

    def clear(self):
        self.settings, self.options, self.requires = {}, {}, []


class CppInfo:
    def __init__(self):
        self.properties, self.includedirs, self.builddirs, self.bindirs, self.libdirs = {}, ["include"], [], ["bin"], ["lib"]
        self.bindir = "."

    def set_property(self, name, value):
        self.properties[name] = value


class Folders:
    def __init__(self):
        self.build = CppInfo()


class ConanFile:
    tested_reference_str = "lockstep/0"

    def __init__(self, recipe_folder="", source_folder="", build_folder="", package_folder="", settings=None):
        self.recipe_folder, self.source_folder, self.build_folder, self.package_folder = recipe_folder, source_folder, build_folder, package_folder
        self.settings, self.info, self.cpp_info, self.cpp = Settings(settings or {}), Info(), CppInfo(), Folders()
        self.required, self.commands, self.system_packages = [], [], []

    def requires(self, reference):
        self.required.append(reference)

    def run(self, command, env=""):
        import subprocess

        self.commands.append(command)
        subprocess.run(command, shell=True, check=True, cwd=self.build_folder)
