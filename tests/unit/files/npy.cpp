// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/npy.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/python.hpp"
#include "unit/data/files.hpp"

namespace lockstep::files {
namespace {

std::string file_of(const std::string& dictionary, std::size_t bytes, int version = 1) {
    std::string out = "\x93NUMPY";
    out += static_cast<char>(version);
    out += '\0';
    for (int shift = 0; shift < (version == 1 ? 16 : 32); shift += 8)
        out += static_cast<char>(dictionary.size() >> shift & 255);
    return out + dictionary + std::string(bytes, '\1');
}
npy_header parse(const std::string& file) { return parse_npy(std::as_bytes(std::span{file}), file.size(), "x.npy"); }
std::string error_in(const std::string& file) {
    return test::error_of([&] { (void)parse(file); });
}
using extents = std::vector<std::size_t>;

// What numpy 1.24 writes for np.arange(6, dtype='<i2').reshape(2, 3), byte for byte.
TEST_CASE("files/npy: the bytes that NumPy writes", "[files]") {
    const test::directory here;
    const std::array<std::int16_t, 6> numbers{0, 1, 2, 3, 4, 5};
    write_npy<std::int16_t>(here / "x.npy", std::array<std::size_t, 2>{2, 3}, numbers);
    std::string right = "\x93NUMPY";
    right += std::string("\1\0\x76\0", 4) + "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }";
    right += std::string(127 - right.size(), ' ') + "\n";
    right += std::string("\0\0\1\0\2\0\3\0\4\0\5\0", 12);
    CHECK(test::contents(here / "x.npy") == right);
    CHECK(npy_head(dtype::u8, extents{7}).find("{'descr': '|u1', 'fortran_order': False, 'shape': (7,), } ") == 10);
    CHECK(npy_head(dtype::f64, extents{}).find("{'descr': '<f8', 'fortran_order': False, 'shape': (), } ") == 10);
    const npy_file file{here / "x.npy"};
    CHECK(file.type() == dtype::i16);
    CHECK(file.shape() == extents{2, 3});
    CHECK(file.count() == 6);
    std::array<float, 3> found{};
    file.read<float>(2, found);
    CHECK(found == std::array{2.0F, 3.0F, 4.0F});
    const auto why = [&](const auto& read) { return test::error_of([&] { read(); }); };
    const std::string has = "lockstep: \"" + here / "x.npy" + "\" has 6 I16; asked for were ";
    CHECK(why([&] { file.read<float>(4, found); }).starts_with(has + "3 numbers from 4 on; "));
    CHECK(why([&] { file.read<float>(7, std::span<float>{}); }).starts_with(has + "0 numbers from 7 on; "));
    CHECK(why([&] { file.read<float>(6, std::span<float>{}); }).empty());
    CHECK(found == std::array{2.0F, 3.0F, 4.0F});
    write_npy<float>(here / "y.npy", std::array<std::size_t, 1>{3}, found);
    std::array<int, 1> whole{-7};
    CHECK(why([&] {
              npy_file{here / "y.npy"}.read<int>(0, whole);
          }).find("has 3 F32; asked for were 1 whole numbers from 0 on; read what is there, fractions into float") !=
          std::string::npos);
    CHECK(whole[0] == -7);
}

TEST_CASE("files/npy: every type and shape reads back", "[files]") {
    for (std::size_t t = 0; t < dtypes.size(); ++t)
        for (const extents& shape : {extents{}, extents{0}, extents{5}, extents{2, 3, 4}, extents(64, 1)}) {
            const auto type = static_cast<dtype>(t);
            if (type == dtype::bf16) continue;
            std::uint64_t size = 0;
            REQUIRE(bytes_of(shape, type, size));
            const std::string head = npy_head(type, shape);
            CHECK(head.size() % 64 == 0);
            const auto found = parse(head + std::string(size, '\0'));
            CHECK(found.type == type);
            CHECK(found.shape == shape);
            CHECK(found.begin == head.size());
            CHECK(found.size == size);
        }
    CHECK(test::error_of([] { (void)npy_head(dtype::bf16, {}); }).find("NumPy has no BF16") != std::string::npos);
    CHECK(test::error_of([] { (void)npy_head(dtype::u8, extents(65, 1)); }).find("65 extents") != std::string::npos);
}

TEST_CASE("files/npy: Python reads what is written, and is read", "[files]") {
    const test::directory here;
    const std::vector<double> numbers{0.5, -1, 1e300, 4, 5, 6};
    write_npy<double>(here / "x.npy", extents{3, 2}, numbers);
    const auto printed = test::run_python("npy.py", "read '" + (here / "x.npy") + "'");
    if (!printed) {
        WARN("no python3: not compared with another reader");
        return;
    }
    CHECK(*printed == "<f8 (3, 2) 0.5 -1.0 1e+300 4.0 5.0 6.0\n");
    for (const int version : {1, 2, 3}) {
        (void)test::run_python("npy.py", "write '" + (here / "y.npy") + "' " + std::to_string(version));
        const npy_file file{here / "y.npy"};
        CHECK(file.type() == dtype::f16);
        CHECK(file.shape() == extents{2, 2});
        std::array<float, 4> found{};
        file.read<float>(0, found);
        CHECK(found == std::array{1.0F, -0.5F, 65504.0F, 0.25F});
    }
}

TEST_CASE("files/npy: keys in any order, quotes and white space", "[files]") {
    const auto found = parse(file_of("{ \"shape\":(3,4 ),'fortran_order' : False,\n'descr':\"=f4\"}  \n", 48, 2));
    CHECK(found.type == dtype::f32);
    CHECK(found.shape == extents{3, 4});
    CHECK(parse(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }", 12)).shape == extents{3});
    CHECK(parse(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 2), }", 0)).shape == extents{0, 2});
    CHECK(parse(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3, 1), }", 12)).shape ==
          extents{1, 3, 1});
    CHECK(parse(file_of("{'descr': '>u1', 'fortran_order': False, 'shape': (3,), }", 3)).type == dtype::u8);
}

TEST_CASE("files/npy: each thing that can be wrong has its message", "[files]") {
    const auto expect = [](const std::string& file, const std::string& message) {
        CHECK(error_in(file) == "lockstep: " + message);
    };
    const std::string again = "; fetch or copy the file again";
    const std::string save = "; fetch or copy the file again, or write it with numpy.save";
    expect("", "\"x.npy\" does not begin like an .npy file: \"\"; pass an .npy file");
    expect("PK\3\4....",
           "\"x.npy\" does not begin like an .npy file: \"PK\\x03\\x04....\"; this is an archive of arrays (.npz): "
           "unpack it with unzip");
    expect("\x93NUMPY", "\"x.npy\" has 6 bytes, too few for a header" + again);
    expect(std::string("\x93NUMPY\1\0\5", 9), "\"x.npy\" has 9 bytes, too few for a header" + again);
    expect(file_of("", 4, 4), "\"x.npy\" has the format 4.0, known are 1.0, 2.0 and 3.0; write it with numpy.save");
    expect(std::string("\x93NUMPY\1\0\5\0{", 11), "\"x.npy\" has 11 bytes, its header alone takes 15" + again);
    expect(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{", 13),
           "\"x.npy\" has a header of 4294967295 bytes, the most are 65536" + again);
    const auto header = [](const std::string& type, const std::string& order, const std::string& shape) {
        return "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
    };
    expect(file_of(header("'<f4'", "False", "(3,)"), 11),
           "\"x.npy\" has 11 bytes of numbers, its header promises 3 numbers of 4 bytes" + again);
    expect(file_of(header("'<f4'", "False", "(3,)"), 13),
           "\"x.npy\" has 13 bytes of numbers, its header promises 3 numbers of 4 bytes" + again);
    expect(file_of(header("'<f4'", "False", "(4294967296, 4294967296)"), 0),
           "\"x.npy\" has 0 bytes of numbers, its header promises 4294967296x4294967296 numbers of 4 bytes" + again);
    expect(file_of(header("'<f4'", "True", "(3, 2)"), 24),
           "\"x.npy\" holds 3x2 numbers in column-major order (fortran_order); store it in row-major order: "
           "numpy.save(path, numpy.ascontiguousarray(a))");
    expect(file_of(header("'>f4'", "False", "(3,)"), 12),
           "\"x.npy\" holds big-endian numbers ('>f4'); store them as numpy.save(path, a.astype('<f4'))");
    for (const std::string type : {"|O", "<U5", "<c8", "<M8[ns]", "<f16", "|V2", "f4", "", "<", "?"})
        expect(file_of(header("'" + type + "'", "False", "(3,)"), 12),
               "\"x.npy\" holds elements of type '" + type +
                   "'; store numbers: bool, whole numbers of 8 to 64 bits, or floating-point numbers of 16 to 64 bits");
    expect(file_of(header("[('a', '<f4')]", "False", "(3,)"), 12),
           "\"x.npy\" is an array of records; store each field in a file of its own");
    expect(file_of("{'descr': '<f4', 'shape': (3,)}", 12),
           "the header of \"x.npy\" has not all of 'descr', 'fortran_order' and 'shape'" + save);
    expect(file_of("{'descr': '<f4', 'descr': '<f4'}", 12), "the header of \"x.npy\" has the key 'descr' twice" + save);
    expect(file_of("{'other': '<f4'}", 12), "the header of \"x.npy\" has the unknown key 'other'" + save);
    expect(file_of("{'descr': '<f4", 0),
           "the header of \"x.npy\" has \"<f4\" at byte 21, expected a string that ends" + save);
    expect(file_of("{'shape': (3)}", 0), "the header of \"x.npy\" has \")}\" at byte 22, expected ','" + save);
    expect(file_of("{'shape': (-3,)}", 0),
           "the header of \"x.npy\" has \"-3,)}\" at byte 21, expected an extent of 64 bits" + save);
    expect(file_of("{'shape': (18446744073709551616,)}", 0),
           "the header of \"x.npy\" has \"1844674407370955\" at byte 21, expected an extent of 64 bits" + save);
    expect(file_of("{'shape': (3,) 'descr'}", 0),
           "the header of \"x.npy\" has \"'descr'}\" at byte 25, expected '}'" + save);
    expect(file_of("{'fortran_order': 0}", 0),
           "the header of \"x.npy\" has \"0}\" at byte 28, expected True or False" + save);
    expect(file_of("{} x", 0), "the header of \"x.npy\" has \"x\" at byte 13, expected the end of the header" + save);
    expect(file_of("", 0), "the header of \"x.npy\" has no more at byte 10, expected '{'" + save);
    std::string many = "(";
    for (int i = 0; i < 65; ++i) many += "1,";
    expect(file_of(header("'<f4'", "False", many + ")"), 4), "the header of \"x.npy\" has more than 64 extents" + save);
    const std::vector<float> three(3);
    CHECK(test::error_of([&] { write_npy<float>("/nowhere/x", extents{2}, three); }) ==
          "lockstep: an array of 2 F32 comes with 12 bytes; pass as many numbers as its shape says");
}

}  // namespace
}  // namespace lockstep::files
