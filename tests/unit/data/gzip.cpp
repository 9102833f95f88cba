// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/gzip.hpp"

#include <catch2/catch.hpp>
#include <cstring>

#include "files.hpp"

namespace lockstep::data {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

/// Bytes that do not compress, so a file cut in the middle has lost content.
std::string noise(std::size_t size) {
    std::string out(size, ' ');
    std::uint32_t state = 1;
    for (char& byte : out) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
    return out;
}

std::string content(const std::string& path) {
    const auto bytes = read_file(path);
    std::string out(bytes.size(), ' ');
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

TEST_CASE("data/gzip: plain and packed files of many lengths are read whole", "[data]") {
    const test::directory here;
    for (const std::size_t size : {0U, 1U, 2U, 65'535U, 65'536U, 65'537U, 300'000U}) {
        const std::string bytes = noise(size);
        CHECK(content(here.write("plain", bytes)) == bytes);
        CHECK(content(here.write_packed("packed.gz", bytes)) == bytes);
        CHECK(content(here.write_packed("packed without the ending", bytes)) == bytes);
    }
}

TEST_CASE("data/gzip: a missing file", "[data]") {
    const test::directory here;
    const std::string path = here / "nowhere";
    CHECK(test::error_of([&] { (void)read_file(path); }) ==
          "lockstep: cannot open \"" + path +
              "\": No such file or directory; check the path and its permissions; relative paths start at the working directory of the "
              "process");
    CHECK(why_unreadable(path) == "No such file or directory");
    CHECK(why_unreadable(here.write("somewhere", "")).empty());
}

TEST_CASE("data/gzip: a directory is not a file", "[data]") {
    const test::directory here;
    CHECK_THAT(test::error_of([&] { (void)read_file(here / "."); }), Contains("failed after 0 bytes: Is a directory"));
}

TEST_CASE("data/gzip: a packed file that is cut off", "[data]") {
    const test::directory here;
    std::ifstream file{here.write_packed("whole.gz", noise(200'000)), std::ios::binary};
    const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
    for (const std::size_t length : {bytes.size() - 1, bytes.size() - 8, bytes.size() / 2, std::size_t{12}, std::size_t{3}}) {
        const std::string path = here.write("part.gz", bytes.substr(0, length));
        const std::string text = test::error_of([&] { (void)read_file(path); });
        CHECK_THAT(text, StartsWith("lockstep: \"" + path + "\" is cut off after "));
        CHECK_THAT(text, Contains(" unpacked bytes (zlib: "));
        CHECK_THAT(text, EndsWith("; fetch or copy the file again, and test it with gzip -t"));
    }
}

TEST_CASE("data/gzip: a packed file with a wrong byte", "[data]") {
    const test::directory here;
    std::ifstream file{here.write_packed("whole.gz", noise(200'000)), std::ios::binary};
    std::string bytes{std::istreambuf_iterator<char>{file}, {}};
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    const std::string path = here.write("wrong.gz", bytes);
    const std::string text = test::error_of([&] { (void)read_file(path); });
    CHECK_THAT(text, StartsWith("lockstep: \"" + path + "\" is corrupt after "));
    CHECK_THAT(text, EndsWith("; fetch or copy the file again, and test it with gzip -t"));
}

}  // namespace
}  // namespace lockstep::data
