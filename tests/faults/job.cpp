#include "tests/faults/job.h"
#include "runtime/open_device.h"

#include <cstdlib>
#include <stdexcept>

#include <sparsekiln/patterns.h>

using namespace sparsekiln;

namespace {

/// A folder that goes with the process.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sparsekiln-faults-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

Emulated::Emulated() {
  // What stays for the life of the process, the context of the device, is opened before anything is counted.
  static_cast<void>(open_device(the_job().options.target));
}

Emulated::~Emulated() {
  for (int kind = 0; kind < EMULATOR_FAULT_KINDS; ++kind) emulator_.fail_call(kind, 0, CUDA_SUCCESS);
}

const char* name_of_fault(int kind) {
  constexpr const char* kNames[] = {"allocate", "load", "launch", "synchronize", "copy"};
  return kNames[kind];
}

const Job& the_job() {
  static const Folder folder;
  static const Job job = [] {
    Job made;
    made.layout = patterns::random(2, 24, 0.7, 5);
    made.options.block = {16, 16};
    made.options.batch = 9;
    made.options.target = "emulated:sm_80:132";
    made.options.cache_dir = folder.path();
    made.problem = make_problem(made.layout, made.options);
    made.inputs = make_inputs(made.problem, 9, Inputs::small_integers, 1);
    return made;
  }();
  return job;
}

const Job& attached_job() {
  static const Job job = [] {
    Job made = the_job();
    made.options.specialization = Specialization::attached;
    return made;
  }();
  return job;
}

CheckResult run(const Job& job) {
  Kernel kernel = compile(job.layout, job.options);
  if (job.options.specialization == Specialization::attached) {
    const Kernel kept = kernel;
    kernel.relayout(patterns::random(job.layout.rows(), job.layout.cols(), 0.4, 6));
    kernel.relayout(job.layout);
  }
  const std::shared_ptr<const Device> device = open_device(job.options.target);
  PoisonedOutput output(job.problem, job.inputs.n);
  DeviceMemory x(device, job.inputs.x.size());
  DeviceMemory w(device, job.inputs.w.size());
  DeviceMemory y(device, output.image().size());
  x.copy_in(job.inputs.x.data());
  w.copy_in(job.inputs.w.data());
  y.copy_in(output.image().data());
  kernel({.x = strided_view(x.data(), job.problem.dtype, job.inputs.n, job.problem.in_features(),
                            job.inputs.x_stride),
          .w = view(w.data(), job.problem.dtype, job.problem.layout.blocks(), job.problem.block.out,
                    job.problem.block.in),
          .y = output.view(y.data())});
  device->synchronize();
  y.copy_out(output.image().data());
  return check(job.problem, job.inputs, output, adder_of(job.problem, kernel.binary().plan));
}
