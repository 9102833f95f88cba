// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Saving and restoring, by all ranks together: FOLDER/step-N with state.safetensors and manifest.json. A checkpoint is
// there when its manifest is, and the manifest is written when all else is on the disk.
// Tested by tests/equivalence/checkpoints.cpp.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/comm/group.hpp"
#include "lockstep/core/compiled.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/huge_pages.hpp"
#include "lockstep/core/quiet_thread.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/saving/agreed_error.hpp"
#include "lockstep/saving/disk.hpp"
#include "lockstep/saving/list.hpp"
#include "lockstep/saving/manifest.hpp"
#include "lockstep/saving/state_layout.hpp"

namespace lockstep::saving {

/// exists_in() as rank 0 sees it, on all ranks: a network file system may show them other things for a while.
/// Collective.
[[nodiscard, gnu::cold]] inline bool exists_in(const comm::group& ranks, const std::string& folder) {
    bool is_there = false;
    together(ranks, [&] {
        if (ranks.rank() == 0) is_there = exists_in(folder);
    });
    return ranks.gather_all(is_there)[0];
}

/// Throws core::error on a rank that does not see this file in a folder, which rank 0 has made.
[[gnu::cold]] inline void require_seen(const comm::group& ranks, const std::string& file, const std::string& folder) {
    if (!appears(file))
        core::fail(core::text("rank ", ranks.rank(), " does not see ", folder, ", which rank 0 has made"),
                   "name a folder on a file system that all ranks share");
}

/// The text of rank 0, on all ranks. Collective.
[[nodiscard, gnu::cold]] inline std::string of_first_rank(const comm::group& ranks, const std::string& text) {
    return ranks.gather_all(ranks.rank() == 0 ? std::string_view{text} : std::string_view{})[0];
}

/// A checkpoint that is being written: FOLDER/step-N, where all ranks see it. Made and committed by all ranks together;
/// in between each of them writes its part, also on a thread of its own. Until commit() the folder has the checkpoints
/// that it had; what is given up leaves nothing.
/// Cost: each number is written and summed (CRC-32) once, by one rank; two flushes; from each rank to all 24 bytes of
/// each run of its numbers, which are rows with a model partition.
class writing {
public:
    /// `facts` has the progress and the recipe. Collective; throws core::error on all ranks alike.
    [[gnu::cold]] writing(const comm::group& ranks, const std::string& folder, manifest facts,
                          const state_layout& layout);
    writing(const writing&) = delete;
    writing& operator=(const writing&) = delete;
    ~writing() { clean(); }

    /// Of this rank: runs of the layout, and on rank 0 the header; all of it is on the disk then. Throws core::error.
    [[gnu::cold]] void write(std::span<const file_run> runs);
    /// All ranks have written. The newest `keep` checkpoints stay (0: all). Returns the path. Collective;
    /// throws core::error on all ranks alike.
    [[gnu::cold]] std::string commit(std::size_t keep);
    /// Stays where it is, whatever folder the program goes to. Each rank by its own name of the folder: others may not
    /// know that.
    [[gnu::cold]] void stay() {
        for (std::string* const one : {&folder_, &writing_, &path_}) *one = absolute(*one);
    }

private:
    [[gnu::cold]] void clean() noexcept {
        if (ranks_.rank() == 0 && !writing_.empty()) remove_checkpoint(writing_);
        writing_.clear();
    }

    comm::group ranks_;
    std::string folder_, header_, writing_, path_;
    manifest facts_;
    run_lock run_;
    folder_lock lock_;
    std::optional<placed_file> file_;
    std::vector<part_sum> sums_;
};

/// All of it at once. Returns the path. Collective; throws core::error on all ranks alike.
[[gnu::cold]] std::string save(const comm::group& ranks, const std::string& folder, manifest facts,
                               const state_parts& parts, const state_layout& layout, std::size_t keep);

/// A checkpoint that a thread writes from a copy of the state, while the run goes on.
class background {
public:
    /// Copies the state of this rank. Collective; throws core::error on all ranks alike.
    [[gnu::cold]] background(const comm::group& ranks, const std::string& folder, manifest facts,
                             const state_parts& parts, const state_layout& layout);
    background(const background&) = delete;
    background& operator=(const background&) = delete;
    ~background() { wait(); }

    /// Throws core::error where MPI was initialised without room for such a thread.
    [[gnu::cold]] static void require_threads() {
        comm::require_threads(comm::thread_use::beside, "a checkpoint is to be written behind the run",
                              "leave write_behind out");
    }

    /// On this rank; an error counts.
    [[nodiscard]] bool is_written() const noexcept { return is_written_.load(std::memory_order_acquire); }
    /// Whether that is so on all ranks. Collective.
    [[nodiscard, gnu::cold]] bool is_written_everywhere() const;
    /// Waits, and writing::commit(). Collective; throws core::error on all ranks alike.
    [[gnu::cold]] std::string commit(std::size_t keep);

private:
    [[gnu::cold]] void wait() noexcept {
        if (thread_.joinable()) thread_.join();
    }

    comm::group ranks_;
    writing to_;
    std::unique_ptr<std::byte[]> copy_;
    std::vector<file_run> runs_;
    std::string problem_;
    std::atomic<bool> is_written_{false};
    std::thread thread_;
};

/// A checkpoint that is being read.
struct stored {
    std::string path;
    manifest facts;
    files::safetensors_layout file;
    std::uint64_t data_begin = 0;
};

/// The newest one in a folder, or the folder itself where it is one: its manifest and header, after all its sums have
/// been compared, by all ranks together. Collective; throws core::error on all ranks alike.
[[nodiscard, gnu::cold]] stored open(const comm::group& ranks, const std::string& folder);
/// The checkpoint whose file of numbers this is, where it lies beside its manifest, as rank 0 sees it. Empty for other
/// files, and where ranks name files of their own. Collective.
[[nodiscard, gnu::cold]] std::string checkpoint_of(const comm::group& ranks, const std::string& path);

/// Throws core::error that names the first array that is another one here.
[[gnu::cold]] void require_same_arrays(const stored& from, const state_layout& layout);

/// Fills all parts of this rank. Collective.
[[gnu::cold]] void restore(const comm::group& ranks, const stored& from, const state_parts& parts,
                           const state_layout& layout);

#if LOCKSTEP_BODIES

namespace detail {

/// Removes a checkpoint in the folder. Where that is broken off, the next one to be written finds what is left.
[[gnu::cold]] LOCKSTEP_FUNCTION void retire(const std::string& folder, const std::string& path) noexcept {
    try {
        if (is_checkpoint_alone(path)) {
            const std::string name = unfinished_name(folder);
            rename(path, name);
            return remove_checkpoint(name);
        }
    } catch (const std::exception&) {  // then under its own name
    }
    remove_checkpoint(path);
}

/// Where the arrays lie in the file, and its head.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION files::safetensors_layout layout_of(const state_layout& layout,
                                                                               const manifest& facts) {
    files::text_pairs about{{"format", "lockstep checkpoint"}, {"step", core::text(facts.at.steps)}};
    // So that its weights are not taken for those of another network with the same shapes.
    for (const auto& [name, value] : facts.recipe)
        if (name == "network") about.push_back({name, value});
    return files::lay_out_safetensors(layout.arrays(), about);
}

/// What no other run in the folder has.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::string fresh_name(const std::string& folder, std::uint64_t step) {
    // After all others of the step, also where earlier ones are gone: the last one is what a run goes on from.
    std::uint64_t last = 0;
    for (const std::string& name : names_in(folder))
        if (const auto one = parse_name(folder, name); one && one->step == step)
            last = std::max<std::uint64_t>({last, one->version, 1});
    return last == 0 ? core::text(folder, "/step-", step) : core::text(folder, "/step-", step, ".", last + 1);
}

[[nodiscard]] LOCKSTEP_FUNCTION std::span<const std::byte> bytes_of(std::string_view text) noexcept {
    return std::as_bytes(std::span{text.data(), text.size()});
}

/// Sums of all ranks. Collective.
[[nodiscard, gnu::cold]] LOCKSTEP_FUNCTION std::vector<part_sum> gather_sums(const comm::group& ranks,
                                                                             const std::vector<part_sum>& mine) {
    std::vector<part_sum> out;
    const std::string_view bytes{reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(part_sum)};
    for (const std::string& one : ranks.gather_all(bytes)) {
        const std::size_t before = out.size();
        out.resize(before + one.size() / sizeof(part_sum));
        if (!one.empty()) std::memcpy(out.data() + before, one.data(), one.size());
    }
    return out;
}

}  // namespace detail

LOCKSTEP_FUNCTION writing::writing(const comm::group& ranks, const std::string& folder, manifest facts,
                                   const state_layout& layout)
    : ranks_{ranks}, folder_{folder}, header_{detail::layout_of(layout, facts).head}, facts_{std::move(facts)} {
    facts_.file_bytes = header_.size() + layout.bytes();
    const bool is_first = ranks_.rank() == 0;
    try {
        together(ranks_, [&] {
            if (!is_first) return;
            if (folder_.empty()) core::fail("a checkpoint has no folder", "name one, such as runs/a");
            make_folders(folder_);
            run_ = run_lock{folder_};
            lock_ = folder_lock{folder_};
            require_earlier(folder_, facts_.at.steps);
            // Of runs that were killed while they wrote, or deleted.
            for (const std::string& name : names_in(folder_))
                if (is_unfinished(name)) remove_checkpoint(core::text(folder_, "/", name));
            path_ = detail::fresh_name(folder_, facts_.at.steps);
            writing_ = unfinished_name(folder_);
            make_folders(writing_, false);
            file_.emplace(writing_ + std::string{state_name}, placed_file::use::make, facts_.file_bytes);
        });
        writing_ = of_first_rank(ranks_, writing_);
        path_ = of_first_rank(ranks_, path_);
        together(ranks_, [&] {
            if (is_first) return;
            const std::string name = writing_ + std::string{state_name};
            require_seen(ranks_, name, writing_);
            file_.emplace(name, placed_file::use::write);
        });
    } catch (...) {
        clean();
        throw;
    }
}

LOCKSTEP_FUNCTION void writing::write(std::span<const file_run> runs) {
    // The disk works while sums are made of what is still in the caches. It is told of what is new alone: of a file
    // that is told of as a whole, again and again, the system writes a third less in a second.
    constexpr std::size_t at_once = std::size_t{8} << 20U;
    std::size_t unbegun = 0;
    std::uint64_t first = 0, last = 0;
    const auto add = [&](std::uint64_t offset, std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const auto part = bytes.first(std::min(bytes.size(), at_once - unbegun));
            file_->write(offset, part);
            const std::uint64_t end = offset + part.size();
            first = unbegun == 0 ? offset : std::min(first, offset);
            last = unbegun == 0 ? end : std::max(last, end);
            unbegun += part.size();
            if (unbegun == at_once) file_->begin_flush(first, last - first), unbegun = 0;
            add_sums(sums_, offset, part, facts_.block_bytes);
            offset += part.size();
            bytes = bytes.subspan(part.size());
        }
    };
    if (ranks_.rank() == 0) add(0, detail::bytes_of(header_));
    for (const file_run& one : runs) add(header_.size() + one.offset, {one.data, one.bytes});
    file_->flush();
    file_->close();
}

LOCKSTEP_FUNCTION std::string writing::commit(std::size_t keep) {
    const auto all = detail::gather_sums(ranks_, sums_);
    together(ranks_, [&] {
        if (ranks_.rank() != 0) return;
        facts_.sums = block_sums(all, facts_.file_bytes, facts_.block_bytes);
        const std::string text = facts_.text();
        placed_file facts{writing_ + std::string{manifest_name}, placed_file::use::make};
        facts.write(0, detail::bytes_of(text));
        facts.flush();
        facts.close();
        flush_folder(writing_);
        rename(writing_, path_);
        writing_.clear();
        flush_folder(folder_);
        if (keep == 0) return;
        try {
            const auto here = list(folder_);
            for (std::size_t i = 0, kept = 0; i < here.size(); ++i) {
                const bool is_replaced = i > 0 && here[i].step == here[i - 1].step;
                if (here[i].step > facts_.at.steps || (!is_replaced && ++kept <= keep)) continue;
                detail::retire(folder_, here[i].path);
            }
        } catch (const core::error&) {  // this one is there; what stays is deleted after the next one
        }
    });
    writing_.clear();
    lock_ = {};
    run_ = {};
    return path_;
}

LOCKSTEP_FUNCTION std::string save(const comm::group& ranks, const std::string& folder, manifest facts,
                                   const state_parts& parts, const state_layout& layout, std::size_t keep) {
    const long_waits others{ranks};
    writing to{ranks, folder, std::move(facts), layout};
    together(ranks, [&] { to.write(layout.runs(parts, false)); });
    return to.commit(keep);
}

LOCKSTEP_FUNCTION background::background(const comm::group& ranks, const std::string& folder, manifest facts,
                                         const state_parts& parts, const state_layout& layout)
    : ranks_{ranks}, to_{ranks, folder, std::move(facts), layout}, runs_{layout.runs(parts, false)} {
    const auto begin = [&] {
        require_threads();
        to_.stay();
        std::size_t bytes = 0;
        for (const file_run& one : runs_) bytes += one.bytes;
        core::with_memory("a copy of the state", bytes, "leave write_behind out, or use a machine with more memory",
                          [&] { copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes); });
        core::ask_for_huge_pages(copy_.get(), bytes);
        bytes = 0;
        for (file_run& one : runs_) {
            std::byte* const here = copy_.get() + bytes;
            std::memcpy(here, one.data, one.bytes);
            one.data = here;
            bytes += one.bytes;
        }
        const auto work = [](void* of) noexcept {
            auto& self = *static_cast<background*>(of);
            try {
                self.to_.write(self.runs_);
            } catch (const std::exception& failure) {
                self.problem_ = failure.what();
            }
            self.is_written_.store(true, std::memory_order_release);
        };
        thread_ = core::quiet_thread(work, this, "the thread that is to write a checkpoint", "leave write_behind out");
    };
    try {
        together(ranks_, begin);
    } catch (...) {
        wait();  // another rank has no thread: this one's still uses what is about to go
        throw;
    }
}

LOCKSTEP_FUNCTION bool background::is_written_everywhere() const {
    for (const bool one : ranks_.gather_all(is_written()))
        if (!one) return false;
    return true;
}

LOCKSTEP_FUNCTION std::string background::commit(std::size_t keep) {
    wait();
    const long_waits others{ranks_};
    together(ranks_, [&] {
        if (!problem_.empty()) throw core::error{problem_};
    });
    return to_.commit(keep);
}

LOCKSTEP_FUNCTION stored open(const comm::group& ranks, const std::string& folder) {
    stored out;
    std::string text, header;
    together(ranks, [&] {
        if (ranks.rank() != 0) return;
        if (exists(folder + std::string{manifest_name})) {
            out.path = folder;
        } else {
            const auto all = list(folder);
            if (all.empty())
                core::fail(core::text("there is no complete checkpoint in ", folder),
                           saving::exists(folder)
                               ? "name the folder that a run wrote, or start without resuming"
                               : "the folder does not exist: check its name, or start without resuming");
            out.path = all[0].path;
        }
        const std::string name = out.path + std::string{manifest_name};
        placed_file from{name, placed_file::use::read};
        text.resize(from.size());
        from.read(0, std::as_writable_bytes(std::span{text}));
    });
    out.path = of_first_rank(ranks, out.path);
    text = of_first_rank(ranks, text);
    together(ranks, [&] { out.facts = manifest::read(text, out.path + std::string{manifest_name}); });
    const std::string name = out.path + std::string{state_name};
    const std::uint64_t block = out.facts.block_bytes;
    const long_waits others{ranks};
    together(ranks, [&] {
        if (ranks.rank() == 0 ? !exists(name) : !appears(name))
            core::fail(ranks.rank() == 0 ? core::text(name, " is missing")
                                         : core::text("rank ", ranks.rank(), " does not see ", name),
                       ranks.rank() == 0 ? damage_remedy : "name a folder on a file system that all ranks share");
        const placed_file from{name, placed_file::use::read};
        if (from.size() != out.facts.file_bytes)
            core::fail(core::text(name, " has ", from.size(), " bytes, its manifest says ", out.facts.file_bytes),
                       damage_remedy);
        std::vector<std::byte> bytes;
        for (std::uint64_t which = ranks.rank(); which < out.facts.sums.size(); which += ranks.size()) {
            bytes.resize(std::min(block, out.facts.file_bytes - which * block));
            from.read(which * block, bytes);
            std::vector<part_sum> sum;
            add_sums(sum, which * block, bytes, block);
            if (sum[0].sum != out.facts.sums[which])
                core::fail(
                    core::text(name, " is damaged in bytes ", which * block, " to ", which * block + bytes.size() - 1),
                    damage_remedy);
        }
        if (ranks.rank() != 0) return;
        std::uint64_t length = 0;
        from.read(0, std::as_writable_bytes(std::span{&length, 1}));
        length = std::min<std::uint64_t>(length, files::safetensors_layout::most_header_bytes);
        header.resize(std::min(out.facts.file_bytes, 8 + length));
        from.read(0, std::as_writable_bytes(std::span{header}));
        const auto file = files::parse_safetensors(detail::bytes_of(header), out.facts.file_bytes, name);
        std::uint64_t begin = out.facts.file_bytes;
        for (const auto& one : file.tensors) begin = std::min(begin, one.begin);
        header.resize(begin);
    });
    header = of_first_rank(ranks, header);
    together(ranks, [&] { out.file = files::parse_safetensors(detail::bytes_of(header), out.facts.file_bytes, name); });
    out.data_begin = header.size();
    return out;
}

LOCKSTEP_FUNCTION std::string checkpoint_of(const comm::group& ranks, const std::string& path) {
    const auto paths = ranks.gather_all(std::string_view{path});
    for (const std::string& one : paths)
        if (one != paths[0]) return {};
    std::string folder;
    if (ranks.rank() == 0 && core::text("/", path.substr(path.rfind('/') + 1)) == state_name) {
        folder = core::folder_of(path);
        while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
        if (!core::why_unreadable(core::text(folder, manifest_name)).empty()) folder.clear();
    }
    return of_first_rank(ranks, folder);
}

LOCKSTEP_FUNCTION void require_same_arrays(const stored& from, const state_layout& layout) {
    const auto here = detail::layout_of(layout, from.facts).tensors;
    const auto& there = from.file.tensors;
    const auto describe = [](const files::tensor_entry& of) {
        return core::text(of.name, " (", files::shape_text(of.shape), ", ", files::name_of(of.type), ")");
    };
    const auto same = [&](const files::tensor_entry& a, const files::tensor_entry& b) {
        return describe(a) == describe(b) && a.begin - there[0].begin == b.begin - here[0].begin;
    };
    if (std::ranges::equal(there, here, same)) return;
    const auto first_without = [](const auto& all, const auto& others) {
        return std::ranges::find_if(all, [&](const files::tensor_entry& one) {
            return std::ranges::find(others, one.name, &files::tensor_entry::name) == others.end();
        });
    };
    const auto only_there = first_without(there, here), only_here = first_without(here, there);
    std::string differs;
    if (only_there != there.end()) differs = core::text(" has ", describe(*only_there), ", which this trainer has not");
    if (only_here != here.end())
        differs += core::text(differs.empty() ? "" : ", and", " lacks ", describe(*only_here), " of this trainer");
    for (std::size_t i = 0; differs.empty() && i < here.size(); ++i) {
        const auto& other = *std::ranges::find(there, here[i].name, &files::tensor_entry::name);
        if (describe(other) != describe(here[i]))
            differs = core::text(" has ", describe(other), " where this trainer has ", describe(here[i]));
    }
    if (differs.empty()) differs = " has its arrays in another order than this trainer";
    core::fail(core::text(from.path, differs),
               "resume with the network, optimizer, compressor, strategy, workers and partition that wrote it");
}

LOCKSTEP_FUNCTION void restore(const comm::group& ranks, const stored& from, const state_parts& parts,
                               const state_layout& layout) {
    const long_waits others{ranks};
    together(ranks, [&] {
        const placed_file file{from.path + std::string{state_name}, placed_file::use::read};
        for (const file_run& one : layout.runs(parts, true))
            file.read(from.data_begin + one.offset, {one.data, one.bytes});
    });
}

#endif

}  // namespace lockstep::saving
