// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 handwritten digits of 28x28 pixels; a model of Dataset.

#include <string>

#include "lockstep/core/compiled.hpp"
#include "lockstep/data/gzip.hpp"
#include "lockstep/data/idx.hpp"

namespace lockstep::data {

/// The four published files, plain or packed by gzip: `mnist{"data/train"}` opens data/train-images-idx3-ubyte and
/// data/train-labels-idx1-ubyte, `mnist{"data/t10k"}` the test set. Pixels are (byte / 255 - 0.1307) / 0.3081: mean and
/// deviation of the training set, members to change. Also reads the data sets in the same dress: Fashion-MNIST, KMNIST.
struct mnist : idx<28, 28, 10> {
    explicit mnist(const std::string& prefix);

private:
    [[nodiscard]] static std::string remedy() {
        return "pass the folder and the part, as in mnist{\"data/train\"} or mnist{\"data/t10k\"}, with the files "
               "train-images-idx3-ubyte, "
               "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (plain or .gz, for example "
               "from "
               "storage.googleapis.com/cvdf-datasets/mnist) in that folder, or train on the built-in data::digits";
    }
};

#if LOCKSTEP_BODIES

LOCKSTEP_FUNCTION mnist::mnist(const std::string& prefix)
    : idx<28, 28, 10>{find_packed(prefix, "-images-idx3-ubyte", remedy()),
                      find_packed(prefix, "-labels-idx1-ubyte", remedy())} {
    mean = 0.1307F;
    deviation = 0.3081F;
}

#endif

}  // namespace lockstep::data
