# SPDX-License-Identifier: BSD-3-Clause
class Apt:
    def __init__(self, conanfile):
        self.conanfile = conanfile

    def install(self, packages, update=False, check=True, host_package=True):
        self.conanfile.system_packages += packages
