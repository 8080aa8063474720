#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "autotune/oracle.h"
#include "runtime/device.h"
#include "runtime/resident_operands.h"
#include "tools/command.h"

namespace sparsekiln::tools {

/// The device that a Binary for `target` runs on here, where `asked` is what the command line says.
[[nodiscard]] std::shared_ptr<const Device> device_for(const Target& target, const std::string& asked);

/// The batch of one run: `asked`, which must fit, or the bound.
[[nodiscard]] std::int64_t batch_of(std::optional<std::int64_t> asked, Batch batch);

/// Launches of a kernel on a device, which take copies of its operands in turn.
class Layer {
 public:
  Layer(const Kernel& kernel, const Problem& problem, std::shared_ptr<const Device> device,
        const HostInputs& inputs, int copies = 1);

  /// Takes the next copy.
  void launch(const Kernel& kernel, void* stream = nullptr);
  void synchronize() const { device_->synchronize(); }
  /// y of the first copy.
  const PoisonedOutput& fetch();

 private:
  PoisonedOutput output_;
  std::shared_ptr<const Device> device_;
  ResidentOperands operands_;
  std::size_t next_ = 0;
};

/// Both oracles, the sharper one first.
struct Checked {
  Verdict exact;
  Verdict random;
  [[nodiscard]] bool ok() const { return exact.ok && random.ok; }
};

/// Launches once and judges y, of which `image` gets the bytes where it is given.
[[nodiscard]] Verdict judge(const Kernel& kernel, const Problem& problem,
                            const std::shared_ptr<const Device>& device, const HostInputs& inputs,
                            std::vector<std::byte>* image = nullptr);

[[nodiscard]] Json describe(const Verdict& verdict);

/// What `checked` found, into an answer, whose status it decides.
void report_check(const Checked& checked, Answer& answer);

}  // namespace sparsekiln::tools
