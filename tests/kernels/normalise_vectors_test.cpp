// What a layer normalisation reads and writes that need not be aligned to more than an element.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <sparsekiln/patterns.h>

#include "runtime/resident_spmm.h"
#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// Copies of operands that begin an element after memory that is aligned.
class Misaligned {
 public:
  [[nodiscard]] TensorView copy(TensorView view, const std::vector<std::byte>& bytes) {
    const std::size_t element = size_of(view.dtype);
    std::vector<std::byte> shifted(bytes.size() + element);
    std::memcpy(shifted.data() + element, bytes.data(), bytes.size());
    DeviceMemory& memory = memory_.emplace_back(Suite::current().device(), shifted.size());
    memory.copy_in(shifted.data());
    view.data = static_cast<std::byte*>(memory.data()) + element;
    return view;
  }
  /// The last copy.
  [[nodiscard]] std::vector<std::byte> fetch(DType type) const {
    std::vector<std::byte> bytes(memory_.back().bytes());
    memory_.back().copy_out(bytes.data());
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size_of(type)));
    return bytes;
  }

 private:
  std::deque<DeviceMemory> memory_;
};

std::vector<std::byte> rows_of(const PoisonedOutput& output) {
  const auto bytes = static_cast<std::size_t>(output.n() * output.width()) * size_of(output.dtype());
  return {output.y(), output.y() + bytes};
}

}  // namespace

TEST_CASE("gain, bias and dnorm of a layer normalisation may begin at any element, with the same bits") {
  const Layout layout = patterns::random(8, 3, 0.6, 4);
  for (const Operation operation : {Operation::forward, Operation::grad_input})
    for (const char* const epilogue : {"layer_norm+multiply+add+relu", "layer_norm+lstm"})
      for (const Precision& precision : Suite::current().precisions()) {
        CAPTURE(name(operation));
        CAPTURE(std::string(epilogue));
        CAPTURE(precision.to_string());
        Options options = Suite::current().options({16, 16}, 9, precision);
        options.operation = operation;
        options.epilogue = parse_epilogue(epilogue);
        const Problem problem = make_problem(layout, options);
        const Kernel kernel = compile(layout, options);
        const HostInputs inputs = make_inputs(problem, 9, Inputs::random, 5);
        const bool forward = operation == Operation::forward;

        std::array<std::vector<std::byte>, 2> results;
        std::array<std::vector<std::byte>, 2> dnorms;
        for (const bool misaligned : {false, true}) {
          PoisonedOutput output(problem, inputs.n);
          output.hold(inputs);
          const auto& device = Suite::current().device();
          ResidentSpmm resident(kernel, problem, device, inputs, output);
          Operands operands = resident[0];
          Misaligned moved;
          if (misaligned) {
            operands.gain = moved.copy(operands.gain, inputs.of("gain").bytes);
            operands.bias = moved.copy(operands.bias, inputs.of("bias").bytes);
            if (!forward) operands.dnorm = moved.copy(operands.dnorm, inputs.of("dnorm").bytes);
          }
          kernel(operands);
          device->synchronize();
          resident.fetch(output);
          results[misaligned].assign(output.image().begin(), output.image().end());
          if (!forward)
            dnorms[misaligned] =
                misaligned ? moved.fetch(operands.dnorm.dtype) : rows_of(output.other("dnorm"));
        }
        CHECK((results[0] == results[1]));
        CHECK((dnorms[0] == dnorms[1]));
      }
}
