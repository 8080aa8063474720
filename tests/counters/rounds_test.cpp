#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "oracle/spmm_inputs.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "tests/temporary_folder.h"

namespace sparsekiln::test {
namespace {

/// So many block rows of three blocks, and as many with one in the last column.
Layout long_and_short(std::int32_t rows) {
  std::vector<std::uint8_t> mask;
  for (std::int32_t row = 0; row < rows; ++row) mask.insert(mask.end(), {1, 1, 1, 0});
  for (std::int32_t row = 0; row < rows; ++row) mask.insert(mask.end(), {0, 0, 0, 1});
  return Layout::from_mask(2 * rows, 4, mask);
}

/// What the emulator says of a launch in two rounds of one batch tile, where nothing has written the part of
/// x that short rows read for the second tile. One row group, or team, has the long rows, and one the short
/// ones.
std::string fault_in_second_round(std::int32_t side, const char* numbers) {
  const Config config = parse_config(fmt::format("{} in_flight=1", numbers));
  const Layout layout = long_and_short(config.rows * config.cluster_rows);
  const std::int64_t n = 2 * std::int64_t{config.tile_n};
  const TemporaryFolder folder;
  const Options options{.block = {side, side},
                        .batch = n,
                        .dtype = DType::f16,
                        .target = fmt::format("emulated:sm_90:{}", 2 * config.cluster_rows),
                        .config = config,
                        .cache_dir = folder.path()};
  const Problem problem = make_problem(layout, options);
  const Kernel kernel = compile(layout, options);
  CHECK(kernel.workspace_bytes(n) == 0);  // no row is split
  const std::shared_ptr<const Device> device = open_device("emulated:sm_90");
  const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 1);
  DeviceMemory x(device, inputs.x.size());
  DeviceMemory w(device, inputs.w.size());
  DeviceMemory y(device, static_cast<std::size_t>(n * problem.out_features() * 2));
  w.copy_in(inputs.w.data());
  const std::size_t row = inputs.x.size() / static_cast<std::size_t>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i) * row;
    device->copy_in(static_cast<std::byte*>(x.data()) + at, inputs.x.data() + at,
                    i < config.tile_n ? row : row * 3 / 4);
  }
  try {
    kernel({.x = view(x.data(), problem.dtype, n, problem.in_features()),
            .w = view(w.data(), problem.dtype, layout.blocks(), side, side),
            .y = view(y.data(), problem.dtype, n, problem.out_features())});
    device->synchronize();
  } catch (const Error& error) {
    cuda::Emulator().reset_device(cuda::open_emulated(90)->device().ordinal);
    return error.what();
  }
  return "no fault";
}

}  // namespace

TEST_CASE("the CTA with the long rows of one round has the short rows of the next") {
  const auto is_of = [](const char* cta, const std::string& fault) {
    return fault.find("unwritten") != std::string::npos && fault.find(cta) != std::string::npos;
  };
  for (const char* const numbers : {"mma tile_n=16 stages=3 warps=1", "stream tile_n=16 stages=3 warps=2",
                                    "direct tile_n=16 stages=2 warps=2"}) {
    const std::string fault = fault_in_second_round(32, numbers);
    CHECK_MESSAGE(is_of("block (0,0,0)", fault), numbers << ": " << fault);
  }
  for (const char* const numbers :
       {"wgmma tile_n=128 stages=3 warps=12", "wgmma_rows tile_n=128 stages=3 warps=12 rows=2 operand_a=w"}) {
    const std::string fault = fault_in_second_round(64, numbers);
    CHECK_MESSAGE(is_of("block (0,0,0)", fault), numbers << ": " << fault);
  }
  // The workers of a team change places together.
  const std::string fault = fault_in_second_round(64, "wgmma tile_n=128 stages=3 warps=12 cluster_rows=2");
  CHECK_MESSAGE((is_of("block (0,0,0)", fault) || is_of("block (1,0,0)", fault)), fault);
}

}  // namespace sparsekiln::test
