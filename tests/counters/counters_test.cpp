#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "autotune/inputs.h"
#include "autotune/oracle.h"
#include "runtime/cuda/emulator.h"
#include "runtime/device.h"

// What the emulator counts of the kernels that a user gets without asking for a config: exact figures, so
// that waste in how they reach memory is a failure, not a slow kernel found later.

namespace sparsekiln::test {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sparsekiln-counters-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Types {
  DType dtype;
  Math math;
};

/// Runs the default kernel of one layer and gives what each of its lines did.
std::vector<cuda::CountedLine> count(const Layout& layout, BlockShape block, std::int64_t n, Types types,
                                     const std::string& arch) {
  const TemporaryFolder folder;
  const Options options = {.block = block,
                           .batch = n,
                           .dtype = types.dtype,
                           .math = types.math,
                           .target = "emulated:" + arch,
                           .cache_dir = folder.path()};
  const Problem problem = make_problem(layout, options);
  const Kernel kernel = compile(layout, options);
  REQUIRE(kernel.binary().plan.front().config.variant == Variant::mma);
  const std::shared_ptr<const Device> device = open_device(options.target);
  const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 1);
  PoisonedOutput output(problem, n);
  DeviceMemory x(device, inputs.x.size());
  DeviceMemory w(device, inputs.w.size());
  DeviceMemory y(device, output.image().size());
  x.copy_in(inputs.x.data());
  w.copy_in(inputs.w.data());
  y.copy_in(output.image().data());
  const cuda::Emulator emulator;
  emulator.reset_counters();
  kernel({.x = view(x.data(), problem.dtype, n, problem.in_features()),
          .w = view(w.data(), problem.dtype, layout.blocks(), block.out, block.in),
          .y = output.view(y.data())});
  device->synchronize();
  y.copy_out(output.image().data());
  CHECK(check(problem, inputs, output).ok);
  return emulator.counters();
}

constexpr Types kTypes[] = {{DType::f16, Math::ieee}, {DType::bf16, Math::ieee}, {DType::f32, Math::tf32}};

struct Counted {
  std::string what;
  std::vector<cuda::CountedLine> lines;
};

/// The default kernels of many layers, each run once.
const std::vector<Counted>& defaults() {
  static const std::vector<Counted> all = [] {
    const Layout layout = patterns::random(8, 16, 0.4, 3);
    std::vector<Counted> result;
    for (const BlockShape block : {BlockShape{16, 16}, {32, 32}, {64, 64}, {128, 128}, {16, 64}, {64, 16}})
      for (const Types& types : kTypes)
        for (const std::int64_t n : {1, 16, 64, 130})
          result.push_back({fmt::format("block {}, batch {}, {} {}", to_string(block), n, name(types.dtype),
                                        name(types.math)),
                            count(layout, block, n, types, "sm_90")});
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE("no bank conflict slows the main loop of a default kernel, block 16 and larger") {
  for (const auto& [what, lines] : defaults()) {
    std::uint64_t matrix_loads = 0;
    for (const cuda::CountedLine& line : lines) {
      if (line.kind == "matrix_load") matrix_loads += line.executed;
      if (line.kind != "matrix_load" && line.kind != "copy") continue;
      CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal,
                    what << ": " << line.instruction << " (PTX line " << line.ptx_line << ") takes "
                         << line.shared_wavefronts << " wavefronts, " << line.shared_ideal << " would do");
    }
    CHECK_MESSAGE(matrix_loads > 0, what);
  }
}

TEST_CASE(
    "a default kernel moves at most 1.1 times the global sectors that its bytes need, block 16 and larger") {
  for (const auto& [what, lines] : defaults()) {
    std::uint64_t sectors = 0;
    std::uint64_t bytes = 0;
    for (const cuda::CountedLine& line : lines) {
      sectors += line.global_sectors;
      bytes += line.global_bytes;
    }
    REQUIRE(bytes > 0);
    const double ratio = 32.0 * static_cast<double>(sectors) / static_cast<double>(bytes);
    CHECK_MESSAGE(ratio <= 1.1,
                  what << ": " << sectors << " sectors for " << bytes << " bytes, ratio " << ratio);
  }
}

}  // namespace sparsekiln::test
