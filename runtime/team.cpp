#include "runtime/team.h"

#include <pthread.h>

#include <atomic>

namespace sparsekiln {
namespace {

constinit std::atomic<Team> team_of_process{nullptr};

/// A child that was forked has none of the team's threads.
[[maybe_unused]] const int at_fork =
    pthread_atfork(nullptr, nullptr, [] { team_of_process.store(nullptr, std::memory_order_relaxed); });

}  // namespace

void set_team(Team team) { team_of_process.store(team, std::memory_order_relaxed); }

Team team() { return team_of_process.load(std::memory_order_relaxed); }

}  // namespace sparsekiln
