// SPDX-License-Identifier: BSD-3-Clause
// A solver that trains a surrogate of itself while it runs, on its own ranks, for some milliseconds after each of its
// rounds; then the surrogate does the work. What is lockstep stands between the marks; all else is the solver, which
// knows nothing of it.
//     mpirun -n 4 in_situ [rounds] [folder] [milliseconds]
// With a folder the run is saved there at its end, also where SIGUSR1 ends it, and goes on from there the next time, on
// any number of ranks.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

// >> lockstep
#include "lockstep/lockstep.hpp"
#include "lockstep/tensor/xtensor.hpp"
#include "lockstep/train/checkpoint.hpp"
// << lockstep

// The solver: heat in a plate of 96 x 64 cells with insulated edges, which conducts better where it is hot. Bands of
// rows lie on ranks, every second one half as large again.
constexpr int height = 96, width = 64, halo = 3, row_length = width + 2 * halo, steps_of_round = 20;

class plate {
public:
    explicit plate(MPI_Comm ranks) : ranks_{ranks} {
        MPI_Comm_rank(ranks, &rank_);
        MPI_Comm_size(ranks, &size_);
        const auto end_of = [&](int rank) { return height * (2 * rank + rank / 2) / (2 * size_ + size_ / 2); };
        for (int rank = 0; rank < size_; ++rank) {
            firsts_.push_back(end_of(rank));
            counts_.push_back(end_of(rank + 1) - end_of(rank));
        }
        temperature_.assign(static_cast<std::size_t>((own_rows() + 2 * halo) * row_length), 0);
        next_ = temperature_;
    }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int own_rows() const { return counts_[static_cast<std::size_t>(rank_)]; }
    /// Row and column count from the first own one; a halo lies around.
    [[nodiscard]] float& operator()(int row, int column) { return temperature_[index(row, column)]; }

    /// Sparks anywhere on the plate, which cools a little. Only the round decides where.
    void heat(std::uint64_t round) {
        for (float& cell : temperature_) cell *= 0.97F;
        std::uint64_t state = 0x9e3779b97f4a7c15U * (round + 1);
        const auto random = [&](int below) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            return static_cast<int>((state >> 33U) % static_cast<std::uint64_t>(below));
        };
        for (int spark = 0; spark < 12; ++spark) {
            const int row = random(height) - firsts_[static_cast<std::size_t>(rank_)], column = random(width);
            const float strength = 0.5F + 0.01F * static_cast<float>(random(100));
            for (int r = std::max(0, row - 2); r < std::min(own_rows(), row + 3); ++r)
                for (int c = std::max(0, column - 2); c < std::min(width, column + 3); ++c)
                    (*this)(r, c) +=
                        strength / static_cast<float>(1 + (r - row) * (r - row) + (c - column) * (c - column));
        }
    }

    /// A round of explicit steps.
    void advance() {
        for (int step = 0; step < steps_of_round; ++step) {
            exchange();
            for (int r = 0; r < own_rows(); ++r)
                for (int c = 0; c < width; ++c) {
                    const float here = (*this)(r, c);
                    const auto flow = [&](float there) { return 0.05F * (1 + 0.4F * (here + there)) * (there - here); };
                    next_[index(r, c)] = here + flow((*this)(r - 1, c)) + flow((*this)(r + 1, c)) +
                                         flow((*this)(r, c - 1)) + flow((*this)(r, c + 1));
                }
            std::swap(temperature_, next_);
        }
        exchange();
    }

    /// The halo: rows of the neighbours, and at the edges of the plate the rows and columns inside of them again.
    void exchange() {
        const int up = rank_ > 0 ? rank_ - 1 : MPI_PROC_NULL, down = rank_ + 1 < size_ ? rank_ + 1 : MPI_PROC_NULL;
        const int n = halo * row_length, end = own_rows();
        MPI_Sendrecv(&temperature_[index(0, -halo)], n, MPI_FLOAT, up, 0, &temperature_[index(end, -halo)], n,
                     MPI_FLOAT, down, 0, ranks_, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&temperature_[index(end - halo, -halo)], n, MPI_FLOAT, down, 1, &temperature_[index(-halo, -halo)],
                     n, MPI_FLOAT, up, 1, ranks_, MPI_STATUS_IGNORE);
        for (int h = 1; h <= halo; ++h) {
            for (int c = 0; c < width; ++c) {
                if (up == MPI_PROC_NULL) (*this)(-h, c) = (*this)(h - 1, c);
                if (down == MPI_PROC_NULL) (*this)(end + h - 1, c) = (*this)(end - h, c);
            }
            for (int r = -halo; r < end + halo; ++r) {
                (*this)(r, -h) = (*this)(r, h - 1);
                (*this)(r, width + h - 1) = (*this)(r, width - h);
            }
        }
    }

    /// The solver's own restart file: the round and the whole plate, written and read by its rank 0.
    void save(const std::string& path, std::uint64_t round) {
        const auto plate_rows = gather();
        if (rank_ != 0) return;
        std::ofstream file{path + ".part", std::ios::binary};
        file.write(reinterpret_cast<const char*>(&round), sizeof round);
        file.write(reinterpret_cast<const char*>(plate_rows.data()),
                   static_cast<std::streamsize>(plate_rows.size() * sizeof(float)));
        // The old plate stays until the new one is on the disk.
        if (!file.flush() || !is_on_disk(path + ".part") || std::rename((path + ".part").c_str(), path.c_str()) != 0)
            throw std::runtime_error{path + " cannot be written"};
    }
    static bool is_on_disk(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY);
        const bool done = file >= 0 && ::fsync(file) == 0;
        if (file >= 0) ::close(file);
        return done;
    }
    bool load(const std::string& path, std::uint64_t& round) {
        std::vector<float> all(rank_ == 0 ? height * width : 0);
        std::uint64_t numbers[2] = {0, 0};  // the round, and whether there is a file
        if (std::ifstream file{path, std::ios::binary}; rank_ == 0 && file) {
            file.read(reinterpret_cast<char*>(numbers), sizeof numbers[0]);
            file.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(float)));
            if (!file) throw std::runtime_error{path + " is too short"};
            numbers[1] = 1;
        }
        MPI_Bcast(numbers, 2, MPI_UINT64_T, 0, ranks_);
        if (numbers[1] == 0) return false;
        round = numbers[0];
        std::vector<float> own(static_cast<std::size_t>(own_rows() * width));
        const auto [sizes, places] = in_cells();
        MPI_Scatterv(all.data(), sizes.data(), places.data(), MPI_FLOAT, own.data(), static_cast<int>(own.size()),
                     MPI_FLOAT, 0, ranks_);
        for (int r = 0; r < own_rows(); ++r)
            for (int c = 0; c < width; ++c) (*this)(r, c) = own[static_cast<std::size_t>(r * width + c)];
        exchange();
        return true;
    }

private:
    [[nodiscard]] static std::size_t index(int row, int column) {
        return static_cast<std::size_t>((row + halo) * row_length + column + halo);
    }
    struct cells {
        std::vector<int> sizes, places;
    };
    [[nodiscard]] cells in_cells() const {
        cells out{counts_, firsts_};
        for (int& one : out.sizes) one *= width;
        for (int& one : out.places) one *= width;
        return out;
    }
    [[nodiscard]] std::vector<float> gather() {
        std::vector<float> own, all(rank_ == 0 ? height * width : 0);
        for (int r = 0; r < own_rows(); ++r)
            for (int c = 0; c < width; ++c) own.push_back((*this)(r, c));
        const auto [sizes, places] = in_cells();
        MPI_Gatherv(own.data(), static_cast<int>(own.size()), MPI_FLOAT, all.data(), sizes.data(), places.data(),
                    MPI_FLOAT, 0, ranks_);
        return all;
    }

    MPI_Comm ranks_;
    int rank_ = 0, size_ = 1;
    std::vector<int> firsts_, counts_;
    std::vector<float> temperature_, next_;
};

// What the surrogate sees and says: the change of a cell in a round, from the square of cells around it.
constexpr int side = 2 * halo + 1;
constexpr float per_degree = 10;  // changes are small numbers: they are told in tenths of a degree
void look_around(plate& from, int row, int column, std::vector<float>& x) {
    for (int r = -halo; r <= halo; ++r)
        for (int c = -halo; c <= halo; ++c) x.push_back(from(row + r, column + c));
}

// >> lockstep
namespace ls = lockstep;
auto recipe() {
    return ls::plan{.model = ls::sequential{ls::input<side * side>, ls::layers::dense<32>{}, ls::layers::tanh{},
                                            ls::layers::dense<1>{}},
                    .loss = ls::mean_squared_error{},
                    .optimizer = ls::optim::adam{},
                    .schedule = ls::optim::constant{.rate = 0.001},
                    .batch = 1024};  // room: a rank may bring its share of so many cells
}
using trainer = ls::trainer_of<decltype(recipe())>;
// << lockstep

volatile std::sig_atomic_t is_told_to_end = 0;

/// Where all solver ranks end together.
bool all_go_on(MPI_Comm solver) {
    int told = is_told_to_end, of_any = 0;
    MPI_Allreduce(&told, &of_any, 1, MPI_INT, MPI_MAX, solver);
    return of_any == 0;
}
/// The root of the mean square over all cells.
double root_mean_square(MPI_Comm solver, double sum) {
    double all = 0;
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, solver);
    return std::sqrt(all / (height * width));
}

/// Rounds of the solver, each with `budget` for the surrogate after it. Then some rounds without sparks by the
/// surrogate alone, beside the solver.
void simulate(MPI_Comm solver, std::uint64_t rounds, const std::string& folder, std::chrono::milliseconds budget) {
    plate now{solver};
    // >> lockstep
    trainer surrogate{solver, recipe()};
    // << lockstep
    std::uint64_t round = 0, trained = 0, without = 0;
    double loss = 0;
    if (!folder.empty()) {
        const bool goes_on = now.load(folder + "/plate", round);
        // Also without a plate: a run that was killed between its two saves has left the surrogate alone.
        // >> lockstep
        int is_there = now.rank() == 0 && ls::saving::exists_in(folder + "/surrogate");
        MPI_Bcast(&is_there, 1, MPI_INT, 0, solver);
        if (goes_on || is_there != 0) surrogate.resume(folder + "/surrogate");
        const auto hash = surrogate.state_hash();
        trained = surrogate.report().steps;
        // << lockstep
        if (now.rank() == 0 && goes_on)
            std::printf("goes on after round %lu and step %lu, state %016lx\n", round, trained, hash);
    }
    std::vector<float> x, y;
    for (; round < rounds && all_go_on(solver); ++round) {
        now.heat(round);
        now.exchange();
        x.clear(), y.clear();
        const auto taken = [&](int r, int c) { return (r * width + c + static_cast<int>(round)) % 13 == 0; };
        for (int r = 0; r < now.own_rows(); ++r)
            for (int c = 0; c < width; ++c)
                if (taken(r, c)) look_around(now, r, c, x), y.push_back(-per_degree * now(r, c));
        now.advance();
        std::size_t sample = 0;
        for (int r = 0; r < now.own_rows(); ++r)
            for (int c = 0; c < width; ++c)
                if (taken(r, c)) y[sample++] += per_degree * now(r, c);
        // >> lockstep
        const auto made = surrogate.step_for(budget, x, y);
        // << lockstep
        trained = made.step;
        loss = made.loss.value_or(loss);
        without += made.steps == 0;
        if (now.rank() == 0 && (round + 1) % 50 == 0)
            std::printf("round %lu: %lu steps in all, the last loss %.5f; no time for a step in %lu rounds\n",
                        round + 1, trained, loss, without);
    }
    if (!folder.empty()) {
        // The surrogate first: where only that is saved, it goes on with a little more experience than the solver knows
        // of.
        // >> lockstep
        surrogate.save(folder + "/surrogate", 2);
        const auto hash = surrogate.state_hash();
        // << lockstep
        now.save(folder + "/plate", round);
        if (now.rank() == 0) std::printf("saved after round %lu and step %lu, state %016lx\n", round, trained, hash);
    }
    if (round < rounds) return;

    now.heat(rounds);
    now.exchange();
    plate guess = now, start = now;
    for (int ahead = 1; ahead <= 5; ++ahead) {
        now.advance();
        x.clear();
        for (int r = 0; r < now.own_rows(); ++r)
            for (int c = 0; c < width; ++c) look_around(guess, r, c, x);
        // >> lockstep
        const auto change = surrogate.predict(x);
        // << lockstep
        double wrong = 0, still = 0;
        for (int r = 0; r < now.own_rows(); ++r)
            for (int c = 0; c < width; ++c) {
                guess(r, c) += change(static_cast<std::size_t>(r * width + c), 0U) / per_degree;
                wrong += std::pow(guess(r, c) - now(r, c), 2);
                still += std::pow(start(r, c) - now(r, c), 2);
            }
        guess.exchange();
        wrong = root_mean_square(solver, wrong), still = root_mean_square(solver, still);
        if (now.rank() == 0)
            std::printf("%d rounds ahead: error %.5f of the surrogate, %.5f of no change\n", ahead, wrong, still);
    }
}

/// A whole number from 0 on the command line.
int number(const std::string& word, const char* what) {
    int out = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), out);
    if (problem != std::errc{} || end != word.data() + word.size() || out < 0)
        throw std::invalid_argument{"'" + word + "' is no number of " + what +
                                    "; write in_situ [rounds] [folder] [milliseconds]"};
    return out;
}

int main(int argc, char** argv) {
    int threads = 0, rank = 0, size = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::signal(SIGUSR1, [](int) { is_told_to_end = 1; });
    // In a program of several parts the solver has some of the ranks only: here the last one of three or more does
    // something else.
    const bool solves = size < 3 || rank + 1 < size;
    MPI_Comm solver = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, solves ? 0 : MPI_UNDEFINED, rank, &solver);
    try {
        const std::uint64_t rounds = argc > 1 ? number(argv[1], "rounds") : 200;
        const std::chrono::milliseconds budget{argc > 3 ? number(argv[3], "milliseconds") : 5};
        if (solves) simulate(solver, rounds, argc > 2 ? argv[2] : "", budget);
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "rank %d: %s\n", rank, failure.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (solver != MPI_COMM_NULL) MPI_Comm_free(&solver);
    MPI_Finalize();
}
