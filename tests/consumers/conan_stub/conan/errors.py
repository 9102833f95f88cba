# SPDX-License-Identifier: BSD-3-Clause
class ConanInvalidConfiguration(Exception):
    pass
