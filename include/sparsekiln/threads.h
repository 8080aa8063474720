#pragma once

#include <cstdint>

namespace sparsekiln {

/// How many threads a launch on the cpu uses at most, the calling one included, unless it says so itself
/// (Operands::threads): what set_threads was given, else SPARSEKILN_THREADS, else OMP_NUM_THREADS (of a list
/// the first number), else as many as the process may run on at once. Variables are read once; one that is
/// not a number from 1 to 1024 is passed over. How a kernel divides its work depends on its target's workers
/// alone: with fewer threads, or more, it gives the same bits. All kernels of a process share one pool.
[[nodiscard]] std::int32_t threads();

/// From now on, for all threads of the process; 0: as if it had never been set. Throws `invalid_argument` for
/// a number below 0 or above 1024.
void set_threads(std::int32_t threads);

/// What set_threads was given, else SPARSEKILN_THREADS; 0: neither says. For programs that would otherwise
/// ask a framework how many threads it uses.
[[nodiscard]] std::int32_t stated_threads();

/// Runs `body(data)` on up to `threads` threads at once, the calling one among them, and returns when all of
/// them have ended: GOMP_parallel of an OpenMP runtime, or what does the same. `flags` is 0.
using Team = void (*)(void (*body)(void* data), void* data, unsigned threads, unsigned flags);

/// From now on, launches on the cpu run on this team instead of threads of the library: a framework's threads
/// that spin for a while after its operators then do not keep them from their cores. nullptr: on threads of
/// the library again. Children that are forked begin so, for teams seldom outlive a fork.
void set_team(Team team);

}  // namespace sparsekiln
