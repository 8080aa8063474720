#pragma once

#include <cstdint>
#include <string>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// A bit for each part of an epilogue, and its activation: equal epilogues have equal bits.
[[nodiscard]] std::uint64_t bits_of(const Epilogue& epilogue);

/// The words that parse_epilogue takes, for readers: "some of scale, …, joined by +".
[[nodiscard]] std::string epilogue_choices();

}  // namespace sparsekiln
