#include "tests/mutations/trial.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "compiler/spmm.h"
#include "oracle/sddmm_check.h"
#include "oracle/spmm_check.h"
#include "oracle/spmm_inputs.h"
#include "runtime/open_device.h"
#include "runtime/resident_sddmm.h"
#include "runtime/resident_spmm.h"

namespace sparsekiln::test {
namespace {

enum Status : int { kClean = 0, kCaught = 10, kBroken = 11 };

/// Launches that overlap: the second touches nothing of the first but the workspace, and the third writes
/// what the first writes. So it matters that all of them wait, each for the one before it.
template <class Operands>
void launch_overlapping(const Kernel& kernel, Operands& operands) {
  for (const std::size_t copy : {0, 1, 0}) kernel(operands[copy]);
}

/// Launches twice, since what a kernel leaves in its workspace harms the next launch.
std::string judge(const Kernel& kernel, const Problem& problem, const std::shared_ptr<const Device>& device,
                  Inputs kind) {
  const HostInputs inputs = make_inputs(problem, problem.batch.bound(), kind, 1);
  for (int launch = 0; launch < 2; ++launch) {
    PoisonedOutput output(problem, inputs.n);
    output.hold(inputs);
    ResidentSpmm operands(kernel, problem, device, inputs, output, problem.overlap_launches ? 2 : 1);
    if (problem.overlap_launches)
      launch_overlapping(kernel, operands);
    else
      kernel(operands[0]);
    device->synchronize();
    operands.fetch(output);
    const CheckResult check_result = check(problem, inputs, output, adder_of(problem, kernel.binary().plan));
    if (!check_result.ok) return "the oracle: " + check_result.first_failure;
  }
  return {};
}

std::string judge_gradient(const Kernel& kernel, const Problem& problem,
                           const std::shared_ptr<const Device>& device, Inputs kind) {
  const Sddmm gradient(problem);
  const std::int64_t pairs = problem.convolution.present() ? 1 : 2;
  const SddmmInputs inputs = make_inputs(gradient, {.n = problem.batch.bound(), .pairs = pairs}, kind, 1);
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm operands(gradient, device, inputs, outputs, problem.overlap_launches ? 2 : 1);
  if (problem.overlap_launches)
    launch_overlapping(kernel, operands);
  else
    kernel(operands[0]);
  device->synchronize();
  operands.fetch(outputs);
  const CheckResult check_result =
      check(gradient, inputs, outputs, adder_of(gradient.ieee(), kernel.binary().plan));
  return check_result.ok ? "" : "the oracle: " + check_result.first_failure;
}

/// The fault that is found; empty where there is none.
std::string run_once(const Binary& binary, const Problem& problem, const std::string& device_text) {
  const std::shared_ptr<const Device> device = open_device(device_text);
  try {
    const Kernel kernel = load(std::make_shared<const Binary>(binary), device_text);
    const auto judges = problem.operation == Operation::grad_weight ? judge_gradient : judge;
    for (const Inputs kind : {Inputs::small_integers, Inputs::random})
      if (std::string found = judges(kernel, problem, device, kind); !found.empty()) return found;
    return {};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver) throw;
    return error.what();
  }
}

struct Ended {
  int status;
  std::string text;
};

/// Runs `work` in a child and gives its exit status and what it wrote.
template <class Work>
Ended in_child(Work work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    close(ends[0]);
    std::string text;
    const int status = work(text);
    text.resize(std::min<std::size_t>(text.size(), 4000));  // fits into the pipe
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? status : kBroken);
  }
  close(ends[1]);
  Ended ended{kBroken, {}};
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.text.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int how = 0;
  waitpid(child, &how, 0);
  if (WIFEXITED(how)) ended.status = WEXITSTATUS(how);
  if (WIFSIGNALED(how)) ended.text = "ended by signal " + std::to_string(WTERMSIG(how));
  return ended;
}

}  // namespace

TestLaunch try_out(const Binary& binary, const Problem& problem, const std::string& ptx,
                   const std::string& device, std::uint64_t first_seed, int seeds) {
  Binary changed = binary;
  changed.code.clear();
  changed.ptx = ptx;
  for (int i = 0; i < seeds; ++i) {
    const Ended ended = in_child([&](std::string& text) -> int {
      setenv("SPARSEKILN_EMULATOR_SEED", std::to_string(first_seed + static_cast<std::uint64_t>(i)).c_str(),
             1);
      try {
        text = run_once(changed, problem, device);
        return text.empty() ? kClean : kCaught;
      } catch (const std::exception& error) {
        text = error.what();
        return kBroken;
      }
    });
    if (ended.status == kCaught) return {true, ended.text};
    if (ended.status != kClean) throw std::runtime_error("a trial did not run: " + ended.text);
  }
  return {};
}

}  // namespace sparsekiln::test
