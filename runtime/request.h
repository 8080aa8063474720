#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <sparsekiln/compile.h>

#include "cache/identity.h"

namespace sparsekiln {

/// What a caller asked for, whole: the key of the in-process table. `context` tells devices apart.
struct Request {
  Digest layout;
  Options options;
  const void* context = nullptr;

  friend bool operator==(const Request&, const Request&) = default;
};

struct RequestHash {
  [[nodiscard]] std::size_t operator()(const Request& request) const;
};

/// The fields of that identity which a Binary says of itself, as name and value: all but its layout, its
/// features and the compiler. The operation comes first. Optional fields with their usual value are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> stated_fields(const Computation& what,
                                                                             const Target& target,
                                                                             const Plan& plan);

/// The identity of the Binary of (problem, target, plan): everything that decides its bytes, and nothing else
/// (DESIGN §7, rule 1). No path, no compiler output, no driver version. Where the plan's tables are attached
/// that is the Binary which lacks a layout: all layouts have the same identity.
[[nodiscard]] cache::Identity identity_of(const Problem& problem, const Target& target, const Plan& plan);

}  // namespace sparsekiln
