// SPDX-License-Identifier: BSD-3-Clause
// build error: a folder of images has samples of rows x columns x channels, and classes
#include "lockstep/data/image_folder.hpp"

int main() {
    const lockstep::data::image_folder<lockstep::tensor::shape<10>, lockstep::tensor::classes<2>> set{"photographs"};
    return static_cast<int>(set.size());
}
