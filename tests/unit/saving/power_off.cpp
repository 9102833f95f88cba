// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints on a disk that fails, fills up or loses its power at any call: what can be opened is always whole.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lockstep/saving/save.hpp"

namespace {

namespace ls = lockstep;
namespace files = std::filesystem;

/// A disk beside the real one: what of it would be left after a loss of power. Bytes are there once their file was
/// flushed. Names change in order, and those of a folder are there once it was flushed; later ones may be.
struct disk {
    struct node {
        std::vector<char> bytes, flushed;
    };
    struct change {
        enum { make, folder, rename, remove } what;
        std::string path, to;
        std::shared_ptr<node> of;
    };
    std::vector<change> changes;
    std::size_t durable = 0;  // changes of names that stay
    std::vector<std::string> flushed_folders;
    std::map<int, std::pair<std::string, std::shared_ptr<node>>> open;

    /// The folder as it is after a loss of power; `kept`: changes of names that were made.
    void write(const files::path& from, const files::path& image, std::size_t kept) const {
        const auto moved = [&](const std::string& path) { return image / files::path{path}.lexically_relative(from); };
        std::map<std::string, std::shared_ptr<node>> there;
        for (std::size_t i = 0; i < kept; ++i) {
            const change& one = changes[i];
            if (one.what == change::make) there[one.path] = one.of;
            if (one.what == change::folder) there[one.path] = nullptr;
            if (one.what == change::remove) there.erase(one.path);
            if (one.what != change::rename) continue;
            decltype(there) next;
            for (const auto& [path, of] : there)
                next[path == one.path || path.starts_with(one.path + "/") ? one.to + path.substr(one.path.size())
                                                                          : path] = of;
            there = next;
        }
        for (const auto& [path, of] : there) {
            if (of == nullptr) files::create_directories(moved(path));
        }
        for (const auto& [path, of] : there) {
            if (of == nullptr) continue;
            files::create_directories(moved(path).parent_path());
            std::ofstream{moved(path), std::ios::binary}.write(of->flushed.data(),
                                                               static_cast<std::streamsize>(of->flushed.size()));
        }
    }
};

/// What the calls below do.
struct {
    disk* recorded = nullptr;
    std::size_t calls = 0;
    std::size_t fail_at = 0;  // counted from 1
    int reason = 0;
    bool writes_short = false;
    std::size_t early = 0;  // times that the disk was asked to begin
} calls;

/// Whether this call fails.
bool fails() {
    if (++calls.calls != calls.fail_at) return false;
    errno = calls.reason;
    return true;
}

template <class F>
F* real(const char* name) {
    return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : mode_t{0};
    va_end(rest);
    static const auto call = real<int(const char*, int, ...)>("open");
    if (calls.recorded == nullptr) return call(path, flags, mode);
    const bool is_new = (flags & O_CREAT) != 0 && ::access(path, F_OK) != 0;
    if ((flags & (O_CREAT | O_RDWR)) != 0 && fails()) return -1;
    const int out = call(path, flags, mode);
    if (out < 0) return out;
    auto& one = calls.recorded->open[out] = {path, nullptr};
    if (is_new) {
        one.second = std::make_shared<disk::node>();
        calls.recorded->changes.push_back({disk::change::make, path, "", one.second});
    }
    return out;
}
ssize_t pwrite(int to, const void* bytes, std::size_t count, off_t offset) {
    static const auto call = real<ssize_t(int, const void*, std::size_t, off_t)>("pwrite");
    if (calls.recorded == nullptr) return call(to, bytes, count, offset);
    if (fails()) return -1;
    if (calls.writes_short) count = std::min<std::size_t>(count, 1 + count / 2);
    if (auto& of = calls.recorded->open[to].second) {
        const auto end = static_cast<std::size_t>(offset) + count;
        if (of->bytes.size() < end) of->bytes.resize(end);
        std::memcpy(of->bytes.data() + offset, bytes, count);
    }
    return call(to, bytes, count, offset);
}
int ftruncate(int of, off_t size) noexcept {
    static const auto call = real<int(int, off_t)>("ftruncate");
    if (calls.recorded != nullptr && fails()) return -1;
    if (calls.recorded != nullptr) calls.recorded->open[of].second->bytes.resize(static_cast<std::size_t>(size));
    return call(of, size);
}
int fallocate(int of, int mode, off_t offset, off_t size) {
    static const auto call = real<int(int, int, off_t, off_t)>("fallocate");
    return calls.recorded != nullptr && fails() ? -1 : call(of, mode, offset, size);
}
int sync_file_range(int of, off64_t offset, off64_t bytes, unsigned int flags) {
    static const auto call = real<int(int, off64_t, off64_t, unsigned int)>("sync_file_range");
    ++calls.early;
    return call(of, offset, bytes, flags);
}
int fsync(int of) {
    static const auto call = real<int(int)>("fsync");
    if (calls.recorded == nullptr) return call(of);
    if (fails()) return -1;
    auto& [path, node] = calls.recorded->open[of];
    if (node != nullptr) {
        node->flushed = node->bytes;
    } else {
        calls.recorded->flushed_folders.push_back(path);
        for (std::size_t i = 0; i < calls.recorded->changes.size(); ++i) {
            const auto& one = calls.recorded->changes[i];
            const auto is_in = [&](const std::string& name) { return files::path{name}.parent_path() == path; };
            if (is_in(one.path) || is_in(one.to)) calls.recorded->durable = std::max(calls.recorded->durable, i + 1);
        }
    }
    return call(of);
}
int close(int of) {
    static const auto call = real<int(int)>("close");
    if (calls.recorded == nullptr || !calls.recorded->open.contains(of)) return call(of);
    calls.recorded->open.erase(of);
    const int out = call(of);
    return fails() ? -1 : out;
}
int mkdir(const char* path, mode_t mode) noexcept {
    static const auto call = real<int(const char*, mode_t)>("mkdir");
    if (calls.recorded != nullptr && fails()) return -1;
    const int out = call(path, mode);
    if (calls.recorded != nullptr && out == 0)
        calls.recorded->changes.push_back({disk::change::folder, path, "", nullptr});
    return out;
}
int rename(const char* from, const char* to) noexcept {
    static const auto call = real<int(const char*, const char*)>("rename");
    if (calls.recorded != nullptr && fails()) return -1;
    if (calls.recorded != nullptr) calls.recorded->changes.push_back({disk::change::rename, from, to, nullptr});
    return call(from, to);
}
int unlink(const char* path) noexcept {
    static const auto call = real<int(const char*)>("unlink");
    if (calls.recorded != nullptr) calls.recorded->changes.push_back({disk::change::remove, path, "", nullptr});
    return call(path);
}
int rmdir(const char* path) noexcept {
    static const auto call = real<int(const char*)>("rmdir");
    if (calls.recorded != nullptr) calls.recorded->changes.push_back({disk::change::remove, path, "", nullptr});
    return call(path);
}
}

namespace {

/// 40,000 numbers in two arrays, equal to those of a step.
struct state {
    std::vector<float> numbers = std::vector<float>(40'000);
    ls::saving::state_parts parts;
    ls::saving::named_arrays names{{{"0.a", 100, 300, 1, 0}, {"1.b", 1, 10'000, 1, 1}}, {}};

    explicit state(std::uint64_t step = 0) {
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(step * 100'000 + i);
        const std::span<float> all{numbers};
        using part = ls::tensor::state_part<float>;
        parts(part{.role = "weights", .tensor = 0, .numbers = all.first(30'000)});
        parts(part{.role = "weights", .tensor = 1, .numbers = all.subspan(30'000)});
    }
    [[nodiscard]] ls::saving::state_layout layout() const { return {ls::comm::group{}, parts, names, 1, 1}; }
};

void save(const files::path& folder, std::uint64_t step, std::size_t keep) {
    const state of{step};
    ls::saving::manifest facts;
    facts.at.steps = step;
    facts.recipe = {{"seed", "1"}};
    facts.block_bytes = 10'000;
    (void)ls::saving::save(ls::comm::group{}, folder, facts, of.parts, of.layout(), keep);
}

/// The step of the newest checkpoint, all numbers of which are right. 0: there is none.
std::uint64_t newest(const files::path& folder) {
    if (ls::saving::list(folder).empty()) return 0;
    const auto from = ls::saving::open(ls::comm::group{}, folder);
    state here;
    ls::saving::require_same_arrays(from, here.layout());
    ls::saving::restore(ls::comm::group{}, from, here.parts, here.layout());
    CHECK(here.numbers == state{from.facts.at.steps}.numbers);
    return from.facts.at.steps;
}

struct fresh_folder {
    files::path path;
    fresh_folder() {
        std::string name = files::temp_directory_path() / "lockstep-saving-XXXXXX";
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~fresh_folder() { files::remove_all(path); }
};

/// Save `step` into the folder while calls are recorded; whether it said that it did.
bool recorded_save(disk& of, const files::path& folder, std::uint64_t step, std::size_t keep, std::size_t fail_at,
                   int reason, bool writes_short) {
    calls = {&of, 0, fail_at, reason, writes_short};
    bool is_saved = true;
    try {
        save(folder, step, keep);
    } catch (const ls::core::error& failure) {
        is_saved = false;
        CHECK(std::string{failure.what()}.starts_with("lockstep: cannot "));
        CHECK(std::string{failure.what()}.find(std::strerror(reason)) != std::string::npos);
    }
    calls.recorded = nullptr;
    return is_saved;
}

TEST_CASE("power that goes off at any moment leaves the old or the new checkpoint", "[saving]") {
    std::size_t images = 0;
    for (const std::size_t keep : {std::size_t{0}, std::size_t{1}}) {
        const fresh_folder real;
        const files::path folder = real.path / "run";
        disk of;
        REQUIRE(recorded_save(of, folder, 10, keep, 0, 0, false));
        const std::size_t first = of.durable;
        REQUIRE(recorded_save(of, folder, 20, keep, 0, 0, true));
        const auto check = [&](const disk& then, std::size_t kept, std::uint64_t least) {
            const fresh_folder image;
            then.write(folder, image.path / "run", kept);
            const auto found = newest(image.path / "run");
            INFO(kept << " of " << then.changes.size() << " changes, keep " << keep);
            CHECK((found == 10 || found == 20));
            CHECK(found >= least);
            ++images;
        };
        for (std::size_t kept = of.durable; kept <= of.changes.size(); ++kept) check(of, kept, 20);

        // The same, stopped at each call.
        for (std::size_t at = 1;; ++at) {
            const fresh_folder other;
            const files::path run = other.path / "run";
            disk until;
            REQUIRE(recorded_save(until, run, 10, keep, 0, 0, false));
            const bool ended = recorded_save(until, run, 20, keep, at, EIO, false);
            for (std::size_t kept = until.durable; kept <= until.changes.size(); ++kept) {
                const fresh_folder image;
                until.write(run, image.path / "run", kept);
                const auto found = newest(image.path / "run");
                INFO("call " << at << ", " << kept << " of " << until.changes.size() << " changes");
                CHECK((found == 10 || found == 20));
                CHECK(found >= (ended ? 20U : 10U));
                ++images;
            }
            if (ended && calls.calls < at) break;
        }
        CHECK(first > 0);
    }
    CHECK(images > 50);
}

TEST_CASE("of a large state each block has its sum, and the disk begins before all is written", "[saving]") {
    const fresh_folder real;
    std::mt19937 random{7};
    for (const std::uint64_t block : {std::uint64_t{10'007}, std::uint64_t{3} << 20U}) {
        // 30 MB in three arrays, of which one has a few numbers: what is written at once ends somewhere within.
        const std::size_t sizes[] = {2'621'451, 3, 4'900'001};
        std::vector<float> numbers(sizes[0] + sizes[1] + sizes[2]);
        for (float& one : numbers) one = static_cast<float>(random());
        ls::saving::named_arrays names{{{"0.a", 1, sizes[0], 1, 0}, {"1.b", 1, 3, 1, 1}, {"2.c", 1, sizes[2], 1, 2}},
                                       {}};
        const auto shown = [&](std::vector<float>& all) {
            ls::saving::state_parts parts;
            std::span<float> rest{all};
            for (std::size_t tensor = 0; tensor < 3; ++tensor, rest = rest.subspan(sizes[tensor - 1]))
                parts(ls::tensor::state_part<float>{
                    .role = "weights", .tensor = tensor, .numbers = rest.first(sizes[tensor])});
            return parts;
        };
        const auto parts = shown(numbers);
        const ls::comm::group alone;
        ls::saving::manifest facts;
        facts.at.steps = block;
        facts.recipe = {{"seed", "1"}};
        facts.block_bytes = block;
        calls.early = 0;
        const std::string path =
            ls::saving::save(alone, real.path / "run", facts, parts, {alone, parts, names, 1, 1}, 0);
        CHECK(calls.early == 3);

        const auto from = ls::saving::open(alone, real.path / "run");
        std::ifstream in{path + "/state.safetensors", std::ios::binary};
        std::vector<char> piece(block);
        std::size_t blocks = 0, wrong = 0;
        for (; in.read(piece.data(), static_cast<std::streamsize>(block)), in.gcount() > 0; ++blocks) {
            const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(in.gcount()));
            wrong += blocks < from.facts.sums.size() && from.facts.sums[blocks] == sum ? 0 : 1;
        }
        CHECK(blocks == from.facts.sums.size());
        CHECK(wrong == 0);
        std::vector<float> back(numbers.size());
        auto into = shown(back);
        ls::saving::restore(alone, from, into, {alone, into, names, 1, 1});
        CHECK(back == numbers);
    }
}

TEST_CASE("the names of new folders are on the disk", "[saving]") {
    const fresh_folder real;
    disk of;
    REQUIRE(recorded_save(of, real.path / "a" / "b", 10, 1, 0, 0, false));
    for (const files::path& above : {real.path, real.path / "a", real.path / "a" / "b"})
        CHECK(std::count(of.flushed_folders.begin(), of.flushed_folders.end(), above.string()) > 0);
}

TEST_CASE("a call that fails is one error, and the checkpoints stay", "[saving]") {
    for (const int reason : {ENOSPC, EIO, EDQUOT, EACCES}) {
        std::size_t failed = 0;
        for (std::size_t at = 1;; ++at) {
            const fresh_folder real;
            const files::path folder = real.path / "a" / "run";
            save(folder, 10, 1);
            disk of;
            INFO("call " << at << ", " << std::strerror(reason));
            const bool ended = recorded_save(of, folder, 20, 1, at, reason, at % 2 == 0);
            if (calls.calls < at) {
                CHECK(ended);
                break;
            }
            failed += ended ? 0 : 1;
            const auto found = newest(folder);
            CHECK((found == 10 || found == 20));
            if (ended) CHECK(found == 20);
            // Nothing is left that would stand in the way.
            save(folder, 30, 1);
            CHECK(newest(folder) == 30);
            std::size_t names = 0;
            for ([[maybe_unused]] const auto& one : files::directory_iterator{folder}) ++names;
            CHECK(names <= 4);  // two locks, this one, and one whose removal failed
        }
        CHECK(failed >= 8);
    }
}

TEST_CASE("a checkpoint with a changed byte is refused", "[saving]") {
    std::mt19937 random{5};
    const fresh_folder real;
    save(real.path, 10, 0);
    for (const char* name : {"manifest.json", "state.safetensors"}) {
        const files::path path = real.path / "step-10" / name;
        const auto size = files::file_size(path);
        for (int trial = 0; trial < 60; ++trial) {
            const auto at = static_cast<std::streamoff>(trial == 0 ? 0 : trial == 1 ? size - 1 : random() % size);
            std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
            file.seekg(at);
            const char before = static_cast<char>(file.get());
            const char after = static_cast<char>(before ^ static_cast<char>(1U << random() % 8));
            file.seekp(at);
            file.put(after);
            file.close();
            INFO(name << ", byte " << at << ", " << int{before} << " becomes " << int{after});
            bool is_refused = false;
            try {
                (void)newest(real.path);
            } catch (const ls::core::error&) {
                is_refused = true;
            }
            // The last line ends in white space, which says nothing.
            if (at + 1 < static_cast<std::streamoff>(size)) CHECK(is_refused);
            file.open(path, std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(at);
            file.put(before);
        }
        for (const auto length : {std::uintmax_t{0}, size / 2, size - 2}) {
            const fresh_folder copy;
            files::copy(real.path, copy.path, files::copy_options::recursive | files::copy_options::overwrite_existing);
            files::resize_file(copy.path / "step-10" / name, length);
            CHECK_THROWS_WITH(newest(copy.path),
                              Catch::Contains(name) && Catch::Contains("; ") &&
                                  Catch::EndsWith("delete its folder, and resume takes an earlier one"));
            files::remove(copy.path / "step-10" / name);
            ::mkfifo((copy.path / "step-10" / name).c_str(), 0600);
            CHECK_THROWS_WITH(newest(copy.path),
                              Catch::Contains(name) && Catch::Contains(": it is a FIFO, no regular file; name what"));
        }
    }
    files::remove(real.path / "step-10" / "state.safetensors");
    CHECK_THROWS_WITH(newest(real.path), Catch::EndsWith("state.safetensors is missing; delete its folder, and "
                                                         "resume takes an earlier one"));
    save(real.path, 10, 0);
    CHECK(newest(real.path) == 10);
}

TEST_CASE("two programs do not write to one folder, and names of others stay", "[saving]") {
    const fresh_folder real;
    save(real.path, 10, 1);
    std::ofstream{real.path / "step-notes"} << "mine";
    files::create_directories(real.path / "step-5x");
    {
        const ls::saving::folder_lock held{real.path};
        CHECK_THROWS_WITH(save(real.path, 20, 1), Catch::Contains("another run"));
    }
    save(real.path, 10, 1);
    CHECK(ls::saving::list(real.path).at(0).version == 2);
    CHECK(ls::saving::list(real.path).size() == 1);
    save(real.path, 20, 1);
    CHECK(newest(real.path) == 20);
    CHECK_THROWS_WITH(save(real.path, 15, 1), Catch::Contains("step-20 is of a later step than this run"));
    CHECK(ls::saving::list(real.path).size() == 1);
    CHECK(files::exists(real.path / "step-notes"));
    CHECK(files::exists(real.path / "step-5x"));
    CHECK_THROWS_WITH(ls::saving::open(ls::comm::group{}, real.path / "none"), Catch::Contains("does not exist"));
}

}  // namespace
