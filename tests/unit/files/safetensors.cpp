// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/files/safetensors.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/python.hpp"
#include "unit/data/files.hpp"

namespace lockstep::files {
namespace {

std::string prefix(std::uint64_t length) {
    std::string out;
    for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(length >> shift & 255);
    return out;
}
std::string file_of(const std::string& header, std::size_t data_bytes) {
    std::string out = prefix(header.size()) + header;
    for (std::size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i + 1);
    return out;
}
safetensors_layout parse(const std::string& file) {
    return parse_safetensors(std::as_bytes(std::span{file}), file.size(), "net.safetensors");
}
std::string error_in(const std::string& file) {
    return test::error_of([&] { (void)parse(file); });
}

TEST_CASE("files/safetensors: the bytes of a layout are known before anything is written", "[files]") {
    const auto layout = lay_out_safetensors(
        {{"b", dtype::u8, {3}}, {"a \"x\"", dtype::f32, {2, 1}}, {"c", dtype::i64, {}}}, {{"step", "7"}});
    const std::string header =
        R"({"__metadata__":{"step":"7"},"c":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
        R"("a \"x\"":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},)"
        R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
    const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
    CHECK(layout.head == prefix(padded.size()) + padded);
    CHECK(layout.file_size == layout.head.size() + 19);
    REQUIRE(layout.tensors.size() == 3);
    CHECK(layout.find("b")->begin == layout.head.size() + 16);
    CHECK(layout.find("b")->size == 3);
    CHECK(layout.find("c")->begin == layout.head.size());
    CHECK(layout.find("d") == nullptr);

    // Any file of this length with this head is valid, and says the same.
    const auto again = parse(layout.head + std::string(19, '?'));
    CHECK(again.file_size == layout.file_size);
    CHECK(again.metadata == layout.metadata);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(again.tensors[i].name == layout.tensors[i].name);
        CHECK(again.tensors[i].type == layout.tensors[i].type);
        CHECK(again.tensors[i].shape == layout.tensors[i].shape);
        CHECK(again.tensors[i].begin == layout.tensors[i].begin);
        CHECK(again.tensors[i].size == layout.tensors[i].size);
    }
}

TEST_CASE("files/safetensors: no tensors, and tensors without numbers", "[files]") {
    CHECK(parse(lay_out_safetensors({}).head).tensors.empty());
    CHECK(parse(file_of("{}", 0)).file_size == 10);
    const auto layout =
        lay_out_safetensors({{"a", dtype::f32, {0, 5}}, {"b", dtype::f32, {1}}, {"c", dtype::f32, {0}}});
    const auto again = parse(layout.head + std::string(4, '\0'));
    REQUIRE(again.tensors.size() == 3);
    CHECK(again.find("a")->size == 0);
    CHECK(again.find("c")->begin == again.file_size);
}

TEST_CASE("files/safetensors: what is written, a reader in Python reads", "[files]") {
    const test::directory here;
    const std::vector<float> weights{1, -2.5F, 3, 0.125F, 5, 6};
    const std::vector<double> slots{0.1, -1e300};
    const std::vector<std::uint64_t> counter{18446744073709551615ULL};
    const std::vector<std::int8_t> small{-1, 2, 3};
    const auto span = [](const auto& all) { return std::span{all.data(), all.size()}; };
    write_safetensors(here / "net",
                      {tensor_of("conv.weight", {2, 3}, span(weights)), tensor_of("small", {3}, span(small)),
                       tensor_of("slots", {2}, span(slots)), tensor_of("count", {}, span(counter))},
                      {{"key", "two words"}});
    const auto printed = test::run_python("safetensors.py", "read '" + (here / "net") + "'");
    if (printed) {
        CHECK(printed->find("text key two words\n") == 0);
        CHECK(printed->find("\nconv.weight F32 [2, 3] 1 -2.5 3 0.125 5 6\n") != std::string::npos);
        CHECK(printed->find("\nslots F64 [2] 0.1 -1") != std::string::npos);
        CHECK(printed->find("\ncount U64 [] 18446744073709551615\n") != std::string::npos);
        CHECK(printed->find("\nsmall I8 [3] -1 2 3\n") != std::string::npos);
    } else {
        WARN("no python3: not compared with another reader");
    }

    const safetensors_file file{here / "net"};
    CHECK(file.layout().metadata == text_pairs{{"key", "two words"}});
    std::vector<float> back(6);
    file.read<float>("conv.weight", std::array<std::size_t, 2>{2, 3}, back);
    CHECK(back == weights);
    std::vector<std::int8_t> small_back(3);
    file.read<std::int8_t>("small", std::array<std::size_t, 1>{3}, small_back);
    CHECK(small_back == small);
    CHECK(test::error_of([&] { (void)file.at("fc"); }) ==
          "lockstep: \"" + (here / "net") + "\" has no tensor \"fc\"; it has 4: slots, count, conv.weight, small");
    CHECK(test::error_of([&] {
              file.read<float>("conv.weight", std::array<std::size_t, 2>{3, 2}, back);
          }) ==
          "lockstep: tensor \"conv.weight\" of \"" + (here / "net") +
              "\" is 2x3 F32, asked for was 3x2 F32 with room for 6 numbers; read it into another network or array, or "
              "write the file again");
    CHECK(test::error_of([&] {
              file.read<float>("slots", std::array<std::size_t, 1>{2}, back);
          }).find("2 F64, asked") != std::string::npos);
}

TEST_CASE("files/safetensors: what Python writes, in all types, is read", "[files]") {
    const test::directory here;
    if (!test::run_python("safetensors.py", "write '" + (here / "net") + "'")) {
        WARN("no python3: not compared with another writer");
        return;
    }
    const safetensors_file file{here / "net"};
    CHECK(file.layout().metadata == text_pairs{{"written by", "Python \xc3\xa9"}});
    REQUIRE(file.layout().tensors.size() == 13);
    for (std::size_t i = 0; i < 13; ++i) {
        const auto& one = file.layout().tensors[i];
        INFO(name_of(one.type));
        CHECK(one.name == "tensor " + std::to_string(i));
        CHECK(one.shape == std::vector<std::size_t>{2, 3});
        std::array<double, 6> found{};
        std::array<float, 6> asked{};
        const std::string why = test::error_of([&] { file.read<float>(one.name, one.shape, asked); });
        CHECK(why.empty() == (one.type == dtype::f32));
        if (one.type == dtype::f16 || one.type == dtype::bf16 || one.type == dtype::i32)
            CHECK(why.ends_with("; convert it to F32 or F64, as with .float() in PyTorch"));
        if (one.type == dtype::bf16) continue;  // Python has none: the numbers are bits
        convert<double>(one.type, file.bytes(one).data(), found);
        for (std::size_t j = 0; j < 6; ++j)
            CHECK(found[j] == static_cast<double>((3 * i + j) % (one.type == dtype::boolean ? 2 : 100)));
    }
}

TEST_CASE("files/safetensors: members and white space in any order", "[files]") {
    const auto found = parse(file_of(R"({ "b" : {"data_offsets":[4,6],"shape":[2],"dtype":"U8"},
        "__metadata__":{}, "a":{"shape":[1,1],"dtype":"F32","data_offsets":[0,4]} }   )",
                                     6));
    REQUIRE(found.tensors.size() == 2);
    CHECK(found.tensors[0].name == "a");
    CHECK(found.tensors[1].begin + 2 == found.file_size);
}

TEST_CASE("files/safetensors: each thing that can be wrong has its message", "[files]") {
    const std::string again = "; fetch, copy or write the file again",
                      pass = "; pass a .safetensors file, or fetch or copy it again";
    const auto expect = [&](const std::string& file, const std::string& message) {
        CHECK(error_in(file) == "lockstep: " + message);
    };
    const std::string name = "\"net.safetensors\" ";
    expect("", name + "has 0 bytes, the length of its header alone takes 8" + pass);
    expect("1234567", name + "has 7 bytes, the length of its header alone takes 8" + pass);
    expect(prefix(3) + "{}", name + "has 10 bytes, its header alone takes 8 + 3" + pass);
    expect(prefix(~std::uint64_t{0}),
           name + "has a header of 18446744073709551615 bytes, the format allows 100000000" + pass);
    expect(prefix(100'000'001), name + "has a header of 100000001 bytes, the format allows 100000000" + pass);
    expect(file_of(" {}", 0), name + "has a header that does not begin with {: \" {}\"" + pass);
    expect(file_of("", 5), name + "has a header that does not begin with {: \"\"" + pass);
    CHECK(error_in(file_of("{\"a\":", 0)).starts_with("lockstep: the header of \"net.safetensors\", byte 13: "));
    CHECK(error_in(file_of("{}x", 0)).starts_with("lockstep: the header of \"net.safetensors\", byte 10: "));

    const auto tensor = [&](const std::string& members, std::size_t bytes) {
        return file_of("{\"w\":{" + members + "}}", bytes);
    };
    const std::string one = name + "has a tensor \"w\" ";
    expect(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
           one + "of 2 F32, 8 bytes, in the range from 0 to 4" + again);
    expect(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", 4),
           one + "of 1 F32, 4 bytes, in the range from 4 to 0" + again);
    expect(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
           one + "of 4294967296x4294967296 F32, more than 2^63 bytes, in the range from 0 to 0" + again);
    expect(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 4),
           one + "in the range from 0 to 8, but holds 4 bytes of data" + again);
    expect(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551616])", 4),
           "the header of \"net.safetensors\", byte 77: 18446744073709551616 is more than 64 bits hold; use a smaller "
           "number");
    CHECK(error_in(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615])", 4))
              .find("but holds 4 bytes of data") != std::string::npos);
    expect(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", 8),
           one + "that begins at byte 66 of the file, where a hole ends: expected 62" + again);
    expect(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 5),
           name + "has 1 byte after its last tensor, which ends at byte 66" + again);
    expect(file_of("{}", 3), name + "has 3 bytes after its last tensor, which ends at byte 10" + again);
    expect(tensor(R"("dtype":"F8","shape":[],"data_offsets":[0,1])", 1),
           one +
               "of type F8; known are BOOL, U8, I8, U16, I16, F16, BF16, U32, I32, F32, U64, I64, F64; convert it to "
               "one of these types");
    expect(tensor(R"("shape":[],"data_offsets":[0,1])", 1),
           one + "without all of dtype, shape and two data_offsets" + again);
    expect(tensor(R"("dtype":"U8","shape":[],"data_offsets":[0])", 1),
           one + "without all of dtype, shape and two data_offsets" + again);
    expect(tensor(R"("dtype":"U8","shape":[],"data_offsets":[0,1,2])", 1),
           one + "whose data_offsets are more than two numbers" + again);
    expect(tensor(R"("dtype":"U8","shape":[],"data_offsets":[0,1],"extra":1)", 1),
           one + "with a member \"extra\", which the format does not have" + again);
    expect(tensor(R"("dtype":"U8","dtype":"I8","shape":[],"data_offsets":[0,1])", 1),
           one + "with two members \"dtype\", which the format does not have" + again);
    CHECK(error_in(tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1)).find("a whole number from 0 on") !=
          std::string::npos);
    CHECK(error_in(tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", 1)).find("a whole number from 0 on") !=
          std::string::npos);
    std::string extents = "1";
    for (int i = 0; i < 64; ++i) extents += ",1";
    expect(tensor("\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[" + extents + "]", 1),
           one + "of more than 64 extents" + again);

    const std::string w = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
                      v = R"("v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
    expect(file_of("{" + w + "," + w + "}", 1), one + "twice" + again);
    CHECK(error_in(file_of("{" + w + "," + v + "}", 2))
              .find("\"v\" that begins at byte 113 of the file, where another one lies: expected 114") !=
          std::string::npos);
    expect(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), name + "has __metadata__ twice" + again);
    CHECK(error_in(file_of(R"({"__metadata__":{"a":1}})", 0)).find("a string expected, found \"1}}\"") !=
          std::string::npos);
}

TEST_CASE("files/safetensors: what the format cannot hold is not laid out", "[files]") {
    const auto error = [](std::vector<tensor_entry> tensors, text_pairs texts = {}) {
        return test::error_of([&] { (void)lay_out_safetensors(std::move(tensors), std::move(texts)); });
    };
    CHECK(error({{"a", dtype::u8, {1}}, {"b", dtype::u8, {1}}, {"a", dtype::f32, {1}}}) ==
          "lockstep: a safetensors file was to hold a tensor \"a\" twice; give each tensor a name of its own");
    CHECK(error({{"__metadata__", dtype::u8, {1}}}).find("a name that the format keeps for texts") !=
          std::string::npos);
    CHECK(error({{"\xff", dtype::u8, {1}}}).find("no UTF-8") != std::string::npos);
    CHECK(error({{"a", dtype::u8, {std::size_t{1} << 62}}, {"b", dtype::u8, {std::size_t{1} << 62}}})
              .find("\"b\" of 4611686018427387904, which ends beyond 2^63") != std::string::npos);
    CHECK(error({{"a", dtype::u8, std::vector<std::size_t>(65, 1)}}).find("of 65 extents") != std::string::npos);
    CHECK(error({}, {{"a", std::string(100'000'000, 'x')}}).find("the format allows 100000000") != std::string::npos);
    const std::vector<float> three(3);
    CHECK(test::error_of([&] {
              write_safetensors("/nowhere/x", {tensor_of("a", {2}, std::span<const float>{three})});
          }) == "lockstep: tensor \"a\" of 2 F32 comes with 12 bytes; pass as many numbers as its shape says");
}

}  // namespace
}  // namespace lockstep::files
