#include "runtime/c_object.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sparsekiln/printable.h>

#include "compiler/activation.h"
#include "compiler/element.h"
#include "runtime/warnings.h"

// Errors, element types, threads and layouts of the C interface.

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::give_view;
using sparsekiln::given;
using sparsekiln::guarded;
using sparsekiln::kFirstSize;
using sparsekiln::Layout;
using sparsekiln::taken;

namespace {

struct Failure {
  std::string message;
  std::string log;
};
thread_local Failure last_failure;

sk_layout* handle(Layout layout) {
  std::string digest = layout.digest().hex();
  return new sk_layout{std::move(layout), std::move(digest)};
}

std::vector<Layout> layouts_of(const sk_layout* const* handles, size_t count, const char* all,
                               const char* one) {
  std::vector<Layout> layouts;
  for (size_t i = 0; i < count; ++i) layouts.push_back(given((&given(handles, all))[i], one).layout);
  return layouts;
}

Layout pattern(std::string_view name, const sk_pattern& p) {
  using namespace sparsekiln::patterns;
  if (name == "random") return random(p.rows, p.cols, p.density, p.seed);
  if (name == "balanced_random") return balanced_random(p.rows, p.cols, p.density, p.seed, p.diagonal != 0);
  if (name == "block_diagonal") return block_diagonal(p.rows, p.cols, p.groups);
  if (name == "banded") return banded(p.rows, p.cols, p.half_width);
  if (name == "watts_strogatz")
    return watts_strogatz(p.rows, p.cols, p.density, p.rewire, p.seed, p.diagonal != 0);
  if (name == "balanced_watts_strogatz")
    return balanced_watts_strogatz(p.rows, p.cols, p.density, p.rewire, p.seed, p.diagonal != 0);
  if (name == "barabasi_albert")
    return barabasi_albert(p.extent, p.edges, p.diagonal != 0, p.seed, p.extra_edges);
  if (name == "butterfly") return butterfly(p.extent);
  if (name == "causal") return causal(p.extent);
  if (name == "strided") return strided(p.extent, p.stride);
  if (name == "longformer") return longformer(p.extent, p.window, p.global_blocks);
  if (name == "bigbird") return bigbird(p.extent, p.window, p.global_blocks, p.random_blocks, p.seed);
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("there is no pattern '{}'; patterns.h has random, balanced_random, block_diagonal, banded, "
                  "watts_strogatz, balanced_watts_strogatz, barabasi_albert, butterfly, causal, strided, "
                  "longformer and bigbird",
                  sparsekiln::printable(name)));
}

}  // namespace

namespace sparsekiln {

sk_status status_of(ErrorKind kind) { return static_cast<sk_status>(static_cast<int>(kind) + 1); }
static_assert(static_cast<int>(ErrorKind::invalid_argument) + 1 == SK_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorKind::internal) + 1 == SK_INTERNAL);

sk_status failed(sk_status status, const char* message, const std::string& log) noexcept {
  try {
    last_failure = {message, log};
  } catch (const std::bad_alloc&) {
    last_failure = {};
  }
  return status;
}

}  // namespace sparsekiln

const char* sk_error_message(void) { return last_failure.message.c_str(); }
const char* sk_error_log(void) { return last_failure.log.c_str(); }
const char* sk_version(void) { return SPARSEKILN_VERSION; }
int sk_interface_version(void) { return SK_INTERFACE_VERSION; }

const char* sk_take_warning(void) {
  thread_local std::string taken;
  try {
    std::optional<std::string> oldest = sparsekiln::take_warning();
    if (!oldest) return nullptr;
    taken = std::move(*oldest);
    return taken.c_str();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

size_t sk_element_type_count(void) { return sparsekiln::elements().size(); }

sk_status sk_element_type_describe(size_t index, sk_element_type* view) {
  return guarded([&] {
    const auto types = sparsekiln::elements();
    if (index >= types.size())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("element type {}: there are {}, counted from 0", index, types.size()));
    const sparsekiln::Element& type = types[index];
    const sparsekiln::Element& sums = sparsekiln::element(type.arithmetic);
    // The texts of the rows are literals, which end with 0.
    give_view(view, {.size = 0,
                     .name = type.name.data(),
                     .array_name = type.array_name.data(),
                     .sum_name = sums.name.data(),
                     .sum_array_name = sums.array_name.data(),
                     .dlpack_code = type.dlpack.code,
                     .dlpack_bits = type.dlpack.bits,
                     .on_cuda = type.cuda.output.empty() && type.cuda.product.empty() ? 0 : 1,
                     .forward_only = type.forward_only ? 1 : 0});
  });
}

const char* sk_activation_name(size_t number) {
  const auto rows = sparsekiln::activation_rows().subspan(1);
  return number < rows.size() ? rows[number].name.data() : nullptr;
}

int sk_activation_takes_result(size_t number) {
  const auto rows = sparsekiln::activation_rows().subspan(1);
  return number < rows.size() && rows[number].derivative_from_result ? 1 : 0;
}

sk_status sk_layout_from_csr(int64_t rows, int64_t cols, const int32_t* crow, const int32_t* col,
                             sk_layout** layout) {
  return guarded([&] {
    const auto whole = static_cast<std::size_t>(std::clamp<std::int64_t>(rows, 0, Layout::kMaxExtent));
    const std::span<const std::int32_t> rows_begin(&given(crow, "crow"), whole + 1);
    const auto blocks = static_cast<std::size_t>(std::max(rows_begin.back(), 0));
    given(layout, "layout") =
        handle(Layout::from_csr(rows, cols, rows_begin, {col, col == nullptr ? 0 : blocks}));
  });
}

sk_status sk_layout_from_mask(int64_t rows, int64_t cols, const uint8_t* mask, sk_layout** layout) {
  return guarded([&] {
    const bool in_range = rows >= 0 && cols >= 0 && rows <= Layout::kMaxExtent && cols <= Layout::kMaxExtent;
    const std::size_t cells = in_range && mask != nullptr ? static_cast<std::size_t>(rows * cols) : 0;
    given(layout, "layout") = handle(Layout::from_mask(rows, cols, {mask, cells}));
  });
}

sk_status sk_layout_load(const char* file, sk_layout** layout) {
  return guarded([&] { given(layout, "layout") = handle(Layout::load(&given(file, "file"))); });
}

sk_status sk_layout_save(const sk_layout* layout, const char* file) {
  return guarded([&] { given(layout, "layout").layout.save(&given(file, "file")); });
}

sk_status sk_layout_transposed(const sk_layout* layout, sk_layout** transposed) {
  return guarded(
      [&] { given(transposed, "transposed") = handle(given(layout, "layout").layout.transposed()); });
}

sk_status sk_layout_diagonal(const sk_layout* const* parts, size_t count, sk_layout** layout) {
  return guarded([&] {
    given(layout, "layout") = handle(Layout::diagonal(layouts_of(parts, count, "parts", "a part")));
  });
}

sk_status sk_layout_mixing(const sk_layout* const* layers, size_t count, sk_mixing* after) {
  return guarded([&] {
    const std::vector<Layout> layouts = layouts_of(layers, count, "layers", "a layer");
    sk_mixing* next = count > 0 ? &given(after, "after") : nullptr;
    for (const sparsekiln::patterns::Mixing& one : sparsekiln::patterns::mixing(layouts))
      *next++ = {.minimum = one.minimum,
                 .maximum = one.maximum,
                 .median = one.median,
                 .mean = one.mean,
                 .share = one.share};
  });
}

void sk_layout_free(sk_layout* layout) { delete layout; }

void sk_pattern_init_sized(sk_pattern* pattern, size_t size) {
  sparsekiln::write_struct(pattern, size, sk_pattern{});
}

sk_status sk_layout_pattern(const char* name, const sk_pattern* parameters, sk_layout** layout) {
  return guarded([&] {
    given(layout, "layout") =
        handle(pattern(&given(name, "name"), taken(parameters, sk_pattern_init_sized, "pattern")));
  });
}

sk_status sk_layout_describe(const sk_layout* layout, sk_layout_view* view) {
  return guarded([&] {
    const Layout& grid = given(layout, "layout").layout;
    give_view(view, {.size = 0,
                     .rows = grid.rows(),
                     .cols = grid.cols(),
                     .blocks = grid.blocks(),
                     .density = grid.statistics().density,
                     .crow = grid.crow().data(),
                     .col = grid.col().data(),
                     .digest = layout->digest.c_str()});
  });
}

int32_t sk_threads(void) { return sparsekiln::threads(); }
int32_t sk_stated_threads(void) { return sparsekiln::stated_threads(); }
sk_status sk_set_threads(int32_t threads) {
  return guarded([&] { sparsekiln::set_threads(threads); });
}
void sk_set_team(sk_team team) { sparsekiln::set_team(team); }
