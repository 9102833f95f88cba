// SPDX-License-Identifier: BSD-3-Clause
// test on 2 ranks:
// A strategy of one's own: Lookahead (Zhang, Lucas, Hinton, Ba, NeurIPS 2019). `mpirun -n 2 own_strategy`
#include <iostream>

#include "lockstep/lockstep.hpp"
namespace ls = lockstep;
using namespace ls::layers;

/// Slow weights, at first those loaded, go a part of the way to the trained ones every `period` steps and replace them.
struct lookahead {
    std::size_t period = 5;
    double part = 0.5;

    static constexpr std::string_view name = "lookahead";
    std::string settings() const { return ls::core::text("period=", period, " part=", part); }

    template <class Types>
    class strategy : public ls::sync::owner_updates<Types> {
        using base = ls::sync::owner_updates<Types>;
        using T = typename Types::value_type;

    public:
        template <class Plan>
        explicit strategy(const ls::sync::setup<Plan>& from)
            : base{from}, period_{from.plan.sync.period}, part_{static_cast<T>(from.plan.sync.part)},
              slow_{from.arena.template reserve<T>(Types::network::parameters_here)} {}

        void loaded(std::span<const T> weights) const { std::ranges::copy(weights, (*this->arena_)[slow_].begin()); }
        bool commit(std::span<T> weights, double rate, std::uint64_t step) {
            const std::span<T> slow = (*this->arena_)[slow_];
            const bool looks_back = (step + 1) % period_ == 0;
            const auto after = [=, part = part_](const auto& pass, std::size_t first) noexcept {
                for (std::size_t i = 0; looks_back && i < pass.weights.size(); ++i)
                    pass.weights[i] = slow[first + i] += part * (pass.weights[i] - slow[first + i]);
            };
            return this->commit_sums(this->queue_, weights, rate, step, after);
        }
        void visit_state(auto&& visit) const {
            base::visit_state(visit);
            this->visit_owned(visit, "slow weights", 0, (*this->arena_)[slow_]);
        }

    private:
        std::size_t period_;
        T part_;
        ls::tensor::slice<T> slow_;
    };
};

int main(int argc, char** argv) {
    return ls::program(argc, argv, [](const boost::mpi::communicator& world) {
        constexpr auto net = ls::sequential{ls::input<28, 28, 1>, flatten{}, dense<64>{}, relu{}, dense<10>{}};
        ls::trainer trainer{world, ls::plan{.model = net, .loss = ls::softmax_cross_entropy{}, .sync = lookahead{}}};
        trainer.fit(ls::data::digits{.count = 5'000}, ls::epochs{2}, ls::progress{std::cout});
        const std::string hash = ls::core::hexadecimal(trainer.state_hash());
        if (world.rank() == 0) std::cout << "state " << hash << std::endl;
        return 0;
    });
}
