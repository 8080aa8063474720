#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sparsekiln/compile.h>

#include "oracle/check_result.h"
#include "oracle/draw.h"
#include "runtime/device.h"

namespace sparsekiln {

/// The operands of a test launch on a device, in copies that launches take in turn.
class PlacedOperands {
 public:
  virtual ~PlacedOperands() = default;

  /// Takes the next copy.
  void launch(const Kernel& kernel, void* stream = nullptr);
  /// Fetches what was computed of the first copy and judges it; `image` gets the bytes where it is given.
  [[nodiscard]] virtual CheckResult judge(const Plan& plan, std::vector<std::byte>* image) = 0;
  /// Bytes of one copy.
  [[nodiscard]] virtual std::size_t bytes() const = 0;

 protected:
  [[nodiscard]] virtual Operands& operands(std::size_t copy) = 0;
  [[nodiscard]] virtual std::size_t copies() const = 0;

 private:
  std::size_t next_ = 0;
};

/// The host's side of a launch, whatever the operation: what its operands hold, and what it should compute.
class TestLaunch {
 public:
  virtual ~TestLaunch() = default;
  /// Refers to the test_launch.
  [[nodiscard]] virtual std::unique_ptr<PlacedOperands> place(const Kernel& kernel,
                                                              const std::shared_ptr<const Device>& device,
                                                              int copies = 1) const = 0;
};

/// What there is to choose of a launch in addition to the problem.
struct TestLaunchShape {
  std::int64_t n = 1;
  std::int64_t padding = 0;  ///< elements between the rows of activations; keeps the alignment
  std::int64_t pairs = 1;    ///< of grad_weight
  bool accumulates = true;   ///< with Epilogue::scale: beta is not 0
  /// The extents of images of x of a dynamic convolution; zeros: the largest.
  Convolution::Extents input{0, 0, 0};
};

/// The problem that such a launch solves: of a dynamic convolution, the one with its input. Throws
/// `invalid_argument` for an input that the convolution does not take.
[[nodiscard]] Problem problem_of_launch(const Problem& problem, const TestLaunchShape& launch);

/// A launch of `problem`. The same arguments make the same operands on every machine. Throws
/// `invalid_argument` where integers cannot be exact, and for an input that the convolution does not take.
[[nodiscard]] std::unique_ptr<const TestLaunch> make_test_launch(const Problem& problem,
                                                                 const TestLaunchShape& launch, Inputs kind,
                                                                 std::uint64_t seed);

}  // namespace sparsekiln
