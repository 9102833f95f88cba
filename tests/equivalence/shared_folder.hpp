// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A folder of a test on several ranks.

#include <unistd.h>

#include <boost/mpi/collectives/broadcast.hpp>
#include <boost/mpi/communicator.hpp>
#include <boost/serialization/string.hpp>
#include <filesystem>
#include <string>

namespace support {

/// A folder that all ranks of the world know, empty at first and gone at the end.
struct shared_folder {
    std::string path;

    shared_folder() {
        if (is_first()) path = std::filesystem::temp_directory_path() / ("lockstep-test-" + std::to_string(::getpid()));
        boost::mpi::broadcast(boost::mpi::communicator{}, path, 0);
        clear();
    }
    shared_folder(const shared_folder&) = delete;
    shared_folder& operator=(const shared_folder&) = delete;
    ~shared_folder() {
        boost::mpi::communicator{}.barrier();
        if (is_first()) std::filesystem::remove_all(path);
    }

    /// Empty again, after all ranks have come here.
    void clear() const {
        boost::mpi::communicator{}.barrier();
        if (is_first()) {
            std::filesystem::remove_all(path);
            std::filesystem::create_directories(path);
        }
        boost::mpi::communicator{}.barrier();
    }

private:
    static bool is_first() { return boost::mpi::communicator{}.rank() == 0; }
};

}  // namespace support
