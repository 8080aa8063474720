#include <sparsekiln/c.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/problem.h>

#include "compiler/activation.h"
#include "tests/runtime/c_array.h"
#include "tests/temporary_folder.h"

extern "C" int header_is_c(void);

namespace {

using sparsekiln::Array;
using sparsekiln::exchange;

TEST_CASE("the header is C, and the version is that of the project") {
  CHECK(header_is_c() == 1);
  CHECK(std::string_view(sk_version()) == SPARSEKILN_VERSION);
  CHECK(sk_interface_version() == 1);  // as c_header.c has it, with the sizes of the structs
}

TEST_CASE("an init function writes as much of a struct as the caller has") {
  sk_options options;
  std::memset(&options, 0xa5, sizeof(options));
  sk_options_init_sized(&options, offsetof(sk_options, fields));
  CHECK(options.size == offsetof(sk_options, fields));
  CHECK(std::string_view(options.target) == "auto");
  CHECK(options.field_count == std::size_t(0xa5a5a5a5a5a5a5a5));

  sk_launch launch;
  std::memset(&launch, 0xa5, sizeof(launch));
  sk_launch_init(&launch);
  CHECK(launch.size == sizeof(launch));
  CHECK(launch.alpha == 1);
  CHECK(launch.beta == 0);
  CHECK(launch.stream == nullptr);
}

TEST_CASE("a kernel names its operands, and the shapes of what a launch writes") {
  std::size_t known = 0;
  while (sk_operand_name(known) != nullptr) ++known;
  CHECK(known > 30);
  CHECK(sk_operand_alias(known) == nullptr);
  CHECK(sk_operand_alias(0) == nullptr);
  std::string aliases;
  for (std::size_t i = 0; i < known; ++i)
    if (const char* const alias = sk_operand_alias(i))
      aliases += std::string(sk_operand_name(i)) + "=" + alias + " ";
  CHECK(aliases == "block_scales=gates dblock_scales=dgates ");
#ifdef SPARSEKILN_CPU
  sk_layout* layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.target = "cpu";
  options.operation = "grad_weight";
  options.gates = options.bias_gradient = options.gate_gradient = 1;
  sk_kernel* kernel = nullptr;
  REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  sk_layout_free(layout);
  std::size_t count = 0;
  REQUIRE(sk_kernel_operand_count(kernel, &count) == SK_OK);
  std::string said;
  Array x({4, 16});
  for (std::size_t i = 0; i < count; ++i) {
    sk_operand_view view{};
    view.size = sizeof(view);
    REQUIRE(sk_kernel_describe_operand(kernel, i, &view) == SK_OK);
    CHECK(std::string_view(view.dtype) == "f32");
    said += view.name;
    if (view.is_main != 0) said += "!";
    std::array<std::int64_t, SK_MOST_DIMENSIONS> shape{};
    std::int32_t dimensions = -1;
    const sk_status status = sk_kernel_output_shape(kernel, view.name, &x.tensor, shape.data(), &dimensions);
    CHECK((status == SK_OK) == (view.is_written != 0));
    for (std::int32_t axis = 0; axis < dimensions; ++axis)
      said += (axis == 0 ? "=" : "x") + std::to_string(shape[static_cast<std::size_t>(axis)]);
    said += " ";
  }
  CHECK(said == "x dy w dw!=2x8x8 block_scales dbias=16 dblock_scales=2 ");
  sk_operand_view view{};
  view.size = sizeof(view);
  CHECK(sk_kernel_describe_operand(kernel, count, &view) == SK_INVALID_ARGUMENT);
  std::int64_t none = 0;
  std::int32_t dimensions = 0;
  CHECK(sk_kernel_output_shape(kernel, "dw_", &x.tensor, &none, &dimensions) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("there is no operand 'dw_'") != std::string::npos);
  sk_kernel_free(kernel);
#endif
}

TEST_CASE("every field of a computation is described, with the text of its default") {
  std::string said;
  for (std::size_t i = 0; i < sk_field_count(); ++i) {
    sk_field_view field{};
    field.size = sizeof(field);
    REQUIRE(sk_field_describe(i, &field) == SK_OK);
    said += std::string(field.argument) + "=" + field.usual + (field.is_flag != 0 ? "? " : " ");
  }
  CHECK(said.find("op=forward ") == 0);
  CHECK(said.find("dtype=f32 out_dtype= ") != std::string::npos);
  CHECK(said.find("block_scale_gradient=no? ") != std::string::npos);
  sk_field_view field{};
  field.size = sizeof(field);
  CHECK(sk_field_describe(sk_field_count(), &field) == SK_INVALID_ARGUMENT);
}

TEST_CASE("a view is written as far as its size says, and not at all where that was not set") {
  sk_layout* layout = exchange();
  sk_layout_view view{};
  CHECK(sk_layout_describe(layout, &view) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("view has size 0") != std::string::npos);
  view.size = offsetof(sk_layout_view, blocks);
  view.blocks = 77;
  REQUIRE(sk_layout_describe(layout, &view) == SK_OK);
  CHECK(view.cols == 2);
  CHECK(view.blocks == 77);
  struct {
    sk_layout_view view;
    std::int64_t newer;
  } larger{};
  larger.view.size = sizeof(larger);
  larger.newer = 77;
  REQUIRE(sk_layout_describe(layout, &larger.view) == SK_OK);
  CHECK(larger.view.blocks == 2);
  CHECK(larger.newer == 0);
  sk_layout_free(layout);
}

TEST_CASE("activations are numbered from relu on, to the last one that there is") {
  REQUIRE(sk_activation_name(0) != nullptr);
  CHECK(std::string_view(sk_activation_name(0)) == "relu");
  CHECK(sk_activation_takes_result(0) == 1);
  std::size_t count = 0;
  while (sk_activation_name(count) != nullptr) ++count;
  CHECK(count == sparsekiln::activation_rows().size() - 1);
  CHECK(sk_activation_takes_result(count) == 0);
}

TEST_CASE("layouts are described, and their copies in other forms are equal") {
  sk_layout* layout = exchange();
  sk_layout_view view{};
  view.size = sizeof(view);
  REQUIRE(sk_layout_describe(layout, &view) == SK_OK);
  CHECK(view.rows == 2);
  CHECK(view.blocks == 2);
  CHECK(view.density == 0.5);
  CHECK(view.crow[2] == 2);
  CHECK(view.col[0] == 1);
  const std::array<std::uint8_t, 4> mask = {0, 1, 1, 0};
  sk_layout* same = nullptr;
  REQUIRE(sk_layout_from_mask(2, 2, mask.data(), &same) == SK_OK);
  sk_layout* turned = nullptr;
  REQUIRE(sk_layout_transposed(same, &turned) == SK_OK);
  for (sk_layout* other : {same, turned}) {
    sk_layout_view others{};
    others.size = sizeof(others);
    REQUIRE(sk_layout_describe(other, &others) == SK_OK);
    CHECK(std::string_view(others.digest) == view.digest);
    sk_layout_free(other);
  }
  const std::array<const sk_layout*, 3> parts = {layout, layout, layout};
  sk_layout* diagonal = nullptr;
  REQUIRE(sk_layout_diagonal(parts.data(), parts.size(), &diagonal) == SK_OK);
  REQUIRE(sk_layout_describe(diagonal, &view) == SK_OK);
  CHECK(view.rows == 6);
  CHECK(view.blocks == 6);
  CHECK(view.col[5] == 4);
  sk_layout_free(diagonal);
  CHECK(sk_layout_diagonal(nullptr, 1, &diagonal) == SK_INVALID_ARGUMENT);
  CHECK(sk_layout_diagonal(nullptr, 0, &diagonal) == SK_INVALID_ARGUMENT);
  sk_layout_free(layout);
  sk_layout_free(nullptr);
}

TEST_CASE("a pattern reads the members that it has, and a struct that lacks some is refused") {
  sk_pattern pattern;
  sk_pattern_init(&pattern);
  pattern.extent = 16;
  pattern.edges = 2;
  pattern.extra_edges = 4;
  sk_layout* layout = nullptr;
  REQUIRE(sk_layout_pattern("barabasi_albert", &pattern, &layout) == SK_OK);
  sk_layout_view view{};
  view.size = sizeof(view);
  REQUIRE(sk_layout_describe(layout, &view) == SK_OK);
  sk_layout_free(layout);
  CHECK(view.blocks == 2 * (2 * 14 + 4));
  pattern.size = offsetof(sk_pattern, extra_edges);
  CHECK(sk_layout_pattern("barabasi_albert", &pattern, &layout) == SK_INVALID_ARGUMENT);
}

TEST_CASE("balanced small worlds are made by their name, with a diagonal if that is asked for") {
  sk_pattern pattern;
  sk_pattern_init(&pattern);
  pattern.rows = pattern.cols = 16;
  pattern.density = 1.0 / 16;
  pattern.rewire = 1;
  pattern.diagonal = 1;
  for (const char* name : {"balanced_watts_strogatz", "watts_strogatz", "balanced_random"}) {
    sk_layout* layout = nullptr;
    REQUIRE(sk_layout_pattern(name, &pattern, &layout) == SK_OK);
    sk_layout_view view{};
    view.size = sizeof(view);
    REQUIRE(sk_layout_describe(layout, &view) == SK_OK);
    REQUIRE(view.blocks == 16);
    for (int i = 0; i < 16; ++i) CHECK(view.col[i] == i);
    sk_layout_free(layout);
  }
}

TEST_CASE("mixing is told after each layer, and refused where layers do not fit") {
  sk_layout* layout = exchange();
  const std::array<const sk_layout*, 2> layers = {layout, layout};
  std::array<sk_mixing, 3> after{};
  after[2].minimum = 77;
  REQUIRE(sk_layout_mixing(layers.data(), layers.size(), after.data()) == SK_OK);
  for (int k : {0, 1}) {
    CHECK(after[k].minimum == 1);
    CHECK(after[k].maximum == 1);
    CHECK(after[k].median == 1);
    CHECK(after[k].mean == 1);
    CHECK(after[k].share == 0.5);
  }
  CHECK(after[2].minimum == 77);
  CHECK(sk_layout_mixing(nullptr, 0, nullptr) == SK_OK);
  CHECK(sk_layout_mixing(nullptr, 1, after.data()) == SK_INVALID_ARGUMENT);
  CHECK(sk_layout_mixing(layers.data(), 1, nullptr) == SK_INVALID_ARGUMENT);
  const std::array<std::uint8_t, 6> mask = {1, 1, 1, 1, 1, 1};
  sk_layout* wide = nullptr;
  REQUIRE(sk_layout_from_mask(2, 3, mask.data(), &wide) == SK_OK);
  const std::array<const sk_layout*, 2> misfits = {layout, wide};
  CHECK(sk_layout_mixing(misfits.data(), misfits.size(), after.data()) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("3 block columns") != std::string::npos);
  CHECK(after[0].share == 0.5);
  sk_layout_free(wide);
  sk_layout_free(layout);
}

TEST_CASE("fields without an array are refused with a sentence") {
  sk_layout* layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.target = "cpu";
  options.field_count = 2;
  sk_kernel* kernel = nullptr;
  CHECK(sk_compile(layout, &options, &kernel) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("fields is null and field_count is 2") != std::string::npos);
  CHECK(kernel == nullptr);
  sk_layout_free(layout);
}

TEST_CASE("what makes no sense is refused with a sentence, and gives nothing") {
  sk_layout* layout = nullptr;
  const std::array<std::int32_t, 2> crow = {0, 1};
  const std::array<std::int32_t, 1> col = {7};
  CHECK(sk_layout_from_csr(1, 2, crow.data(), col.data(), &layout) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find('7') != std::string::npos);
  CHECK(sk_layout_from_csr(1, 2, nullptr, col.data(), &layout) == SK_INVALID_ARGUMENT);
  CHECK(sk_layout_from_mask(-1, 2, nullptr, &layout) == SK_INVALID_ARGUMENT);
  CHECK(sk_layout_load("/no/such/file.npy", &layout) == SK_IO);
  sk_pattern pattern;
  sk_pattern_init(&pattern);
  CHECK(sk_layout_pattern("plaid", &pattern, &layout) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("watts_strogatz") != std::string::npos);
  pattern.size = 1;
  CHECK(sk_layout_pattern("causal", &pattern, &layout) == SK_INVALID_ARGUMENT);
  CHECK(layout == nullptr);

  layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.target = "sm_1";
  sk_kernel* kernel = nullptr;
  CHECK(sk_compile(layout, &options, &kernel) == SK_INVALID_ARGUMENT);
  CHECK(kernel == nullptr);
  sk_layout_free(layout);
}

#if SPARSEKILN_CPU
TEST_CASE("a cache that is not used is said once, by those who compile with it") {
  const sparsekiln::test::TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  sk_layout* layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.target = "cpu";
  const std::string cache_dir = folder.path().string();
  options.cache_dir = cache_dir.c_str();
  while (sk_take_warning() != nullptr) {
  }
  for (const char* batch : {"3", "5"}) {
    options.batch = batch;
    sk_kernel* kernel = nullptr;
    REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
    sk_kernel_free(kernel);
  }
  const char* const warning = sk_take_warning();
  REQUIRE(warning != nullptr);
  CHECK(std::string(warning).find("will not use the cache folder '" + cache_dir) != std::string::npos);
  CHECK(sk_take_warning() == nullptr);
  sk_layout_free(layout);
}

TEST_CASE("a kernel is compiled, described, and run on DLPack tensors") {
  sk_layout* layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.batch = "up-to:4";
  options.epilogue = "bias";
  options.target = "cpu";
  sk_kernel* kernel = nullptr;
  REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  sk_layout_free(layout);  // the kernel needs it no more
  sk_kernel_view view{};
  view.size = sizeof(view);
  REQUIRE(sk_kernel_describe(kernel, &view) == SK_OK);
  CHECK(std::string_view(view.operation) == "forward");
  CHECK(std::string_view(view.epilogue) == "bias");
  CHECK(view.in_features == 16);
  CHECK(view.batch == 4);

  Array x({3, 16}), w({2, 8, 8}), y({3, 16}), bias({16});
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(i % 5);
  for (std::size_t i = 0; i < 8; ++i) w.values[i * 8 + i] = 2;       // block (0, 1)
  for (std::size_t i = 0; i < 8; ++i) w.values[64 + i * 8 + i] = 3;  // block (1, 0)
  for (std::size_t i = 0; i < 16; ++i) bias.values[i] = static_cast<float>(i);
  sparsekiln::CLaunch operands;
  operands.set("x", &x.tensor);
  operands.set("w", &w.tensor);
  operands.set("y", &y.tensor);
  operands.set("bias", &bias.tensor);
  REQUIRE_MESSAGE(operands.run(kernel) == SK_OK, sk_error_message());
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t i = 0; i < 16; ++i) {
      const float expected =
          (i < 8 ? 2 * x.values[n * 16 + 8 + i] : 3 * x.values[n * 16 + i - 8]) + bias.values[i];
      CHECK(y.values[n * 16 + i] == expected);
    }

  sk_kernel* copy = nullptr;
  REQUIRE(sk_kernel_copy(kernel, &copy) == SK_OK);
  sk_kernel_free(kernel);
  CHECK(operands.run(copy) == SK_OK);

  x.tensor.dtype.bits = 128;
  CHECK(operands.run(copy) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("operand x") != std::string::npos);
  x.tensor.dtype.bits = 32;
  x.tensor.device.device_type = kDLMetal;
  CHECK(operands.run(copy) == SK_INVALID_ARGUMENT);
  x.tensor.device.device_type = kDLCPU;
  const auto refusal_in_dimensions = [&](std::size_t count) {
    x.shape.insert(x.shape.begin(), count - x.shape.size(), 1);
    x.tensor.shape = x.shape.data();
    x.tensor.ndim = static_cast<int>(count);
    CHECK(operands.run(copy) == SK_INVALID_ARGUMENT);
    return std::string(sk_error_message());
  };
  CHECK(refusal_in_dimensions(5).find("x: rank 5 and shape [1, 1, 1, ") != std::string::npos);
  CHECK(refusal_in_dimensions(6).find("x: it has 6 dimensions; 1 to 5 are taken") != std::string::npos);
  sk_kernel_free(copy);
}

/// The text of a field of what a kernel computes.
std::string field_of(const sk_kernel* kernel, const char* name) {
  const char* text = "";
  CHECK(sk_kernel_field(kernel, name, &text) == SK_OK);
  return text;
}

TEST_CASE("fields by name come after the members, and a kernel says each of its fields") {
  sk_layout* layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.target = "cpu";
  const std::array<sk_field, 4> fields = {{{"operation", "grad_weight"},
                                           {"block_scales", "yes"},
                                           {"block", "16x8"},
                                           {"overlap_launches", "yes"}}};
  options.fields = fields.data();
  options.field_count = fields.size();
  sk_kernel* kernel = nullptr;
  REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  CHECK(field_of(kernel, "operation") == "grad_weight");
  CHECK(field_of(kernel, "block_scales") == "yes");
  CHECK(field_of(kernel, "gates") == "yes");
  CHECK(field_of(kernel, "block") == "16x8");
  CHECK(field_of(kernel, "overlap_launches") == "no");  // where launches do not overlap
  CHECK(field_of(kernel, "batch") == "1");
  const char* text = nullptr;
  CHECK(sk_kernel_field(kernel, "colour", &text) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("strict_absent") != std::string::npos);
  sk_kernel_free(kernel);

  kernel = nullptr;
  const std::array<sk_field, 1> unknown = {{{"gates", "maybe"}}};
  options.fields = unknown.data();
  options.field_count = 1;
  CHECK(sk_compile(layout, &options, &kernel) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("gates 'maybe'") != std::string::npos);
  CHECK(kernel == nullptr);
  sk_layout_free(layout);
}

TEST_CASE("options of a program with a newer header are taken where they say nothing newer") {
  sk_layout* layout = exchange();
  sk_kernel* kernel = nullptr;
  struct {
    sk_options options;
    std::int64_t newer;
  } larger;
  larger.newer = 77;
  sk_options_init_sized(&larger.options, sizeof(larger));
  CHECK(larger.newer == 0);
  larger.options.block_out = larger.options.block_in = 8;
  larger.options.target = "cpu";
  REQUIRE_MESSAGE(sk_compile(layout, &larger.options, &kernel) == SK_OK, sk_error_message());
  sk_kernel_free(kernel);
  larger.newer = 1;
  CHECK(sk_compile(layout, &larger.options, &kernel) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("not all zero") != std::string::npos);
  sk_layout_free(layout);
}

TEST_CASE("a workspace has its size stated, and one that is a byte too small is refused") {
  sk_pattern pattern;
  sk_pattern_init(&pattern);
  pattern.rows = pattern.cols = 9;
  pattern.density = 0.5;
  sk_layout* layout = nullptr;
  REQUIRE(sk_layout_pattern("random", &pattern, &layout) == SK_OK);
  sk_options options;
  sk_options_init(&options);
  options.batch = "64";
  options.target = "cpu";
  sk_kernel* kernel = nullptr;
  REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  sk_layout_free(layout);
  sk_kernel_view view{};
  view.size = sizeof(view);
  REQUIRE(sk_kernel_describe(kernel, &view) == SK_OK);
  std::int64_t bytes = 0;
  REQUIRE(sk_kernel_workspace_bytes(kernel, 64, &bytes) == SK_OK);
  REQUIRE(bytes > 0);

  Array x({64, 9 * 32}), w({view.blocks, 32, 32}), y({64, 9 * 32});
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  std::vector<Line> memory(static_cast<std::size_t>(bytes) / sizeof(Line) + 2);
  std::byte* const workspace = memory.front().bytes.data();
  std::byte* const after = workspace + bytes;
  std::int64_t counters = -1;
  REQUIRE(sk_kernel_workspace_counter_bytes(kernel, &counters) == SK_OK);
  REQUIRE((counters >= 0 && counters <= bytes));
  std::memset(workspace + counters, 0xff, static_cast<std::size_t>(bytes - counters));
  std::memset(after, 0xa5, sizeof(Line));
  sparsekiln::CLaunch operands;
  operands.set("x", &x.tensor);
  operands.set("w", &w.tensor);
  operands.set("y", &y.tensor);
  operands.launch.workspace = workspace;
  CHECK(operands.run(kernel) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("workspace_size is 0 bytes") != std::string::npos);
  operands.launch.workspace_size = bytes - 1;
  CHECK(operands.run(kernel) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find(std::to_string(bytes)) != std::string::npos);
  operands.launch.workspace_size = bytes;
  CHECK_MESSAGE(operands.run(kernel) == SK_OK, sk_error_message());
  CHECK(std::all_of(after, after + sizeof(Line), [](std::byte byte) { return byte == std::byte{0xa5}; }));
  sk_kernel_free(kernel);
}

TEST_CASE("a kernel without blocks takes no weight, or one that has no blocks") {
  const std::array<std::uint8_t, 1> mask = {0};
  sk_layout* layout = nullptr;
  REQUIRE(sk_layout_from_mask(1, 1, mask.data(), &layout) == SK_OK);
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.target = "cpu";
  sk_kernel* kernel = nullptr;
  REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  sk_layout_free(layout);
  Array x({1, 8}), y({1, 8}), none({0, 8, 8}), some({3, 8, 8});
  sparsekiln::CLaunch operands;
  operands.set("x", &x.tensor);
  operands.set("y", &y.tensor);
  CHECK_MESSAGE(operands.run(kernel) == SK_OK, sk_error_message());
  operands.set("w", &none.tensor);
  CHECK_MESSAGE(operands.run(kernel) == SK_OK, sk_error_message());
  operands.set("w", &some.tensor);
  CHECK(operands.run(kernel) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("[3, 8, 8]") != std::string::npos);
  sk_kernel_free(kernel);
}

/// A kernel that multiplies one block of 8 × 8, its epilogue `scale`.
sk_kernel* scaling_kernel(const char* dtype) {
  const std::array<std::uint8_t, 1> mask = {1};
  sk_layout* layout = nullptr;
  REQUIRE(sk_layout_from_mask(1, 1, mask.data(), &layout) == SK_OK);
  sk_options options;
  sk_options_init(&options);
  options.block_out = options.block_in = 8;
  options.dtype = dtype;
  options.epilogue = "scale";
  options.target = "cpu";
  sk_kernel* kernel = nullptr;
  REQUIRE_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  sk_layout_free(layout);
  return kernel;
}

/// What the kernel makes of x = 3 in all of y, which is 5, with a weight that is 1 in its diagonal.
template <typename Real>
Real scaled(const sk_kernel* kernel, double alpha, double beta) {
  sparsekiln::CLaunch operands;
  operands.launch.alpha = alpha;
  operands.launch.beta = beta;
  std::array<Real, 8> x, y;
  std::array<Real, 64> w{};
  x.fill(3);
  y.fill(5);
  for (std::size_t i = 0; i < 8; ++i) w[9 * i] = 1;
  std::array<std::int64_t, 2> of_activation = {1, 8};
  std::array<std::int64_t, 3> of_weight = {1, 8, 8};
  const auto tensor = [](auto& data, auto& shape) {
    DLTensor made{};
    made.data = data.data();
    made.device = {kDLCPU, 0};
    made.ndim = static_cast<int>(shape.size());
    made.dtype = {kDLFloat, 8 * sizeof(Real), 1};
    made.shape = shape.data();
    return made;
  };
  const DLTensor x_tensor = tensor(x, of_activation), y_tensor = tensor(y, of_activation),
                 w_tensor = tensor(w, of_weight);
  operands.set("x", &x_tensor);
  operands.set("w", &w_tensor);
  operands.set("y", &y_tensor);
  REQUIRE_MESSAGE(operands.run(kernel) == SK_OK, sk_error_message());
  return y[7];
}

TEST_CASE("alpha and beta are taken with all their digits in float64") {
  sk_kernel* kernel = scaling_kernel("f64");
  CHECK(scaled<double>(kernel, 0.1, 0.3) == doctest::Approx(3 * 0.1 + 5 * 0.3).epsilon(1e-15));
  CHECK(scaled<double>(kernel, 0, 0.3) == doctest::Approx(5 * 0.3).epsilon(1e-15));
  sk_kernel_free(kernel);
}

TEST_CASE("alpha and beta are rounded to float where sums are float32, to infinity beyond its range") {
  sk_kernel* kernel = scaling_kernel("f32");
  CHECK(scaled<float>(kernel, 1 + 0x1p-30, 1e-300) == 3);
  CHECK(scaled<float>(kernel, 1e300, 1e-300) == std::numeric_limits<float>::infinity());
  sk_kernel_free(kernel);
}

TEST_CASE("a launch of a newer header is taken where it says nothing newer, and its reserved member is 0") {
  sk_kernel* kernel = scaling_kernel("f32");
  Array x({1, 8}), w({1, 8, 8}), y({1, 8});
  const std::array<sk_operand, 3> operands{{{"y", &y.tensor}, {"w", &w.tensor}, {"x", &x.tensor}}};
  struct {
    sk_launch launch;
    std::int64_t newer;
  } larger;
  sk_launch_init_sized(&larger.launch, sizeof(larger));
  CHECK(sk_kernel_run(kernel, operands.data(), 3, &larger.launch) == SK_OK);
  larger.newer = 1;
  CHECK(sk_kernel_run(kernel, operands.data(), 3, &larger.launch) == SK_INVALID_ARGUMENT);
  larger.newer = 0;
  larger.launch.reserved = 1;
  CHECK(sk_kernel_run(kernel, operands.data(), 3, &larger.launch) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("reserved") != std::string::npos);
  sk_kernel_free(kernel);
}

TEST_CASE("a launch without options has the usual ones, and an operand of no name is refused") {
  sk_kernel* kernel = scaling_kernel("f32");
  Array x({1, 8}), w({1, 8, 8}), y({1, 8});
  const std::array<sk_operand, 3> operands{{{"y", &y.tensor}, {"w", &w.tensor}, {"x", &x.tensor}}};
  CHECK(sk_kernel_run(kernel, operands.data(), 3, nullptr) == SK_OK);
  CHECK(sk_kernel_run(kernel, operands.data(), 2, nullptr) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("x: it was not given") != std::string::npos);
  CHECK(sk_kernel_run(kernel, nullptr, 1, nullptr) == SK_INVALID_ARGUMENT);
  const sk_operand nameless{nullptr, &w.tensor};
  CHECK(sk_kernel_run(kernel, &nameless, 1, nullptr) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()) == "operand 0: it has no name");
  const std::array<sk_operand, 4> twice{{operands[0], operands[1], operands[2], {"y", nullptr}}};
  CHECK(sk_kernel_run(kernel, twice.data(), 4, nullptr) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()) == "operand y: it is listed twice");
  const sk_operand unknown{"weight", &w.tensor};
  CHECK(sk_kernel_run(kernel, &unknown, 1, nullptr) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("there is no operand 'weight': x, dy, w") != std::string::npos);
  sk_kernel_free(kernel);
}

TEST_CASE("a watch is told of tuning, and can end it") {
  sk_layout* layout = exchange();
  sk_options options;
  sk_options_init(&options);
  options.target = "cpu";
  options.tuning = "now";
  options.tuning_seconds = 600;
  int calls = 0;
  options.tuning_context = &calls;
  options.tuning_watch = [](void* context, std::size_t, std::size_t, double, double) {
    return ++*static_cast<int*>(context) < 3 ? 1 : 0;
  };
  sk_kernel* kernel = nullptr;
  CHECK_MESSAGE(sk_compile(layout, &options, &kernel) == SK_OK, sk_error_message());
  CHECK(calls == 3);
  sk_kernel_free(kernel);
  sk_layout_free(layout);
}
#endif

}  // namespace

TEST_CASE("the C interface lists the element types with their names, DLPack types and types of sums") {
  REQUIRE(sk_element_type_count() == static_cast<std::size_t>(sparsekiln::kLastDType) + 1);
  bool has_float64 = false;
  for (std::size_t i = 0; i < sk_element_type_count(); ++i) {
    sk_element_type type{};
    type.size = sizeof(type);
    REQUIRE(sk_element_type_describe(i, &type) == SK_OK);
    CAPTURE(type.name);
    const sparsekiln::DType value = sparsekiln::parse_dtype(type.name);
    CHECK(sparsekiln::size_of(value) * 8 == type.dlpack_bits);
    CHECK(sparsekiln::name(sparsekiln::sum_type(value)) == type.sum_name);
    CHECK((type.forward_only != 0) == (value >= sparsekiln::DType::e4m3));
    if (value != sparsekiln::DType::f64) continue;
    has_float64 = true;
    CHECK(std::string_view(type.array_name) == "float64");
    CHECK(std::string_view(type.sum_array_name) == "float64");
    CHECK(type.on_cuda == 0);
  }
  CHECK(has_float64);
}

TEST_CASE("the C interface gives the edge situations of a convolution, and how many there are") {
  std::int32_t count = 0;
  std::int64_t positions = 0;
  REQUIRE(sk_edge_situations("kernel=3 padding=1 input=2x3", &count, &positions, nullptr) == SK_OK);
  CHECK(count == 6);
  REQUIRE(positions == 6);
  std::array<std::int32_t, 6> of_position{};
  REQUIRE(sk_edge_situations("kernel=3 padding=1 input=2x3", &count, &positions, of_position.data()) ==
          SK_OK);
  CHECK(of_position == std::array<std::int32_t, 6>{0, 1, 2, 3, 4, 5});
  CHECK(sk_edge_situations("none", &count, &positions, nullptr) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).starts_with("edge situations are a convolution's"));
  CHECK(sk_edge_situations(nullptr, &count, &positions, nullptr) == SK_INVALID_ARGUMENT);
}

TEST_CASE("an element type is written as far as the caller's size, and one past the last is refused") {
  sk_element_type type{};
  CHECK(sk_element_type_describe(0, &type) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("view has size 0") != std::string::npos);
  type.size = offsetof(sk_element_type, dlpack_code);
  type.dlpack_code = 77;
  REQUIRE(sk_element_type_describe(0, &type) == SK_OK);
  CHECK(std::string_view(type.sum_array_name) == "float32");
  CHECK(type.dlpack_code == 77);
  type.size = sizeof(type);
  CHECK(sk_element_type_describe(sk_element_type_count(), &type) == SK_INVALID_ARGUMENT);
  CHECK(std::string(sk_error_message()).find("counted from 0") != std::string::npos);
}
