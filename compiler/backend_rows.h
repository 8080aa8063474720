#pragma once

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/target.h>

#include "backend_list.h"

// Modules have a row for each backend: a constant of one name in the backend's namespace. backend_list.h,
// which meson.build writes, has SPARSEKILN_BACKENDS(row, ...), row(NAME, ...) for each.

/// For SPARSEKILN_BACKENDS, in namespace sparsekiln: declares the constants, and lists their addresses.
#define SPARSEKILN_DECLARE_ROW(name, Row, constant) \
  namespace name {                                  \
  extern const Row constant;                        \
  }
#define SPARSEKILN_ROW_ADDRESS(name, constant) &name::constant,

namespace sparsekiln {

/// The row of a target's kind.
[[nodiscard]] const auto& row_of(const Target& target, const auto& rows) {
  for (const auto* const row : rows)
    if (row->kind == target.kind) return *row;
  throw Error(ErrorKind::internal, fmt::format("target {} belongs to no backend", target.to_string()));
}

}  // namespace sparsekiln
