#pragma once

#include <string>

#include <sparsekiln/binary.h>

namespace sparsekiln {

/// All of a Binary of these that needs no compiler: its contract, the recipes of its entries, but for their
/// resources, and its data. Pure, and the same as build_binary makes.
[[nodiscard]] Binary recipe_of(const Problem& problem, const Target& target, const Plan& plan);

/// What a Binary of these says that operands of its launches are checked against.
[[nodiscard]] OperandContract contract_of(const Problem& problem, const Plan& plan);

/// Sets the resources of a Binary's entries, by its code and its compiler's log. Throws `internal` where the
/// code has not their kernels.
void set_resources(Binary& binary);

/// Says in a sentence which number of a Binary that was stored for these is wrong; empty if all are right.
/// All that a launcher believes of it, apart from the machine code itself, is made again and compared.
[[nodiscard]] std::string wrong_numbers(const Binary& stored, const Problem& problem, const Target& target,
                                        const Plan& plan);

}  // namespace sparsekiln
