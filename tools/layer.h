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
#include "tools/command.h"

namespace sparsekiln::tools {

/// The device that a Binary for `target` runs on here, where `asked` is what the command line says.
[[nodiscard]] std::shared_ptr<const Device> device_for(const Target& target, const std::string& asked);

/// The batch of one run: `asked`, which must fit, or the bound.
[[nodiscard]] std::int64_t batch_of(std::optional<std::int64_t> asked, Batch batch);

/// Copies of one operand, each as aligned as the memory of a device is.
class Copies {
 public:
  Copies(std::shared_ptr<const Device> device, std::size_t bytes, int copies);

  [[nodiscard]] void* at(int copy) const {
    return static_cast<std::byte*>(memory_.data()) + stride_ * static_cast<std::size_t>(copy);
  }
  void copy_in(int copy, const void* from) {
    if (bytes_ != 0) device_->copy_in(at(copy), from, bytes_);
  }

 private:
  std::size_t bytes_;
  std::size_t stride_;
  std::shared_ptr<const Device> device_;
  DeviceMemory memory_;
};

/// x, W and y of launches on a device.
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
  Copies x_;
  Copies w_;
  Copies packed_;  ///< w in the kernel's order, where it has one
  Copies y_;
  std::vector<Operands> operands_;
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
