// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/comm/watch/wait.hpp"

#include <unistd.h>
#include <catch2/catch.hpp>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace comm = lockstep::comm;

namespace {

/// Numbers of C functions with a comma, in a locale that is compiled into `folder`; false where that cannot be had.
bool write_commas(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    const std::string command =
        "localedef --no-archive -i de_DE -f UTF-8 '" + (folder / "comma").string() + "' >/dev/null 2>&1";
    (void)!std::system(command.c_str());
    ::setenv("LOCPATH", folder.c_str(), 1);
    return std::setlocale(LC_NUMERIC, "comma") != nullptr && *std::localeconv()->decimal_point == ',';
}

}  // namespace

TEST_CASE("comm/wait: LOCKSTEP_TIMEOUT has a point in every locale", "[comm]") {
    const auto folder = std::filesystem::temp_directory_path() / ("lockstep-locale-" + std::to_string(::getpid()));
    const std::string before = std::setlocale(LC_NUMERIC, nullptr);
    const bool commas = write_commas(folder);
    if (!commas) WARN("no locale with a decimal comma can be made here (localedef and the source of de_DE)");
    ::setenv("LOCKSTEP_TIMEOUT", "2.5", 1);
    CHECK(comm::default_timeout().count() == 2.5);
    ::setenv("LOCKSTEP_TIMEOUT", "2,5", 1);
    CHECK_THROWS_WITH(comm::default_timeout(), Catch::Matchers::StartsWith("lockstep: LOCKSTEP_TIMEOUT is '2,5'; "));
    ::setenv("LOCKSTEP_TIMEOUT", "1e9", 1);  // more than a plan takes
    CHECK_THROWS_WITH(comm::default_timeout(), Catch::Matchers::StartsWith("lockstep: LOCKSTEP_TIMEOUT is '1e9'; "));
    ::unsetenv("LOCKSTEP_TIMEOUT");
    ::unsetenv("LOCPATH");
    std::setlocale(LC_NUMERIC, before.c_str());
    std::filesystem::remove_all(folder);
}
