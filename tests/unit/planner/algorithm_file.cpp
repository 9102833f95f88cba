// SPDX-License-Identifier: BSD-3-Clause
#include "lockstep/planner/algorithm_file.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <fstream>

using namespace lockstep;
using kernels::algorithm;
using kernels::convolution;
using kernels::convolution_choice;
using kernels::convolution_pass;
using planner::convolution_layer;

namespace {

constexpr convolution first{
    .rows = 28, .columns = 30, .channels = 1, .filters = 6, .kernel_rows = 5, .kernel_columns = 4};
constexpr convolution second{.rows = 32,
                             .columns = 32,
                             .channels = 16,
                             .filters = 24,
                             .kernel_rows = 3,
                             .kernel_columns = 3,
                             .pad_top = 1,
                             .pad_bottom = 0,
                             .pad_left = 2,
                             .pad_right = 3};
const std::vector<convolution_layer> layers{{0, first, false}, {4, second, true}};

const std::string right =
    "# lockstep algorithms 1\n"
    "layer 0 conv 28x30x1-5x4x6 forward im2col micro 32 8\n"
    "layer 0 conv 28x30x1-5x4x6 backward_weights direct\n"
    "layer 4 conv 32x32x16-3x3x24+1,2,0,3 forward winograd4 micro 8\n"
    "layer 4 conv 32x32x16-3x3x24+1,2,0,3 backward_data winograd2\n"
    "layer 4 conv 32x32x16-3x3x24+1,2,0,3 backward_weights winograd6\n";

std::vector<convolution_choice> right_choices() {
    std::vector<convolution_choice> out(2);
    out[0][convolution_pass::forward] = {algorithm::im2col, {{32, 8}, 2}};
    out[1][convolution_pass::forward] = {algorithm::winograd4, {{8}, 1}};
    out[1][convolution_pass::backward_data] = {algorithm::winograd2, {}};
    out[1][convolution_pass::backward_weights] = {algorithm::winograd6, {}};
    return out;
}

/// The message for the right text with one part replaced.
std::string message(std::string_view old, std::string_view changed) {
    std::string text = right;
    const std::size_t at = text.find(old);
    REQUIRE(at != std::string::npos);
    text.replace(at, old.size(), changed);
    try {
        (void)planner::read_algorithms(text, "a.txt", layers);
    } catch (const core::error& failure) {
        return failure.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("planner/algorithm_file: what is written is read", "[planner]") {
    CHECK(planner::write_algorithms(layers, right_choices()) == right);
    CHECK(planner::read_algorithms(right, "a.txt", layers) == right_choices());
    CHECK(planner::write_algorithms({}, {}) == "# lockstep algorithms 1\n");
    CHECK(planner::read_algorithms("# lockstep algorithms 1\n", "a.txt", {}).empty());
}

TEST_CASE("planner/algorithm_file: comments, empty lines, line ends and the order do not matter", "[planner]") {
    std::string text = "# lockstep algorithms 1\r\n\n# a comment\r\n  \n";
    std::vector<std::string> lines;
    for (std::size_t at = right.find('\n') + 1; at < right.size(); at = right.find('\n', at) + 1)
        lines.push_back(right.substr(at, right.find('\n', at) - at));
    REQUIRE(lines.size() == 5);
    for (std::size_t i = lines.size(); i-- > 0;) text += "\t " + lines[i] + " \r\n";
    text.resize(text.size() - 2);  // no end of the last line
    CHECK(planner::read_algorithms(text, "a.txt", layers) == right_choices());
}

TEST_CASE("planner/algorithm_file: geometries as text", "[planner]") {
    CHECK(to_text(second) == "32x32x16-3x3x24+1,2,0,3");
    convolution other = first;
    other.stride_rows = 2;
    CHECK(to_text(other) == "28x30x1-5x4x6/2x1");
    other.pad_right = 1;
    CHECK(to_text(other) == "28x30x1-5x4x6/2x1+0,0,0,1");
}

TEST_CASE("planner/algorithm_file: every mistake is one error that names the line and the remedy", "[planner]") {
    const auto starts = [](const std::string& text, std::string_view with) {
        return text.substr(0, with.size()) == with;
    };
    CHECK(message("# lockstep algorithms 1\n", "") ==
          "lockstep: the file of algorithms a.txt does not begin with '# lockstep algorithms 1'; name a file that a "
          "tuner has written");
    CHECK(starts(message(right, ""), "lockstep: the file of algorithms a.txt does not begin with"));
    CHECK(message("layer 0", "lair 0") ==
          "lockstep: a.txt line 2: 'lair' stands where 'layer' should; write lines as: layer 3 conv "
          "32x32x16-3x3x16+1,1,1,1 forward "
          "winograd4 micro 8");
    CHECK(starts(message("conv", "dense"), "lockstep: a.txt line 2: 'dense' stands where 'conv' should; "));
    CHECK(message("layer 4", "layer four") ==
          "lockstep: a.txt line 4: 'four' is no number of a layer; write a whole number");
    CHECK(message("layer 4", "layer 3") ==
          "lockstep: a.txt line 4: layer 3 of the network is no convolution that takes its algorithms from a file; "
          "remove the line, or tune "
          "this network again");
    CHECK(message("32x32x16-3x3x24+1,2,0,3", "32x32x16-3x3x24") ==
          "lockstep: a.txt line 4: layer 4 is 32x32x16-3x3x24+1,2,0,3, not '32x32x16-3x3x24'; tune this network again");
    CHECK(message("backward_data", "backwards") ==
          "lockstep: a.txt line 5: 'backwards' is no pass; use one of: forward, backward_data, backward_weights");
    CHECK(message("winograd2", "winograd3") ==
          "lockstep: a.txt line 5: 'winograd3' is no algorithm; use one of: direct, winograd2, winograd4, winograd6, "
          "im2col");
    CHECK(message(" direct", "") ==
          "lockstep: a.txt line 3: '' is no algorithm; use one of: direct, winograd2, winograd4, winograd6, im2col");
    CHECK(message("im2col", "winograd2") ==
          "lockstep: a.txt line 2: winograd2 does not apply to 28x30x1-5x4x6; use direct or im2col; Winograd's "
          "algorithms are for kernels "
          "of 3 x 3 with stride 1");
    CHECK(message("micro 32 8", "micro 32 0") ==
          "lockstep: a.txt line 2: a micro-batch of 0 samples; use at least 1, or remove 'micro' for the whole "
          "minibatch");
    CHECK(message("micro 32 8", "micro") == "lockstep: a.txt line 2: '' is no number of samples; write a whole number");
    CHECK(message("micro 32 8", "micro 32 8x") ==
          "lockstep: a.txt line 2: '8x' is no number of samples; write a whole number");
    CHECK(message("micro 32 8", "micro -1") ==
          "lockstep: a.txt line 2: '-1' is no number of samples; write a whole number");
    CHECK(message("micro 32 8", "micro 4294967296") ==
          "lockstep: a.txt line 2: '4294967296' is no number of samples; write a whole number");
    CHECK(message("micro 32 8", "micro 1 2 3 4 5 6 7 8 9") ==
          "lockstep: a.txt line 2: more than 8 micro-batches; name fewer: the last one is repeated");
    CHECK(starts(message("micro 32 8", "nano 8"), "lockstep: a.txt line 2: 'nano' stands where 'micro' should; "));
    CHECK(message("winograd6", "winograd6 micro 4") ==
          "lockstep: a.txt line 6: weight gradients are taken lane by lane, without micro-batches; remove 'micro' and "
          "what follows");
    CHECK(message("28x30x1-5x4x6 backward_weights", "28x30x1-5x4x6 backward_data") ==
          "lockstep: a.txt line 3: layer 0 computes no data gradient: nothing before it learns; remove the line");
    CHECK(message("3 backward_data", "3 forward") ==
          "lockstep: a.txt line 5: layer 4 forward stands here for the second time; remove one of the two lines");
    CHECK(message("layer 4 conv 32x32x16-3x3x24+1,2,0,3 backward_data winograd2\n", "") ==
          "lockstep: a.txt has no line for layer 4 conv 32x32x16-3x3x24+1,2,0,3 backward_data; add it, or tune this "
          "network again");
}

TEST_CASE("planner/algorithm_file: files", "[planner]") {
    const std::string path = "algorithms." + std::to_string(getpid()) + ".txt";
    std::ofstream{path} << right;
    CHECK(planner::load_algorithms(path) == right);
    std::remove(path.c_str());
    CHECK_THROWS_WITH(planner::load_algorithms(path), "lockstep: the file of algorithms " + path +
                                                          " cannot be read: No such file or directory; check its name "
                                                          "on every rank, or leave plan.algorithms empty for "
                                                          "the default rule");
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(planner::load_algorithms(path),
                      Catch::Contains(" cannot be read: it is a FIFO, no regular file; "));
    std::remove(path.c_str());
    CHECK_THROWS_WITH(planner::load_algorithms("/dev/zero"),
                      Catch::Contains(" cannot be read: it is a device, no regular file; "));
}

TEST_CASE("planner/algorithm_file: files and lines have a limit", "[planner]") {
    const std::string path = "long." + std::to_string(getpid()) + ".txt";
    std::ofstream{path} << right << std::string(1 << 20, '#');
    CHECK_THROWS_WITH(planner::load_algorithms(path),
                      Catch::Contains(core::text(" has ", right.size() + (1 << 20), " bytes, the most are 1048576; ")));
    std::remove(path.c_str());
    CHECK(message("layer 4", "# " + std::string(998, 'c') + "\nlayer 4") == "no error");
    CHECK(message("layer 4", "# " + std::string(999, 'c') + "\nlayer 4") ==
          "lockstep: a.txt line 4: it has 1001 bytes, a line has at most 1000; name a file that a tuner has written");
}

TEST_CASE("planner/algorithm_file: messages quote words of the file in a printable and short form", "[planner]") {
    CHECK_THAT(
        message("layer 0", std::string_view{"\x1b[2Jla\0yer\xff 0", 14}),
        Catch::Matchers::StartsWith(R"(lockstep: a.txt line 2: '\x1b[2Jla\x00yer\xff' stands where 'layer' should; )"));
    CHECK_THAT(message("layer 0", std::string(500, 'l')),
               Catch::Matchers::StartsWith("lockstep: a.txt line 2: '" + std::string(80, 'l') +
                                           "... (500 bytes)' stands where"));
}
