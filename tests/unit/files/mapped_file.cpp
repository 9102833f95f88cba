// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/mapped_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>

#include "unit/data/files.hpp"

namespace lockstep::files {
namespace {

std::string text_of(const mapped_file& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_CASE("files/mapped_file: the bytes of a file", "[files]") {
    const test::directory here;
    std::string bytes(100'001, 'x');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 3);
    mapped_file file{here.write("file", bytes)};
    file.expect_random_reads();
    for (const std::size_t begin : {std::size_t{0}, std::size_t{5'000}, std::size_t{100'000}, std::size_t{1} << 40})
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1'000'000}})
            file.read_ahead(begin, size);
    CHECK(text_of(file) == bytes);
    const mapped_file moved{std::move(file)};
    CHECK(text_of(moved) == bytes);
    CHECK(moved.path() == here / "file");
}

TEST_CASE("files/mapped_file: a file without bytes", "[files]") {
    const test::directory here;
    const mapped_file none{here.write("none", "")};
    CHECK(none.bytes().empty());
    none.expect_random_reads();
    none.read_ahead(0, 1);
}

TEST_CASE("files/mapped_file: what cannot be mapped", "[files]") {
    const test::directory here;
    CHECK(test::error_of([&] { mapped_file{here / "missing"}; }).find("No such file") != std::string::npos);
    CHECK(test::error_of([&] { mapped_file{here / ""}; }).find("it is a directory") != std::string::npos);
    REQUIRE(::mkfifo((here / "fifo").c_str(), 0600) == 0);
    CHECK(test::error_of([&] { mapped_file{here / "fifo"}; }).find("it is a FIFO") != std::string::npos);
}

}  // namespace
}  // namespace lockstep::files
