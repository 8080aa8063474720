#pragma once

#include <span>
#include <string_view>

#include <sparsekiln/layout.h>

namespace sparsekiln::test {

/// A small layout that is difficult in its own way.
struct NamedLayout {
  std::string_view name;
  Layout (*make)();
};

/// One of each pattern, and shapes that have caused errors; the same on every machine.
[[nodiscard]] std::span<const NamedLayout> test_layouts();

}  // namespace sparsekiln::test
