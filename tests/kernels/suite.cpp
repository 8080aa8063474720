#include "tests/kernels/suite.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "autotune/default_plan.h"
#include "compiler/element.h"
#include "compiler/spmm.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "runtime/resident_spmm.h"

namespace sparsekiln::test {
namespace {

const Suite* current_suite = nullptr;

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "sparsekiln-kernels-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error("cannot make " + name, {});
  return name;
}

}  // namespace

std::string Precision::to_string() const {
  return std::string(math == Math::tf32 ? name(math) : name(dtype));
}

Suite::Suite(const std::string& target, std::size_t every)
    : prefix_(target.starts_with("emulated") ? "emulated:" : ""),
      device_(open_device(target)),
      every_(every) {
  take_empty_store();
  if (const char* const kept = std::getenv("SPARSEKILN_TEST_STORE"); kept != nullptr && on_cpu())
    keep_store(kept);
  current_suite = this;
}

Suite::~Suite() {
  current_suite = nullptr;
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

void Suite::keep_store(std::filesystem::path folder) { cache_dir_ = std::move(folder); }

void Suite::take_empty_store() {
  std::error_code ignored;
  if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
  scratch_ = make_folder();
  keep_store(scratch_ / "store");
}

const Suite& Suite::current() { return *current_suite; }

Options Suite::options(BlockShape block, Batch batch, Precision precision) const {
  Options options;
  options.block = block;
  options.batch = batch;
  options.dtype = precision.dtype;
  options.math = precision.math;
  options.target = prefix_ + device_->target().to_string();
  options.cache_dir = cache_dir_;
  return options;
}

std::vector<Precision> Suite::precisions() const {
  constexpr Precision kTf32{DType::f32, Math::tf32};
  if (on_cpu()) return {{DType::f32}, {DType::bf16}, {DType::f16}, {DType::f64}};
  if (device_->target().compute_capability() < 80) return {{DType::f32}, {DType::f16}};
  return {{DType::f32}, {DType::f16}, {DType::bf16}, kTf32};
}

Options Suite::with_splits(Options options, const Layout& layout) const {
  if (on_cpu()) return options;
  Config config = choose_plan(make_problem(layout, options), resolve_target(options.target)).front().config;
  config.split_saves = 0;
  config.split = 2;
  options.config = config;
  return options;
}

bool Suite::splits_rows(const Precision& precision) {
  return element(precision.dtype).cpu == CpuPasses::tiled;
}

std::string Suite::target_with(std::int32_t workers) const {
  return target_of(device_->target().arch, workers);
}

std::string Suite::target_of(const std::string& arch, std::int32_t workers) const {
  return fmt::format("{}{}:{}", prefix_, arch, workers);
}

std::uint64_t Suite::seed_of_today() {
  if (const char* named = std::getenv("SPARSEKILN_TEST_SEED")) return std::strtoull(named, nullptr, 10);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::hours>(now).count() / 24);
}

bool Suite::full() {
  const char* full = std::getenv("SPARSEKILN_TEST_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

std::string Suite::take_seed(std::size_t turn) const {
  if (!emulated()) return {};
  const std::uint64_t seed = turn % 3 == 2 ? seed_of_today() : turn % 3;
  cuda::Emulator().set_seed(seed);
  return fmt::format(", emulator's seed {}", seed);
}

void launch(const Kernel& kernel, const Problem& problem, const HostInputs& inputs, PoisonedOutput& output,
            std::span<std::byte> workspace) {
  const std::shared_ptr<const Device>& device = Suite::current().device();
  output.hold(inputs);
  ResidentSpmm operands(kernel, problem, device, inputs, output);
  operands[0].workspace = workspace.data();
  operands[0].workspace_size = static_cast<std::int64_t>(workspace.size());
  kernel(operands[0]);
  device->synchronize();
  operands.fetch(output);
}

std::vector<std::byte> image_of_run(const Kernel& kernel, const Problem& problem, const HostInputs& inputs) {
  PoisonedOutput output(problem, inputs.n);
  launch(kernel, problem, inputs, output);
  return {output.image().begin(), output.image().end()};
}

CheckResult launch_and_check(const Kernel& kernel, const Problem& problem, const HostInputs& inputs,
                             std::int64_t padding) {
  const Spmm product(problem);
  const std::int64_t row = result_row_length(product, inputs.n);
  PoisonedOutput output(problem, inputs.n, packed_stride(product, product.result_dtype, row) + padding);
  launch(kernel, problem, inputs, output);
  return check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
}

}  // namespace sparsekiln::test
