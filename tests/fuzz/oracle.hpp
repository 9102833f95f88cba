// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the bytes of a file say, worked out a second time: slowly, from the formats' descriptions, without zlib and
// without the library.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

/// Bits of a deflate stream (RFC 1951), and what they unpack to. `false` from any member: the stream is not valid.
class inflater {
public:
    inflater(std::string_view in, std::size_t limit, std::string& out)
        : in_{in}, limit_{limit}, begin_{out.size()}, out_{out} {}

    [[nodiscard]] bool run() {
        for (unsigned last = 0; last == 0;) {
            unsigned kind = 0;
            if (!bits(1, last) || !bits(2, kind)) return false;
            const bool well = kind == 0 ? stored() : kind == 1 ? fixed() : kind == 2 && dynamic();
            if (!well) return false;
        }
        return true;
    }
    [[nodiscard]] std::size_t consumed() const { return at_; }
    [[nodiscard]] bool too_long() const { return too_long_; }

private:
    /// A canonical Huffman code: how many codes of each length, and their symbols in order.
    struct code {
        std::array<unsigned, 16> count{};
        std::vector<unsigned> symbols;

        /// Unused codes: 0 for a complete set, negative for one with too many.
        int build(const unsigned* lengths, unsigned n) {
            for (unsigned i = 0; i < n; ++i) ++count[lengths[i]];
            count[0] = 0;
            int left = 1;
            for (unsigned length = 1; length < 16; ++length) {
                left = 2 * left - static_cast<int>(count[length]);
                if (left < 0) return left;
            }
            for (unsigned length = 1; length < 16; ++length)
                for (unsigned i = 0; i < n; ++i)
                    if (lengths[i] == length) symbols.push_back(i);
            return left;
        }
        /// An incomplete set is allowed for a single code of one bit, and for none.
        [[nodiscard]] bool allowed(int left) const { return left == 0 || (left > 0 && symbols.size() == count[1]); }
    };

    bool bits(unsigned n, unsigned& value) {
        value = 0;
        for (unsigned i = 0; i < n; ++i) {
            if (held_ == 0) {
                if (at_ == in_.size()) return false;
                byte_ = static_cast<unsigned char>(in_[at_++]);
                held_ = 8;
            }
            value |= (byte_ & 1U) << i;
            byte_ >>= 1;
            --held_;
        }
        return true;
    }
    bool symbol(const code& of, unsigned& found) {
        unsigned word = 0, first = 0, index = 0;
        for (unsigned length = 1; length < 16; ++length) {
            unsigned bit = 0;
            if (!bits(1, bit)) return false;
            word = 2 * word + bit;
            first = 2 * first;
            if (word < first + of.count[length]) return found = of.symbols[index + word - first], true;
            index += of.count[length];
            first += of.count[length];
        }
        return false;
    }
    bool put(char c) {
        out_ += c;
        too_long_ = out_.size() > limit_;
        return !too_long_;
    }
    bool stored() {
        held_ = 0;
        if (in_.size() - at_ < 4) return false;
        const auto byte = [&](std::size_t i) {
            return static_cast<unsigned>(static_cast<unsigned char>(in_[at_ + i]));
        };
        const unsigned length = byte(0) + 256 * byte(1);
        if ((length ^ 0xffffU) != byte(2) + 256 * byte(3)) return false;
        at_ += 4;
        for (unsigned i = 0; i < length; ++i)
            if (at_ == in_.size() || !put(in_[at_++])) return false;
        return true;
    }
    bool fixed() {
        std::array<unsigned, 288> lengths{};
        for (unsigned i = 0; i < 288; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
        std::array<unsigned, 30> distances{};
        distances.fill(5);
        code literal, distance;
        literal.build(lengths.data(), 288);
        distance.build(distances.data(), 30);
        return block(literal, distance);
    }
    bool dynamic() {
        unsigned literals = 0, distances = 0, lengths_of_codes = 0;
        if (!bits(5, literals) || !bits(5, distances) || !bits(4, lengths_of_codes)) return false;
        literals += 257, distances += 1, lengths_of_codes += 4;
        if (literals > 286 || distances > 30) return false;
        constexpr std::array<unsigned, 19> order{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
        std::array<unsigned, 19> small{};
        for (unsigned i = 0; i < lengths_of_codes; ++i)
            if (!bits(3, small[order[i]])) return false;
        code lengths_code;
        if (lengths_code.build(small.data(), 19) != 0) return false;
        std::vector<unsigned> lengths;
        while (lengths.size() < literals + distances) {
            unsigned next = 0, times = 1, value = 0;
            if (!symbol(lengths_code, next)) return false;
            if (next < 16) {
                value = next;
            } else if (next == 16) {
                if (lengths.empty() || !bits(2, times)) return false;
                value = lengths.back();
                times += 3;
            } else {
                if (!bits(next == 17 ? 3 : 7, times)) return false;
                times += next == 17 ? 3 : 11;
            }
            lengths.insert(lengths.end(), times, value);
        }
        if (lengths.size() > literals + distances || lengths[256] == 0) return false;
        code literal, distance;
        if (const int left = literal.build(lengths.data(), literals); !literal.allowed(left)) return false;
        if (const int left = distance.build(lengths.data() + literals, distances); !distance.allowed(left))
            return false;
        return block(literal, distance);
    }
    bool block(const code& literal, const code& distance) {
        for (;;) {
            unsigned next = 0;
            if (!symbol(literal, next)) return false;
            if (next == 256) return true;
            if (next < 256) {
                if (!put(static_cast<char>(next))) return false;
                continue;
            }
            // Lengths 3 to 258 and distances 1 to 32768: each range is as wide as its further bits say.
            if (next > 285) return false;
            unsigned length = 3, further = 0;
            for (unsigned s = 257; s < next; ++s) length += 1U << (s < 265 ? 0 : (s - 261) / 4);
            const unsigned width = next < 265 || next == 285 ? 0 : (next - 261) / 4;
            if (!bits(width, further)) return false;
            length = next == 285 ? 258 : length + further;
            unsigned back = 1;
            if (!symbol(distance, next) || next > 29) return false;
            for (unsigned s = 0; s < next; ++s) back += 1U << (s < 4 ? 0 : (s - 2) / 2);
            if (!bits(next < 4 ? 0 : (next - 2) / 2, further)) return false;
            back += further;
            if (back > out_.size() - begin_) return false;
            for (unsigned i = 0; i < length; ++i)
                if (!put(out_[out_.size() - back])) return false;
        }
    }

    std::string_view in_;
    std::size_t limit_, begin_;
    std::string& out_;
    std::size_t at_ = 0;
    unsigned byte_ = 0, held_ = 0;
    bool too_long_ = false;
};

[[nodiscard]] inline std::uint32_t crc32_of(std::string_view bytes) {
    static constexpr auto table = [] {
        std::array<std::uint32_t, 256> out{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            out[i] = i;
            for (int bit = 0; bit < 8; ++bit) out[i] = (out[i] >> 1) ^ ((out[i] & 1U) != 0 ? 0xedb88320U : 0U);
        }
        return out;
    }();
    std::uint32_t out = 0xffffffffU;
    for (const char c : bytes) out = (out >> 8) ^ table[(out ^ static_cast<unsigned char>(c)) & 255U];
    return ~out;
}

/// The content of a file. `too_long`: it is valid as far as the limit, and goes on.
struct unpacked {
    bool valid = false, too_long = false;
    std::string content;
};

/// Plain unless it begins like gzip (RFC 1952): members one after the other, then zeros or nothing.
[[nodiscard]] inline unpacked unpack(std::string_view bytes, std::size_t limit) {
    unpacked out;
    const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])); };
    const auto number = [&](std::size_t i) {
        return byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24;
    };
    const auto is_member = [&] { return bytes.size() >= 2 && byte(0) == 0x1f && byte(1) == 0x8b; };
    if (!is_member()) {
        out.too_long = bytes.size() > limit;
        out.valid = !out.too_long;
        out.content = bytes.substr(0, limit);
        return out;
    }
    while (is_member()) {
        if (bytes.size() < 10 || byte(2) != 8 || (byte(3) & 0xe0) != 0) return out;
        const std::uint32_t flags = byte(3);
        std::size_t at = 10;
        if ((flags & 4) != 0) {
            if (bytes.size() < at + 2) return out;
            at += 2 + byte(at) + 256 * byte(at + 1);
        }
        for (const std::uint32_t text : {8U, 16U})
            if ((flags & text) != 0) {
                const std::size_t end = at < bytes.size() ? bytes.find('\0', at) : bytes.npos;
                if (end == bytes.npos) return out;
                at = end + 1;
            }
        if ((flags & 2) != 0) {
            if (bytes.size() < at + 2) return out;
            if ((crc32_of(bytes.substr(0, at)) & 0xffff) != (byte(at) | byte(at + 1) << 8)) return out;
            at += 2;
        }
        if (at > bytes.size()) return out;
        const std::size_t begin = out.content.size();
        inflater stream{bytes.substr(at), limit, out.content};
        const bool well = stream.run();
        out.too_long = stream.too_long();
        if (!well) return out;
        bytes.remove_prefix(at + stream.consumed());
        const std::string_view member = std::string_view{out.content}.substr(begin);
        if (bytes.size() < 8 || number(0) != crc32_of(member) || number(4) != static_cast<std::uint32_t>(member.size()))
            return out;
        bytes.remove_prefix(8);
    }
    out.valid = bytes.find_first_not_of('\0') == bytes.npos;
    return out;
}

/// Samples of a file: what of it may be known. Nothing: not valid.
struct samples {
    std::vector<std::string> pixels;
    std::vector<int> labels;
};

[[nodiscard]] inline std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < 4; ++i) out = 256 * out + static_cast<unsigned char>(bytes[at + i]);
    return out;
}

/// The extents of an IDX file whose content, or the beginning of it, is given; nothing if the header is not one of
/// unsigned bytes with so many dimensions.
[[nodiscard]] inline std::optional<std::vector<std::uint64_t>> idx_extents(std::string_view content,
                                                                           std::size_t dimensions) {
    if (content.size() < 4 + 4 * dimensions || big_endian(content, 0) != 0x800 + dimensions) return {};
    std::vector<std::uint64_t> out;
    for (std::size_t d = 0; d < dimensions; ++d) out.push_back(big_endian(content, 4 + 4 * d));
    return out;
}

[[nodiscard]] inline std::optional<samples> idx_samples(const unpacked& images, const unpacked& labels,
                                                        std::size_t rows, std::size_t columns, int classes) {
    if (!images.valid || !labels.valid) return {};
    const auto i = idx_extents(images.content, 3), l = idx_extents(labels.content, 1);
    if (!i || !l || (*i)[0] != (*l)[0] || (*i)[1] != rows || (*i)[2] != columns) return {};
    const std::size_t n = (*i)[0], size = rows * columns;
    if (images.content.size() != 16 + n * size || labels.content.size() != 8 + n) return {};
    samples out;
    for (std::size_t s = 0; s < n; ++s) {
        out.pixels.push_back(images.content.substr(16 + s * size, size));
        out.labels.push_back(static_cast<unsigned char>(labels.content[8 + s]));
        if (out.labels.back() >= classes) return {};
    }
    return out;
}

/// The first `count` pictures, 0: all, in the order of the file: a plane for each colour.
[[nodiscard]] inline std::optional<samples> cifar_samples(const unpacked& file, std::size_t count) {
    constexpr std::size_t record = 3073;
    if (!file.valid || file.content.empty() || file.content.size() % record != 0) return {};
    const std::size_t there = file.content.size() / record;
    if (count > there) return {};
    samples out;
    for (std::size_t s = 0; s < (count == 0 ? there : count); ++s) {
        out.labels.push_back(static_cast<unsigned char>(file.content[s * record]));
        out.pixels.push_back(file.content.substr(s * record + 1, record - 1));
        if (out.labels.back() > 9) return {};
    }
    return out;
}

/// The pieces between separators; `together`: several of them are one, and none begins or ends the list.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, std::string_view separators, bool together) {
    std::vector<std::string> out{{}};
    for (const char c : text)
        if (separators.find(c) == separators.npos)
            out.back() += c;
        else
            out.emplace_back();
    if (together) std::erase(out, "");
    return out;
}

/// A number of decimal digits, up to `most`.
[[nodiscard]] inline std::optional<std::uint64_t> decimal(std::string_view digits, std::uint64_t most) {
    if (digits.empty()) return {};
    std::uint64_t out = 0;
    for (const char c : digits) {
        if (c < '0' || c > '9') return {};
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (out > (most - digit) / 10) return {};
        out = 10 * out + digit;
    }
    return out;
}

}  // namespace lockstep::fuzz
