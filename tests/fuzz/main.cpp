// SPDX-License-Identifier: BSD-3-Clause
// Readers against the oracle without a fuzzer: valid files, changed by a seeded generator, for so many inputs or
// seconds. fuzz_readers [--reader NAME] [--inputs N of each reader] [--seconds S] [--seed N] [--write FOLDER: the
// seeds] [FILE..: inputs to run again]
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "readers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace lockstep::fuzz;

/// splitmix64 (Steele, Lea, Flood 2014).
class generator {
public:
    explicit generator(std::uint64_t seed) : state_{seed} {}
    std::uint64_t operator()() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>((*this)() % n); }
    bool chance(std::size_t of) { return below(of) == 0; }

private:
    std::uint64_t state_;
};

std::string number(std::uint32_t value) {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 255);
    return out;
}

/// A member of gzip with an optional part of the header for each bit of `flags`: its checksum 2, further fields 4, name
/// 8, comment 16.
std::string member(const std::string& content, int level, int strategy, unsigned flags) {
    std::string head{"\x1f\x8b\x08", 3};
    head += static_cast<char>(flags);
    head += std::string("\0\0\0\0\0\3", 6);
    if ((flags & 4) != 0) head += std::string{"\3\0abc", 5};
    if ((flags & 8) != 0) head += std::string{"name\0", 5};
    if ((flags & 16) != 0) head += std::string{"\0", 1};
    const auto little_endian = [](std::uint32_t value, int bytes) {
        std::string out;
        for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 255);
        return out;
    };
    if ((flags & 2) != 0) head += little_endian(crc32_of(head) & 0xffff, 2);
    z_stream stream{};
    std::string body(content.size() + content.size() / 100 + 64, '\0');
    if (deflateInit2(&stream, level, Z_DEFLATED, -15, 4, strategy) != Z_OK) std::abort();
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    stream.next_out = reinterpret_cast<Bytef*>(body.data());
    stream.avail_out = static_cast<uInt>(body.size());
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
    body.resize(stream.total_out);
    (void)deflateEnd(&stream);
    return head + body + little_endian(crc32_of(content), 4) +
           little_endian(static_cast<std::uint32_t>(content.size()), 4);
}

/// One of many ways to pack the same content.
std::string packed(const std::string& content, generator& random) {
    std::string out;
    const std::size_t members = random.chance(2) ? 1 : 1 + random.below(4);
    for (std::size_t m = 0, at = 0; m < members; ++m) {
        const std::size_t size = m + 1 == members ? content.size() - at : random.below(content.size() - at + 1);
        constexpr std::array strategies{Z_DEFAULT_STRATEGY, Z_FIXED, Z_HUFFMAN_ONLY};
        out += member(content.substr(at, size), random.chance(3) ? 0 : static_cast<int>(1 + random.below(9)),
                      strategies[random.below(3)], random.chance(2) ? 0 : static_cast<unsigned>(2 * random.below(16)));
        at += size;
    }
    if (random.chance(6)) out += std::string(random.below(600), '\0');
    return out;
}

/// Bits, bytes, runs, lengths and parts of `of` changed at random.
std::string mutated(std::string of, generator& random) {
    for (std::size_t changes = 1 + random.below(4); changes > 0; --changes) {
        const std::size_t at = random.below(of.size() + 1),
                          size = random.below(std::min<std::size_t>(of.size() - at, 64) + 1);
        switch (random.below(9)) {
            case 0:
                if (at < of.size()) of[at] = static_cast<char>(of[at] ^ (1 << random.below(8)));
                break;
            case 1:
                if (at < of.size()) of[at] = static_cast<char>(random());
                break;
            case 2:
                of.resize(at);
                break;
            case 3:
                of.erase(at, size);
                break;
            case 4:
                of.insert(at, of.substr(at, size));
                break;
            case 5:
                of.insert(random.below(of.size() + 1), of.substr(at, size));
                break;
            case 6:
                if (constexpr std::array<std::uint32_t, 8> extremes{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x10000,
                                                                    0xffff, 3};
                    of.size() >= at + 4)
                    of.replace(at, 4, number(extremes[random.below(extremes.size())]));
                break;
            case 7:
                of.insert(at, std::string(random.below(40), "\0 \n9a"[random.below(5)]));
                break;
            default:
                if (of.size() >= 4 && at < 24)
                    of.replace(at / 4 * 4 % (of.size() - 3), 4, number(static_cast<std::uint32_t>(random.below(8))));
        }
    }
    return of;
}

/// Words of a text changed at random: most of what a change of bytes makes is refused at the first word.
std::string reworded(const std::string& of, generator& random) {
    constexpr std::array<std::string_view, 24> words{"layer",
                                                     "conv",
                                                     "0",
                                                     "4",
                                                     "forward",
                                                     "backward_data",
                                                     "backward_weights",
                                                     "direct",
                                                     "im2col",
                                                     "winograd4",
                                                     "micro",
                                                     "8",
                                                     "0000000000000000000000007",
                                                     "4294967295",
                                                     "4294967296",
                                                     "18446744073709551615",
                                                     "tree",
                                                     "ring",
                                                     "max",
                                                     ":",
                                                     "-",
                                                     ";",
                                                     "\t",
                                                     "#"};
    auto lines = split(of, "\n", false);
    if (lines.size() > 1 && random.chance(2)) {
        const std::size_t a = random.below(lines.size()), b = random.below(lines.size());
        switch (random.below(4)) {
            case 0:
                std::swap(lines[a], lines[b]);
                break;
            case 1:
                lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(a), lines[b]);
                break;
            case 2:
                lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(a));
                break;
            default:
                lines[a] += random.chance(2) ? "\r" : std::string(random.below(1100), ' ');
        }
    } else {
        auto& line = lines[random.below(lines.size())];
        const std::size_t at = random.below(line.size() + 1), begin = line.find_first_of(" :-;", at) + 1,
                          end = line.find_first_of(" :-;", begin);
        line.replace(std::min(begin, line.size()), end == line.npos ? line.npos : end - begin,
                     words[random.below(words.size())]);
    }
    std::string out;
    for (std::size_t i = 0; i < lines.size(); ++i) out += (i == 0 ? "" : "\n") + lines[i];
    return out;
}

/// Pieces between brackets, quotes and separators changed at random, in texts such as headers.
std::string retokened(std::string of, generator& random) {
    constexpr std::string_view bounds = "{}[](),:\"' \n;";
    constexpr std::array<std::string_view, 47> words{"{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     "(",
                                                     ")",
                                                     ",",
                                                     ":",
                                                     "\"",
                                                     "'",
                                                     " ",
                                                     "0",
                                                     "1",
                                                     "2",
                                                     "3",
                                                     "8",
                                                     "16",
                                                     "-1",
                                                     "-0",
                                                     "1.0",
                                                     "1e2",
                                                     "1e999",
                                                     "4294967296",
                                                     "9223372036854775808",
                                                     "18446744073709551615",
                                                     "18446744073709551616",
                                                     "true",
                                                     "null",
                                                     "\"\\u0041\"",
                                                     "\\ud83d\\ude00",
                                                     "\\ud800",
                                                     "\xed\xa0\x80",
                                                     "\xf4\x90\x80\x80",
                                                     "\xc0\x80",
                                                     "\xc3\xa9",
                                                     "\xff",
                                                     "F32",
                                                     "BF16",
                                                     "\"__metadata__\":{}",
                                                     "False",
                                                     "True",
                                                     "<f4",
                                                     ">f8",
                                                     "|u1",
                                                     "nan",
                                                     "\r\n",
                                                     "\"\"\"a\"\"\""};
    for (std::size_t changes = 1 + random.below(3); changes > 0; --changes) {
        const std::size_t at = random.below(of.size() + 1), begin = std::min(of.find_first_of(bounds, at), of.size()),
                          end = std::min(of.find_first_of(bounds, begin + 1), of.size());
        const std::string word{words[random.below(words.size())]};
        const std::size_t other = std::min(of.find_first_of(bounds, random.below(of.size() + 1)), of.size());
        switch (random.below(6)) {
            case 0:
                of.insert(begin, word);
                break;
            case 1:
                of.replace(std::min(begin + 1, of.size()), end - std::min(begin + 1, end), word);
                break;
            case 2:
                of.erase(begin, end - begin);
                break;
            case 3:
            case 4:  // a number becomes another one
                if (const std::size_t digit = of.find_first_of("0123456789", at); digit != of.npos)
                    of.replace(digit, 1, std::to_string(random.below(random.chance(3) ? 30 : 10)));
                break;
            default:
                of.insert(other, of.substr(begin, end - begin));
        }
    }
    return of;
}

/// Valid inputs of each reader, and how they are changed.
class inputs {
public:
    inputs() {
        // A few pixels that repeat: packed, they have all kinds of blocks.
        const auto pixels = [](std::size_t n) {
            std::string out;
            for (std::size_t i = 0; i < n; ++i) out += static_cast<char>(i % 7 == 0 ? i * 31 : i % 5);
            return out;
        };
        for (const std::uint32_t n : {0U, 1U, 3U, 40U})
            idx_.push_back({number(0x803) + number(n) + number(2) + number(3) + pixels(6 * n),
                            number(0x801) + number(n) + std::string(n, '\3')});
        for (const std::uint32_t n : {1U, 2U})
            mnist_.push_back({number(0x803) + number(n) + number(28) + number(28) + pixels(784 * n),
                              number(0x801) + number(n) + std::string(n, '\7')});
        for (const std::size_t n : {1U, 2U}) {
            std::string file;
            for (std::size_t i = 0; i < n; ++i) file += std::string{"\4"} + pixels(3072);
            cifar_.push_back(file);
        }
        algorithms_ =
            "# lockstep algorithms 1\n"
            "layer 0 conv 28x30x1-5x4x6 forward im2col micro 32 8\n"
            "layer 0 conv 28x30x1-5x4x6 backward_weights direct\n"
            "# a comment\r\n\n"
            "layer 4 conv 32x32x16-3x3x24+1,2,0,3 forward winograd4 micro 8\n"
            "layer 4 conv 32x32x16-3x3x24+1,2,0,3 backward_data winograd2\n"
            "layer 4 conv 32x32x16-3x3x24+1,2,0,3 backward_weights winograd6\n";
        tables_ = {"tree:0-max", "doubling:0-8192;tree:8193-max",
                   "doubling:0-0;hierarchical:1-1000;ring:1001-9999;halving-doubling:10000-max"};
        jsons_ = {R"({"a":1,"b":[true,false,null,-0.5e1],"c":{"d":"x\\n\\u00e9\\ud83d\\ude00"},"":[[],{}]})",
                  " [1 , 2.25,\n\t\"\xe2\x82\xac\"] ", "18446744073709551615",
                  std::string(64, '[') + std::string(64, ']')};
        tensors_ = {{R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("b":{"dtype":"U8","shape":[3],"data_offsets":[24,27]}}     )",
                     pixels(27)},
                    {R"({"__metadata__":{"k":"v"},)"
                     R"("a":{"shape":[],"dtype":"I64","data_offsets":[0,8]},)"
                     R"("e":{"dtype":"BOOL","shape":[0,4],"data_offsets":[8,8]}})",
                     pixels(8)},
                    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                     pixels(8)},
                    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                     pixels(8)},
                    {"{}", ""}};
        arrays_ = {{"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n", pixels(24)},
                   {"{'shape': (5,), 'descr': \"|u1\", 'fortran_order': True}\n", pixels(5)},
                   {"{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", pixels(8)}};
        csvs_ = {"a,b,c\n1,2.5,0\n-3e2,.5,2\n0.1,+7,1\n", "\"a\",\"b \"\"x\"\"\",c\r\n\"1\", 2 ,\"1\"\r\n3,4,2\r\n\r\n",
                 "\xef\xbb\xbf"
                 "x,y,z\n1e-3,2,1.0",
                 "1,n/a,\"1,5\"\n2,3,1\n", "-nan,2,Inf\n2,3,1\n"};
        pictures_ = {"P5 2 3 255\nabcdef", "P5\n# a comment\n2\t3\n255\rabcdef"};
        triples_ = {"# three numbers\n0 3 1\n0 4 2\r\n\n5 0 0\n5 18446744073709551615 1",
                    "0 0 0.5\n1 0 1e1\n0 1 -.25\n", "7 1 2\n", "7 0 2 1\n3 0 2.5 0\n7 1 3\n3 2 4 3\n"};
        // What unpacks to far more than its header promises, of which a reader is to take no notice.
        bomb_ = member(std::string(std::size_t{24} << 20, '\0'), 9, Z_DEFAULT_STRATEGY, 0);
    }

    std::string make(std::string_view reader, generator& random) const {
        if (reader == "gzip") {
            const std::string& content = random.chance(4) ? mnist_[0][0] : idx_[random.below(idx_.size())][0];
            return random.chance(4) ? packed_or_not(content, random) : mutated(packed(content, random), random);
        }
        if (reader == "idx") return pair(idx_[random.below(idx_.size())], random);
        if (reader == "mnist") return pair(mnist_[random.below(mnist_.size())], random);
        if (reader == "cifar10")
            return (random.chance(3) ? std::string(1, static_cast<char>(random.below(4))) : std::string(1, '\0')) +
                   packed_or_not(cifar_[random.below(cifar_.size())], random);
        if (reader == "json") return changed(jsons_[random.below(jsons_.size())], random);
        if (reader == "safetensors") {
            const auto& [header, data] = tensors_[random.below(tensors_.size())];
            const std::string text = changed(header, random);
            return length_of(text, 8, random) + text + (random.chance(4) ? mutated(data, random) : data);
        }
        if (reader == "npy") {
            const auto& [header, data] = arrays_[random.below(arrays_.size())];
            const std::string text = changed(header, random);
            const bool is_first = random.chance(2);
            std::string out = "\x93NUMPY";
            out +=
                {static_cast<char>(is_first ? 1 : 2 + random.below(2)), static_cast<char>(random.chance(100) ? 1 : 0)};
            out += length_of(text, is_first ? 2 : 4, random) + text + data;
            return random.chance(8) ? mutated(out, random) : out;
        }
        if (reader == "csv") {
            const std::string& text = csvs_[random.below(csvs_.size())];
            return random.chance(3) ? packed_or_not(text, random) : changed(text, random);
        }
        if (reader == "netpbm") return changed(pictures_[random.below(pictures_.size())], random);
        if (reader == "arrivals" || reader == "choices")
            return changed(triples_[random.below(triples_.size())], random);
        const std::string text = reader == "algorithms" ? algorithms_ : tables_[random.below(tables_.size())];
        if (random.chance(20)) return text;
        return random.chance(2) ? mutated(text, random)
                                : reworded(random.chance(2) ? reworded(text, random) : text, random);
    }

private:
    static std::string changed(const std::string& text, generator& random) {
        if (random.chance(10)) return text;
        return random.chance(2) ? mutated(text, random) : retokened(text, random);
    }
    /// Little-endian, mostly the right one.
    static std::string length_of(const std::string& text, std::size_t bytes, generator& random) {
        const std::uint64_t length = random.chance(20) ? random() >> random.below(64) : text.size();
        std::string out;
        for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(length >> (8 * i) & 255);
        return out;
    }
    /// Changed before it is packed, afterwards, both or not at all.
    std::string packed_or_not(std::string content, generator& random) const {
        const std::size_t how = random.below(8);
        if (how < 4) content = mutated(std::move(content), random);
        if (how % 2 == 0) content = packed(content, random);
        if (how == 6 || how == 7) return random.chance(4) ? content : mutated(std::move(content), random);
        if (how == 2 && random.chance(4)) content += mutated(content, random);
        if (how == 0 && random.chance(100)) content += bomb_;
        return content;
    }
    std::string pair(const std::array<std::string, 2>& files, generator& random) const {
        const bool first = random.chance(2), second = !first || random.chance(4);
        const std::string a = first ? packed_or_not(files[0], random) : files[0],
                          b = second ? packed_or_not(files[1], random) : files[1];
        return number(static_cast<std::uint32_t>(a.size())) + a + b;
    }

    std::vector<std::array<std::string, 2>> idx_, mnist_;
    std::vector<std::string> cifar_, tables_, jsons_, csvs_, pictures_, triples_;
    std::vector<std::array<std::string, 2>> tensors_, arrays_;
    std::string algorithms_, bomb_;
};

int run_file(const char* path) {
    std::ifstream file{path, std::ios::binary};
    const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
    if (!file) return std::fprintf(stderr, "fuzz_readers: cannot read %s\n", path), 2;
    return LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
    std::string only, folder, self_test;
    std::uint64_t each = 0, seed = 1;
    double seconds = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        if (!option.starts_with("--")) {
            if (const int code = run_file(argv[i]); code != 0) return code;
            if (i + 1 == argc) return 0;
            continue;
        }
        if (++i == argc) return std::fprintf(stderr, "fuzz_readers: a value must follow %s\n", option.c_str()), 2;
        if (option == "--reader")
            only = argv[i];
        else if (option == "--inputs")
            each = std::strtoull(argv[i], nullptr, 10);
        else if (option == "--seconds")
            seconds = std::strtod(argv[i], nullptr);
        else if (option == "--seed")
            seed = std::strtoull(argv[i], nullptr, 10);
        else if (option == "--self-test")
            self_test = argv[i];
        else if (option == "--write")
            folder = argv[i];
        else
            return std::fprintf(stderr, "fuzz_readers: unknown option %s\n", option.c_str()), 2;
    }
    if (each == 0 && seconds == 0) each = folder.empty() ? 10'000 : 200;

    if (!self_test.empty() && self_test != "nothing") return fuzz_self_test(self_test);
    const inputs source;
    struct tally {
        std::uint64_t made = 0, accepted = 0;
        std::chrono::duration<double> took{};
    };
    std::array<tally, readers.size()> done{};
    const auto begin = std::chrono::steady_clock::now();
    const auto goes_on = [&](std::uint64_t made) {
        return (each == 0 || made < each) &&
               (seconds == 0 || std::chrono::steady_clock::now() - begin < std::chrono::duration<double>{seconds});
    };
    generator random{seed};
    for (std::uint64_t round = 0; goes_on(100 * round); ++round)
        for (std::size_t which = 0; which < readers.size(); ++which) {
            if (!only.empty() && readers[which].name != only) continue;
            const auto from = std::chrono::steady_clock::now();
            for (int i = 0; i < 100; ++i) {
                const std::string input = source.make(readers[which].name, random);
                if (folder.empty())
                    done[which].accepted +=
                        static_cast<std::uint64_t>(readers[which].run(std::as_bytes(std::span{input})));
                else
                    std::ofstream{folder + "/" + std::string{readers[which].name} + std::to_string(done[which].made),
                                  std::ios::binary}
                        << static_cast<char>(which) << input;
                ++done[which].made;
            }
            done[which].took += std::chrono::steady_clock::now() - from;
        }
    bool both = true;
    for (std::size_t which = 0; which < readers.size(); ++which) {
        tally& of = done[which];
        if (self_test == "nothing") of.accepted = 0;
        if (of.made == 0) continue;
        std::printf("%-11s %10llu inputs, %9llu accepted, %.1f s\n", std::string{readers[which].name}.c_str(),
                    static_cast<unsigned long long>(of.made), static_cast<unsigned long long>(of.accepted),
                    of.took.count());
        both = both && (!folder.empty() || (of.accepted > 0 && of.accepted < of.made));
    }
    // A run in which nothing is accepted, or nothing refused, shows nothing.
    if (!both) std::fprintf(stderr, "fuzz_readers: a reader accepted no input, or all of them\n");
    return both && std::fflush(stdout) == 0 ? 0 : 1;
}
