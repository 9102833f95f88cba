// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/node/shared_segment.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "lockstep/core/huge_pages.hpp"

using lockstep::core::huge_page;
using lockstep::node::shared_segment;

namespace {

bool exists(const std::string& name) {
    struct stat found {};
    return ::stat(name.c_str(), &found) == 0;
}

}  // namespace

TEST_CASE("node/shared_segment: two views of one memory, which has no name afterwards", "[node]") {
    const std::size_t bytes = 3 * huge_page + shared_segment::page();
    shared_segment one, other;
    REQUIRE(one.create(bytes) == 0);
    REQUIRE(other.open(one.name(), bytes) == 0);
    REQUIRE(one.reserve(0, shared_segment::page()) == 0);
    REQUIRE(other.reserve(shared_segment::page(), bytes - shared_segment::page()) == 0);
    REQUIRE(one.map() == 0);
    REQUIRE(other.map() == 0);
    one.remove_name();
    other.remove_name();
    CHECK_FALSE(exists(one.name()));
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % huge_page == 0);
    std::memset(one.data(), 7, bytes);
    one.collapse(0, bytes);
    CHECK(other.data()[0] == std::byte{7});
    CHECK(other.data()[bytes - 1] == std::byte{7});
    other.data()[5] = std::byte{9};
    CHECK(one.data()[5] == std::byte{9});
}

TEST_CASE("node/shared_segment: errors are those of the system", "[node]") {
    shared_segment one, other, none;
    REQUIRE(one.create(2 * shared_segment::page()) == 0);
    CHECK(other.open(one.name(), shared_segment::page()) == ESTALE);
    CHECK(none.open(one.name() + "x", shared_segment::page()) == ENOENT);
}

TEST_CASE("node/shared_segment: a limit of file sizes is an error, and no signal", "[node]") {
    struct rlimit before {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const std::size_t most = 4 * shared_segment::page();
    shared_segment large, small;
    struct rlimit limit = before;
    limit.rlim_cur = most;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const int created = large.create(2 * most), fits = small.create(most), reserved = small.reserve(most, most);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(created == EFBIG);
    CHECK(fits == 0);
    CHECK(reserved == EFBIG);
}

TEST_CASE("node/shared_segment: pages are reserved or refused before they are written", "[node]") {
    const std::size_t room = shared_segment::free_bytes();
    if (room == static_cast<std::size_t>(-1)) return;  // no limit
    shared_segment one;
    // More than /dev/shm could hold: it is refused without taking any page.
    const std::size_t bytes = std::size_t{1} << 46U;
    REQUIRE(one.create(bytes) == 0);
    CHECK(one.reserve(0, bytes) == ENOSPC);
}

TEST_CASE("node/shared_segment: what segments of MPI may still take is known", "[node]") {
    const std::string name = "/dev/shm/vader_segment.test-of-lockstep." + std::to_string(::getpid());
    const std::size_t before = shared_segment::promised_bytes(), gibibyte = std::size_t{1} << 30U;
    const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    REQUIRE(file >= 0);
    const int code = ::ftruncate(file, static_cast<off_t>(gibibyte));
    const std::size_t after = shared_segment::promised_bytes();
    ::close(file);
    ::unlink(name.c_str());
    REQUIRE(code == 0);
    CHECK(after > before + gibibyte / 2);  // other jobs may have begun or ended
}

TEST_CASE("node/shared_segment: what a crash has left is removed, what is in use is not", "[node]") {
    int names[2];
    REQUIRE(::pipe(names) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        shared_segment one;
        const bool well = one.create(shared_segment::page()) == 0;
        (void)!::write(names[1], one.name().c_str(), one.name().size() + 1);
        ::_exit(well ? 0 : 1);  // without destructors
    }
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    char left[256] = {};
    REQUIRE(::read(names[0], left, sizeof left - 1) > 0);
    ::close(names[0]);
    ::close(names[1]);
    shared_segment one, other;
    REQUIRE(one.create(shared_segment::page()) == 0);
    CHECK_FALSE(exists(left));
    REQUIRE(other.create(shared_segment::page()) == 0);
    CHECK(exists(one.name()));
    CHECK(one.name() != other.name());
}
