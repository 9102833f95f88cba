// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The trainers of bench_accuracy, compiled in several files. Each function runs what is of its kind.

#include <boost/mpi/communicator.hpp>
#include <optional>

#include "compressors.hpp"

namespace benchmark {

struct options;

using example::chosen_compressor;
[[nodiscard]] std::optional<int> run_messages(const boost::mpi::communicator&, const options&,
                                              const chosen_compressor&);
[[nodiscard]] std::optional<int> run_sums(const boost::mpi::communicator&, const options&, const chosen_compressor&);
[[nodiscard]] std::optional<int> run_trees(const boost::mpi::communicator&, const options&, const chosen_compressor&);
[[nodiscard]] std::optional<int> run_optimizers(const boost::mpi::communicator&, const options&,
                                                const chosen_compressor&);

}  // namespace benchmark
