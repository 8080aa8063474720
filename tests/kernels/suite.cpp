#include "tests/kernels/suite.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "compiler/spmm.h"
#include "runtime/cuda/emulator.h"
#include "runtime/operands.h"

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
      every_(every),
      cache_dir_(make_folder()) {
  current_suite = this;
}

Suite::~Suite() {
  current_suite = nullptr;
  std::error_code ignored;
  std::filesystem::remove_all(cache_dir_, ignored);
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
  if (on_cpu()) return {{DType::f32}, {DType::bf16}};
  if (device_->target().compute_capability() < 80) return {{DType::f32}, {DType::f16}};
  return {{DType::f32}, {DType::f16}, {DType::bf16}, kTf32};
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

std::string Suite::take_seed(std::size_t turn) const {
  if (!emulated()) return {};
  const std::uint64_t seed = turn % 3 == 2 ? seed_of_today() : turn % 3;
  cuda::Emulator().set_seed(seed);
  return fmt::format(", emulator's seed {}", seed);
}

void launch(const Kernel& kernel, const Problem& problem, const HostInputs& inputs, PoisonedOutput& output,
            void* workspace) {
  const std::shared_ptr<const Device>& device = Suite::current().device();
  DeviceMemory x(device, inputs.x.size());
  DeviceMemory w(device, inputs.w.size());
  DeviceMemory y(device, output.image().size());
  x.copy_in(inputs.x.data());
  w.copy_in(inputs.w.data());
  y.copy_in(output.image().data());
  TensorView weight =
      view(w.data(), problem.dtype, problem.layout.blocks(), problem.block.out, problem.block.in);
  DeviceMemory packed(device, kernel.packed_elements() != 0 ? inputs.w.size() : 0);
  if (kernel.packed_elements() != 0) {
    kernel.pack(weight, packed.data());
    weight.data = packed.data();
  }
  Operands operands = operands_of(
      problem.operation,
      strided_view(x.data(), problem.dtype, inputs.n, Spmm(problem).in_features(), inputs.x_stride), weight,
      output.view(y.data()));
  operands.workspace = workspace;
  kernel(operands);
  device->synchronize();
  y.copy_out(output.image().data());
}

std::vector<std::byte> image_of_run(const Kernel& kernel, const Problem& problem, const HostInputs& inputs) {
  PoisonedOutput output(problem, inputs.n);
  launch(kernel, problem, inputs, output);
  return {output.image().begin(), output.image().end()};
}

Verdict launch_and_check(const Kernel& kernel, const Problem& problem, const HostInputs& inputs,
                         std::int64_t padding) {
  PoisonedOutput output(problem, inputs.n, Spmm(problem).out_features() + padding);
  launch(kernel, problem, inputs, output);
  return check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
}

}  // namespace sparsekiln::test
