// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/data/gzip.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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

constexpr std::uint64_t most = 1'000'000;

std::string content(const std::string& path) {
    const auto bytes = read_file(path, most);
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
    CHECK(test::error_of([&] { (void)read_file(path, most); }) ==
          "lockstep: cannot open \"" + path +
              "\": No such file or directory; check the path and its permissions; relative paths start at the working "
              "directory of the "
              "process");
    CHECK(why_unreadable(path) == "No such file or directory");
    CHECK(why_unreadable(here.write("somewhere", "")).empty());
}

TEST_CASE("data/gzip: a directory is not a file", "[data]") {
    const test::directory here;
    CHECK_THAT(test::error_of([&] { (void)read_file(here / ".", most); }),
               Contains("cannot open \"" + here / "." + "\": it is a directory, no regular file"));
}

TEST_CASE("data/gzip: what is no regular file is one error, not a wait", "[data]") {
    const test::directory here;
    REQUIRE(::mkfifo((here / "fifo").c_str(), 0600) == 0);
    CHECK(why_unreadable(here / "fifo") == "it is a FIFO, no regular file");
    CHECK(test::error_of([&] { (void)read_file(here / "fifo", most); }) ==
          "lockstep: cannot open \"" + here / "fifo" +
              "\": it is a FIFO, no regular file; pass a file on a disk; what comes through a pipe or from a device "
              "has to be stored in a "
              "file first");
    CHECK_THAT(test::error_of([&] { (void)read_file("/dev/zero", most); }),
               Contains("it is a device, no regular file"));
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = here / "socket";
    REQUIRE(path.copy(address.sun_path, sizeof address.sun_path - 1) == path.size());
    REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    CHECK(why_unreadable(path) == "it is a socket, no regular file");
    ::close(socket);
}

TEST_CASE("data/gzip: members are read one after the other, zeros after the last one are padding", "[data]") {
    const test::directory here;
    const auto packed = [&](const std::string& bytes) { return test::contents(here.write_packed("member", bytes)); };
    const std::string first = noise(100'000), second = noise(70'000), none = packed("");
    const std::string both = packed(first) + none + packed(second) + none;
    // Members that begin and end at every place of the reader's buffer are read alike.
    for (const std::size_t zeros : {0U, 1U, 511U, 65'536U, 200'000U})
        CHECK(content(here.write("members", both + std::string(zeros, '\0'))) == first + second);
    for (std::size_t size = 65'530 - none.size(); size < 65'545; ++size) {
        std::string head = noise(size);
        head.resize(2 * size + 4 - packed(head).size() - none.size());  // packing makes no noise shorter
        while (packed(head).size() + none.size() > size) head.resize(head.size() - 1);
        CHECK(content(here.write("members", packed(head) + none + packed(second))) == head + second);
    }
}

TEST_CASE("data/gzip: what follows the last member and is no zero is refused, with its length", "[data]") {
    const test::directory here;
    const std::string bytes = test::contents(here.write_packed("whole.gz", noise(1000)));
    for (const std::string& garbage : {std::string{"x"}, std::string{"\x1f"}, std::string{"\x1f\x8c"},
                                       std::string{"\0\0z", 3}, noise(100'000), std::string(70'000, '\0') + "z"}) {
        const std::string path = here.write("garbage.gz", bytes + garbage);
        CHECK(test::error_of([&] { (void)read_file(path, most); }) ==
              core::text("lockstep: \"", path, "\" has ", garbage.size(),
                         " bytes after its packed content that are no further member; fetch or copy the file again, or "
                         "remove them: gzip "
                         "would drop them with a warning (trailing garbage)"));
    }
    // A further member that breaks off or is none.
    for (const std::size_t length : {2U, 3U, 9U, 11U, 30U}) {
        const std::string path = here.write("cut.gz", bytes + bytes.substr(0, length));
        CHECK_THAT(test::error_of([&] { (void)read_file(path, most); }), Contains("\" is cut off after 10"));
    }
    const std::string path = here.write("wrong.gz", bytes + "\x1f\x8b\x09" + bytes.substr(3));
    CHECK_THAT(test::error_of([&] { (void)read_file(path, most); }),
               Contains("\" is corrupt after 1000 unpacked bytes"));
}

TEST_CASE("data/gzip: no more is read than was asked for", "[data]") {
    const test::directory here;
    const std::string bytes(1'000, 'a'), many(100'000'000, 'a');
    const std::string packed = here.write_packed("packed.gz", bytes), plain = here.write("plain", bytes);
    CHECK(read_file(packed, 1'000).size() == 1'000);
    CHECK_THAT(test::error_of([&] { (void)read_file(packed, 999); }),
               Contains("packed.gz\" has 1000 bytes once unpacked, too many: the most are 999; pass the right file"));
    CHECK_THAT(test::error_of([&] { (void)read_file(plain, 999); }),
               Contains("plain\" has 1000 bytes, too many: the most are 999"));
    // Its length is not looked for to the end.
    CHECK_THAT(
        test::error_of([&] { (void)read_file(here.write_packed("long.gz", many), 10); }),
        Catch::Matchers::Matches(".*has more than 10[0-9]{5} bytes once unpacked, too many: the most are 10; .*"));
    packed_file file{packed};
    CHECK(file.read_up_to(10).size() == 10);
    CHECK(file.position() == 10);
    CHECK(file.read_up_to(10'000).size() == 990);
    CHECK(file.read_up_to(10'000).empty());
}

TEST_CASE("data/gzip: a packed file that is cut off", "[data]") {
    const test::directory here;
    std::ifstream file{here.write_packed("whole.gz", noise(200'000)), std::ios::binary};
    const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
    for (const std::size_t length :
         {bytes.size() - 1, bytes.size() - 8, bytes.size() / 2, std::size_t{12}, std::size_t{3}}) {
        const std::string path = here.write("part.gz", bytes.substr(0, length));
        const std::string text = test::error_of([&] { (void)read_file(path, most); });
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
    const std::string text = test::error_of([&] { (void)read_file(path, most); });
    CHECK_THAT(text, StartsWith("lockstep: \"" + path + "\" is corrupt after "));
    CHECK_THAT(text, EndsWith("; fetch or copy the file again, and test it with gzip -t"));
}

}  // namespace
}  // namespace lockstep::data
