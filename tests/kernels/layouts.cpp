#include "tests/kernels/layouts.h"

#include <array>
#include <cstdint>
#include <vector>

#include <sparsekiln/patterns.h>

namespace sparsekiln::test {
namespace {

template <class Present>
Layout from_rule(std::int32_t rows, std::int32_t cols, Present present) {
  std::vector<std::uint8_t> mask;
  for (std::int32_t row = 0; row < rows; ++row)
    for (std::int32_t col = 0; col < cols; ++col) mask.push_back(present(row, col) ? 1 : 0);
  return Layout::from_mask(rows, cols, mask);
}

constexpr auto kAll = [](int, int) { return true; };
constexpr auto kNone = [](int, int) { return false; };

constexpr std::array kLayouts = {
    NamedLayout{"one-by-one", [] { return from_rule(1, 1, kAll); }},
    NamedLayout{"no-blocks", [] { return from_rule(3, 4, kNone); }},
    NamedLayout{"one-block", [] { return from_rule(5, 4, [](int r, int c) { return r == 3 && c == 2; }); }},
    NamedLayout{"full", [] { return from_rule(6, 5, kAll); }},
    NamedLayout{"empty-rows-and-columns",
                [] {
                  return from_rule(7, 6,
                                   [](int r, int c) { return r % 3 != 0 && c % 5 != 0 && (r + c) % 2 == 0; });
                }},
    NamedLayout{
        "one-long-row",
        [] { return from_rule(6, 24, [](int r, int c) { return r == 4 || (r % 2 == 0 && c == 3 * r); }); }},
    NamedLayout{
        "one-long-column",
        [] { return from_rule(24, 6, [](int r, int c) { return c == 1 || (r % 5 == 0 && c == 4); }); }},
    NamedLayout{"wide", [] { return patterns::random(2, 24, 0.5, 11); }},
    NamedLayout{"tall", [] { return patterns::random(24, 2, 0.5, 12); }},
    NamedLayout{"random", [] { return patterns::random(8, 8, 0.3, 13); }},
    NamedLayout{"balanced-random", [] { return patterns::balanced_random(8, 10, 0.4, 14); }},
    NamedLayout{"block-diagonal", [] { return patterns::block_diagonal(7, 6, 3); }},
    NamedLayout{"banded", [] { return patterns::banded(9, 6, 1); }},
    NamedLayout{"watts-strogatz", [] { return patterns::watts_strogatz(12, 12, 0.3, 0.2, 3); }},
    NamedLayout{"barabasi-albert", [] { return patterns::barabasi_albert(9, 2, true, 4); }},
    NamedLayout{"butterfly", [] { return patterns::butterfly(8); }},
    NamedLayout{"causal", [] { return patterns::causal(7); }},
    NamedLayout{"strided", [] { return patterns::strided(9, 3); }},
    NamedLayout{"longformer", [] { return patterns::longformer(8, 1, 1); }},
    NamedLayout{"bigbird", [] { return patterns::bigbird(9, 1, 1, 1, 5); }},
};

}  // namespace

std::span<const NamedLayout> test_layouts() { return kLayouts; }

}  // namespace sparsekiln::test
