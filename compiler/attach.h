#pragma once

#include <cstdint>

#include <sparsekiln/binary.h>
#include <sparsekiln/layout.h>

namespace sparsekiln {

/// Features where the last block row and column of a layout are cut, as of a Problem; 0: whole blocks.
struct Cuts {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
};

/// As much of the problem of a layout as decides a schedule and its tables; the rest is in the code.
[[nodiscard]] Problem problem_of(const Layout& layout, const OperandContract& operands, Cuts cuts);

/// `shared`, made for attached tables, with a layout: the contract of its operands, and each entry's workers,
/// workspace, tables and, on the cpu, passes. The code, and everything else, is that of `shared`, whatever
/// layout that has already. `plan`: that of `shared` with the numbers that follow from the layout, by which
/// schedules are made; where it is empty, that of `shared` itself. Pure. Cut dimensions must match those
/// of `shared`, by the same number of features unless Backend::attached_cuts_anywhere holds, which nothing
/// checks: `shared` has no features. Throws `invalid_argument` where the tables are part of the code, or
/// where the layout, in blocks of this size, is one that no kernel takes.
[[nodiscard]] Binary attach(const Layout& layout, const Binary& shared, Cuts cuts = {},
                            const Plan& plan = {});

}  // namespace sparsekiln
