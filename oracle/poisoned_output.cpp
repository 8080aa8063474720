#include "oracle/poisoned_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <sparsekiln/error.h>

#include "compiler/element.h"
#include "compiler/operand_table.h"

namespace sparsekiln {
namespace {

/// Fills the image with elements of these bits.
void fill(std::span<std::byte> image, const Element& element) {
  static_assert(std::endian::native == std::endian::little);
  for (std::size_t at = 0; at + element.bytes <= image.size(); at += element.bytes)
    std::memcpy(image.data() + at, &element.unlikely_nan, element.bytes);
}

/// The position of element `at` of the image, with the result's [0, 0] at element `origin`.
std::string place(const std::string& y, std::int64_t at, std::int64_t origin, std::int64_t rows,
                  std::int64_t length, std::int64_t stride) {
  const std::int64_t i = at - origin;
  if (i < 0) return fmt::format("{} elements before {}", -i, y);
  if (i >= rows * stride) return fmt::format("{} elements after {}", i - rows * stride + 1, y);
  if (i % stride < length) return fmt::format("{}[{}, {}]", y, i / stride, i % stride);
  return fmt::format("{} elements after the row {}[{}, :]", i % stride - length + 1, y, i / stride);
}

}  // namespace

PoisonedOutput::PoisonedOutput(const Spmm& problem, std::int64_t n, std::int64_t row_stride)
    : PoisonedOutput(
          problem.result_dtype, problem.feature_major(), problem.y_rows(n), result_features(problem),
          row_stride != 0 ? row_stride
                          : packed_stride(problem, problem.result_dtype, result_row_length(problem, n)),
          "y", problem.y_image()) {
  const OperandContract launch = contract_of(problem);
  // Where sums are normalised, rows are one unit further apart than they must be, those of statistics one
  // element.
  const std::int64_t gap = normalises(launch) ? 1 : 0;
  for (const OperandRow* row : TakenOperands(launch)) {
    if (row->is_main() || row->access(launch) != Access::written) continue;
    const HostActivation like = activation_of(problem, launch, *row, n, gap);
    others_.push_back(PoisonedOutput(like.dtype, problem.feature_major(), like.n, like.features, like.stride,
                                     std::string(row->name), like.image));
  }
}

PoisonedOutput::PoisonedOutput(DType dtype, std::int64_t rows, std::int64_t width, std::string name)
    : PoisonedOutput(dtype, false, rows, width, width, std::move(name)) {}

PoisonedOutput::PoisonedOutput(DType dtype, bool feature_major, std::int64_t n, std::int64_t width,
                               std::int64_t row_stride, std::string name, std::int64_t image_positions)
    : name_(std::move(name)),
      dtype_(dtype),
      feature_major_(feature_major),
      n_(n),
      width_(width),
      row_stride_(row_stride),
      image_positions_(image_positions) {
  if (row_stride_ < row_length())
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} with rows of {} elements was asked for at a stride of {}; it must be {} or more",
                    name_, row_length(), row_stride_, row_length()));
  // The usual stray write is one whole tile too many: room for 128 rows, up to a limit.
  const auto bytes = static_cast<std::int64_t>(size_of(dtype_));
  guard_ = std::clamp<std::int64_t>(128 * row_stride_ * bytes, 4096, 1 << 22) / 256 * 256;
  image_.resize(static_cast<std::size_t>(2 * guard_ + rows() * row_stride_ * bytes));
  fill(image_, element(dtype_));
}

TensorView PoisonedOutput::view(void* memory) const {
  return strided_view(static_cast<std::byte*>(memory) + guard_, dtype_, rows(), row_length(), row_stride_);
}

void PoisonedOutput::set(const HostActivation& contents) {
  if (contents.n != n_ || contents.features != width_ || contents.dtype != dtype_)
    throw Error(ErrorKind::internal, "what y held before was of another shape or type");
  for (std::int64_t row = 0; row < rows(); ++row)
    std::memcpy(y() + static_cast<std::size_t>(row * row_stride_) * size_of(dtype_),
                contents.bytes.data() + static_cast<std::size_t>(row * contents.stride) * size_of(dtype_),
                static_cast<std::size_t>(row_length()) * size_of(dtype_));
}

void PoisonedOutput::hold(const HostInputs& inputs) {
  if (inputs.beta != 0) set(inputs.y);
  const HostActivation& dnorm = inputs.of("dnorm");
  std::erase_if(others_, [](const PoisonedOutput& one) { return one.name() == "dnorm"; });
  if (dnorm.n == 0) return;
  others_.push_back(PoisonedOutput(dnorm.dtype, dnorm.n, dnorm.features, "dnorm"));
  others_.back().set(dnorm);
}

const PoisonedOutput& PoisonedOutput::other(std::string_view name) const {
  for (const PoisonedOutput& one : others_)
    if (one.name() == name) return one;
  throw Error(ErrorKind::internal, fmt::format("there is no image of {}", name));
}

PoisonedOutput::Findings PoisonedOutput::inspect() const {
  Findings findings;
  const auto bytes = static_cast<std::int64_t>(size_of(dtype_));
  const std::int64_t elements = static_cast<std::int64_t>(image_.size()) / bytes;
  const std::int64_t origin = guard_ / bytes;
  const Element& poison = element(dtype_);
  const auto poisoned = [&](std::int64_t at) {
    return std::memcmp(image_.data() + at * bytes, &poison.unlikely_nan, poison.bytes) == 0;
  };
  const auto inspect_range = [&](std::int64_t begin, std::int64_t end, bool must_be_poisoned) {
    for (std::int64_t at = begin; at < end; ++at) {
      if (poisoned(at) == must_be_poisoned) continue;
      ++(must_be_poisoned ? findings.stray : findings.unwritten);
      if (findings.first.empty())
        findings.first = fmt::format("{} was {}", place(name_, at, origin, rows(), row_length(), row_stride_),
                                     must_be_poisoned ? "written" : "not written");
    }
  };
  inspect_range(0, origin, true);
  for (std::int64_t row = 0; row < rows(); ++row) {
    const std::int64_t begin = origin + row * row_stride_;
    inspect_range(begin, begin + row_length(), false);
    inspect_range(begin + row_length(), begin + row_stride_, true);
  }
  inspect_range(origin + rows() * row_stride_, elements, true);
  for (const PoisonedOutput& one : others_) {
    const Findings more = one.inspect();
    findings.unwritten += more.unwritten;
    findings.stray += more.stray;
    if (findings.first.empty()) findings.first = more.first;
  }
  return findings;
}

std::int64_t result_features(const Spmm& problem) {
  if (!problem.normalisation) return problem.y_features();
  const std::int64_t features = problem.normalised_features();
  return problem.operation == Operation::forward ? features : features * problem.groups_of_sums();
}

std::int64_t result_row_length(const Spmm& problem, std::int64_t n) {
  return problem.normalisation ? result_features(problem) : problem.y_row_length(n);
}

}  // namespace sparsekiln
