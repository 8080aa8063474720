#include <sparsekiln/compile.h>

#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "oracle/spmm_inputs.h"
#include "runtime/open_device.h"

namespace sparsekiln {
namespace {

#ifdef SPARSEKILN_CPU
/// One layer on the cpu, compiled with a packed weight and without.
struct PackedLayer {
  static constexpr std::int64_t kN = 33;

  explicit PackedLayer(DType dtype, std::int32_t tile_out = 3, double density = 0.5)
      : layout(patterns::random(4, 6, density, 9)), options(request(dtype, tile_out)) {}

  static Options request(DType dtype, std::int32_t tile_out) {
    Options options{.block = {32, 16}, .batch = kN, .dtype = dtype, .target = "cpu:2"};
    options.cache_dir = "/proc/no/such/folder";
    options.config =
        Config{.variant = Variant::vector, .tile_n = 32, .tile_out = tile_out, .warps = 1, .packed = true};
    return options;
  }

  [[nodiscard]] Kernel packed() const { return compile(layout, options); }
  [[nodiscard]] Kernel plain() const {
    Options as_it_lies = options;
    as_it_lies.config->packed = false;
    return compile(layout, as_it_lies);
  }
  [[nodiscard]] std::int64_t elements() const { return layout.blocks() * 32 * 16; }
  [[nodiscard]] TensorView weight(const void* data) const {
    return view(data, options.dtype, layout.blocks(), 32, 16);
  }

  Layout layout;
  Options options;
};

TensorView flat(void* data, DType dtype, std::int64_t elements) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = 1;
  view.shape[0] = elements;
  view.stride[0] = 1;
  return view;
}

/// What an invalid argument is refused with.
std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST_CASE("a packed weight gives the same bits as the unpacked one") {
  const auto device = open_device("cpu");
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int32_t tile_out : {0, 3}) {
      const PackedLayer layer(dtype, tile_out);
      const Problem problem = make_problem(layer.layout, layer.options);
      const HostInputs inputs = make_inputs(problem, PackedLayer::kN, Inputs::random, 4);
      DeviceMemory x(device, inputs.x.size());
      DeviceMemory w(device, inputs.w.size());
      DeviceMemory packed(device, inputs.w.size());
      x.copy_in(inputs.x.data());
      w.copy_in(inputs.w.data());
      const auto y_of = [&](const Kernel& kernel, const TensorView& weight) {
        const auto size = static_cast<std::size_t>(PackedLayer::kN * problem.out_features());
        std::vector<std::byte> result(size * size_of(dtype), std::byte{0x55});
        DeviceMemory y(device, result.size());
        y.copy_in(result.data());
        kernel({.x = view(x.data(), dtype, PackedLayer::kN, problem.in_features()),
                .w = weight,
                .y = view(y.data(), dtype, PackedLayer::kN, problem.out_features())});
        y.copy_out(result.data());
        return result;
      };
      const std::vector<std::byte> expected = y_of(layer.plain(), layer.weight(w.data()));
      const Kernel kernel = layer.packed();
      REQUIRE(kernel.packed_elements() == layer.elements());
      kernel.pack(layer.weight(w.data()), packed.data());
      CHECK(y_of(kernel, layer.weight(packed.data())) == expected);
      CHECK(y_of(kernel, flat(packed.data(), dtype, layer.elements())) == expected);
      CHECK(y_of(kernel, view(packed.data(), dtype, layer.elements() / 4, 4)) == expected);
      CHECK(y_of(kernel, layer.weight(w.data())) != expected);  // else nothing was packed
    }
}

TEST_CASE("a kernel that reads the weight unpacked has nothing to pack") {
  const PackedLayer layer(DType::f32);
  const auto device = open_device("cpu");
  DeviceMemory w(device, static_cast<std::size_t>(layer.elements()) * 4);
  DeviceMemory packed(device, w.bytes());
  CHECK(layer.plain().packed_elements() == 0);
  CHECK(refusal([&] { layer.plain().pack(layer.weight(w.data()), packed.data()); }).find("nothing to pack") !=
        std::string::npos);
}

TEST_CASE("what does not fit is not packed") {
  const PackedLayer layer(DType::f32);
  const Kernel kernel = layer.packed();
  const auto device = open_device("cpu");
  DeviceMemory w(device, static_cast<std::size_t>(layer.elements()) * 4);
  DeviceMemory packed(device, w.bytes() + 16);
  const TensorView good = layer.weight(w.data());
  auto* to = static_cast<std::byte*>(packed.data());
  const auto refuses = [&](const char* operand, const TensorView& weight, void* into) {
    CHECK(refusal([&] { kernel.pack(weight, into); }).starts_with(operand));
  };
  refuses("w: ", view(w.data(), DType::bf16, layer.layout.blocks(), 32, 16), to);
  refuses("w: ", view(w.data(), DType::f32, layer.layout.blocks() - 1, 32, 16), to);
  refuses("w: ", flat(w.data(), DType::f32, layer.elements()), to);
  refuses("w: ", layer.weight(nullptr), to);
  refuses("packed: ", good, nullptr);
  refuses("packed: ", good, to + 4);
  refuses("packed: ", good, w.data());
  refuses("packed: ", good, static_cast<std::byte*>(w.data()) + w.bytes() - 16);
  kernel.pack(good, to + 16);
}

TEST_CASE("a packed weight of another size, or one with gaps, is refused") {
  const PackedLayer layer(DType::f32);
  const Kernel kernel = layer.packed();
  const Problem problem = make_problem(layer.layout, layer.options);
  const auto device = open_device("cpu");
  const auto floats = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * 4; };
  DeviceMemory x(device, floats(PackedLayer::kN * problem.in_features()));
  DeviceMemory y(device, floats(PackedLayer::kN * problem.out_features()));
  DeviceMemory w(device, floats(layer.elements()));
  const auto refuses = [&](const TensorView& weight) {
    const std::string message = refusal([&] {
      kernel({.x = view(x.data(), DType::f32, PackedLayer::kN, problem.in_features()),
              .w = weight,
              .y = view(y.data(), DType::f32, PackedLayer::kN, problem.out_features())});
    });
    CHECK_MESSAGE(message.starts_with("w: "), message);
  };
  const TensorView good = flat(w.data(), DType::f32, layer.elements());
  TensorView bad = good;
  refuses(TensorView{});
  bad.shape[0] -= 1;
  refuses(bad);
  bad.shape[0] = -layer.elements();
  refuses(bad);
  bad = good;
  bad.stride[0] = 2;
  refuses(bad);
  bad = good;
  bad.rank = 4;
  refuses(bad);
  bad = good;
  bad.dtype = DType::bf16;
  refuses(bad);
  bad = good;
  bad.data = nullptr;
  refuses(bad);
  refuses(view(w.data(), DType::f32, layer.elements(), std::int64_t{1} << 40));
  refuses(strided_view(w.data(), DType::f32, layer.elements() / 8, 8, 16));
}

TEST_CASE("a layer without blocks has nothing to pack and takes any weight") {
  const PackedLayer layer(DType::f32, 0, 0.0);
  const Kernel kernel = layer.packed();
  CHECK(kernel.packed_elements() == 0);
  kernel.pack(layer.weight(nullptr), nullptr);
}
#endif

TEST_CASE("a packed weight is refused for a GPU with what would work") {
  Options options{.block = {8, 8}, .batch = 8, .target = "sm_80"};
  options.config = Config{.packed = true};
  try {
    (void)build(patterns::random(4, 4, 0.5, 1), options);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(error.what()).find("packed=0") != std::string::npos);
  }
}

}  // namespace
}  // namespace sparsekiln
