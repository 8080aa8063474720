// Emitted kernels through NVRTC and, where it exists, nvcc.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "autotune/cuda/defaults.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/resources.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/simt_cases.h"

namespace sparsekiln::cuda {
namespace {

/// Two entries: rows whole and split, tables in both memories.
Plan two_entries(const Problem& problem, const Target& target, std::int32_t stages) {
  Plan plan{{16, fitting_config(problem.block, target, 16, stages, TableForm::constant)},
            {64, fitting_config(problem.block, target, 64, 1, TableForm::global)}};
  plan.back().config.split = 3;
  return plan;
}

/// What ptxas itself says of a kernel: the line after its properties.
std::string report_of(const std::string& log, const std::string& kernel) {
  const std::size_t at = log.find("Used ", log.find("Function properties for " + kernel + "\n"));
  return at == std::string::npos ? std::string{} : log.substr(at, log.find('\n', at) - at);
}

void check_against_report(const NvrtcOutput& output, const std::string& kernel) {
  const Resources resources = read_resources(output.cubin, kernel, output.log);
  const std::string report = report_of(output.log, kernel);
  CAPTURE(report);
  CHECK(report.starts_with(fmt::format("Used {} registers", resources.registers)));
  CHECK(report.find(fmt::format(", {} bytes smem", resources.shared_bytes)) != std::string::npos);
  CHECK(output.log.find(fmt::format("{} bytes stack frame, {} bytes spill stores, {} bytes spill loads",
                                    resources.stack_bytes, resources.spill_store_bytes,
                                    resources.spill_load_bytes)) != std::string::npos);
  CHECK(resources.spill_load_bytes == 0);
  CHECK(resources.spill_store_bytes == 0);
  CHECK(resources.code_bytes > 1000);
}

TEST_CASE("every block shape compiles without spills, twice to the same bytes" * need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_90", 6};
  for (const std::int32_t out : kSides) {
    for (const std::int32_t in : kSides) {
      CAPTURE(out);
      CAPTURE(in);
      const Problem problem = skewed_problem({out, in}, Batch::up_to(64));
      const Source source = emit_plan(problem, target, two_entries(problem, target, 2));
      const NvrtcOutput output = find_nvrtc()->compile(source.text, target.arch);
      for (const Entry& entry : source.entries) check_against_report(output, entry.passes.front());
      if (out != in) continue;
      const NvrtcOutput again = find_nvrtc()->compile(source.text, target.arch);
      CHECK(output.cubin == again.cubin);
      CHECK(output.ptx == again.ptx);
      CHECK(output.log == again.log);
    }
  }
}

TEST_CASE("default kernels on CUDA cores with edges, block scales and a derivative compile without spills" *
          need_nvrtc()) {
  std::size_t turn = 0;
  for (const std::int32_t side : kSides) {
    const Target target{Target::Kind::cuda, turn % 2 == 0 ? "sm_90" : "sm_75", 6};
    Problem problem = skewed_problem({kSides.begin()[turn * 3 % 5], side}, 100);
    problem.cut_in_features = problem.in_features() - 3;
    problem.cut_out_features = problem.out_features() - 5;
    problem.block_scales = true;
    problem.alignment = turn % 3 == 0 ? 16 : turn % 3 == 1 ? 8 : 4;
    problem.operation = Operation::grad_input;
    problem.derivative = Activation::gelu;
    if (turn % 5 < 2) problem.order = ActivationOrder::feature_major;
    ++turn;
    const Config config = default_config(problem, target, 100);
    CAPTURE(to_string(problem.block));
    CAPTURE(to_string(config));
    CHECK(config.variant == Variant::simt);
    const Source source = emit_plan(problem, target, {{100, config}});
    const NvrtcOutput output = find_nvrtc()->compile(source.text, target.arch);
    check_against_report(output, source.entries.front().passes.front());
  }
}

TEST_CASE("chunks that pass through many registers, where there are no asynchronous copies, do not spill" *
          need_nvrtc()) {
  const Target target{Target::Kind::cuda, "sm_75", 6};
  const Epilogue whole{
      .scale = true, .bias = true, .activation = Activation::gelu, .glu = true, .residual = true};
  struct Form {
    BlockShape block;
    std::int64_t n;
    ActivationOrder order;
    bool block_scales;
    Epilogue epilogue;
  };
  for (const Form& form : {Form{{8, 32}, 2048, ActivationOrder::feature_major, false, {}},
                           Form{{8, 64},
                                128,
                                ActivationOrder::feature_major,
                                true,
                                {.bias = true, .activation = Activation::gelu}},
                           Form{{8, 64}, 64, ActivationOrder::batch_major, false, whole},
                           Form{{128, 128}, 8, ActivationOrder::feature_major, true, {}}}) {
    Problem problem = skewed_problem(form.block, form.n);
    problem.order = form.order;
    problem.block_scales = form.block_scales;
    problem.epilogue = form.epilogue;
    if (form.block_scales) problem.cut_in_features = problem.in_features() - 6;
    const Config config = default_config(problem, target, form.n);
    CAPTURE(to_string(problem.block));
    CAPTURE(to_string(config));
    const Source source = emit_plan(problem, target, {{form.n, config}});
    const NvrtcOutput output = find_nvrtc()->compile(source.text, target.arch);
    check_against_report(output, source.entries.front().passes.front());
  }
}

TEST_CASE("every architecture that NVRTC knows from sm_75 on is compiled for, sm_90a among them" *
          need_nvrtc()) {
  const auto nvrtc = find_nvrtc();
  std::set<std::string> archs;
  for (const int arch : nvrtc->architectures())
    if (arch >= 75) archs.insert(fmt::format("sm_{}", arch));
  if (archs.contains("sm_90")) archs.insert("sm_90a");
  REQUIRE(archs.size() > 3);
  for (const std::string& arch : archs) {
    CAPTURE(arch);
    const Target target{Target::Kind::cuda, arch, 6};
    const Problem problem = skewed_problem({32, 32}, Batch::up_to(64));
    const Source source = emit_plan(problem, target, two_entries(problem, target, 2));
    const NvrtcOutput output = nvrtc->compile(source.text, arch);
    CHECK(output.ptx.find(".target " + arch) != std::string::npos);
    for (const Entry& entry : source.entries) check_against_report(output, entry.passes.front());
  }
}

TEST_CASE("stack, spills and constant memory are read where a kernel has them" * need_nvrtc()) {
  const std::string source =
      "__constant__ int table[1000];\n"
      "extern \"C\" __global__ void __launch_bounds__(1024, 2) local(float* y, int n) {\n"
      "  float held[64];\n"
      "  for (int i = 0; i < 64; ++i) held[i] = y[i * n + table[n]];\n"
      "  for (int i = 0; i < 64; ++i) y[i] = held[(i * n) & 63];\n"
      "}\n";
  const NvrtcOutput output = find_nvrtc()->compile(source, "sm_80");
  const Resources resources = read_resources(output.cubin, "local", output.log);
  CHECK(resources.stack_bytes >= 256);
  CHECK(resources.constant_bytes == 4000);
  CHECK(resources.shared_bytes == 0);
  CHECK(report_of(output.log, "local").starts_with(fmt::format("Used {} registers", resources.registers)));
}

TEST_CASE("a kernel that is not in the cubin, and a cubin that is cut short, are refused" * need_nvrtc()) {
  const NvrtcOutput output =
      find_nvrtc()->compile("extern \"C\" __global__ void k(int* y) { *y = 1; }\n", "sm_80");
  CHECK_THROWS_AS((void)read_resources(output.cubin, "other", output.log), Error);
  for (std::size_t length = 0; length + 1 < output.cubin.size(); length += 7) {
    try {
      (void)read_resources(std::span(output.cubin).first(length), "k", output.log);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::internal);
    }
  }
}

/// nvcc on the path, or none.
bool has_nvcc() { return std::system("nvcc --version > /dev/null 2>&1") == 0; }

TEST_CASE("nvcc compiles emitted sources without a warning, for sm_80 and sm_90" *
          doctest::skip(!has_nvcc())) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "sparsekiln-nvcc-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  for (const char* arch : {"sm_80", "sm_90"}) {
    CAPTURE(arch);
    const Target target{Target::Kind::cuda, arch, 6};
    const Problem problem = skewed_problem({16, 64}, Batch::up_to(64));
    std::ofstream(folder + "/emitted.cu") << emit_plan(problem, target, two_entries(problem, target, 2)).text;
    const std::string command = fmt::format(
        "nvcc -std=c++20 -arch={1} -Xcompiler -Wall,-Wextra,-Werror -Werror all-warnings -c -o {0}/emitted.o "
        "{0}/emitted.cu",
        folder, arch);
    CHECK(std::system(command.c_str()) == 0);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace sparsekiln::cuda
