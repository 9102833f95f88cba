// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where the seconds of a step go.
// Tested by tests/training/control.cpp.

#include <chrono>

#include "lockstep/report/events.hpp"
#include "lockstep/report/overlap_clock.hpp"
#include "lockstep/report/recorder.hpp"

namespace lockstep::train {

/// Of a walk over the network: computing, and what ranks wait for meanwhile.
template <class Engine>
class step_clock {
    using clock = std::chrono::steady_clock;

public:
    explicit step_clock(Engine& of)
        : of_{of}, redistributed_{of.run.redistribution_seconds()}, waited_{of.strategy.times().exposed_seconds()} {
        of.strategy.times().note(report::activity::data);
        watch_ = clock::now();
    }
    void forward_done() {
        of_.strategy.times().note(report::activity::loss);
        in_forward_ = of_.run.redistribution_seconds() - redistributed_;
        of_.totals.seconds.forward +=
            report::lap(watch_) - in_forward_ - (of_.strategy.times().exposed_seconds() - waited_);
    }
    void backward_done() {
        const double in_both = of_.run.redistribution_seconds() - redistributed_;
        of_.totals.seconds.backward += report::lap(watch_) - (in_both - in_forward_);
        of_.totals.seconds.communication_exposed += in_both;
    }

private:
    Engine& of_;
    double redistributed_, waited_, in_forward_ = 0;
    clock::time_point watch_;
};

}  // namespace lockstep::train
