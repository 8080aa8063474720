#include "runtime/cuda/emulator.h"
#include "runtime/cuda/emulator_library.h"

#include <filesystem>
#include <future>

#include <doctest/doctest.h>

#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "oracle/spmm_check.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "runtime/open_device.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;
using namespace sparsekiln::cuda;

namespace {

constexpr const char* kVariable = "SPARSEKILN_EMULATOR";

struct ReadOnlyStore {
  Layout layout = patterns::random(3, 3, 0.5, 2);
  Options options;
  Problem problem;
  HostInputs inputs;

  explicit ReadOnlyStore(const std::string& target) {
    options.block = {8, 8};
    options.batch = 5;
    options.target = target;
    options.cache_dir = std::filesystem::temp_directory_path() / "sparsekiln-emulator-test";
    problem = make_problem(layout, options);
    inputs = make_inputs(problem, 5, Inputs::small_integers, 1);
  }
};

/// Launches `times` times through `launch(kernel, operands)` and judges what is in y then.
template <class Launch>
CheckResult run(const ReadOnlyStore& layer, const Device& device, const Kernel& kernel, Launch launch) {
  const auto shared_device = std::shared_ptr<const Device>(std::shared_ptr<void>(), &device);
  PoisonedOutput output(layer.problem, 5);
  DeviceMemory x(shared_device, layer.inputs.x.size());
  DeviceMemory w(shared_device, layer.inputs.w.size());
  DeviceMemory y(shared_device, output.image().size());
  x.copy_in(layer.inputs.x.data());
  w.copy_in(layer.inputs.w.data());
  y.copy_in(output.image().data());
  launch(kernel, Operands{.x = view(x.data(), DType::f32, 5, layer.problem.in_features()),
                          .w = view(w.data(), DType::f32, layer.problem.layout.blocks(), 8, 8),
                          .y = output.view(y.data())});
  device.synchronize();
  y.copy_out(output.image().data());
  return check(layer.problem, layer.inputs, output, adder_of(layer.problem, kernel.binary().plan));
}

}  // namespace

TEST_CASE(
    "the emulator is found where the environment says, as a file or in a folder, and nowhere else then") {
  const std::filesystem::path library = Driver::find(DriverKind::emulator)->path();
  CHECK(library.filename() == "libsparsekiln_emulator.so");
  {
    const ScopedVariable named(kVariable, library.c_str());
    CHECK(find_emulator_library().path == library);
  }
  {
    const ScopedVariable named(kVariable, library.parent_path().c_str());
    CHECK(find_emulator_library().path == library);
  }
  const ScopedVariable named(kVariable, "/nowhere/emulator.so");
  CHECK(find_emulator_library().path == "/nowhere/emulator.so");
  const auto error = error_of([] { static_cast<void>(Driver::find(DriverKind::emulator)); });
  CHECK(says(error, "SPARSEKILN_EMULATOR=/nowhere/emulator.so could not be loaded"));
}

TEST_CASE("a driver without the emulator's own functions is no emulator") {
  const ScopedVariable named(kVariable, stub::path().c_str());
  const auto error = error_of([] { static_cast<void>(Emulator()); });
  CHECK(says(error, "has no emulatorSetSeed: it is another emulator, or an older one"));
}

TEST_CASE("the emulator runs beside the machine's driver, each with contexts of its own") {
  const StubSession session;
  const auto machine = Driver::find();
  const auto emulator = Driver::find(DriverKind::emulator);
  CHECK(machine->path() != emulator->path());
  CHECK(open_emulated(80)->device().name == "Sparsekiln emulator (sm_80)");
  CHECK(current_context() == nullptr);  // of the machine's driver
  CHECK(Context::open(0)->device().name == "Stub H100");
}

TEST_CASE(
    "a device is emulated by its architecture, and one that is not there is refused with those that are") {
  CHECK(open_device("emulated")->target() == Target{Target::Kind::cuda, "sm_90", 132});
  CHECK(open_device("emulated:sm_75")->target() == Target{Target::Kind::cuda, "sm_75", 40});
  CHECK(open_device("emulated:a100")->target() == Target{Target::Kind::cuda, "sm_80", 108});
  CHECK(says(error_of([] { static_cast<void>(open_device("emulated:sm_87")); }),
             "the emulator has no device of architecture sm_87: it has sm_90, sm_75"));
  CHECK(
      says(error_of([] { static_cast<void>(open_device("emulated:sm_90a")); }), "emulated:sm_90 would work"));
  CHECK(says(error_of([] { static_cast<void>(open_device("emulated:x86-64-v3")); }), "GPUs are emulated"));
  CHECK(says(error_of([] { static_cast<void>(open_device("emulated:")); }), "target '' is not known"));
  CHECK(says(error_of([] { static_cast<void>(open_device("emulate")); }), "emulated:ARCH"));
}

TEST_CASE("the emulated devices have as many multiprocessors as the targets of their architectures") {
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const std::string text = std::string("emulated:") + arch;
    CHECK(open_device(text)->target() == Target::parse(arch));
    CHECK(resolve_target(text) == Target::parse(arch));
  }
  CHECK(resolve_target("emulated") == Target::parse("sm_90"));
  CHECK(resolve_target("emulated:sm_80:7").workers == 7);
}

TEST_CASE("an emulated target is resolved without the emulator, and its context is that device's") {
  {
    const ScopedVariable named(kVariable, "/nowhere/emulator.so");
    CHECK(resolve_target("emulated:sm_86").arch == "sm_86");
    CHECK(says(error_of([] { static_cast<void>(context_for("emulated")); }), "/nowhere/emulator.so"));
  }
  CHECK(context_for("emulated:sm_86") == open_emulated(86)->handle());
  CHECK(context_for("emulated:sm_86") != context_for("emulated:sm_89"));
}

TEST_CASE("a kernel is compiled once for an emulated device and launched with no context current") {
  const ReadOnlyStore layer("emulated:sm_80");
  const Kernel kernel = compile(layer.layout, layer.options);
  CHECK(compile(layer.layout, layer.options).from() == From::memory);
  const auto device = open_device("emulated:sm_80");
  static_cast<void>(open_device("emulated:sm_90"));
  const CheckResult check_result = run(
      layer, *device, kernel, [](const Kernel& launched, const Operands& operands) { launched(operands); });
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
}

TEST_CASE("kernels of several emulated devices are launched in turn on one thread") {
  for (int turn = 0; turn < 2; ++turn)
    for (const char* const target : {"emulated:sm_80", "emulated:sm_90"}) {
      CAPTURE(target);
      const ReadOnlyStore layer(target);
      const Kernel kernel = compile(layer.layout, layer.options);
      const CheckResult check_result =
          run(layer, *open_device(target), kernel,
              [](const Kernel& launched, const Operands& operands) { launched(operands); });
      CHECK_MESSAGE(check_result.ok, check_result.first_failure);
      CHECK(Driver::find(DriverKind::emulator)->current_context() == nullptr);
    }
}

TEST_CASE("the emulator serves as the machine's driver, captured launches included") {
  const std::string library = find_emulator_library().path;
  const ScopedVariable driver("SPARSEKILN_CUDA_DRIVER", library.c_str());
  // On a thread of its own, where "cuda" leaves a context current: one library serves both kinds of target.
  std::async(std::launch::async, [] {
    const ReadOnlyStore layer("cuda:0");
    const auto device = open_device("cuda:0");
    CHECK(device->target() == Target{Target::Kind::cuda, "sm_90", 132});
    const Kernel kernel = compile(layer.layout, layer.options);
    const Stream stream;
    DeviceMemory workspace(device, static_cast<std::size_t>(kernel.workspace_bytes(5)));
    const std::vector<std::byte> zeros(workspace.bytes());
    device->copy_in(workspace.data(), zeros.data(), zeros.size());
    const CheckResult check_result =
        run(layer, *device, kernel, [&](const Kernel& launched, Operands operands) {
          operands.stream = stream.handle();
          operands.workspace = workspace.data();
          operands.workspace_size = static_cast<std::int64_t>(workspace.bytes());
          stream.begin_capture();
          launched(operands);
          const Graph graph = stream.end_capture();
          graph.launch(stream.handle());
          stream.synchronize();
        });
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  }).get();
}

TEST_CASE("doctor's report of the emulator as the driver lists a device for each architecture") {
  const std::string library = find_emulator_library().path;
  const ScopedVariable driver("SPARSEKILN_CUDA_DRIVER", library.c_str());
  const DriverReport report = report_driver();
  REQUIRE(report.found);
  REQUIRE(report.devices.size() == 7);
  CHECK(report.devices[0].compute_capability == 90);
  CHECK(report.devices[0].l2_bytes == 50 << 20);
}

TEST_CASE("counters and seed are set and read through the class") {
  const Emulator emulator;
  const std::uint64_t seed = emulator.seed();
  emulator.set_seed(77);
  CHECK(emulator.seed() == 77);
  emulator.set_seed(seed);
  const ReadOnlyStore layer("emulated:sm_80");
  const Kernel kernel = compile(layer.layout, layer.options);
  emulator.reset_counters();
  CHECK(emulator.counters().empty());
  CHECK(run(layer, *open_device("emulated:sm_80"), kernel,
            [](const Kernel& launched, const Operands& operands) { launched(operands); })
            .ok);
  const std::vector<CountedLine> lines = emulator.counters();
  REQUIRE(lines.size() > 20);
  for (const CountedLine& line : lines) {
    CHECK(line.kernel.starts_with("sparsekiln_forward"));
    CHECK(line.executed > 0);
    CHECK_FALSE(line.instruction.empty());
    CHECK_FALSE(line.kind.empty());
  }
}

TEST_CASE("a device is asked how many clusters it holds at once") {
  CHECK(open_device(open_emulated(90))->active_clusters(2) == 66);
  CHECK(open_device(open_emulated(90))->active_clusters(4) == 30);
  CHECK(open_device(open_emulated(80))->active_clusters(4) == 0);
  const StubSession session;
  CHECK(open_device(0)->active_clusters(4) == 0);  // a driver without that function
}
