#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sparsekiln/error.h>

#include "runtime/cuda/stream.h"
#include "runtime/open_device.h"
#include "tests/faults/job.h"

using namespace sparsekiln;

namespace {

/// What the library throws when the n-th call of a sort fails; nothing where it made fewer.
std::optional<Error> error_with(const Emulated& emulated, int kind, unsigned n, CUresult result,
                                const Job& job = the_job()) {
  emulated.control().fail_call(kind, n, result);
  std::optional<Error> error;
  try {
    const CheckResult check_result = run(job);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  } catch (const Error& thrown) {
    error = thrown;
  }
  emulated.control().fail_call(kind, 0, CUDA_SUCCESS);
  return error;
}

bool says(const Error& error, const std::string& words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

void check_nothing_held(const Emulated& emulated) {
  const EmulatorHeld held = emulated.held();
  CHECK(held.allocations == 0);
  CHECK(held.modules == 0);
  CHECK(held.streams == 0);
  CHECK(held.events == 0);
  CHECK(held.graphs == 0);
}

/// A way in which calls of one sort fail, and what the messages begin with, by turns.
struct Failure {
  int kind;
  CUresult result;
  const char* name;
  std::vector<std::string> asked;
};

const std::vector<Failure>& failures() {
  static const std::vector<Failure> all = {
      {EMULATOR_FAULT_ALLOCATE, CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", {"allocating"}},
      {EMULATOR_FAULT_LOAD,
       CUDA_ERROR_OUT_OF_MEMORY,
       "CUDA_ERROR_OUT_OF_MEMORY",
       {"loading a kernel for sm_80"}},
      {EMULATOR_FAULT_LAUNCH,
       CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
       "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
       {"launching sparsekiln_forward"}},
      {EMULATOR_FAULT_SYNCHRONIZE,
       CUDA_ERROR_LAUNCH_FAILED,
       "CUDA_ERROR_LAUNCH_FAILED",
       {"copying to the device", "waiting for the device"}},
      {EMULATOR_FAULT_COPY,
       CUDA_ERROR_ILLEGAL_ADDRESS,
       "CUDA_ERROR_ILLEGAL_ADDRESS",
       {"copying to the device", "copying from the device", "zeroing the workspace of a stream"}},
  };
  return all;
}

bool asks(const Error& error, const Failure& failure) {
  for (const std::string& asked : failure.asked)
    if (std::string(error.what()).starts_with(asked)) return true;
  return false;
}

}  // namespace

TEST_CASE("without faults the job is right and releases everything") {
  const Emulated emulated;
  for (const Job* job : {&the_job(), &attached_job()}) {
    const CheckResult check_result = run(*job);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
    check_nothing_held(emulated);
  }
}

TEST_CASE("whichever call fails, the error says what was asked, nothing leaks, and the next job is right") {
  const Emulated emulated;
  for (const Job* job : {&the_job(), &attached_job()})
    for (const Failure& failure : failures()) {
      CAPTURE(job->options.specialization == Specialization::attached);
      CAPTURE(name_of_fault(failure.kind));
      unsigned n = 1;
      for (; n < 100; ++n) {
        CAPTURE(n);
        const std::optional<Error> error = error_with(emulated, failure.kind, n, failure.result, *job);
        check_nothing_held(emulated);
        if (!error) break;
        CAPTURE(error->what());
        CHECK(error->kind() == ErrorKind::driver);
        CHECK(says(*error, failure.name));
        CHECK(asks(*error, failure));
        const CheckResult next = run(*job);
        CHECK_MESSAGE(next.ok, next.first_failure);
        check_nothing_held(emulated);
      }
      // The job makes at least one call of every sort, and its calls come to an end.
      CHECK(n > 1);
      CHECK(n < 100);
    }
}

TEST_CASE(
    "a tiered kernel whose baked code cannot be loaded continues with the attached one, and leaks nothing") {
  const Emulated emulated;
  Job job = the_job();
  job.options.specialization = Specialization::tiered;
  job.options.batch = 10;  // not what the store has
  job.problem = make_problem(job.layout, job.options);
  job.inputs = make_inputs(job.problem, 10, Inputs::small_integers, 1);
  {
    emulated.control().fail_call(EMULATOR_FAULT_LOAD, 3,
                                 CUDA_ERROR_OUT_OF_MEMORY);  // the attached one takes two
    const Kernel kernel = compile(job.layout, job.options);
    CHECK_THROWS_AS(kernel.wait(), Error);
    emulated.control().fail_call(EMULATOR_FAULT_LOAD, 0, CUDA_SUCCESS);
    CHECK(kernel.tier() == Tier::attached);
    const CheckResult check_result = run(job);
    CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  }
  check_nothing_held(emulated);
}

TEST_CASE("an allocation that fails says how much was asked for") {
  const Emulated emulated;
  const std::optional<Error> first =
      error_with(emulated, EMULATOR_FAULT_ALLOCATE, 1, CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(first);
  CHECK(says(*first, "bytes on Sparsekiln emulator (sm_80)"));
  CHECK(says(*first, "release device memory"));
}

TEST_CASE("a driver that refuses the cubin gets the PTX, and one that refuses both is quoted on both") {
  const Emulated emulated;
  // The emulator itself refuses every cubin: that the job runs at all is the first half.
  CHECK(run(the_job()).ok);
  const auto binary = build(the_job().layout, the_job().options).binary;
  emulated.control().fail_call(EMULATOR_FAULT_LOAD, 2, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  std::string error;
  try {
    (void)load(binary, the_job().options.target);
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  emulated.control().fail_call(EMULATOR_FAULT_LOAD, 0, CUDA_SUCCESS);
  for (const char* part : {"the cubin of", "CUDA_ERROR_NO_BINARY_FOR_GPU", "and so is the PTX of",
                           "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"})
    CHECK_MESSAGE(error.find(part) != std::string::npos, error);
}

TEST_CASE("code of the store that the driver refuses in every form is compiled again, once, and runs") {
  const Emulated emulated;
  CHECK(run(the_job()).ok);
  emulated.control().fail_call(EMULATOR_FAULT_LOAD, 2, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  const Kernel kernel = compile(the_job().layout, the_job().options);
  emulated.control().fail_call(EMULATOR_FAULT_LOAD, 0, CUDA_SUCCESS);
  CHECK(kernel.from() == From::compiled);
}

TEST_CASE(
    "loading from PTX compiles nothing again: the store's entry serves, whichever form of it is loaded") {
  const Emulated emulated;
  CHECK(run(the_job()).ok);
  const Kernel kernel = compile(the_job().layout, the_job().options);
  CHECK(kernel.from() == From::store);
  CHECK_FALSE(kernel.binary().code.empty());
}

TEST_CASE(
    "a kernel that reads beyond its operands is reported by name, line and thread, and a reset recovers") {
  const Emulated emulated;
  const Job& job = the_job();
  std::optional<Error> error;
  {
    const Kernel kernel = compile(job.layout, job.options);
    const auto device = open_device(job.options.target);
    DeviceMemory x(device, job.inputs.x.size() / 2);
    DeviceMemory w(device, job.inputs.w.size());
    PoisonedOutput output(job.problem, job.inputs.n);
    DeviceMemory y(device, output.image().size());
    x.copy_in(job.inputs.x.data());
    w.copy_in(job.inputs.w.data());
    try {
      kernel({.x = view(x.data(), DType::f32, job.inputs.n, job.problem.in_features()),
              .w = view(w.data(), DType::f32, job.problem.layout.blocks(), 16, 16),
              .y = output.view(y.data())});
      device->synchronize();
    } catch (const Error& thrown) {
      error = thrown;
    }
    // Everything that follows has the same answer, with the same report.
    CHECK_THROWS_AS(device->synchronize(), Error);
    CHECK_THROWS_AS(static_cast<void>(device->allocate(4)), Error);
  }
  REQUIRE(error);
  CAPTURE(error->what());
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(says(*error, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK(says(*error, "sparsekiln_forward"));
  CHECK(says(*error, "thread ("));
  CHECK(says(*error, "line "));
  emulated.control().reset_device(cuda::open_emulated(80)->device().ordinal);
  const CheckResult check_result = run(job);
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
  check_nothing_held(emulated);
}

TEST_CASE("a kernel of a context that was reset is refused, and can be destroyed") {
  const Emulated emulated;
  const Job& job = the_job();
  {
    const Kernel kernel = compile(job.layout, job.options);
    emulated.control().reset_device(cuda::open_emulated(80)->device().ordinal);
    const auto device = open_device(job.options.target);  // a new context
    PoisonedOutput output(job.problem, job.inputs.n);
    DeviceMemory x(device, job.inputs.x.size());
    DeviceMemory w(device, job.inputs.w.size());
    DeviceMemory y(device, output.image().size());
    CHECK_THROWS_AS(kernel({.x = view(x.data(), DType::f32, job.inputs.n, job.problem.in_features()),
                            .w = view(w.data(), DType::f32, job.problem.layout.blocks(), 16, 16),
                            .y = output.view(y.data())}),
                    Error);
  }
  CHECK(run(job).ok);
  check_nothing_held(emulated);
}

TEST_CASE(
    "two emulated devices serve one thread, and other threads, without calls that make contexts current") {
  const Emulated emulated;
  Job other = the_job();
  other.options.target = "emulated:sm_90:132";
  CHECK(run(the_job()).ok);
  CHECK(run(other).ok);
  CHECK(run(the_job()).ok);
  std::array<bool, 2> right{};
  std::thread one([&] { right[0] = run(the_job()).ok; });
  std::thread two([&] { right[1] = run(other).ok; });
  one.join();
  two.join();
  CHECK(right[0]);
  CHECK(right[1]);
  check_nothing_held(emulated);
}
