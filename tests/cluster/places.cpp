// SPDX-License-Identifier: BSD-3-Clause
// places HOSTS RANKS: MPI and the library find so many hosts with so many ranks each, neighbours together.

#include <cstddef>
#include <cstdlib>
#include <string>

#include "lockstep/comm/program.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

int main(int argc, char** argv) {
    return lockstep::comm::program(argc, argv, [&](const boost::mpi::communicator& world) {
        const std::size_t hosts = argc > 2 ? std::strtoul(argv[1], nullptr, 10) : 0;
        const std::size_t each = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
        const lockstep::comm::group ranks{world};
        MPI_Comm here = MPI_COMM_NULL;
        MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
        int size = 0;
        MPI_Comm_size(here, &size);
        MPI_Comm_free(&here);
        const auto places = ranks.hosts();
        bool right = ranks.size() == hosts * each && static_cast<std::size_t>(size) == each;
        for (std::size_t rank = 0; rank < places.size(); ++rank) right = right && places[rank] == rank / each * each;
        if (!right)
            lockstep::core::fail(lockstep::core::text("rank ", ranks.rank(), " of ", ranks.size(),
                                                      " shares memory with ", size, " ranks"),
                                 lockstep::core::text("there should be ", hosts, " hosts with ", each, " ranks each"));
        return 0;
    });
}
