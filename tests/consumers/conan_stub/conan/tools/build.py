# SPDX-License-Identifier: BSD-3-Clause
from conan.errors import ConanInvalidConfiguration


def check_min_cppstd(conanfile, cppstd, gnu_extensions=False):
    have = str(conanfile.settings.get_safe("compiler.cppstd") or "").replace("gnu", "")
    if not have:
        raise ConanInvalidConfiguration("the setting compiler.cppstd is not defined")
    # 98 is older than 11.
    if int(have) < int(cppstd) or have == "98":
        raise ConanInvalidConfiguration(f"the C++ standard is {have}, at least {cppstd} is needed")


def can_run(conanfile):
    return True
